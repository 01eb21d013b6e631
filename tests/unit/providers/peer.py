"""Owns a scripted provider on a raw socket, in the test's own loop: what it sends is decided byte by byte.

Must not know how the client is built that is tested. Invariant: everything inside ``async with Peer(…)`` ends within
``BOUND_S``, and what goes wrong in a script fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from agentstate.providers.client import Headers, Question
from agentstate.providers.http import HttpClient
from agentstate.providers.provider import Provider
from agentstate.settings import UpstreamSettings

BOUND_S = 20.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Talk:
    """One connection as the provider sees it."""

    def __init__(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peer = peer
        self.reader = reader
        self.writer = writer

    async def question(self) -> bytes:
        """The next whole question, raw; also kept in ``peer.questions``."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(b": ") for line in head.split(b"\r\n"))}
        body = await self.reader.readexactly(int(fields.get(b"content-length", b"0")))
        self._peer.questions.append(head + body)
        return head + body

    async def send(self, *pieces: bytes) -> None:
        """Write the pieces, in as many turns of the loop."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def gone(self) -> bytes:
        """Wait until the client has closed or reset the connection; what it still sent."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read(-1)
        return b""

    def reset(self) -> None:
        """Close it with a reset."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


Script = Callable[[Talk], Awaitable[None]]


def answers(*pieces: bytes, times: int = 1, close: bool = True) -> Script:
    """A script that answers each of ``times`` questions of a connection with the pieces, and then ends it."""

    async def script(talk: Talk) -> None:
        for _ in range(times):
            await talk.question()
            await talk.send(*pieces)
        if not close:
            await talk.gone()

    return script


async def steady(talk: Talk) -> None:
    """Answers whatever is asked, for as long as the client stays."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            await talk.question()
            await talk.send(OK)


class Peer:
    """A provider on 127.0.0.1 whose connections follow the given scripts in turn, the last one for all further ones."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._scripts = scripts
        self._tls = tls
        self._host = host
        self._tasks: list[asyncio.Task[None]] = []
        self._faults: list[BaseException] = []
        self._bound = asyncio.timeout(BOUND_S)
        self.questions: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> Peer:
        await self._bound.__aenter__()
        self._server = await asyncio.start_server(self._accepted, self._host, 0, ssl=self._tls, limit=2**26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._bound.__aexit__(kind, error, trace)
        if self._faults and error is None:
            raise self._faults[0]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        try:
            await script(Talk(self, reader, writer))
        except Exception as fault:  # noqa: BLE001 - raised again when the peer ends
            self._faults.append(fault)
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    def provider(self, *, scheme: str = "http", user: str = "", host: str = "") -> Provider:
        """This peer as a provider of the settings."""
        shown = host or (f"[{self._host}]" if ":" in self._host else self._host)
        return Provider("scripted", f"{scheme}://{user}{shown}:{self.port}", "/v1", ("openai",))


def question(
    body: bytes = b"{}", *, method: str = "POST", path: str = "/v1/x", query: str = "", headers: Headers | None = None,
    raw: bool = True,
) -> Question:  # fmt: skip
    """A question with nothing special."""
    return Question(method, path, query, headers or [], body, raw)


@contextlib.asynccontextmanager
async def client_of(**settings: float) -> AsyncIterator[HttpClient]:
    """A client that is closed at the end. Settings as in ``[upstream]``."""
    client = HttpClient(UpstreamSettings(**settings))  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()


async def ask(client: HttpClient, peer: Peer, **more: object) -> tuple[int, Headers, bytes]:
    """One question and its whole answer."""
    async with client.attempt(peer.provider(), question(**more)) as reply:  # type: ignore[arg-type]
        return reply.status, reply.headers, b"".join([chunk async for chunk in reply.chunks])
