"""Owns endpoints whose answer depends on the request alone: embeddings, moderations. Must not judge their content.

Invariant: only a JSON object under status 200 is an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentstate.core.model import Call, Item, Shape, Verdict
from agentstate.dialects import query as query_of
from agentstate.dialects import sse
from agentstate.dialects.base import (
    Blanked,
    Gate,
    Scrubbed,
    canonical,
    digest_of,
)
from agentstate.dialects.concealing import Exposed, exposed
from agentstate.dialects.reading import Fields, read_body
from agentstate.errors import AgentStateError

DENIED = frozenset({"user", "metadata", "safety_identifier"})


class Pure:
    """The dialect; see ``dialects.base.Dialect``."""

    def __init__(self, name: str, provider: str, error: Callable[[AgentStateError], bytes]) -> None:
        self.name = name
        self.provider = provider
        self._error = error

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path = query_of.asked(path, query, self.provider)
        return read_body(
            body,
            lambda kept, fields: self._parsed(method, path, kept, fields),
            lambda kept: Call(self.name, method, path, kept, digest_of((b"opaque", kept)), pure=True),
        )

    def _parsed(self, method: str, path: str, body: bytes, fields: Fields) -> Call:
        parts: list[bytes] = []
        model = ""
        for name, raw in sorted(fields.items()):
            value = msgspec.json.decode(raw)
            if name in DENIED or value is None:
                continue
            if name == "model" and isinstance(value, str):
                model = value
            if name in ("input", "messages") and b'"tools"' in raw and exposed(raw):
                raise Exposed
            parts += (name.encode(), canonical(value))
        return Call(self.name, method, path, body, digest_of(parts), model=model, pure=True)

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        raise AssertionError("pure endpoints have no messages")

    def blanked(self, item: Item) -> Blanked:
        raise AssertionError("pure endpoints have no messages")

    def spoken(self, body: bytes) -> Any:
        return msgspec.json.decode(body)

    def is_stream(self, call: Call, start: bytes) -> bool:
        return False

    def gate(self, call: Call) -> Gate:
        raise AssertionError("pure endpoints do not stream")

    def judge(self, call: Call, body: bytes) -> Verdict:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Verdict("the answer is not JSON")
        if not isinstance(value, dict) or value.get("error"):
            return Verdict("the answer is not a JSON object without error")
        model, usage = value.get("model"), value.get("usage")
        return Verdict(
            "",
            model if isinstance(model, str) else "",
            msgspec.json.encode(usage).decode() if isinstance(usage, dict) else "",
        )

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        return body

    def content_type(self, shape: Shape) -> str:
        return "application/json"

    def error(self, error: AgentStateError) -> bytes:
        return self._error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        return sse.encode(self._error(error))
