"""Owns what is written about attempts that follow failed ones and about breakers. A part of ``Journal``; must not
decide what follows a failure.

Invariant: as for ``Journal``; a step whose failed attempt is followed by another one stays in flight, and an attempt is
written down before a byte of it is sent.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from agentstate import clock
from agentstate.core.budget import Decision, Ruling
from agentstate.errors import StepTaken
from agentstate.store import bodies, changes, reserving
from agentstate.store.changes import changed
from agentstate.store.counters import Counters
from agentstate.store.decisions import tell
from agentstate.store.detours import BreakerRow, Detour, Failed
from agentstate.store.outgoing import Outgoing
from agentstate.store.rows import Begun, Message, NewStep, Plan
from agentstate.store.sqlite import named

_SQL = named("write.sql")


class Detouring(Outgoing):
    """What ``Journal`` gives its parts."""

    _counters: Counters

    async def end_attempt(self, failed: Failed) -> None:
        """An attempt failed, and another one follows; the step stays in flight. Raises ``StepTaken``."""
        await self._write(
            "end_attempt",
            lambda conn: _end_attempt(conn, self._counters, failed),
            durable=False,
            size=len(failed.body),
        )

    async def next_attempt(
        self, step: int, attempt: int, new: NewStep, detour: Detour, plan: Plan | None = None
    ) -> Begun | Ruling:
        """A step in flight, whose last ``attempt`` has ended, is about to be sent once more; ``plan``: within the
        budgets, else it is told what stands in its way, and nothing is written. Committed when this returns. Raises
        ``StepTaken``."""
        return await self._write(
            "next_attempt",
            lambda conn: _next_attempt(conn, self._counters, step, attempt, new, detour, plan),
            durable=False,
        )

    async def set_breaker(self, row: BreakerRow, told: Sequence[Message] = ()) -> None:
        """A breaker opened or closed, and people are ``told``. On disk when this returns."""
        then = self.posted if told else None
        await self._write("set_breaker", lambda conn: _set_breaker(conn, row, told), then=then)


def _end_attempt(conn: sqlite3.Connection, counters: Counters, failed: Failed) -> None:
    codec, head = bodies.packed(failed.head)
    values = {
        "step": failed.step, "n": failed.attempt, "status": failed.status, "head": bytes([codec]) + head,
        "body": bodies.put_body(conn, counters, failed.body) if failed.body else None, "error": failed.error,
        "now": clock.now(), "model": failed.model, "usage": failed.usage, "cost": failed.cost, "prices": failed.prices,
    }  # fmt: skip
    if conn.execute(_SQL["end_attempt"], values).fetchone() is None:
        raise StepTaken("the step is not in flight any more; ask again")
    if failed.usage:
        counters.spent.clear()  # it counts, and is read again when it is needed


def _next_attempt(
    conn: sqlite3.Connection, counters: Counters, step: int, attempt: int, new: NewStep, detour: Detour,
    plan: Plan | None,
) -> Begun | Ruling:  # fmt: skip
    ruling = reserving.carry(conn, counters, step, attempt + 1, new.session, plan)
    if ruling.decision is not Decision.ALLOW:
        return ruling
    row = conn.execute(_SQL["next_attempt"], {"step": step, "n": attempt}).fetchone()
    if row is None:
        raise StepTaken("the step is not in flight any more; ask again")
    n, number = row
    sent = {"step": step, "n": n, "run": new.run, "provider": new.provider, "now": clock.now()}
    conn.execute(_SQL["add_attempt"], sent)
    values = {"step": step, "n": n, "why": detour.why, "candidate": detour.candidate, "lost": json.dumps(detour.lost)}
    conn.execute(_SQL["add_detour"], values)
    changed(conn, changes.STEP_CHANGED, new.session, step, new.run)
    return Begun(step, number, n)


def _set_breaker(conn: sqlite3.Connection, row: BreakerRow, told: Sequence[Message]) -> None:
    conn.execute(_SQL["set_breaker"], row._asdict() | {"state": row.state.value})
    changed(conn, changes.BREAKER, subject=f"{row.provider}/{row.model}", state=row.state.value)
    tell(conn, told, clock.now())


def set_lost(conn: sqlite3.Connection, step: int, attempt: int, lost: Sequence[str]) -> None:
    """What was lost in the translation of the answer, beside what was lost in that of the question."""
    conn.execute(_SQL["set_lost"], {"step": step, "n": attempt, "lost": json.dumps(lost)})
