"""Owns whether a piece of a stream says anything yet: text, thoughts, a call. Must not decide what is shown.

Invariant: what is not understood says something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agentstate.dialects.base import UNREADABLE

_LIFECYCLE = frozenset({"response.created", "response.queued", "response.in_progress"})
_OPENING = frozenset({"message_start", "ping"})


def says(dialect: str, piece: bytes) -> bool:
    """Whether whole events of a stream in a wire format, by its name, say anything."""
    try:
        return any(_says(dialect, event) for event in _events(piece))
    except UNREADABLE:
        return True


def _events(piece: bytes) -> Iterator[Any]:
    for line in piece.splitlines():
        data = line[5:].strip() if line.startswith(b"data:") else line.strip()
        if data.startswith(b"{"):
            yield msgspec.json.decode(data)
        elif data and not line.startswith((b":", b"event:", b"id:", b"retry:")):
            yield None


def _says(dialect: str, event: Any) -> bool:
    if not isinstance(event, dict):
        return True
    if dialect == "openai_chat":
        choices = event.get("choices")
        return not isinstance(choices, list) or any(_moves(choice) for choice in choices)
    if dialect == "anthropic_messages":
        return event.get("type") not in _OPENING
    if dialect == "openai_responses":
        return event.get("type") not in _LIFECYCLE
    return True


def _moves(choice: Any) -> bool:
    """Whether a choice of a chunk has more in it than who speaks."""
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None:
        return True
    delta = choice.get("delta")
    return not isinstance(delta, dict) or any(value for name, value in delta.items() if name != "role")
