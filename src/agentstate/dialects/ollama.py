"""Owns Ollama's native chat and generate: how a request is read, an answer judged. Must not change what passes through.

Invariant: an answer is finished only when it says ``done: true``; every tool call, that line and whatever follows are
held until the commit. A stream is asked for unless the request says ``stream: false``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core.model import Call, Change, Item, OfferedTool, Shape, ToolCall, ToolResult, Verdict
from agentstate.dialects import ollama_amend, ollama_shape, openai_follow, volatile
from agentstate.dialects import query as query_of
from agentstate.dialects.base import (
    UNREADABLE,
    Blanked,
    Cache,
    Scrubbed,
    canonical,
    digest_of,
    lenient,
)
from agentstate.dialects.conversation import Conversations
from agentstate.dialects.openai_answer import text_of
from agentstate.dialects.openai_chat import OpenAIChat, item_of
from agentstate.dialects.reading import Fields, read_body
from agentstate.errors import AgentStateError

# Cannot change the answer: how it is delivered, how long the model stays in memory after it.
DENIED = frozenset({"stream", "keep_alive"})
# Beside the messages, and may hold volatile text.
_CONTEXT = ("system", "tools")
# Messages have the form of those of OpenAI chat.
_MESSAGES = OpenAIChat()

_contexts = Cache(8 * 1024 * 1024)


class OllamaChat:
    """The dialect, of ``api/chat`` and ``api/generate``; see ``dialects.base.Dialect``."""

    name = "ollama_chat"
    provider = "ollama"

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path = query_of.asked(path, query, self.provider)
        return read_body(
            body,
            lambda kept, fields: self._parsed(method, path, kept, fields),
            lambda kept: self._opaque(method, path, kept),
        )

    def _opaque(self, method: str, path: str, body: bytes) -> Call:
        """Valid JSON that only a lenient parser takes: its very bytes are its question."""
        value = lenient(body, ValueError("the request body is not valid JSON"))
        model = value.get("model")
        return Call(
            self.name, method, path, body, digest_of((b"opaque", body)), model=model if isinstance(model, str) else "",
            shape=Shape(value.get("stream") is not False),
        )  # fmt: skip

    def _parsed(self, method: str, path: str, body: bytes, fields: Fields) -> Call:
        shape = Shape(fields.get("stream") != b"false")
        raws = {name: raw for name, raw in sorted(fields.items()) if raw != b"null"}
        if _is_generate(path):
            prompt, array = raws.pop("prompt", b""), b""
        else:
            prompt, array = b"", raws.pop("messages", b"")
        context = tuple(_context(name, raws.pop(name)) for name in _CONTEXT if name in raws)
        # Nothing to answer: the model is loaded or, with a keep_alive of 0, unloaded, and the answer says which.
        denied = DENIED if prompt not in (b"", b'""') or array not in (b"", b"[]") else DENIED - {"keep_alive"}
        values = {name: msgspec.json.decode(raw) for name, raw in raws.items() if name not in denied}
        frame = digest_of(part for name, value in values.items() for part in (name.encode(), canonical(value)))
        model = values.get("model")
        messages = _conversations.read(array) if array else None
        if array and messages is None:
            frame = digest_of((frame, array))
        items = messages.items if messages is not None else ()
        if prompt:
            digest = sha256(canonical(msgspec.json.decode(prompt))).digest()
            items = (Item(prompt, sha256(prompt).digest(), digest, "user"),)
        around = messages.around(array, body) if messages is not None else (b"", b"", b"")
        return Call(
            self.name, method, path, body, frame, items, *around,
            model if isinstance(model, str) else "", shape=shape, context=context,
        )  # fmt: skip

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        value = msgspec.json.decode(item.raw)
        literals: list[str] = []
        if isinstance(value, dict):
            return _MESSAGES.scrubbed(item, user_text)
        if item.role == "system":
            masked = _described(value, literals)
            plain = () if isinstance(value, str) else tuple(volatile.texts(_described(value, None)))
            return Scrubbed(_context_digest(masked), tuple(literals), plain)
        if not user_text or not isinstance(value, str):
            return Scrubbed(item.digest, (), tuple(volatile.texts(value)))
        return Scrubbed(sha256(canonical(volatile.scrub(value, literals))).digest(), tuple(literals), ())

    def blanked(self, item: Item) -> Blanked:
        return _MESSAGES.blanked(item)

    def spoken(self, body: bytes) -> Any:
        value = msgspec.json.decode(body)
        return {key: value[key] for key in ("message", "response", "thinking") if key in value}

    def is_stream(self, call: Call, start: bytes) -> bool:
        """A whole answer in one line is a stream of one line."""
        return start[:1] == b"{"

    def gate(self, call: Call) -> StreamGate:
        return StreamGate()

    def judge(self, call: Call, body: bytes) -> Verdict:
        if body.lstrip()[:1] == b"<":
            return Verdict("the answer is an HTML page")
        reading = _Reading()
        reading.read(body)
        return reading.verdict("answer")

    def _calls(self, shape: Shape, body: bytes) -> tuple[ToolCall, ...]:
        reading = _Reading()
        for line in body.split(b"\n") if shape.stream else [body]:
            if line.strip():
                reading.read(line)
        return reading.verdict("answer").calls

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        return ollama_shape.convert(recorded, asked, body)

    def offered(self, call: Call) -> tuple[OfferedTool, ...]:
        return openai_follow.offered(call.body) if not _is_generate(call.path) else ()

    def results(self, call: Call) -> tuple[ToolResult, ...]:
        return openai_follow.results(call) if not _is_generate(call.path) else ()

    def amended(self, call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
        return ollama_amend.amended(shape.stream, body, self._calls(shape, body), changes, said)

    def continued(self, call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
        plain = self.convert(shape, Shape(), body)
        return ollama_amend.continued(call.body, plain, self._calls(Shape(), plain), results)

    def content_type(self, shape: Shape) -> str:
        return "application/x-ndjson" if shape.stream else "application/json; charset=utf-8"

    def error(self, error: AgentStateError) -> bytes:
        return ollama_error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        return ollama_error(error) + b"\n"


def _is_generate(path: str) -> bool:
    """Whether it is the call that only goes on from a text: it knows neither messages nor tools."""
    return path.partition("?")[0].endswith("generate")


def ollama_error(error: AgentStateError) -> bytes:
    """The error object that Ollama's clients understand; our stable code stands beside their text."""
    fields: dict[str, Any] = {"error": error.message, "code": error.code}
    if error.detail:
        fields["agentstate"] = error.detail
    return msgspec.json.encode(fields)


