"""Owns a scripted HTTP upstream: what a provider sends is decided byte by byte, and what reached it is kept raw.

Must not interpret answers: framing, lengths and encodings are the script's. Pauses are gates that the test opens; there
are no timers. Invariant: every request that arrived whole is in ``requests`` before its first answer byte is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType

from tests.support import chat
from tests.support.wire import Framing, Headers, parse_head

BOUND_S = 20.0


class Gate:
    """A place where an answer waits until the test opens it. Opened once, it stays open."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()
        self._reached = threading.Event()

    def open(self) -> None:
        """Let the answer go on."""
        if not self._opened.done():
            self._opened.set_result(None)

    def wait_reached(self, timeout: float = BOUND_S) -> None:
        """Block until an answer stands at the gate (everything before it was written)."""
        assert self._reached.wait(timeout), f"no answer reached the gate within {timeout} s"

    async def _pass(self) -> None:
        self._reached.set()
        await asyncio.shield(asyncio.wrap_future(self._opened))


class Fin:
    """Close the connection in the orderly way."""


class Rst:
    """Reset the connection."""


class Hang:
    """Say nothing more until the peer goes away."""


Step = bytes | Gate | Fin | Rst | Hang
Reply = Sequence[Step]


@dataclass
class Seen:
    """One request as it arrived: raw head, decoded and raw body, and whether the peer left before the answer's end."""

    number: int
    raw_head: bytes
    method: str = ""
    target: str = ""
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""
    raw_body: bytes = b""
    aborted: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)

    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


Script = Callable[[Seen], Reply]


def plain(
    body: bytes,
    status: int = 200,
    *,
    headers: Iterable[tuple[str, str]] = (),
    content_type: str | None = "application/json",
    length: int | None = None,
) -> list[Step]:
    """An answer in one piece; ``length`` lies about its size."""
    fields = [*headers, ("content-length", str(len(body) if length is None else length))]
    if content_type is not None:
        fields.insert(0, ("content-type", content_type))
    return [_head(status, fields), body]


def stream(
    *pieces: Step,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
    content_type: str = "text/event-stream; charset=utf-8",
    finish: bool = True,
    chunked: bool = True,
) -> list[Step]:
    """An answer in pieces, one HTTP chunk each; ``finish=False`` leaves the terminating chunk out.

    ``chunked=False`` sends the pieces bare and ends the body by closing.
    """
    fields = [("content-type", content_type), *headers]
    fields.append(("transfer-encoding", "chunked") if chunked else ("connection", "close"))
    steps: list[Step] = [_head(status, fields)]
    for piece in pieces:
        if isinstance(piece, bytes) and chunked:
            if piece:
                steps.append(b"%x\r\n%s\r\n" % (len(piece), piece))
        else:
            steps.append(piece)
    if finish:
        steps.append(b"0\r\n\r\n" if chunked else Fin())
    return steps


def _head(status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in fields)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def model(seen: Seen) -> Reply:
    """The default script: each request is answered with its own sample, in the shape that it asks for."""
    asked = seen.json() if seen.body else {}
    text = f"sample {seen.number}"
    if asked.get("stream"):
        return stream(*chat.chunks(text, name=f"u{seen.number}"))
    return plain(chat.completion(text, name=f"u{seen.number}"))


class Upstream:
    """A provider on 127.0.0.1, run in a thread of its own. ``script`` may be replaced at any time."""

    def __init__(self, script: Script = model) -> None:
        self.script = script
        self.requests: list[Seen] = []
        self.faults: list[BaseException] = []
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="scripted-upstream", daemon=True)

    def __enter__(self) -> Upstream:
        self._thread.start()
        assert self._ready.wait(BOUND_S), "the scripted upstream did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Base URL, with ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def calls(self) -> int:
        """How many requests arrived whole since the last ``reset``."""
        return len(self.requests)

    def reset(self, script: Script = model) -> None:
        """Forget what was seen and take a new script; answers under way go on."""
        self.script = script
        with self._arrived:
            self.requests = []

    def replies(self, *replies: Reply) -> None:
        """Answer the next requests with these, in order of arrival; after the last one the default script answers."""
        waiting = list(replies)

        def script(seen: Seen) -> Reply:
            return waiting.pop(0) if waiting else model(seen)

        self.script = script

    def wait_calls(self, count: int, timeout: float = BOUND_S) -> list[Seen]:
        """Block until ``count`` requests have arrived whole."""
        with self._arrived:
            there = self._arrived.wait_for(lambda: len(self.requests) >= count, timeout)
            assert there, f"{len(self.requests)} of {count} requests reached the upstream within {timeout} s"
            return list(self.requests)

    def close(self) -> None:
        """End the server and everything that hangs. Raises what went wrong inside, if anything did."""
        if self._thread.is_alive() and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(BOUND_S)
            assert not self._thread.is_alive(), "the scripted upstream did not end"
        if self.faults:
            raise self.faults[0]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=2**20)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connection(reader, writer), name="upstream-connection")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.faults.append(task.exception())  # type: ignore[arg-type]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        try:
            while True:
                seen, ahead = await self._read(reader, writer, ahead)
                if seen is None:
                    return
                going_on, ahead = await self._answer(seen, reader, writer, ahead)
                if not going_on:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            with contextlib.suppress(ConnectionError, OSError):
                writer.close()

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ahead: bytes
    ) -> tuple[Seen | None, bytes]:
        data = ahead
        while b"\r\n\r\n" not in data:
            more = await reader.read(65536)
            if not more:
                return None, b""
            data += more
        raw_head, _, rest = data.partition(b"\r\n\r\n")
        first, headers = parse_head(raw_head)
        method, target, _ = first.split(" ", 2)
        framing = Framing.of(headers, request=True)
        if (headers.get("expect") or "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        framing.feed(rest)
        while not framing.done:
            more = await reader.read(65536)
            if not more:
                return None, b""
            framing.feed(more)
        with self._arrived:
            seen = Seen(
                number=len(self.requests),
                raw_head=raw_head + b"\r\n\r\n",
                method=method,
                target=target,
                headers=headers,
                body=bytes(framing.body),
                raw_body=bytes(framing.raw),
            )
            self.requests.append(seen)
            self._arrived.notify_all()
        return seen, framing.rest

    async def _answer(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ahead: bytes
    ) -> tuple[bool, bytes]:
        """Play one reply; (whether the connection goes on, what was read ahead)."""
        playing = self._loop.create_task(self._play(self.script(seen), writer), name="upstream-reply")
        watching = self._loop.create_task(reader.read(65536), name="upstream-watch")
        try:
            await asyncio.wait({playing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done() and (watching.exception() is not None or not watching.result()):
                seen.aborted.set()
                return False, b""
            going_on = await playing
            seen.answered.set()
            if not going_on:
                return False, b""
            if watching.done():
                return bool(watching.result()), ahead + watching.result()
            return True, ahead
        except ConnectionError:
            seen.aborted.set()
            return False, b""
        finally:
            for task in (playing, watching):
                task.cancel()
            await asyncio.gather(playing, watching, return_exceptions=True)

    async def _play(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        for step in reply:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, Gate):
                await step._pass()
            elif isinstance(step, Hang):
                await asyncio.get_running_loop().create_future()
            else:
                if isinstance(step, Rst):
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.close()
                return False
        return True
