"""Owns telling the engine when a socket opens and closes. Must not parse HTTP itself: uvicorn's protocol does.

Invariant: each request's scope carries its ``Connection`` under ``agentstate.connection``.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agentstate.engine.presence import Connection, Presence

_H2C = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*\r\n", re.IGNORECASE)


def protocol_for(presence: Presence) -> type[asyncio.Protocol]:
    """A protocol class whose sockets are known to ``presence``."""

    class Protocol(HttpToolsProtocol):
        link: Connection

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.link = Connection(_address(self.client), _address(self.server))
            presence.opened(self.link)
            _keep_alive(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            presence.closed(self.link)

        def data_received(self, data: bytes) -> None:
            # An offer of HTTP/2 over cleartext (Java's client makes it with each first request) may be ignored, and
            # must be: the parser would take the body for the other protocol's.
            if b"h2c" in data and (self.cycle is None or self.cycle.response_complete):
                data = _H2C.sub(b"\r\n", data, count=1)
            super().data_received(data)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            cast(dict[str, Any], self.scope)["agentstate.connection"] = self.link

        def _should_upgrade(self) -> bool:
            return False  # upgrades are answered like other requests: 426 where a client asks for a WebSocket

        def _unsupported_upgrade_warning(self) -> None:
            return None

    return Protocol


def _address(value: tuple[str, int | None] | None) -> tuple[str, int] | None:
    return (value[0], value[1]) if value is not None and value[1] is not None else None


def _keep_alive(transport: asyncio.Transport) -> None:
    """Notice a peer whose machine is gone within about a minute: its run is not alive any more."""
    import socket

    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
