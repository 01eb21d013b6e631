"""Owns the conversion of a recorded Anthropic message into the shape that is asked for now. Must not be used live.

Invariant: an SDK that reads the converted answer ends with an object equal to the one it makes of the original; what
the model wrote as a tool's input keeps its spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agentstate.core.model import Shape
from agentstate.dialects import sse
from agentstate.dialects.anthropic_answer import event
from agentstate.dialects.base import UNREADABLE

_Fields = dict[str, msgspec.Raw]
_decode_fields = msgspec.json.Decoder(_Fields)
_decode_blocks = msgspec.json.Decoder(list[_Fields])
_decode_list = msgspec.json.Decoder(list[msgspec.Raw])
_NULL = msgspec.Raw(b"null")

# What stands in message_delta: in its delta, and of its usage. All else of a message stands in message_start.
_ENDING = ("stop_reason", "stop_sequence", "stop_details", "container")
_COUNTS = (
    "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "server_tool_use",
    "output_tokens_details", "iterations", "fallback_credit",
)  # fmt: skip
_GROWING = {"text_delta": "text", "thinking_delta": "thinking"}

_TOKEN = re.compile(
    r"""\s*(?:(?P<open>[{\[])|(?P<close>[}\]])|(?P<mark>[,:])|(?P<text>"(?:[^"\\]|\\.)*")|(?P<plain>[^\s{}\[\],:"]+))""",
    re.DOTALL,
)


def convert(recorded: Shape, asked: Shape, body: bytes) -> bytes:
    """The recorded body in the asked shape; the very bytes where the shapes are equal."""
    if recorded.stream == asked.stream:
        return body
    return to_stream(body) if asked.stream else to_plain(body)


# --- a stream as a plain answer ---------------------------------------------------------------------------------------


class _Block:
    """A content block that is put together. ``grown``: the pieces of its texts; ``json``: those of its input."""

    __slots__ = ("citations", "fields", "grown", "json")

    def __init__(self, fields: _Fields) -> None:
        self.fields = fields
        self.grown: dict[str, list[str]] = {}
        self.json: list[str] = []
        self.citations: list[msgspec.Raw] = []

    def add(self, delta: _Fields) -> None:
        kind = _text(delta.get("type"))
        if kind in _GROWING:
            name = _GROWING[kind]
            self.grown.setdefault(name, []).append(_text(delta.get(name)))
        elif kind == "input_json_delta":
            self.json.append(_text(delta.get("partial_json")))
        elif kind == "citations_delta":
            self.citations.append(delta.get("citation", _NULL))
        elif kind == "signature_delta":
            self.fields["signature"] = delta.get("signature", _NULL)
        elif kind == "compaction_delta":
            self.fields.update({name: raw for name, raw in delta.items() if name != "type"})

    def whole(self) -> dict[str, Any]:
        shown: dict[str, Any] = dict(self.fields)
        for name, pieces in self.grown.items():
            shown[name] = _text(self.fields.get(name)) + "".join(pieces)
        if self.citations:
            begun = self.fields.get("citations", _NULL)
            shown["citations"] = [*(() if bytes(begun) == b"null" else _decode_list.decode(begun)), *self.citations]
        written = "".join(self.json)
        if written.strip():
            shown["input"] = msgspec.Raw(readable(written).encode())
        return shown


def to_plain(body: bytes) -> bytes:
    """The events of a stream added up to a message object."""
    message: _Fields = {}
    blocks: list[_Block] = []
    places: dict[int, _Block] = {}
    usage: _Fields = {}
    for kind, fields in _events(body):
        if kind == "message_start":
            message = _inner(fields, "message")
            usage = _inner(message, "usage")
            blocks = [_Block(block) for block in _blocks(message)]
            places = dict(enumerate(blocks))
        elif kind == "content_block_start":
            block = _Block(_inner(fields, "content_block"))
            places[_place(fields, len(blocks))] = block
            blocks.append(block)
            if _text(block.fields.get("type")) == "fallback" and "model" in (to := _inner(block.fields, "to")):
                message["model"] = to["model"]
        elif kind == "content_block_delta":
            grown = places.get(_place(fields, len(blocks) - 1))
            if grown is not None:
                grown.add(_inner(fields, "delta"))
        elif kind == "message_delta":
            _overlay(usage, _inner(fields, "usage"))
            _overlay(message, _inner(fields, "delta"))
            beside = {name: raw for name, raw in fields.items() if name not in ("type", "delta", "usage")}
            _overlay(message, beside)
    whole: dict[str, Any] = dict(message)
    whole["content"] = [block.whole() for block in blocks]
    if usage:
        whole["usage"] = usage
    return msgspec.json.encode(whole)


def _events(body: bytes) -> Iterator[tuple[str, _Fields]]:
    for piece in sse.events(body):
        data = sse.data_of(piece)
        if data is None or data.strip() == b"[DONE]":
            continue
        fields = _decode_fields.decode(data)
        yield _text(fields.get("type")) or sse.name_of(piece).decode("utf-8", "replace"), fields


def _overlay(whole: _Fields, part: _Fields) -> None:
    """Later values win; null does not, except where nothing stands yet."""
    for name, raw in part.items():
        if bytes(raw) != b"null" or name not in whole:
            whole[name] = raw


def _inner(fields: Mapping[str, msgspec.Raw], name: str) -> _Fields:
    """The object in a field; empty where it is none."""
    raw = fields.get(name, _NULL)
    return _decode_fields.decode(raw) if bytes(raw).startswith(b"{") else {}


def _blocks(message: _Fields) -> list[_Fields]:
    raw = message.get("content", _NULL)
    return _decode_blocks.decode(raw) if bytes(raw).startswith(b"[") else []


def _place(fields: _Fields, otherwise: int) -> int:
    index = msgspec.json.decode(fields.get("index", _NULL))
    return int(index) if isinstance(index, int | float | str) else otherwise


def _text(raw: msgspec.Raw | None) -> str:
    """The string in a field; empty where it is none."""
    value = msgspec.json.decode(raw) if raw is not None else None
    return value if isinstance(value, str) else ""


def readable(written: str) -> str:
    """A tool's input as JSON: as it was written, or, where a limit cut it, as much of it as is whole."""
    try:
        msgspec.json.decode(written)
        return written
    except UNREADABLE:
        closed = _closed(written)
    try:
        msgspec.json.decode(closed)
        return closed
    except UNREADABLE:
        return "{}"


