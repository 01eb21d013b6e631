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
from agentstate.dialects.base import Cache, canonical

_scrubbed_items = Cache(16 * 1024 * 1024)
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
        if is_masked(item, user_text):
            digest, found = _scrubbed_item(item)
            literals.extend(found)
        else:
            digest = item.digest
        places = ",".join(str(names.setdefault(call_id, len(names))) for call_id in item.call_ids)
        state.update(digest + places.encode() + b"\0")
    return Masked(state.digest(), tuple(literals))


def _scrubbed_item(item: Item) -> tuple[bytes, tuple[str, ...]]:
    """The digest of a message with its volatile literals masked, and those. Looking through a long text takes a
    millisecond for each 100 KB, and each request of a conversation brings it again: the result is kept."""
    known: tuple[bytes, tuple[str, ...]] | None = _scrubbed_items.get(item.raw)
    if known is None:
        message = msgspec.json.decode(item.raw)
        literals: list[str] = []
        _mask_content(message, literals)
        known = sha256(canonical(_without_ids(message))).digest(), tuple(literals)
        _scrubbed_items.put(item.raw, known)
    return known


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


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """The message without call ids, nulls and cache marks."""
    shown = {key: value for key, value in message.items() if value is not None and key != "cache_control"}
    shown.pop("tool_call_id", None)
    calls = shown.get("tool_calls")
    if isinstance(calls, list):
        shown["tool_calls"] = [
            {key: part for key, part in call.items() if key != "id"} if isinstance(call, dict) else call
            for call in calls
        ]
    return shown
