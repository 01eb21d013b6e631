"""Owns OpenAI chat completions: how a request is read. Must not change what passes through.

Invariant: two bodies have the same canonical parts exactly when no provider could tell the difference by its answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core.model import Call, Change, Item, OfferedTool, Shape, ToolResult, Verdict
from agentstate.dialects import openai_amend, openai_follow, openai_ids, openai_shape, sse, volatile
from agentstate.dialects import query as query_of
from agentstate.dialects.base import (
    Blanked,
    Cache,
    Scrubbed,
    canonical,
    digest_of,
    frame_key,
    openai_error,
    tool_set,
    unmarked,
)
from agentstate.dialects.conversation import Conversations
from agentstate.dialects.openai_answer import StreamGate, judge_plain
from agentstate.dialects.reading import Fields, read_body
from agentstate.errors import AgentStateError

# Cannot change the answer: how it is delivered, whom it is for, what the provider's prompt cache keeps.
DENIED = frozenset(
    {
        "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_options",
    }
)  # fmt: skip

_frames = Cache(8 * 1024 * 1024)
_MASKED = frozenset({"system", "developer", "tool"})  # roles whose text may be volatile


class _Frame(msgspec.Struct, frozen=True):
    digest: bytes
    model: str
    choices: int


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class OpenAIChat:
    """The dialect; see ``dialects.base.Dialect``."""

    name = "openai_chat"
    provider = "openai"

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path = query_of.asked(path, query, self.provider)
        return read_body(
            body,
            lambda kept, fields: self._parsed(method, path, kept, fields),
            lambda kept: _opaque(method, path, kept),
        )

    def _parsed(self, method: str, path: str, body: bytes, fields: Fields) -> Call:
        array = fields.pop("messages", b"")
        shape = Shape(fields.get("stream") == b"true", _wants_usage(fields.get("stream_options")))
        frame = _frame(fields)
        messages = _conversations.read(array) if array else None
        if messages is None:
            # Not a list of messages: the provider will say so. What is there still counts in the fingerprint.
            digest = digest_of((frame.digest, array)) if array else frame.digest
            return Call(self.name, method, path, body, digest, model=frame.model, choices=frame.choices, shape=shape)
        return Call(
            self.name, method, path, body, frame.digest, messages.items, *messages.around(array, body), frame.model,
            frame.choices, shape,
        )  # fmt: skip

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        message = msgspec.json.decode(item.raw)
        if item.role not in _MASKED and not (user_text and item.role == "user"):
            return Scrubbed(item.digest, (), tuple(volatile.texts(message)))
        literals: list[str] = []
        _mask_content(message, literals)
        return Scrubbed(sha256(canonical(_without_ids(message))).digest(), tuple(literals), ())

    def blanked(self, item: Item) -> Blanked:
        message = msgspec.json.decode(item.raw)
        if item.answers is None:
            return Blanked(canonical(message))
        message["content"] = None
        return Blanked(canonical(message), (item.answers,))

    def spoken(self, body: bytes) -> Any:
        return msgspec.json.decode(body).get("choices")

    def is_stream(self, call: Call, start: bytes) -> bool:
        return start[:1] not in (b"{", b"[", b"<")

    def gate(self, call: Call) -> StreamGate:
        return StreamGate(call.choices)

    def judge(self, call: Call, body: bytes) -> Verdict:
        return judge_plain(body)

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        return openai_shape.convert(recorded, asked, body)

    def filled(self, shape: Shape, body: bytes, make: Callable[[], str]) -> bytes:
        return openai_ids.filled_stream(body, make) if shape.stream else openai_ids.filled_plain(body, make)

    def offered(self, call: Call) -> tuple[OfferedTool, ...]:
        return openai_follow.offered(call.body)

    def results(self, call: Call) -> tuple[ToolResult, ...]:
        return openai_follow.results(call)

    def amended(self, call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
        return openai_amend.amended(shape.stream, body, changes, said)

    def continued(self, call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
        return openai_follow.continued(call.body, self.convert(shape, Shape(), body), results)

    def content_type(self, shape: Shape) -> str:
        return "text/event-stream; charset=utf-8" if shape.stream else "application/json"

    def error(self, error: AgentStateError) -> bytes:
        return openai_error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        return sse.encode(openai_error(error))


def _opaque(method: str, path: str, body: bytes) -> Call:
    """Valid JSON that only a lenient parser takes: its very bytes are its question."""
    value = json.loads(body)
    options = value.get("stream_options")
    shape = Shape(value.get("stream") is True, isinstance(options, dict) and options.get("include_usage") is True)
    model = value.get("model")
    return Call(
        OpenAIChat.name, method, path, body, sha256(b"opaque\0" + body).digest(),
        model=model if isinstance(model, str) else "", shape=shape,
    )  # fmt: skip


def _wants_usage(raw: bytes | None) -> bool:
    if raw is None:
        return False
    try:
        options = msgspec.json.decode(raw, type=_StreamOptions)
    except msgspec.DecodeError:
        return False
    return options.include_usage is True


# --- the request ------------------------------------------------------------------------------------------------------


def _frame(fields: Fields) -> _Frame:
    """Everything but the messages and the denied fields."""
    kept = [(name, raw) for name, raw in sorted(fields.items()) if name not in DENIED]
    named = [(name.encode(), raw) for name, raw in kept]
    key = frame_key(named)
    known = _frames.get(key)
    if known is not None:
        return known  # type: ignore[no-any-return]
    parts = []
    model, choices = "", 1
    for name, raw in kept:
        value = msgspec.json.decode(raw)
        if value is None:
            continue
        if name == "model" and isinstance(value, str):
            model = value
        if name == "n" and isinstance(value, int):
            choices = value
        parts.append(name.encode())
        parts.append(tool_set(value) if name == "tools" else canonical(value))
    frame = _Frame(digest_of(parts), model, choices)
    _frames.put(key, frame)
    return frame


def item_of(raw: bytes, message: dict[str, Any]) -> Item:
    """A message as the fingerprint sees it."""
    ids: list[str] = []
    shown = unmarked(message)
    content = shown.get("content")
    if isinstance(content, list):
        shown["content"] = [unmarked(part) for part in content]
    calls = shown.get("tool_calls")
    if isinstance(calls, list):
        shown["tool_calls"] = [_renamed(call, "id", ids) for call in calls]
    answers = shown.get("tool_call_id")
    if isinstance(answers, str):
        shown = _renamed(shown, "tool_call_id", ids)
    role = message.get("role")
    return Item(
        raw,
        sha256(raw).digest(),
        sha256(canonical(shown)).digest(),
        role if isinstance(role, str) else "",
        tuple(ids),
        answers if isinstance(answers, str) and role == "tool" else None,
    )


def _renamed(value: Any, key: str, ids: list[str]) -> Any:
    """The object with its call id replaced by the place at which that id stands in ``ids``."""
    if not isinstance(value, dict):
        return value
    shown = unmarked(value)
    call_id = shown.get(key)
    if isinstance(call_id, str):
        if call_id not in ids:
            ids.append(call_id)
        shown[key] = {"call": ids.index(call_id)}
    return shown


def _mask_content(message: dict[str, Any], literals: list[str]) -> None:
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = volatile.scrub(content, literals)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                part["text"] = volatile.scrub(part["text"], literals)


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """The message without call ids, nulls and cache marks."""
    shown: dict[str, Any] = unmarked(message)
    shown.pop("tool_call_id", None)
    calls = shown.get("tool_calls")
    if isinstance(calls, list):
        shown["tool_calls"] = [
            {key: part for key, part in call.items() if key != "id"} if isinstance(call, dict) else call
            for call in calls
        ]
    return shown


_conversations = Conversations(item_of)
