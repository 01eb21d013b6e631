"""Owns the two matches that are not strict, for chat requests: masked text, and the pointer of echoed tool-call ids.

Must not decide whether they may be used. Invariant: what is forwarded is never masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core import mask
from agentstate.core.fingerprint import in_canonical_order
from agentstate.core.model import Call, Item
from agentstate.dialects.base import canonical

_ALWAYS = frozenset({"system", "developer", "tool"})


@dataclass(frozen=True, slots=True)
class Masked:
    """``skeleton``: digest of the request with volatile literals masked; ``literals``: those, in order."""

    skeleton: bytes
    literals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    """``digest``: of the request less the content of tool results; ``ids``: the call ids whose results it sends."""

    digest: bytes
    ids: tuple[str, ...]


def is_masked(item: Item, user_text: bool) -> bool:
    """Whether the text of this message is masked."""
    return item.role in _ALWAYS or (user_text and item.role == "user")


def masked(call: Call, user_text: bool = False) -> Masked:
    """The call with system, developer and tool-result text masked; user text only where it was declared."""
    state = sha256(call.frame)
    literals: list[str] = []
    names: dict[str, int] = {}
    for item in in_canonical_order(call.items):
        message = msgspec.json.decode(item.raw)
        if is_masked(item, user_text):
            _mask_content(message, literals)
        state.update(canonical(_with_ids(message, names)))
        state.update(b"\0")
    return Masked(state.digest(), tuple(literals))


def pointer(call: Call) -> Pointer | None:
    """The call as what it follows; ``None`` when it sends no tool result. Call ids count as they are."""
    ids = [item.answers for item in call.items if item.answers is not None]
    if not ids:
        return None
    state = sha256(call.frame)
    for item in in_canonical_order(call.items):
        state.update(_blanked(item))
        state.update(b"\0")
    return Pointer(state.digest(), tuple(ids))


def _blanked(item: Item) -> bytes:
    message = msgspec.json.decode(item.raw)
    if item.answers is not None:
        message["content"] = None
    return canonical(message)


def _mask_content(message: dict[str, Any], literals: list[str]) -> None:
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = _scrubbed(content, literals)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                part["text"] = _scrubbed(part["text"], literals)


def _scrubbed(text: str, literals: list[str]) -> str:
    shown, found = mask.scrub(text)
    literals.extend(found)
    return shown


def _with_ids(message: dict[str, Any], names: dict[str, int]) -> dict[str, Any]:
    """The message with call ids renamed by order of appearance, nulls and cache marks left out."""
    shown = {key: value for key, value in message.items() if value is not None and key != "cache_control"}
    calls = shown.get("tool_calls")
    if isinstance(calls, list):
        shown["tool_calls"] = [
            {**call, "id": names.setdefault(str(call.get("id")), len(names))} if isinstance(call, dict) else call
            for call in calls
        ]
    if isinstance(shown.get("tool_call_id"), str):
        shown["tool_call_id"] = names.setdefault(shown["tool_call_id"], len(names))
    return shown
