"""Owns telling the engine when a socket opens and closes, and whole answers in one piece. Must not parse HTTP itself:
uvicorn's protocol does.

Invariant: each request's scope carries its ``Connection`` under ``agentstate.connection``, and its exchange under
``agentstate.cycle``.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from agentstate.engine.presence import Connection, Presence

Pairs = list[tuple[bytes, bytes]]

_H2C = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*\r\n", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SMALL = 64 * 1024  # what is worth copying to be sent as one piece


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

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            cast(dict[str, Any], self.scope)["agentstate.cycle"] = self.cycle

        def _should_upgrade(self) -> bool:
            return False  # upgrades are answered like other requests: 426 where a client asks for a WebSocket

        def _unsupported_upgrade_warning(self) -> None:
            return None

    return Protocol


async def send_whole(cycle: RequestResponseCycle, status: int, headers: Pairs, body: bytes) -> None:
    """Send an answer whose length is known. It is what two ASGI messages would do, in a third of the time.

    Raises ``RuntimeError``, and sends nothing, if one has begun or a header has characters that would break it.
    """
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected:
        return
    if cycle.response_started:
        raise RuntimeError("an answer has begun already")
    parts = [STATUS_LINE[status]]
    lines = 2
    for name, value in headers:
        parts += (name.lower(), b": ", value, b"\r\n")
        lines += 1
    if status not in (204, 304):
        parts.append(b"content-length: %d\r\n" % len(body))
        lines += 1
    if not cycle.keep_alive:
        parts.append(b"connection: close\r\n")
        lines += 1
    parts.append(b"\r\n")
    head = b"".join(parts)
    if head.count(b"\n") != lines or head.count(b"\r") != lines or _CONTROL.search(head):
        raise RuntimeError("a header of the answer has control characters")
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    if cycle.scope["method"] == "HEAD" or not body or status in (204, 304):
        cycle.transport.write(head)
    elif len(body) <= _SMALL:
        cycle.transport.write(head + body)
    else:
        cycle.transport.writelines([head, body])
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


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
