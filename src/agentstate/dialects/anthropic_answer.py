"""Owns judging an Anthropic message, whole or while it streams, and errors of ours in its form. Must not change bytes.

Invariant: an answer is finished only when ``message_stop`` has come, a stop reason was given and the input of every
tool call parses. Text and thinking may be shown while they stream; from the first call that the agent is to run, or
the stop reason, on nothing may. What the provider's own tools do is not the agent's to run and is shown.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.core.model import ToolCall, Verdict
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE
from agentstate.errors import AgentStateError


def event(kind: bytes, data: bytes) -> bytes:
    """An event as Anthropic writes it."""
    return b"event: " + kind + b"\ndata: " + data + b"\n\n"


# https://docs.anthropic.com/en/api/errors
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

PING = event(b"ping", b'{"type": "ping"}')
CUT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})  # reasons that may end a call half-way
_NOTHING = (b"", b"null")
_EMPTY = (*_NOTHING, b"[]")


def anthropic_error(error: AgentStateError) -> bytes:
    """The error object that Anthropic clients understand; our code and detail are further members of ``error``."""
    kind = _KINDS.get(error.status) or ("invalid_request_error" if 400 <= error.status < 500 else "api_error")
    fields: dict[str, Any] = {"type": kind, "message": error.message, "code": error.code}
    if error.detail:
        fields["agentstate"] = error.detail
    return msgspec.json.encode({"type": "error", "error": fields})


class _Block(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")
    to: msgspec.Raw = msgspec.Raw(b"")


class _Delta(msgspec.Struct):
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"")
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"")


class _Event(msgspec.Struct):
    type: str | None = None
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Plain(msgspec.Struct):
    type: Any = None
    id: Any = None
    model: Any = None
    content: msgspec.Raw = msgspec.Raw(b"")
    stop_reason: Any = None
    usage: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Fallback(msgspec.Struct):
    model: str | None = None


_decode_event = msgspec.json.Decoder(_Event)
_decode_plain = msgspec.json.Decoder(_Plain)
_decode_blocks = msgspec.json.Decoder(list[_Block])
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
     "message_stop", "error"}
)  # fmt: skip


def is_agents(kind: str | None) -> bool:
    """Whether a block is a call that the agent is to run. A kind of call that is not known here is the agent's."""
    return kind is not None and kind.endswith("_use") and kind not in ("server_tool_use", "mcp_tool_use")


class _Open:
    """A content block that streams. ``deltas``: the pieces of its input."""

    __slots__ = ("block", "deltas", "place")

    def __init__(self, block: _Block, place: int) -> None:
        self.block = block
        self.place = place
        self.deltas: list[str] = []

    def call(self) -> ToolCall:
        arguments = "".join(self.deltas)
        return _call(self.place, self.block, arguments if arguments.strip() else "")


def _call(place: int, block: _Block, arguments: str) -> ToolCall:
    """``arguments`` empty: what the block itself holds counts, and no input at all is an empty object."""
    if not arguments and bytes(block.input) not in _NOTHING:
        arguments = bytes(block.input).decode()
    return ToolCall(0, place, block.id or "", block.name or "", arguments or "{}")


