"""Owns one connection to a provider, and the one question and answer at a time that it carries (HTTP/1.1).

Must not know providers, pools or the journal; must not retry. Invariants: nothing is written twice; a connection is
free for another question only if the answer before was read to its end and nothing else has arrived since; what is
handed on are the provider's bytes in the pieces in which the socket gave them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import cast

import httptools

from agentstate.errors import UpstreamFault

KEEP_S = 55.0  # how long a connection that nobody uses is kept: many providers close theirs after a minute
MOST_HEAD = 64 * 1024  # bytes of an answer's head; as many may come in trailers and chunk extensions without body
MOST_UNREAD = 1024 * 1024  # bytes of a body that wait for their reader before the socket is paused
_JOINED = 64 * 1024  # a body up to this size is copied behind its head, which costs less than a second buffer
_SLACK_S = 0.001  # loops round their timers to milliseconds
_PENDING = select.POLLIN | select.POLLHUP | select.POLLERR


class Loss(Enum):
    """Why an answer did not come, or not to its end."""

    CUT = "the connection ended"
    SILENT = "nothing came for too long"
    UNREADABLE = "what came is not HTTP"
    STATUS = "the status is none of an answer"


# (why, what the parser or the status says of it, whether the head had come whole) → what the reader is told.
Explain = Callable[[Loss, str, bool], UpstreamFault]


class _Refusal(Exception):
    """Stops the parser from within, with a ``Loss`` and a reason; never leaves this module."""


class Exchange:
    """One question's answer as it arrives, and the iterator over its body.

    ``status`` is 0 until the head is whole; ``fields`` are the head's, in wire order. ``bodiless``: an answer that has
    no body whatever its fields say; ``encoded``: one with a content-encoding. Iterating raises what ``explain`` makes
    of a loss, after all that came before it.
    """

    __slots__ = (
        "_explain", "_waiter", "bodiless", "encoded", "ended", "fault", "fields", "parts", "status", "unread", "wire",
    )  # fmt: skip

    def __init__(self, explain: Explain, *, bodiless: bool) -> None:
        self._explain = explain
        self._waiter: asyncio.Future[None] | None = None
        self.bodiless = bodiless
        self.encoded = False
        self.status = 0
        self.fields: list[tuple[str, str]] = []
        self.parts: list[bytes] = []
        self.unread = 0
        self.ended = False
        self.fault: UpstreamFault | None = None
        self.wire: Wire | None = None

    async def begun(self) -> None:
        """Wait for the whole head. Raises ``UpstreamFault``."""
        while not self.status:
            if self.fault is not None:
                raise self.fault
            await self._more()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            parts = self.parts
            if parts:
                data = parts[0] if len(parts) == 1 else b"".join(parts)
                parts.clear()
                self.unread = 0
                if self.wire is not None:
                    self.wire.read_on()
                return data
            if self.fault is not None:
                raise self.fault
            if self.ended:
                raise StopAsyncIteration
            await self._more()

    async def _more(self) -> None:
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Let the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def lose(self, loss: Loss, reason: str) -> None:
        """End it as failed."""
        self.fault = self._explain(loss, reason, self.status != 0)
        self.wake()

    def close(self) -> None:
        """Nobody reads on: an answer under way is broken off together with its connection."""
        if self.wire is not None:
            self.wire.abort()


class Wire(asyncio.Protocol):
    """One connection. ``on_free(wire, reusable)`` is called once for each question, when its answer needs the
    connection no longer; ``on_lost(wire)`` once, when the connection is gone."""

    __slots__ = (
        "_ahead", "_bare", "_due", "_ended", "_exchange", "_fed", "_framed", "_fresh", "_idle_s", "_keep", "_limit",
        "_loop", "_lost", "_on_free", "_on_lost", "_parser", "_paused", "_poll", "_since", "_timer", "_transport",
        "_unsent", "key",
    )  # fmt: skip

    def __init__(self, key: str, on_free: Callable[[Wire, bool], None], on_lost: Callable[[Wire], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.key = key
        self._on_free, self._on_lost = on_free, on_lost
        self._transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._exchange: Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._fresh = True  # not asked yet
        self._ahead = b""  # what a provider said before it was asked for the first time
        self._ended = self._keep = self._framed = self._paused = self._lost = False
        self._fed = self._bare = self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._since = self._due = self._limit = self._idle_s = 0.0

    # --- asking ---

    def ready(self) -> bool:
        """Whether the connection may carry a question: still open, and with nothing to be read, not even an end."""
        transport = self._transport
        if self._lost or transport is None or transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(transport.get_extra_info("socket").fileno(), _PENDING)
        return not self._poll.poll(0)

    def ask(self, exchange: Exchange, head: bytes, body: bytes, first_byte_s: float, idle_s: float) -> None:
        """Write the question, at once. The limits are in seconds: until something comes, and between what comes."""
        self._exchange, exchange.wire = exchange, self
        parser = self._parser = httptools.HttpResponseParser(self)
        parser.set_dangerous_leniencies(
            lenient_keep_alive=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._ended = self._keep = self._framed = False
        self._fed = self._bare = self._unsent = 0
        self._since, self._idle_s = self._loop.time(), idle_s
        self._watch(first_byte_s)
        transport = self._transport
        gone = self._lost or transport is None or transport.is_closing()
        if transport is not None and not gone:
            if len(body) <= _JOINED:
                transport.write(head + body)
            else:
                transport.writelines((head, body))
                self._unsent = len(head) + len(body)
        self._fresh = False
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            self.data_received(ahead)
        if gone and self._exchange is not None:
            self._fail(Loss.CUT, "")

    def read_on(self) -> None:
        """Take more from the socket, if it was paused."""
        if self._paused:
            self._paused = False
            self._since = self._loop.time()
            if self._transport is not None and not self._lost:
                self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once. Whoever still reads is told that the connection ended."""
        if self._exchange is not None:
            self._fail(Loss.CUT, "")
        elif self._transport is not None:
            self._transport.abort()

    # --- time ---

    def _watch(self, limit: float) -> None:
        """Bound the silence from the last sign of life on. The timer is set anew only if it would come too late, so
        that a busy connection has one timer in ``KEEP_S`` and none for a call or a chunk."""
        self._limit = limit
        if self._timer is None or self._since + limit < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due = self._since + min(limit, KEEP_S)
            self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._lost or self._transport is None:
            return
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size() if self._unsent else 0
        # The silence is ours while the reader is behind; and a provider that takes in a large body is not silent.
        if self._paused or unsent < self._unsent:
            self._since = now
        self._unsent = unsent
        left = self._since + self._limit - now
        if left > _SLACK_S:
            self._due = now + min(left, KEEP_S)
            self._timer = self._loop.call_at(self._due, self._look)
        elif self._exchange is not None:
            self._fail(Loss.SILENT, "")
        else:
            self._transport.abort()

    # --- what the transport says ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._since = self._loop.time()
        self._watch(KEEP_S)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or self._parser is None:
            self._unasked(data)
            return
        self._since = self._loop.time()
        before = exchange.unread
        if not exchange.status:
            self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep = False
            if not self._ended:
                cause = error.__context__
                self._fail(*(cause.args if isinstance(cause, _Refusal) else (Loss.UNREADABLE, str(cause or error))))
                return
        if self._ended:
            self._detach(self._keep)
            return
        if not exchange.status:
            if self._fed > MOST_HEAD:
                self._fail(Loss.UNREADABLE, f"a head of more than {MOST_HEAD} bytes")
            return
        if exchange.unread == before:
            self._bare += len(data)
            if self._bare > 2 * MOST_HEAD:
                self._fail(Loss.UNREADABLE, f"more than {MOST_HEAD} bytes of chunk extensions or trailers")
        else:
            self._bare = 0
            if exchange.unread > MOST_UNREAD and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        exchange.wake()

    def _unasked(self, data: bytes) -> None:
        """Before its first question a provider may say that it will not answer any; else nobody waits for these bytes,
        and they must not be taken for the next answer."""
        if self._fresh and len(self._ahead) + len(data) <= MOST_HEAD:
            self._ahead += data
        elif self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        if self._exchange is not None:
            self._over()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
        if exc is not None and self._unsent:
            self._read_rest()
        if self._exchange is not None:
            self._over() if exc is None else self._fail(Loss.CUT, "")
        self._parser = None
        self._on_lost(self)

    def _read_rest(self) -> None:
        """A provider that refuses a large body answers, and resets what it will not read. If the loop stumbles over the
        reset while it writes, it drops the connection with the answer still in the socket."""
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return
        with (
            contextlib.suppress(OSError),  # nothing more to be read, or the socket is gone: then the answer is cut
            socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as rest,
        ):
            rest.setblocking(False)
            while self._exchange is not None and (data := rest.recv(MOST_HEAD)):
                self.data_received(data)

    def _over(self) -> None:
        """The connection ended in the orderly way, which is the end of a body that has no other."""
        exchange = self._exchange
        if exchange is not None and exchange.status and not self._framed:
            self._detach(False)
        else:
            self._fail(Loss.CUT, "")

    # --- what the parser says ---

    def on_message_begin(self) -> None:
        if self._ended:
            raise _Refusal(Loss.UNREADABLE, "more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        exchange = self._exchange
        if exchange is None or exchange.status:
            return  # a trailer
        low = name.lower()
        if low == b"content-length":
            self._framed = True
        elif low == b"transfer-encoding":
            if value.strip().lower() != b"chunked":
                raise _Refusal(Loss.UNREADABLE, "a transfer-encoding other than chunked")
            self._framed = True
        elif low == b"content-encoding":
            exchange.encoded = True
        exchange.fields.append((name.decode("latin-1"), value.decode("latin-1").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        exchange, parser = self._exchange, self._parser
        assert exchange is not None and parser is not None
        status = parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            exchange.fields.clear()
            self._framed = False
            return
        if not 200 <= status <= 599:
            raise _Refusal(Loss.STATUS, str(status))
        # What was fed may hold some of the body too; only then does counting again cost anything.
        if self._fed > MOST_HEAD and sum(len(name) + len(value) + 4 for name, value in exchange.fields) > MOST_HEAD:
            raise _Refusal(Loss.UNREADABLE, f"a head of more than {MOST_HEAD} bytes")
        exchange.status = status
        self._watch(self._idle_s)
        if exchange.bodiless:  # the parser does not know what was asked, and would wait for a body
            self._ended = True
            self._keep = parser.should_keep_alive()
        elif status in (204, 304):
            exchange.bodiless = True

    def on_body(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or self._ended or not exchange.status:
            raise _Refusal(Loss.UNREADABLE, "a body where none may be")
        exchange.parts.append(data)
        exchange.unread += len(data)

    def on_message_complete(self) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is not None and parser is not None and exchange.status and not self._ended:
            self._ended = True
            self._keep = parser.should_keep_alive()

    # --- the end of an answer ---

    def _fail(self, loss: Loss, reason: str) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.lose(loss, reason)
            self._detach(False)

    def _detach(self, keep: bool) -> None:
        """Nothing more of this answer will come."""
        exchange, transport = self._exchange, self._transport
        if exchange is None:
            return
        self._exchange = exchange.wire = None
        exchange.ended = True
        # A provider that answered before it had read the whole question would take its rest for the next one.
        reusable = False
        if transport is not None and not self._lost:
            reusable = keep and not transport.is_closing() and not transport.get_write_buffer_size()
            if reusable:
                self.read_on()
                self._watch(KEEP_S)
            else:
                transport.abort()
        exchange.wake()
        self._on_free(self, reusable)
