"""Owns a raw HTTP/1.1 client over sockets, and short helpers that ask the proxy one thing.

Must not retry, follow or repair anything: what the proxy sent is what the test sees. Invariant: every wait is bounded,
and an answer whose framing ended early has ``complete=False``.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.support import chat, contract
from tests.support.wire import Framing, Headers, parse_head

BOUND_S = 20.0  # for one read
WHOLE_BOUND_S = 60.0  # for one answer
TEST_KEY = "sk-test-0123456789abcdef"


@dataclass
class Answer:
    """One answer as received: status, fields in wire order, decoded body; ``complete`` is false if it was cut."""

    status: int
    headers: Headers
    body: bytes
    complete: bool = True

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def outcome(self) -> str | None:
        """Why this answer: ``x-agentstate-outcome``."""
        return self.headers.get("x-agentstate-outcome")

    @property
    def run(self) -> str | None:
        """The run that the proxy took the request for."""
        return self.headers.get("x-agentstate-run")

    @property
    def step(self) -> int | None:
        """The step's number."""
        value = self.headers.get("x-agentstate-step")
        return None if value is None else int(value)

    @property
    def hit(self) -> bool | None:
        """``x-agentstate-cache-hit`` as a boolean."""
        value = self.headers.get("x-agentstate-cache-hit")
        return None if value is None else {"true": True, "false": False}[value]

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI-style error of a plain body; fails with what came instead."""
        try:
            found = self.json()["error"]
        except (ValueError, KeyError, TypeError) as fault:
            raise AssertionError(f"no OpenAI-style error in {self.status} {self.body[:500]!r}") from fault
        assert {"message", "type", "param", "code"} <= set(found), found
        return dict(found)

    @property
    def stream_error(self) -> dict[str, Any]:
        """The error event that ends a failed stream; fails if it is not the last thing or ``[DONE]`` came."""
        assert b"[DONE]" not in self.body, self.body[-300:]
        last = self.body.rstrip().rsplit(b"\n\n", 1)[-1]
        assert last.startswith(b"data: ") and self.body.endswith(b"\n\n"), self.body[-300:]
        found = json.loads(last.removeprefix(b"data: "))["error"]
        assert found["message"], found
        return dict(found)


class Connection:
    """One socket to the proxy. Use as a context manager."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = BOUND_S) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ahead = b""
        self._framing: Framing | None = None
        self._deadline = time.monotonic() + WHOLE_BOUND_S

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def local_port(self) -> int:
        """Our end's port."""
        return int(self._socket.getsockname()[1])

    def send(self, data: bytes) -> None:
        """Put exactly these bytes on the wire."""
        self._deadline = time.monotonic() + WHOLE_BOUND_S
        self._socket.sendall(data)

    def request(self, method: str, target: str, headers: Mapping[str, str] | Headers, body: bytes = b"") -> None:
        """Send one request; ``content-length`` is added unless given or chunked."""
        self.send(render(method, target, headers, body))

    def read_head(self, *, method: str = "POST") -> tuple[int, Headers]:
        """The next final answer's (status, fields); interim answers are skipped. ``method`` decides about a body."""
        while True:
            while b"\r\n\r\n" not in self._ahead:
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionError(f"closed before a whole head: {self._ahead!r}")
                self._ahead += data
            raw, _, self._ahead = self._ahead.partition(b"\r\n\r\n")
            first, headers = parse_head(raw)
            status = int(first.split(" ", 2)[1])
            if status != 101 and 100 <= status < 200:
                continue
            bodiless = method == "HEAD" or status in (101, 204, 304)
            self._framing = Framing(length=0, done=True) if bodiless else Framing.of(headers, request=False)
            self._framing.feed(self._ahead)
            self._ahead = b""
            return status, headers

    def read_interim(self) -> int:
        """The status of the next head of any kind, which has no body."""
        while b"\r\n\r\n" not in self._ahead:
            data = self._socket.recv(65536)
            assert data, f"closed before a whole head: {self._ahead!r}"
            self._ahead += data
        raw, _, self._ahead = self._ahead.partition(b"\r\n\r\n")
        return int(raw.split(b" ", 2)[1])

    def received(self) -> bytes:
        """What of the body has been read so far, decoded."""
        assert self._framing is not None, "read_head comes first"
        return bytes(self._framing.body)

    def read_until(self, mark: bytes) -> bytes:
        """Read on until the decoded body holds ``mark``; the body so far. Fails if the answer ends before."""
        while mark not in self.received():
            going_on = self._more()
            assert going_on or mark in self.received(), f"the answer ended without {mark!r}: {self.received()!r}"
        return self.received()

    def read_body(self) -> tuple[bytes, bool]:
        """The rest of the body: (whole decoded body, whether its framing ended properly)."""
        try:
            while self._more():
                pass
        except ConnectionError:
            return self.received(), False
        assert self._framing is not None
        self._ahead = self._framing.rest
        return self.received(), self._framing.done

    def silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long: a bounded look, for asserting that something is held back."""
        self._socket.settimeout(seconds)
        try:
            self._feed(self._socket.recv(65536))
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(BOUND_S)
        return False

    def answer(self, *, method: str = "POST") -> Answer:
        """The next whole answer."""
        status, headers = self.read_head(method=method)
        body, complete = self.read_body()
        return Answer(status, headers, body, complete)

    def wait_closed(self) -> bool:
        """Whether the peer closes, within the bound, without sending anything more."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        """Close in the orderly way."""
        self._socket.close()

    def reset(self) -> None:
        """Close with a reset, as the kernel of a killed process with unread data does."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _more(self) -> bool:
        assert self._framing is not None, "read_head comes first"
        if self._framing.done:
            return False
        if time.monotonic() > self._deadline:  # keep-alives would hold it up for ever
            raise TimeoutError(f"no whole answer within {WHOLE_BOUND_S} s: {self.received()[-500:]!r}")
        data = self._socket.recv(65536)
        self._feed(data)
        return bool(data) and not self._framing.done

    def _feed(self, data: bytes) -> None:
        if self._framing is None:
            self._ahead += data
        elif data:
            self._framing.feed(data)
        else:
            self._framing.end()