class StreamGate(sse.Holding):
    """Reads a stream of one message event by event; see ``dialects.base.Gate``. ``kept``: the provider holds the
    answer under its id."""

    __slots__ = ("_blocks", "_done", "_fault", "_id", "_index", "_kept", "_model", "_started", "_stop_reason", "_usage")

    def __init__(self, kept: bool = False) -> None:
        super().__init__()
        self._kept = kept
        self._done = False
        self._started = False
        self._fault = ""
        self._id = ""
        self._model = ""
        self._stop_reason = ""
        self._usage: dict[str, msgspec.Raw] = {}
        self._blocks: list[_Open] = []
        self._index: dict[int, _Open] = {}

    @property
    def done(self) -> bool:
        return self._done

    def finish(self) -> Verdict:
        self._read_rest()
        calls = tuple(open_.call() for open_ in self._blocks if is_agents(open_.block.type))
        last = self._blocks[-1].block.type if self._blocks else None
        unreadable, broken = _unreadable(calls, self._stop_reason, last)
        usage = msgspec.json.encode(self._usage).decode("utf-8", "replace") if self._usage else ""
        return Verdict(
            self._fault or self._unfinished() or unreadable, self._model, usage, calls, (self._stop_reason,),
            broken, answer_id=self._id if self._kept else "",
        )  # fmt: skip

    def heartbeat(self) -> bytes:
        return PING

    def _unfinished(self) -> str:
        if not self._started:
            return "the stream ended without a message"
        if not self._done:
            return "the stream ended before message_stop"
        return "" if self._stop_reason else "the stream ended without a stop reason"

    def _broke(self, why: str) -> bool:
        """Keep the first fault; such an event is not shown."""
        self._fault = self._fault or why
        return False

    def _read(self, piece: bytes) -> bool:
        """Take note of an event; whether it may be shown before the commit."""
        data = sse.data_of(piece)
        if data is None:
            return True
        if data.strip() == b"[DONE]":  # some gateways add it; it proves nothing
            return False
        try:
            data.decode()
            found = _decode_event.decode(data)
        except msgspec.ValidationError:
            return self._read_odd(piece, data)
        except UNREADABLE:
            return self._broke("the stream holds an event that is not JSON")
        kind = found.type or sse.name_of(piece).decode("utf-8", "replace")
        try:
            return self._take(kind, found)
        except UNREADABLE:
            return self._broke(_wrong(kind))

    def _read_odd(self, piece: bytes, data: bytes) -> bool:
        """A JSON event whose fields have unusual types: read as far as they can be taken for the usual ones."""
        try:
            value = msgspec.json.decode(data)
        except UNREADABLE:
            value = None
        if not isinstance(value, dict):
            return self._broke("the stream holds an event that is not a JSON object")
        kind = str(value.get("type") or sse.name_of(piece).decode("utf-8", "replace"))
        try:
            return self._take(kind, msgspec.json.decode(data, type=_Event, strict=False))
        except UNREADABLE:
            if kind in _KNOWN or value.get("error"):
                return self._broke(_wrong(kind))
            return True

    def _take(self, kind: str, found: _Event) -> bool:
        if kind == "content_block_delta":
            return self._delta(found)
        if kind == "error" or bytes(found.error) not in _NOTHING:
            told = bytes(found.error)[:500].decode("utf-8", "replace")
            return self._broke(f"the provider broke off: {told or 'it did not say why'}")
        if kind == "content_block_start":
            block = found.content_block or _Block()
            return self._open(block, found.index if found.index is not None else len(self._blocks))
        if kind == "message_start":
            return self._start(found.message or _Message())
        if kind == "message_delta":
            return self._end(found)
        if kind == "message_stop":
            self._done = True
            return False
        return True

    def _start(self, message: _Message) -> bool:
        self._started = True
        self._id = message.id or ""
        self._model = message.model or ""
        self._count(message.usage)
        self._stop_reason = message.stop_reason or ""
        free = not self._stop_reason
        if bytes(message.content) not in _EMPTY:
            for place, block in enumerate(_decode_blocks.decode(message.content)):
                free = self._open(block, place) and free
        return free

    def _open(self, block: _Block, index: int) -> bool:
        open_ = self._index[index] = _Open(block, len(self._blocks))
        self._blocks.append(open_)
        if block.type == "fallback" and bytes(block.to) not in _NOTHING:
            # The model that goes on in place of the one that was asked.
            self._model = msgspec.json.decode(block.to, type=_Fallback).model or self._model
        return not is_agents(block.type)

    def _delta(self, found: _Event) -> bool:
        open_ = self._index.get(found.index if found.index is not None else len(self._blocks) - 1)
        if open_ is None:
            return self._broke("the stream holds a part of a content block that was never begun")
        if found.delta is not None and found.delta.partial_json:
            open_.deltas.append(found.delta.partial_json)
        return not is_agents(open_.block.type)

    def _end(self, found: _Event) -> bool:
        self._count(found.usage)
        if found.delta is None or not found.delta.stop_reason:
            return True
        self._stop_reason = found.delta.stop_reason
        return False

    def _count(self, usage: msgspec.Raw) -> None:
        """Later figures win, field by field; null tells nothing."""
        if bytes(usage) in _NOTHING:
            return
        for name, raw in _decode_fields.decode(usage).items():
            if bytes(raw) != b"null" or name not in self._usage:
                self._usage[name] = raw


def _wrong(kind: str) -> str:
    return f"the stream holds an event {kind!r} whose fields have wrong types"


def _unreadable(calls: tuple[ToolCall, ...], reason: str, last: str | None) -> tuple[str, bool]:
    """(fault, whether a limit cut a call) of calls whose input is not JSON. ``last``: the kind of the last block.

    Where a limit cut the answer, the stop reason says so, and it is no fault. A call that stands last then counts as
    cut even if its input parses: a plain answer shows what there was of it as a whole object.
    """
    for call in calls:
        try:
            msgspec.json.decode(call.arguments)
        except UNREADABLE:
            if reason not in CUT:
                return f"the input of the call of tool {call.name!r} is not JSON", False
            return "", True
    return "", reason in CUT and is_agents(last)


def judge_plain(body: bytes, kept: bool = False) -> Verdict:
    """Judge a whole message object. ``kept``: the provider holds it under its id."""
    try:
        body.decode()
        found = _decode_plain.decode(body)
    except msgspec.ValidationError:
        return Verdict("the answer is not a JSON object")
    except UNREADABLE:
        start = body.lstrip()[:1]
        return Verdict("the answer is an HTML page" if start == b"<" else "the answer is not JSON")
    if found.type == "error" or bytes(found.error) not in _NOTHING:
        return Verdict(
            f"the provider answered an error under status 200: {bytes(found.error)[:500].decode('utf-8', 'replace')}"
        )
    try:
        blocks = _decode_blocks.decode(found.content)
    except UNREADABLE:
        return Verdict("the answer has no list of content blocks")
    if not isinstance(found.stop_reason, str) or not found.stop_reason:
        return Verdict("the answer has no stop reason")
    calls = tuple(_call(place, block, "") for place, block in enumerate(blocks) if is_agents(block.type))
    unreadable, broken = _unreadable(calls, found.stop_reason, blocks[-1].type if blocks else None)
    return Verdict(
        unreadable,
        found.model if isinstance(found.model, str) else "",
        bytes(found.usage).decode() if bytes(found.usage).startswith(b"{") else "",
        calls,
        (found.stop_reason,),
        broken,
        answer_id=found.id if kept and isinstance(found.id, str) else "",
    )