# --- system text and tools --------------------------------------------------------------------------------------------


def _context(name: str, raw: bytes) -> Item:
    key = name.encode() + b"\0" + raw
    known: Item | None = _contexts.get(key)
    if known is None:
        known = Item(raw, sha256(raw).digest(), _context_digest(msgspec.json.decode(raw)), "system")
        _contexts.put(key, known)
    return known


def _context_digest(value: Any) -> bytes:
    """Of system text, or of tools: their order cannot change the answer."""
    if not isinstance(value, list):
        return sha256(b"one\0" + canonical(value)).digest()
    tools = [{key: part for key, part in tool.items() if part is not None} if isinstance(tool, dict) else tool
             for tool in value]  # fmt: skip
    return sha256(b"set\0" + b"\0".join(sorted(canonical(tool) for tool in tools))).digest()


def _described(value: Any, literals: list[str] | None) -> Any:
    """Text, or tools with the texts of their descriptions, masked; ``None``: tools without their descriptions."""
    if isinstance(value, str):
        return value if literals is None else volatile.scrub(value, literals)
    if isinstance(value, list):
        return [_described(part, literals) if isinstance(part, dict | list) else part for part in value]
    shown = {}
    for key, part in value.items() if isinstance(value, dict) else ():
        if key != "description" or not isinstance(part, str):
            shown[key] = _described(part, literals) if isinstance(part, dict | list) else part
        elif literals is not None:
            shown[key] = volatile.scrub(part, literals)
    return shown


_conversations = Conversations(item_of)


# --- the answer -------------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct):
    done: bool | None = None
    message: _Message | None = None
    error: msgspec.Raw = msgspec.Raw(b"")
    model: str | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None


_decode_line = msgspec.json.Decoder(_Line)
_NOTHING = (b"", b"null", b'""')


