"""Who is connected: a socket speaks for the session and run of its latest request, and for nobody once it is closed."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from agentstate.engine import processes
from agentstate.engine.presence import Connection, Presence

SERVER = ("127.0.0.1", 8080)


def _opened(presence: Presence, client: tuple[str, int] | None = None) -> Connection:
    connection = Connection(client, SERVER)
    presence.opened(connection)
    return connection


def test_a_socket_speaks_for_its_latest_run() -> None:
    presence = Presence()
    connection = _opened(presence)
    presence.speaks_for(connection, "s", 1)
    presence.speaks_for(connection, "s", 2)
    presence.speaks_for(connection, "t", None)
    assert (presence.open_of(1), presence.open_of(2)) == ((), (connection,))
    assert connection.sessions == {"s", "t"}


def test_other_sockets_of_a_session_are_seen_while_they_are_open() -> None:
    presence = Presence()
    mine, other = _opened(presence), _opened(presence)
    presence.speaks_for(mine, "s", 1)
    assert not presence.others_open("s", mine)
    presence.speaks_for(other, "s", 2)
    assert presence.others_open("s", mine)
    assert not presence.others_open("t", mine)
    presence.closed(other)
    assert not presence.others_open("s", mine)
    assert presence.open_of(2) == ()
    assert len(presence) == 1


def test_a_closed_socket_speaks_for_nobody_any_more() -> None:
    presence = Presence()
    connection = _opened(presence)
    presence.closed(connection)
    presence.speaks_for(connection, "s", 1)
    assert presence.open_of(1) == ()
    assert not presence.others_open("s", _opened(presence))
    assert connection.closed_at >= connection.opened_at


def test_watchers_are_told_of_the_end_unless_they_went() -> None:
    presence, told = Presence(), []
    connection = _opened(presence)

    def goes() -> None:
        told.append("goes")

    connection.watch(goes)
    connection.watch(lambda: told.append("stays"))
    connection.unwatch(goes)
    presence.closed(connection)
    assert told == ["stays"]


@pytest.mark.parametrize(
    ("client", "server", "local"),
    [
        (("127.0.0.1", 1), SERVER, True),
        (("::1", 1), ("::1", 2), True),
        (("10.0.0.5", 1), ("10.0.0.5", 2), True),
        (("10.0.0.5", 1), ("10.0.0.6", 2), False),
        (("no address", 1), SERVER, False),
        (None, SERVER, False),
        (("127.0.0.1", 1), None, False),
    ],
)
def test_a_client_is_local_as_far_as_addresses_tell(
    client: tuple[str, int] | None, server: tuple[str, int] | None, local: bool
) -> None:
    assert Connection(client, server).local is local


async def test_the_owner_is_looked_up_once_and_known_afterwards() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = listener.getsockname()[:2]
    with listener, socket.create_connection(server, timeout=10) as client:
        connection = Connection(client.getsockname()[:2], server)
        first = connection.owner()
        async with asyncio.timeout(30):
            assert await first == processes.identity(os.getpid())
        assert connection.owner() is first


async def test_a_client_elsewhere_has_no_known_owner() -> None:
    connection = Connection(("10.0.0.5", 1), SERVER)
    assert await connection.owner() == ""
