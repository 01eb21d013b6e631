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


def read(shown: bytes, lines: bool = False) -> tuple[bool, str]:
    """(whether whole events say no more than that an answer begins, the model that they name, empty: none). ``lines``:
    they are lines of JSON, not events."""
    silent, model = True, ""
    for data in shown.splitlines() if lines else map(sse.data_of, sse.events(shown)):
        if not data or not data.strip():
            continue
        value = _decoded(data)
        model = model or _model(value)
        if not _says_nothing(value):
            silent = False
            break
    return silent, model


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        value = _decode.decode(data)
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}


def _model(value: dict[str, Any]) -> str:
    """Where the wire formats name who answers."""
    for place in (value, value.get("message"), value.get("response")):
        if isinstance(place, dict):
            found = place.get("model") or place.get("modelVersion")
            if isinstance(found, str):
                return found
    return ""


def _says_nothing(value: dict[str, Any]) -> bool:
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