def _closed(written: str) -> str:
    """JSON that ends too early, ended after its last whole value."""
    closers = safe_closers = ""
    at = safe = 0
    is_key = False
    while (found := _TOKEN.match(written, at)) is not None:
        at = found.end()
        mark = found[found.lastgroup or 0]
        if found.lastgroup == "open":
            closers = ("}" if mark == "{" else "]") + closers
            is_key = mark == "{"
        elif found.lastgroup == "close":
            closers, is_key = closers[1:], False
        elif found.lastgroup == "mark":
            is_key = mark == "," and closers.startswith("}")
            continue
        elif is_key or not _is_value(mark):
            continue
        safe, safe_closers = at, closers
    return written[:safe] + safe_closers


def _is_value(mark: str) -> bool:
    try:
        msgspec.json.decode(mark)
    except UNREADABLE:
        return False
    return True


# --- a plain answer as a stream ---------------------------------------------------------------------------------------


def to_stream(body: bytes) -> bytes:
    """A message object as the events that add up to it; what is no message stays as it is."""
    try:
        whole = _decode_fields.decode(body)
        blocks = _decode_blocks.decode(whole["content"])
    except (*UNREADABLE, KeyError):
        return body
    # SDKs cannot read a stream that counts nothing.
    usage = _inner(whole, "usage") or {"input_tokens": msgspec.Raw(b"0"), "output_tokens": msgspec.Raw(b"0")}
    message: dict[str, Any] = {
        name: raw for name, raw in whole.items() if name not in (*_ENDING, "context_management", "content", "usage")
    }
    # What was written is counted at the end: some clients add the two figures up.
    begun = usage | {"output_tokens": msgspec.Raw(b"0")}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": begun}
    events = [_event("message_start", message=message)]
    for index, block in enumerate(blocks):
        start, deltas = _taken_apart(block)
        events.append(_event("content_block_start", index=index, content_block=start))
        events += (_event("content_block_delta", index=index, delta=delta) for delta in deltas)
        events.append(_event("content_block_stop", index=index))
    ending: dict[str, Any] = {
        "delta": {name: whole[name] for name in _ENDING if name in whole},
        "usage": {name: usage[name] for name in _COUNTS if name in usage},
    }
    if "context_management" in whole:
        ending["context_management"] = whole["context_management"]
    events += (_event("message_delta", **ending), _event("message_stop"))
    return b"".join(events)


def _event(kind: str, **fields: Any) -> bytes:
    """An event. Line ends in JSON are blanks between its tokens; in an event they would end the data."""
    data = msgspec.json.encode({"type": kind, **fields})
    return event(kind.encode(), data.replace(b"\n", b" ").replace(b"\r", b" "))


def _taken_apart(block: _Fields) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A content block as its beginning and its deltas; the blocks that providers send whole stay whole."""
    kind = _text(block.get("type"))
    start: dict[str, Any] = dict(block)
    deltas: list[dict[str, Any]] = []
    if kind == "text":
        start["text"] = ""
        if text := _text(block.get("text")):
            deltas.append({"type": "text_delta", "text": text})
        if bytes(block.get("citations", _NULL)).startswith(b"["):
            start["citations"] = []
            cited = _decode_list.decode(block["citations"])
            deltas += ({"type": "citations_delta", "citation": citation} for citation in cited)
    elif kind == "thinking":
        start["thinking"] = ""
        if text := _text(block.get("thinking")):
            deltas.append({"type": "thinking_delta", "thinking": text})
        if "signature" in block:
            start["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind.endswith("tool_use"):
        start["input"] = {}
        written = bytes(block.get("input", b"")).decode()
        deltas.append({"type": "input_json_delta", "partial_json": "" if written in ("{}", "null") else written})
    elif kind == "compaction":
        start = {name: None if name in ("content", "encrypted_content") else raw for name, raw in block.items()}
        told = {name: raw for name, raw in block.items() if name in ("content", "encrypted_content")}
        deltas.append({"type": "compaction_delta", **told})
    return start, deltas
