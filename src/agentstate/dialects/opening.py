"""Owns telling the opening of a stream, which only says that an answer begins, from what the model said. Pure.

Must not change bytes. Invariant: text, reasoning or anything that is not known is never taken for an opening: the worst
that a mistake does is that an answer can no longer be replaced by another attempt's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE

_decode = msgspec.json.Decoder()
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_OF_RESPONSES = frozenset(
    {
        "response.created", "response.queued", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.reasoning_summary_part.added",
    }
)  # fmt: skip
# Fields of a delta or message that say nothing of an answer.
_SILENT = frozenset({"role", "refusal", "name"})


def is_opening(shown: bytes, lines: bool = False) -> bool:
    """Whether whole events say no more than that an answer begins. ``lines``: they are lines of JSON, not events."""
    if lines:
        return all(_says_nothing(line) for line in shown.splitlines() if line.strip())
    for event in sse.events(shown):
        data = sse.data_of(event)
        if data is not None and not _says_nothing(data):
            return False
    return True


def _says_nothing(data: bytes) -> bool:
    try:
        value = _decode.decode(data)
    except UNREADABLE:
        return False
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if kind in _OF_RESPONSES:
        return True
    if kind == "ping" or (kind == "message_start" and "message" in value):
        return True
    if kind == "content_block_start":
        return _is_empty_block(value.get("content_block"))
    if isinstance(value.get("choices"), list):
        return all(_is_empty_choice(choice) for choice in value["choices"])
    if isinstance(value.get("message"), dict) and "done" in value:  # Ollama
        return not value["done"] and _is_silent(value["message"])
    return False


def _is_empty_block(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") in ("text", "thinking")
        and not (block.get("text") or block.get("thinking"))
    )


def _is_empty_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason"):
        return False
    return _is_silent(choice.get("delta") or {}) and choice.get("text") in _EMPTY


def _is_silent(said: Any) -> bool:
    return isinstance(said, dict) and all(name in _SILENT or value in _EMPTY for name, value in said.items())
