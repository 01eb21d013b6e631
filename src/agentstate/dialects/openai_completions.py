"""Owns OpenAI's legacy completions, a prompt and its texts: how a request is read, an answer converted.

Must not change what passes through; answers are judged as those of chat are, whose frame they share. Invariant: two
bodies have the same canonical parts exactly when no provider could tell the difference by its answer.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core.model import Call, Item, Shape, Verdict
from agentstate.dialects import openai_shape, sse, volatile
from agentstate.dialects import query as query_of
from agentstate.dialects.base import (
    Blanked,
    Scrubbed,
    canonical,
    digest_of,
    lenient,
    openai_error,
)
from agentstate.dialects.openai_answer import StreamGate, judge_plain
from agentstate.dialects.openai_chat import DENIED
from agentstate.dialects.reading import Fields, read_body
from agentstate.errors import AgentStateError

_DONE = sse.encode(b"[DONE]")


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class OpenAICompletions:
    """The dialect; see ``dialects.base.Dialect``."""

    name = "openai_completions"
    provider = "openai"

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path = query_of.asked(path, query, self.provider)
        return read_body(
            body,
            lambda kept, fields: self._parsed(method, path, kept, fields),
            lambda kept: self._opaque(method, path, kept),
        )

    def _parsed(self, method: str, path: str, body: bytes, fields: Fields) -> Call:
        shape = Shape(fields.get("stream") == b"true", _wants_usage(fields.get("stream_options")))
        raw = fields.pop("prompt", b"null")
        prompt = msgspec.json.decode(raw)
        values = {name: msgspec.json.decode(found) for name, found in sorted(fields.items()) if name not in DENIED}
        parts = [
            part for name, value in values.items() if value is not None for part in (name.encode(), canonical(value))
        ]
        model, count = values.get("model"), values.get("n")
        items: tuple[Item, ...] = ()
        if prompt is not None:
            items = (Item(raw, sha256(raw).digest(), sha256(canonical(prompt)).digest(), "user"),)
        return Call(
            self.name, method, path, body, digest_of(parts), items,
            model=model if isinstance(model, str) else "",
            choices=(count if isinstance(count, int) else 1) * _prompts(prompt), shape=shape,
        )  # fmt: skip

    def _opaque(self, method: str, path: str, body: bytes) -> Call:
        """Valid JSON that only a lenient parser takes: its very bytes are its question."""
        value = lenient(body, ValueError("the request body is not valid JSON"))
        options, model = value.get("stream_options"), value.get("model")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        return Call(
            self.name, method, path, body, digest_of((b"opaque", body)), model=model if isinstance(model, str) else "",
            shape=Shape(value.get("stream") is True, usage),
        )  # fmt: skip

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        prompt = msgspec.json.decode(item.raw)
        if not user_text:
            return Scrubbed(item.digest, (), tuple(volatile.texts(prompt)))
        literals: list[str] = []
        masked = _masked(prompt, literals)
        return Scrubbed(sha256(canonical(masked)).digest(), tuple(literals), ())

    def blanked(self, item: Item) -> Blanked:
        return Blanked(canonical(msgspec.json.decode(item.raw)))

    def spoken(self, body: bytes) -> Any:
        return msgspec.json.decode(body).get("choices")

    def is_stream(self, call: Call, start: bytes) -> bool:
        return start[:1] not in (b"{", b"[", b"<")

    def gate(self, call: Call) -> StreamGate:
        return StreamGate(call.choices)

    def judge(self, call: Call, body: bytes) -> Verdict:
        return judge_plain(body)

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        if recorded.stream and asked.stream:
            return openai_shape.convert(recorded, asked, body)  # only the usage chunk comes or goes
        if recorded.stream == asked.stream:
            return body
        return to_stream(body, asked.usage) if asked.stream else to_plain(body)

    def content_type(self, shape: Shape) -> str:
        return "text/event-stream; charset=utf-8" if shape.stream else "application/json"

    def error(self, error: AgentStateError) -> bytes:
        return openai_error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        return sse.encode(openai_error(error))


def _wants_usage(raw: bytes | None) -> bool:
    if raw is None:
        return False
    try:
        return msgspec.json.decode(raw, type=_StreamOptions).include_usage is True
    except msgspec.DecodeError:
        return False


def _prompts(prompt: Any) -> int:
    """How many prompts there are: a list holds several, unless it is one prompt as token numbers."""
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        return len(prompt)
    return 1


def _masked(prompt: Any, literals: list[str]) -> Any:
    if isinstance(prompt, str):
        return volatile.scrub(prompt, literals)
    return [_masked(part, literals) for part in prompt] if isinstance(prompt, list) else prompt


# --- the answer -------------------------------------------------------------------------------------------------------


def to_stream(body: bytes, usage: bool) -> bytes:
    """A completion object as the chunks that add up to it. ``usage``: end with a usage chunk."""
    whole = msgspec.json.decode(body)
    common = {key: value for key, value in whole.items() if key not in ("choices", "usage")}
    chunks: list[dict[str, Any]] = []
    for choice in sorted(whole.get("choices") or (), key=lambda choice: choice.get("index") or 0):
        chunks.append({**common, "choices": [{**choice, "finish_reason": None}]})
        last = {"text": "", "index": choice.get("index") or 0, "logprobs": None}
        chunks.append({**common, "choices": [{**last, "finish_reason": choice.get("finish_reason")}]})
    if usage:
        for chunk in chunks:
            chunk["usage"] = None
        chunks.append({**common, "choices": [], "usage": whole.get("usage")})
    return b"".join(sse.encode(msgspec.json.encode(chunk)) for chunk in chunks) + _DONE


def to_plain(body: bytes) -> bytes:
    """The chunks of a stream added up to a completion object."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in sse.events(body):
        data = sse.data_of(event)
        if data is None or data.strip() == b"[DONE]":
            continue
        for key, value in msgspec.json.decode(data).items():
            if key == "choices":
                whole.setdefault(key, None)  # keeps its place among the fields
                for part in value or ():
                    _add_choice(choices.setdefault(part.get("index") or 0, {}), part)
            elif value not in (None, "", 0) or key not in whole:
                whole[key] = value
    whole["choices"] = [choices[index] for index in sorted(choices)]
    for name in ("usage", "obfuscation"):
        if name == "obfuscation" or whole.get(name) is None:
            whole.pop(name, None)
    return msgspec.json.encode(whole)


def _add_choice(choice: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        old = choice.get(key)
        if key == "text" and isinstance(old, str) and isinstance(value, str):
            choice[key] = old + value
        elif key == "logprobs" and isinstance(old, dict) and isinstance(value, dict):
            choice[key] = {name: _joined(old.get(name), value.get(name)) for name in {**old, **value}}
        elif value is not None or key not in choice:
            choice[key] = value


def _joined(old: Any, new: Any) -> Any:
    """Lists of tokens and their figures, one after the other."""
    if isinstance(old, list) and isinstance(new, list):
        return old + new
    return old if new is None else new
