"""Owns the scripted model of the matrix: one server that speaks four wire formats and counts what is paid.

A task takes three calls: a tool call, a tool call, and a final text that repeats what the tools returned.
Must not know any client. Invariant: no answer is like another (the session's tag and the number of the paid call are in
each), so equal output after a restart proves that nothing was paid twice and nothing was made up.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from types import TracebackType

from tests.clients.matrix.clients import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.clients.matrix.spelling import Said, plain, streamed
from tests.support import upstream
from tests.support.upstream import BOUND_S, Gate, Reply, Seen, Upstream

CALLS = 3
BEFORE, DURING = "before", "during"
Stops = Mapping[tuple[int, str], Gate]

# What a tool's result looks like anywhere in a request: some clients send their history back as plain text.
_RESULT = re.compile(rb"\[(?:get_weather|send_email): [\w-]+ done\]")
_GEMINI_PATH = re.compile(r"/models/([^/:]+):(streamGenerateContent|generateContent)$")


class Model:
    """The server. ``begin`` starts a new task; ``paid`` are the calls answered since, numbered from 1."""

    def __init__(self) -> None:
        self._server = Upstream(self._answer)
        self._tag = ""
        self._stops: Stops = {}
        self._lock = threading.Lock()
        self._paid: list[Seen] = []
        self.odd: list[str] = []

    def __enter__(self) -> Model:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    @property
    def root(self) -> str:
        """Base URL without a path."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def paid(self) -> int:
        """How many calls were asked for, and so are paid, since ``begin``."""
        with self._lock:
            return len(self._paid)

    def begin(self, tag: str, stops: Stops | None = None) -> None:
        """A new task whose answers hold ``tag``. ``stops``: gates by (call from 1, ``before`` or ``during``)."""
        with self._lock:
            self._tag, self._stops, self._paid, self.odd = tag, dict(stops or {}), [], []
        self._server.reset(self._answer)

    def wait_answered(self, call: int) -> None:
        """Block until the last byte of a paid call's answer was sent; calls count from 1."""
        with self._lock:
            assert len(self._paid) >= call, f"call {call} was not asked for; {len(self._paid)} were"
            seen = self._paid[call - 1]
        assert seen.answered.wait(BOUND_S), f"call {call} was not answered to its end within {BOUND_S} s"

    def _answer(self, seen: Seen) -> Reply:
        wire, stream, name = read(seen)
        if not wire:
            self.odd.append(f"{seen.method} {seen.target}")
            return upstream.plain(b'{"error":{"message":"no such path","type":"invalid_request_error"}}', 404)
        with self._lock:
            self._paid.append(seen)
            number, tag, stops = len(self._paid), self._tag, self._stops
        said = decide(seen.body, f"{tag}-{number}", name)
        pieces = streamed(wire, said) if stream else list(_in_halves(plain(wire, said)))
        before, during = stops.get((number, BEFORE)), stops.get((number, DURING))
        head, *rest = upstream.stream(
            pieces[0],
            *([during] if during is not None else []),
            *pieces[1:],
            content_type="text/event-stream; charset=utf-8" if stream else "application/json",
        )
        return [*([before] if before is not None else []), head, *rest]


def decide(body: bytes, name: str, model: str) -> Said:
    """What the model answers to a request: the tool that is next, or the final text once both have answered."""
    results = list(dict.fromkeys(found.decode() for found in _RESULT.findall(body)))
    if not results:
        return Said(name, model, tool="get_weather", arguments={"city": f"Paris-{name}"})
    if len(results) == 1:
        return Said(name, model, tool="send_email", arguments={"to": f"bob-{name}"})
    text = f"Answer {name}: {' and '.join(results)}."
    if b"final_answer" in body:  # for clients that take their final answer as a tool call
        return Said(name, model, tool="final_answer", arguments={"answer": text})
    return Said(name, model, text=text)


def read(seen: Seen) -> tuple[str, bool, str]:
    """A request's (wire format, whether to stream, model); the format is empty for a path that is no model call."""
    path = seen.target.partition("?")[0]
    gemini = _GEMINI_PATH.search(path)
    if gemini is not None:
        return GEMINI, gemini[2] == "streamGenerateContent", gemini[1]
    ends = {"/chat/completions": CHAT, "/responses": RESPONSES, "/messages": MESSAGES}
    wire = next((wire for end, wire in ends.items() if path.endswith(end)), "")
    if not wire or seen.method != "POST":
        return "", False, ""
    asked = json.loads(seen.body)
    return wire, bool(asked.get("stream")), str(asked["model"])


def _in_halves(body: bytes) -> tuple[bytes, bytes]:
    return body[: len(body) // 2], body[len(body) // 2 :]
