"""Closed-loop load: workers that each wait for their answer before they ask again.

    python -m bench.load < spec.json > result.json

Owns the asking side of a measurement. Must not judge: it returns raw samples. Each worker is one agent with one
connection; it has a session, asks steps 0, 1, 2 …, and starts a new session after ``session_steps``. The same
session and step give the same bytes, so that a second process can play the first one's agents come back.
Invariant: only a whole answer is a sample (status 200, its end seen, every chunk there); all else is an error.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools
import uvloop

from bench.procs import usage
from bench.text import Slices

MESSAGE = 1500  # bytes of one message of a long history
STAMP_MARK = b'"@'
GIVE_UP_AFTER = 3  # errors in a row
STALL_S = 60.0


@dataclass
class Spec:
    """One volley. ``path`` and ``headers`` may hold {session}, {run} and {step}."""

    port: int
    mode: str = "json"  # json | sse | growing
    path: str = "/v1"
    headers: dict[str, str] = field(default_factory=dict)
    name: str = "bench"  # first part of every session's id
    run: str = "a"
    concurrency: int = 1
    body_bytes: int = 1000
    chunks: int = 200
    gap_ms: int = 0
    wait_ms: int = 0
    repeat: bool = False  # answers that say one sentence over and over
    seconds: float = 0.0  # no request starts later, but for ``least``
    least: int = 0  # requests a worker makes whatever the time
    most: int = 1_000_000  # requests a worker makes at most
    session_steps: int = 300
    replay: list[int] | None = None  # requests of each worker to make again; overrides seconds, least and most
    watch: int = 0  # process whose CPU and memory are read


@dataclass
class Tally:
    """Samples of all workers, milliseconds; ``made`` holds the requests of each worker."""

    whole: list[float] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    errors: int = 0
    last_error: str = ""
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    rss: int = 0


class Agent:
    """Writes one worker's requests, the history first, the part that makes each step unique last."""

    def __init__(self, spec: Spec, session: str) -> None:
        self._spec, self._session = spec, session
        self._text = Slices(session, 1 << 20 if spec.mode == "growing" else 1 << 18)
        knobs = f"chunks={spec.chunks} gap_ms={spec.gap_ms} wait_ms={spec.wait_ms}" + (
            " repeat=1" if spec.repeat else ""
        )
        system = f"[bench {knobs}] You are a careful agent that works on {session}."
        top: dict[str, Any] = {"model": "gpt-4o-mini"}
        if spec.mode == "sse":
            top["stream"] = True
        long = max(0, spec.body_bytes - 1000) // MESSAGE if spec.mode != "growing" else 0
        history = [{"role": "system", "content": system}]
        history += [self._message(number, MESSAGE - 40) for number in range(long)]
        self._opening = bytearray(json.dumps({**top, "messages": history}, separators=(",", ":"))[:-2].encode())
        self._filling = max(0, spec.body_bytes - len(self._opening) - 100)

    def _message(self, number: int, size: int) -> dict[str, str]:
        return {"role": "assistant" if number % 2 else "user", "content": self._text.take(size)}

    def request(self, step: int) -> bytes:
        """The whole HTTP request of ``step``. In a growing conversation steps must be asked in order."""
        if self._spec.mode == "growing":
            message = self._message(step, MESSAGE - 40)
            self._opening += b"," + json.dumps(message, separators=(",", ":")).encode()
            body = bytes(self._opening) + b"]}"
        else:
            ask = f"Step {step} of {self._session}. {self._text.take(self._filling)}"
            body = bytes(self._opening) + b',{"role":"user","content":"%b"}]}' % ask.encode()
        lines = [f"POST {self._spec.path}/chat/completions HTTP/1.1", f"host: 127.0.0.1:{self._spec.port}"]
        lines += ["content-type: application/json", "authorization: Bearer sk-test-bench", "accept: */*"]
        lines += [f"{key}: {value}" for key, value in self._spec.headers.items()]
        lines += [f"content-length: {len(body)}", "", ""]
        head = "\r\n".join(lines).replace("{session}", self._session).replace("{run}", self._spec.run)
        return head.replace("{step}", str(step)).encode() + body