def render(method: str, target: str, headers: Mapping[str, str] | Headers, body: bytes = b"") -> bytes:
    """The bytes of one request. ``host`` and ``content-length`` are added where missing."""
    fields = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in fields}
    if "host" not in names:
        fields.insert(0, ("Host", "127.0.0.1"))
    if body and not names & {"content-length", "transfer-encoding"}:
        fields.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def chat_headers(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What an SDK sends along: credentials and content type, and ``more``."""
    return {"Authorization": f"Bearer {TEST_KEY}", "Content-Type": "application/json", **(more or {})}


def chat_path(session: str | None, run: str | None = None, path: str = "/v1/chat/completions") -> str:
    """The address of an endpoint within a session (and run)."""
    if session is None:
        return path
    return f"/s/{session}/r/{run}{path}" if run is not None else f"/s/{session}{path}"


class Client:
    """Asks one proxy. Every ``ask`` uses a connection of its own unless one is given."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> Connection:
        """A new connection."""
        return Connection(self.port)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | Headers | None = None,
        body: bytes = b"",
        *,
        on: Connection | None = None,
    ) -> Answer:
        """One raw request and its whole answer."""
        if on is not None:
            on.request(method, target, headers or {}, body)
            return on.answer(method=method)
        with self.connect() as connection:
            connection.request(method, target, headers or {}, body)
            return connection.answer(method=method)

    def ask(
        self,
        session: str | None,
        messages: str | Iterable[dict[str, Any]] | bytes,
        *,
        run: str | None = None,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        on: Connection | None = None,
        **more: Any,
    ) -> Answer:
        """One chat completion. ``messages``: a user text, a list of messages, or the exact body bytes."""
        body = ask_body(messages, stream=stream, **more)
        return self.send("POST", chat_path(session, run), chat_headers(headers), body, on=on)

    def start(
        self,
        session: str | None,
        messages: str | Iterable[dict[str, Any]] | bytes,
        *,
        run: str | None = None,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Connection:
        """Send one chat completion and leave its answer unread; the caller owns the connection."""
        connection = self.connect()
        body = ask_body(messages, stream=stream, **more)
        connection.request("POST", chat_path(session, run), chat_headers(headers), body)
        return connection


def ask_body(messages: str | Iterable[dict[str, Any]] | bytes, *, stream: bool = False, **more: Any) -> bytes:
    """The body of a chat completion, see ``Client.ask``."""
    if isinstance(messages, bytes):
        return messages
    return chat.request(messages if isinstance(messages, str) else list(messages), stream=stream, **more)


class ControlPlane:
    """Calls the control plane with the admin token. Answers are parsed JSON."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def get(self, path: str) -> Any:
        """GET; raises ``urllib.error.HTTPError`` for an error status."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST of a JSON object; raises ``urllib.error.HTTPError`` for an error status."""
        return self._call("POST", path, dict(body or {}))

    def delete(self, path: str) -> Any:
        """DELETE; raises ``urllib.error.HTTPError`` for an error status."""
        return self._call("DELETE", path, None)

    def session(self, session: str) -> dict[str, Any]:
        """``GET /api/sessions/{id}``: session, steps, runs."""
        return dict(self.get(f"/api/sessions/{session}"))

    def steps(self, session: str) -> list[dict[str, Any]]:
        """The steps of a session."""
        return list(self.session(session)["steps"])

    def run(self, session: str, run: str) -> dict[str, Any]:
        """What is known of one run."""
        return dict(self.get(f"/api/sessions/{session}/runs/{run}"))

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(call, timeout=BOUND_S) as reply:
            text, status = reply.read(), reply.status
        answer = json.loads(text) if text else None
        if path.startswith("/api/"):
            contract.check(method, path, status, answer)
        return answer


def status_of(call: Any, *arguments: Any) -> tuple[int, bytes]:
    """The (status, body) of a control-plane call that is expected to be refused."""
    try:
        call(*arguments)
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()
    raise AssertionError("the control plane accepted what it should refuse")
