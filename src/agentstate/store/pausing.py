"""Owns what is written when people pause a session, let it go on, or set its status. A part of ``Journal``; must not
decide who may.

Invariant: as for ``Journal``; a change of status by a person, its entry in the audit log and the messages about it are
one transaction, which sees the status that the session has by then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agentstate import clock
from agentstate.core import pausing
from agentstate.core.model import SessionStatus
from agentstate.errors import Conflict
from agentstate.store import changes, decisions
from agentstate.store.changes import changed
from agentstate.store.outgoing import Outgoing
from agentstate.store.rows import Message, SessionRow
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_OVER = (SessionStatus.COMPLETED.value, SessionStatus.FAILED.value)


class Pausing(Outgoing):
    """What ``Journal`` gives its parts."""

    async def pause_session(
        self, session: SessionRow, note: str, actor: str, reason: str, told: Sequence[Message]
    ) -> None:
        """A person pauses a session; one that is paused already has another reason then. Raises ``Conflict`` for one
        that is over."""

        def work(conn: sqlite3.Connection) -> None:
            status = _status(conn, session.id)
            if status in _OVER:
                raise Conflict(f"session {session.key} is {status}; there is nothing to pause")
            _set(conn, session.id, SessionStatus.PAUSED, note)
            decisions.audit(conn, actor, "session.paused", session.key, {"reason": reason})
            if status != SessionStatus.PAUSED:
                decisions.tell(conn, told, clock.now())

        await self._write("pause_session", work, then=lambda: self._forget(session.id, told))

    async def resume_session(self, session: SessionRow, actor: str, told: Sequence[Message]) -> None:
        """A person lets a paused session go on; nothing where it runs. Raises ``Conflict`` for one that is over."""

        def work(conn: sqlite3.Connection) -> None:
            status = _status(conn, session.id)
            if status in _OVER:
                raise Conflict(
                    f"session {session.key} is {status}, not paused; its next run makes it RUNNING by itself"
                )
            if status == SessionStatus.PAUSED:
                _set(conn, session.id, SessionStatus.RUNNING, "")
                decisions.audit(conn, actor, "session.resumed", session.key, {})
                decisions.tell(conn, told, clock.now())

        await self._write("resume_session", work, then=lambda: self._forget(session.id, told))

    async def set_status_by(
        self, session: SessionRow, status: SessionStatus, actor: str, told: Sequence[Message]
    ) -> None:
        """The status of a session as a person sets it; where that pauses it or ends a pause, the audit log says who
        did."""

        def work(conn: sqlite3.Connection) -> None:
            was = _status(conn, session.id)
            decisions.set_status(conn, session.id, status, "", told)
            if status != was and SessionStatus.PAUSED in (status, was):
                action = "session.paused" if status is SessionStatus.PAUSED else "session.resumed"
                decisions.audit(conn, actor, action, session.key, {"status": status.value})

        await self._write("set_status", work, then=lambda: self._forget(session.id, told))


def go_on(conn: sqlite3.Connection, session: int, now: float) -> None:
    """What was done to a session lets it run, unless a person has paused it: then only a person lets it go on."""
    status, note = conn.execute(_SQL["status_of"], (session,)).fetchone()
    if status == SessionStatus.PAUSED and pausing.read(note).by:
        conn.execute(_SQL["touch_session"], {"session": session, "now": now})
        changed(conn, changes.SESSION, session, state=status)
    else:
        _set(conn, session, SessionStatus.RUNNING, "")


def _status(conn: sqlite3.Connection, session: int) -> str:
    return str(conn.execute(_SQL["status_of"], (session,)).fetchone()[0])


def _set(conn: sqlite3.Connection, session: int, status: SessionStatus, note: str) -> None:
    values = {"session": session, "status": status.value, "note": note, "now": clock.now()}
    conn.execute(_SQL["set_status"], values)
    changed(conn, changes.SESSION, session, state=status.value)
