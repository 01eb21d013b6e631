"""Owns what is written about messages on their way out: tried, delivered, put off, dead, revived. A part of
``Journal``; must not send, nor decide what follows from a try.

Invariant: as for ``Journal``; that a try begins is on disk before it, and with it everything that was written before,
so that nobody is told of a fact that a power cut could undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from agentstate import clock
from agentstate.store import changes
from agentstate.store.changes import changed
from agentstate.store.rows import Message
from agentstate.store.sqlite import named

T = TypeVar("T")
_SQL = named("write.sql")


class Outgoing:
    """What ``Journal`` gives its parts. ``posted`` is called after each commit that may have left a message due."""

    def __init__(self) -> None:
        self.posted: Callable[[], None] = lambda: None

    async def _write(
        self,
        name: str,
        work: Callable[[sqlite3.Connection], T],
        durable: bool = True,
        then: Callable[[], None] | None = None,
        size: int = 0,
    ) -> T:
        raise NotImplementedError

    def _forget(self, session: int, told: Sequence[Message] = ()) -> None:
        raise NotImplementedError

    async def try_message(self, key: int) -> int:
        """A message is about to be sent: the number of this try, from 1; 0: it is not to be sent any more."""

        def work(conn: sqlite3.Connection) -> int:
            row = conn.execute(_SQL["try_message"], (key,)).fetchone()
            return int(row[0]) if row is not None else 0

        return await self._write("try_message", work)

    async def deliver_message(self, key: int) -> None:
        """Its target took the message. If this is lost, it is sent once more."""
        values = {"id": key, "now": clock.now()}
        await self._write("deliver_message", partial(_move, values=values, state="delivered"), durable=False)

    async def postpone_message(self, key: int, next_at: float, error: str) -> None:
        """A try failed, and ``error`` says how; the next one is due at ``next_at``."""
        values = {"id": key, "next": next_at, "error": error}
        await self._write("postpone_message", partial(_move, values=values, state="pending"), durable=False)

    async def bury_message(self, key: int, error: str) -> None:
        """A message is not tried any more, and ``error`` says why."""
        values = {"id": key, "now": clock.now(), "error": error}
        await self._write("bury_message", partial(_move, values=values, state="dead"))

    async def revive_message(self, key: int) -> bool:
        """A dead message is due again, with all its tries; false: it is not dead."""
        values = {"id": key, "now": clock.now()}

        def work(conn: sqlite3.Connection) -> bool:
            return _move(conn, values, "revived")

        return await self._write("revive_message", work, then=self.posted)


_MOVES = {
    "delivered": "deliver_message", "pending": "postpone_message", "dead": "bury_message", "revived": "revive_message",
}  # fmt: skip


def _move(conn: sqlite3.Connection, values: Mapping[str, object], state: str) -> bool:
    """A message has become that; false: it is not such that it could."""
    moved = conn.execute(_SQL[_MOVES[state]], values).rowcount == 1
    if moved:
        kind = changes.ALERT_DEAD if state == "dead" else changes.ALERT
        changed(conn, kind, subject=str(values["id"]), state="pending" if state == "revived" else state)
    return moved