class Exchange(asyncio.Protocol):
    """One keep-alive connection with one request at a time. Times are CLOCK_MONOTONIC nanoseconds."""

    def __init__(self, stamped: bool) -> None:
        self._stamped = stamped
        self._out: Any = None  # uvloop's transports are no asyncio.Transport
        self.open = False
        self._done: asyncio.Future[int] | None = None
        self._renew()

    def _renew(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self.body, self._seen = bytearray(), 0
        self.arrivals: list[int] = []
        self.lags: list[int] = []
        self.sent = self.ended = self._now = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out, self.open = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the connection ended within the answer"))

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Sends; the future gives the status when the answer is whole."""
        self._renew()
        self._done = asyncio.get_running_loop().create_future()
        self.sent = time.monotonic_ns()
        self._out.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._done is not None and not self._done.done():
                self._done.set_exception(ConnectionError(f"not HTTP: {error}"))
            self.close()

    def on_body(self, part: bytes) -> None:
        self.body += part
        if not self._stamped:
            return
        while (start := self.body.find(STAMP_MARK, self._seen)) >= 0:
            stop = self.body.find(b" ", start)
            if stop < 0:
                return
            self.arrivals.append(self._now)
            self.lags.append(self._now - int(self.body[start + 2 : stop]))
            self._seen = stop

    def on_message_complete(self) -> None:
        self.ended = self._now
        if not self._parser.should_keep_alive():
            self.close()
        if self._done is not None and not self._done.done():
            self._done.set_result(self._parser.get_status_code())

    def close(self) -> None:
        self.open = False
        if self._out is not None:
            self._out.abort()


class Worker:
    """One agent after another, on one connection."""

    def __init__(self, spec: Spec, number: int, tally: Tally) -> None:
        self._spec, self._number, self._tally = spec, number, tally
        self._exchange: Exchange | None = None

    async def work(self, until: float) -> None:
        spec, made, failed, agent = self._spec, 0, 0, None
        wanted = spec.replay[self._number] if spec.replay is not None else None
        while failed < GIVE_UP_AFTER and self._goes_on(made, wanted, until):
            if made % spec.session_steps == 0:
                agent = Agent(spec, f"{spec.name}-{self._number}-{made // spec.session_steps}")
            assert agent is not None
            request = agent.request(made % spec.session_steps)
            made += 1
            try:
                await self._once(request)
                failed = 0
            except (OSError, ValueError) as error:
                failed += 1
                self._tally.errors += 1
                self._tally.last_error = str(error)[:600]
                if self._exchange is not None:
                    self._exchange.close()
        self._tally.made[self._number] = made
        if self._exchange is not None:
            self._exchange.close()

    def _goes_on(self, made: int, wanted: int | None, until: float) -> bool:
        if wanted is not None:
            return made < wanted
        return made < self._spec.least or (made < self._spec.most and time.monotonic() < until)

    async def _once(self, request: bytes) -> None:
        streamed = self._spec.mode == "sse"
        if self._exchange is None or not self._exchange.open:
            loop = asyncio.get_running_loop()
            _, self._exchange = await loop.create_connection(lambda: Exchange(streamed), "127.0.0.1", self._spec.port)
        exchange = self._exchange
        status = await exchange.ask(request)
        expected = self._spec.chunks if streamed else 0
        if status != 200 or b'"choices"' not in exchange.body or len(exchange.arrivals) != expected:
            got = f"HTTP {status}, {len(exchange.arrivals)} of {expected} chunks"
            raise ValueError(f"{got}: {bytes(exchange.body[:400])!r}")
        if streamed and b"data: [DONE]" not in exchange.body[-64:]:
            raise ValueError("the stream ended without [DONE]")
        self._tally.whole.append((exchange.ended - exchange.sent) / 1e6)
        if streamed:
            self._tally.ttft.append((exchange.arrivals[0] - exchange.sent) / 1e6)
            if self._spec.gap_ms:
                self._tally.lag += [lag / 1e6 for lag in exchange.lags]


async def fire(spec: Spec) -> Tally:
    """The whole volley. When no answer has come for a minute, those that still wait are stopped and are errors."""
    tally = Tally(made=[0] * spec.concurrency)
    before = usage(spec.watch) if spec.watch else None
    begin = time.monotonic()
    tasks = {
        asyncio.create_task(Worker(spec, number, tally).work(begin + spec.seconds), name=f"worker-{number}")
        for number in range(spec.concurrency)
    }
    waiting, came = tasks, -1
    while waiting and came != (came := len(tally.whole) + tally.errors):
        _, waiting = await asyncio.wait(waiting, timeout=STALL_S)
    for task in waiting:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, BaseException):
            tally.errors += 1
            tally.last_error = repr(outcome)
    tally.elapsed_s = time.monotonic() - begin
    if before is not None:
        after = usage(spec.watch)
        tally.cpu_s, tally.rss = after.cpu_s - before.cpu_s, after.rss
    return tally


def main() -> None:
    """Reads a ``Spec`` as JSON from stdin, writes the ``Tally`` as JSON to stdout."""
    spec = Spec(**json.load(sys.stdin))
    gc.disable()
    json.dump(asdict(uvloop.run(fire(spec))), sys.stdout)


if __name__ == "__main__":
    main()