class _Reading:
    """What has been read of an answer, line by line."""

    __slots__ = ("_calls", "_model", "_reason", "_usage", "done", "fault")

    def __init__(self) -> None:
        self.fault = ""
        self.done = False
        self._model = self._reason = self._usage = ""
        self._calls: list[ToolCall] = []

    def read(self, data: bytes) -> bool:
        """Take note of a line; whether it may be shown before the commit."""
        try:
            return self._take(_decode_line.decode(data))
        except msgspec.ValidationError:
            return self._read_odd(data)
        except UNREADABLE:
            self.fault = self.fault or "the answer holds a line that is not JSON"
            return False

    def verdict(self, what: str) -> Verdict:
        """``what``: how the answer is called in a fault, "stream" or "answer"."""
        unreadable, broken = self._unreadable()
        fault = self.fault or ("" if self.done else f"the {what} ended before it said that it is done") or unreadable
        return Verdict(
            fault, self._model, self._usage, tuple(self._calls), (self._reason,) if self.done else (), broken
        )

    def _unreadable(self) -> tuple[str, bool]:
        """(fault, whether a token limit cut arguments): those that are text, as some servers send them, may be torn."""
        broken = False
        for call in self._calls:
            if call.arguments.strip():
                try:
                    msgspec.json.decode(call.arguments)
                except UNREADABLE:
                    if self._reason != "length":
                        return f"the arguments of the call of tool {call.name!r} are not JSON", False
                    broken = True
        return "", broken

    def _take(self, line: _Line) -> bool:
        if bytes(line.error) not in _NOTHING:
            said = bytes(line.error)[:500].decode("utf-8", "replace")
            self.fault = self.fault or f"the provider broke off: {said}"
            return False
        self._model = line.model or self._model
        calls = (line.message.tool_calls if line.message is not None else None) or ()
        for call in calls:
            function = call.function or _Function()
            self._calls.append(
                ToolCall(0, len(self._calls), call.id or "", function.name or "", text_of(function.arguments))
            )
        if line.done:
            self.done = True
            self._reason = line.done_reason or self._reason
            counts = {"prompt_eval_count": line.prompt_eval_count, "eval_count": line.eval_count}
            known = {name: count for name, count in counts.items() if count is not None}
            self._usage = msgspec.json.encode(known).decode() if known else self._usage
        return not calls and not line.done

    def _read_odd(self, data: bytes) -> bool:
        """A JSON line whose fields have unusual types: held, and judged by what is usual in it."""
        try:
            value = msgspec.json.decode(data)
        except UNREADABLE:
            value = None
        if not isinstance(value, dict):
            self.fault = self.fault or "the answer holds a line that is not a JSON object"
            return False
        self._take(_usual_line(value))
        return False


def _usual_line(value: dict[str, Any]) -> _Line:
    """What can be understood of a line with fields of unusual types."""
    message, error = value.get("message"), value.get("error")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    model, reason = value.get("model"), value.get("done_reason")
    asked, answered = value.get("prompt_eval_count"), value.get("eval_count")
    return _Line(
        value.get("done") is True,
        _Message([_usual(call) for call in calls] if isinstance(calls, list) else None),
        msgspec.Raw(msgspec.json.encode(error) if error else b""),
        model if isinstance(model, str) else None,
        reason if isinstance(reason, str) else None,
        asked if isinstance(asked, int) else None,
        answered if isinstance(answered, int) else None,
    )


def _usual(call: Any) -> _Call:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return _Call()
    return _Call(str(call.get("id") or ""), _Function(str(function.get("name") or ""), function.get("arguments")))


class StreamGate:
    """Reads lines of JSON; see ``dialects.base.Gate``."""

    __slots__ = ("_buffer", "_held", "_reading", "_seen")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._seen = 0
        self._reading = _Reading()
        self._held = False

    @property
    def done(self) -> bool:
        return self._reading.done

    def feed(self, data: bytes) -> bytes:
        free = []
        self._buffer += data
        for line in self._lines():
            visible = not line.strip() or self._reading.read(line)
            if self._held or not visible:
                self._held = True
            else:
                free.append(line)
        return b"".join(free)

    def finish(self) -> Verdict:
        if self._buffer.strip():
            self._reading.read(bytes(self._buffer))
        return self._reading.verdict("stream")

    def heartbeat(self) -> bytes:
        """A blank at the start of the next line: clients read each line as JSON, and an empty one breaks them."""
        return b" "

    def _lines(self) -> Iterator[bytes]:
        """The lines that are whole, with their ends."""
        while (end := self._buffer.find(b"\n", self._seen)) >= 0:
            yield bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._seen = 0
        self._seen = len(self._buffer)
