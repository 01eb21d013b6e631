"""Owns the writer's memory of what it wrote last: ids, step numbers, ticks, nodes and bodies known by hash.

Must not be used outside the writer's thread. Invariant: it never knows more than the transaction at hand; after a
rollback it knows nothing and reads again. It is right because one process alone writes a journal (see ``Lock``).
"""

from __future__ import annotations

import sqlite3

from agentstate.core.budget import Scope, Used
from agentstate.errors import SessionGone
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_MOST = 20_000  # of each kind; about 4 MB in all


class Counters:
    def __init__(self) -> None:
        self._ids: list[int] | None = None
        self._sessions: dict[int, list[int]] = {}
        self.nodes: dict[bytes, int] = {}
        self.bodies: dict[bytes, int] = {}
        self.spent: dict[tuple[Scope, int], Used] = {}  # by session or day, see ``budgets``

    def forget(self) -> None:
        """A transaction was rolled back."""
        self._ids = None
        self._sessions.clear()
        self.nodes.clear()
        self.bodies.clear()
        self.spent.clear()

    def _last(self, conn: sqlite3.Connection) -> list[int]:
        if self._ids is None:
            self._ids = list(conn.execute(_SQL["last_ids"]).fetchone())
        return self._ids

    def step(self, conn: sqlite3.Connection) -> int:
        """The next step's id."""
        last = self._last(conn)
        last[0] += 1
        return last[0]

    def node(self, conn: sqlite3.Connection) -> int:
        """The next node's id."""
        last = self._last(conn)
        last[1] += 1
        return last[1]

    def _session(self, conn: sqlite3.Connection, session: int) -> list[int]:
        known = self._sessions.get(session)
        if known is None:
            if len(self._sessions) >= _MOST:
                self._sessions.clear()
            row = conn.execute(_SQL["counters"], (session,)).fetchone()
            if row is None:
                raise SessionGone("the session was deleted meanwhile; ask again, and a new one begins")
            known = list(row)
            self._sessions[session] = known
        return known

    def number(self, conn: sqlite3.Connection, session: int) -> int:
        """The next step's number in its session."""
        known = self._session(conn, session)
        known[0] += 1
        return known[0] - 1

    def tick(self, conn: sqlite3.Connection, session: int) -> int:
        """The session's next tick."""
        known = self._session(conn, session)
        known[1] += 1
        return known[1]

    def keep(self, table: dict[bytes, int], key: bytes, value: int) -> None:
        if len(table) >= _MOST:
            table.clear()
        table[key] = value

    def gone(self, session: int) -> None:
        """A session was deleted."""
        self._sessions.pop(session, None)
        self.spent.pop((Scope.SESSION, session), None)
