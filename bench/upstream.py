"""A scripted provider for measuring: OpenAI-compatible, as little work a request as Python allows.

    python -m bench.upstream            prints {"port": …} when it listens; ends on SIGTERM or when stdin closes

Owns what the upstream answers. Must not keep anything but a count of what it was asked, because every
microsecond here is in every figure. A request steers its own answer by a marker in its text, which passes any
proxy unchanged: ``[bench bytes=2048 wait_ms=0 chunks=200 gap_ms=10 repeat=0]``. Each chunk of a stream holds
``@<CLOCK_MONOTONIC in ns>``, read right before it is written: a reader on the same machine has its one-way lag.

Invariant: every answer is complete and distinct (its own id and its own text).
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from typing import Any

import httptools
import uvloop

from bench.text import corpus

MARKER = re.compile(rb"\[bench ([a-z0-9_= ]*)\]")
STREAM = re.compile(rb'"stream"\s*:\s*true')
USAGE = re.compile(rb'"include_usage"\s*:\s*true')
CREATED = 1_760_000_000
MODEL = "gpt-4o-mini"
TEXT_SIZE = 1 << 20
SENTENCE = b"A careful agent reads what it is told before it acts. "


class Script:
    """What is asked of one answer. Milliseconds and bytes; ``chunks`` counts those that carry text."""

    __slots__ = ("chunks", "gap_s", "repeat", "size", "wait_s")

    def __init__(self, body: bytes) -> None:
        found = MARKER.search(body)
        pairs = (word.partition(b"=") for word in found[1].split()) if found else ()
        knobs = {name: int(value) for name, _, value in pairs}
        self.size = knobs.get(b"bytes", 2048)
        self.wait_s = knobs.get(b"wait_ms", 0) / 1000
        self.chunks = knobs.get(b"chunks", 200)
        self.gap_s = knobs.get(b"gap_ms", 0) / 1000
        self.repeat = bool(knobs.get(b"repeat", 0))


class Provider:
    """The state all connections share: the count, the text the answers are cut from, the parts that never change."""

    def __init__(self) -> None:
        self.requests = 0
        self._text = corpus("answers", TEXT_SIZE).encode()
        self._at = 0
        self.models = plain(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())

    def _cut(self, size: int) -> bytes:
        if self._at + size > len(self._text):
            self._at = (self._at + size) % 1009
        part = self._text[self._at : self._at + size]
        self._at += size
        return part

    def completion(self, number: int, script: Script, asked: int) -> bytes:
        """A whole plain answer, head included; ``asked`` is the request's size in bytes."""
        return plain(
            b'{"id":"chatcmpl-%012d","object":"chat.completion","created":%d,"model":"%b","choices":[{"index":0,'
            b'"message":{"role":"assistant","content":"%b","refusal":null,"annotations":[]},"logprobs":null,'
            b'"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d},'
            b'"service_tier":"default","system_fingerprint":"fp_bench"}'
            % (
                number,
                CREATED,
                MODEL.encode(),
                (SENTENCE * (script.size // len(SENTENCE) + 1))[: script.size]
                if script.repeat
                else self._cut(script.size),
                asked // 4,
                script.size // 4,
                (asked + script.size) // 4,
            )
        )


def plain(body: bytes) -> bytes:
    """``body`` under a 200 head."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


class Stream:
    """One streamed answer: a chunk each turn of the loop, or every ``gap_s`` seconds."""

    def __init__(self, connection: Connection, number: int, script: Script, asked: int, usage: bool) -> None:
        self._to, self._script, self._asked, self._usage = connection, script, asked, usage
        self._loop = asyncio.get_running_loop()
        self._head = (
            b'data: {"id":"chatcmpl-%012d","object":"chat.completion.chunk","created":%d,"model":"%b",'
            b'"service_tier":"default","system_fingerprint":"fp_bench",' % (number, CREATED, MODEL.encode())
        )
        self._sent = 0
        self._start = 0.0
        self._held = False

    def begin(self) -> None:
        self._start = self._loop.time()
        first = self._choice(b'{"role":"assistant","content":"","refusal":null}', b"null")
        self._to.write(_STREAM_HEAD + _framed(first))
        self._loop.call_soon(self.step)

    def step(self) -> None:
        """Writes the next chunk and plans the one after; stands still while the reader is slow."""
        if self._to.closed:
            return
        if self._to.full:
            self._held = True
            return
        if self._sent == self._script.chunks:
            self._end()
            return
        self._to.write(_framed(self._choice(b'{"content":"@%d "}' % time.monotonic_ns(), b"null")))
        self._sent += 1
        if self._script.gap_s:
            self._loop.call_at(self._start + self._sent * self._script.gap_s, self.step)
        else:
            self._loop.call_soon(self.step)

    def go_on(self) -> None:
        """The reader has caught up."""
        if self._held:
            self._held = False
            self.step()

    def _choice(self, delta: bytes, reason: bytes) -> bytes:
        usage = b',"usage":null' if self._usage else b""
        return b'%b"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b}\n\n' % (
            self._head,
            delta,
            reason,
            usage,
        )

    def _end(self) -> None:
        tail = _framed(self._choice(b"{}", b'"stop"'))
        if self._usage:
            made = 6 * self._script.chunks
            tail += _framed(
                b'%b"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\n'
                % (self._head, self._asked // 4, made, self._asked // 4 + made)
            )
        self._to.write(tail + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        self._to.stream = None


class Connection(asyncio.Protocol):
    """One keep-alive connection; answers one request at a time, as the proxies ask."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self._out: Any = None  # uvloop's transports are no asyncio.Transport
        self.closed = self.full = False
        self.stream: Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self.stream is not None:
            self.stream.go_on()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._out.close()

    def write(self, data: bytes) -> None:
        if not self.closed:
            self._out.write(data)

    # httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._url, self._body = url, []

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        if self._parser.get_method() != b"POST":
            count = plain(b'{"requests":%d}' % self._provider.requests)
            self.write(count if self._url == b"/count" else self._provider.models)
            return
        body = b"".join(self._body)
        self._provider.requests += 1
        number, script = self._provider.requests, Script(body)
        if STREAM.search(body):
            self.stream = Stream(self, number, script, len(body), bool(USAGE.search(body)))
            answer = self.stream.begin
        else:
            whole = self._provider.completion(number, script, len(body))

            def answer() -> None:
                self.write(whole)

        if script.wait_s:
            asyncio.get_running_loop().call_later(script.wait_s, answer)
        else:
            answer()


async def serve() -> None:
    """Listens on a free port of 127.0.0.1 until SIGTERM, or until stdin closes (its starter died)."""
    loop = asyncio.get_running_loop()
    provider, stop = Provider(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Connection(provider), "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    if not sys.stdin.isatty():
        loop.add_reader(sys.stdin.fileno(), stop.set)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
