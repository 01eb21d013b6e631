"""Owns who is connected: sockets, the sessions and runs they speak for, the processes behind them.

Must not decide what that means. Invariant: nothing here is truth to be kept; after a restart it is empty and right.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable

from agentstate import clock
from agentstate.engine import processes


class Connection:
    """One accepted socket. ``owner`` resolves to "pid:start" or ""; it is looked up once, if need be in a thread."""

    __slots__ = (
        "_owner",
        "_watchers",
        "client",
        "closed",
        "closed_at",
        "local",
        "opened_at",
        "run",
        "server",
        "sessions",
    )

    def __init__(self, client: tuple[str, int] | None, server: tuple[str, int] | None) -> None:
        self.client = client
        self.server = server
        self.local = _local(client, server)  # the client is on this host, as far as addresses tell
        self.opened_at = clock.now()
        self.closed = False
        self.closed_at = 0.0
        self.sessions: set[str] = set()
        self.run: int | None = None
        self._owner: asyncio.Future[str] | None = None
        self._watchers: set[Callable[[], None]] = set()

    def lost(self) -> None:
        """The socket is closed."""
        self.closed = True
        self.closed_at = clock.now()
        for watcher in list(self._watchers):
            watcher()

    def watch(self, call: Callable[[], None]) -> None:
        self._watchers.add(call)

    def unwatch(self, call: Callable[[], None]) -> None:
        self._watchers.discard(call)

    def speaks_as(self, owner: str) -> None:
        """The process at the other end speaks for another one, which is the agent: "pid:start"."""
        self._owner = asyncio.get_running_loop().create_future()
        self._owner.set_result(owner)

    def owner(self) -> asyncio.Future[str]:
        """The process at the other end, "" when it cannot be known."""
        if self._owner is None:
            loop = asyncio.get_running_loop()
            found: str | None = ""
            if self.local and self.client is not None and self.server is not None:
                found = processes.owner_at_once(self.client, self.server)
                if found is None:
                    self._owner = loop.run_in_executor(None, processes.owner_of, self.client, self.server)
            if found is not None:
                self._owner = loop.create_future()
                self._owner.set_result(found)
        assert self._owner is not None
        return self._owner


def _local(client: tuple[str, int] | None, server: tuple[str, int] | None) -> bool:
    if client is None or server is None:
        return False
    try:
        return client[0] == server[0] or ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


class Presence:
    """All open sockets."""

    def __init__(self) -> None:
        self._all: set[Connection] = set()
        self._by_run: dict[int, set[Connection]] = {}
        self._by_session: dict[str, set[Connection]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def opened(self, connection: Connection) -> None:
        self._all.add(connection)

    def closed(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._drop(self._by_run, connection.run, connection)
        for session in connection.sessions:
            self._drop(self._by_session, session, connection)
        connection.lost()

    @staticmethod
    def _drop(index: dict[object, set[Connection]] | dict[int, set[Connection]] | dict[str, set[Connection]],
              key: object, connection: Connection) -> None:  # fmt: skip
        found = index.get(key)  # type: ignore[call-overload]
        if found is not None:
            found.discard(connection)
            if not found:
                del index[key]  # type: ignore[arg-type]

    def speaks_for(self, connection: Connection, session: str, run: int | None) -> None:
        """The latest request on a socket says whose it is now."""
        if session not in connection.sessions and not connection.closed:
            connection.sessions.add(session)
            self._by_session.setdefault(session, set()).add(connection)
        if run is not None and connection.run != run and not connection.closed:
            self._drop(self._by_run, connection.run, connection)
            connection.run = run
            self._by_run.setdefault(run, set()).add(connection)

    def others_open(self, session: str, connection: Connection) -> bool:
        """Whether another socket of the session is open."""
        return any(other is not connection for other in self._by_session.get(session, ()))

    def open_sessions(self) -> frozenset[str]:
        """The sessions for which an open socket spoke."""
        return frozenset(self._by_session)

    def open_of(self, run: int) -> tuple[Connection, ...]:
        """The open sockets that last spoke for a run."""
        return tuple(self._by_run.get(run, ()))
