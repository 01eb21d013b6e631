"""Owns what people say of sessions and steps: ratings, and labels of steps. A part of ``Journal``; must not decide what
they mean.

Invariant: as for ``Journal``; what somebody said of a session or step stands there once, and every change of it in the
audit log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agentstate import clock
from agentstate.store import changes, decisions
from agentstate.store.changes import changed
from agentstate.store.outgoing import Outgoing
from agentstate.store.rows import SessionRow
from agentstate.store.sqlite import named

_SQL = named("write.sql")


class Rating(Outgoing):
    """What ``Journal`` gives its parts."""

    async def rate(self, session: SessionRow, step: int, number: int, verdict: str, note: str, actor: str) -> None:
        """What a person thinks of a step (its id and number), or of the session where the id is 0. ``verdict``:
        ``good``, ``bad``, or empty: what was said is taken back."""

        def work(conn: sqlite3.Connection) -> None:
            values = {"session": session.id, "step": step}
            if verdict:
                more = {"verdict": verdict, "note": note, "by": actor, "now": clock.now()}
                conn.execute(_SQL["rate"], values | more)
            else:
                conn.execute(_SQL["unrate"], values)
            detail = {"rating": verdict or "none", "note": note} | ({"step": number} if step else {})
            kind = changes.RATED if step else changes.SESSION
            changed(conn, kind, session.id, step, state="rated" if kind is changes.SESSION else verdict)
            decisions.audit(conn, actor, "step.rated" if step else "session.rated", session.key, detail)

        await self._write("rate", work)

    async def label_step(
        self, session: SessionRow, step: int, number: int, add: Sequence[str], drop: Sequence[str], actor: str
    ) -> None:
        """Labels of a step that come and go."""

        def work(conn: sqlite3.Connection) -> None:
            now = clock.now()
            conn.executemany(_SQL["drop_step_label"], [{"step": step, "name": name} for name in drop])
            conn.executemany(
                _SQL["add_step_label"], [{"step": step, "name": name, "by": actor, "now": now} for name in add]
            )
            detail = {"step": number, "added": list(add), "removed": list(drop)}
            changed(conn, changes.STEP_CHANGED, session.id, step, state="labelled")
            decisions.audit(conn, actor, "step.labelled", session.key, detail)

        await self._write("label_step", work)
