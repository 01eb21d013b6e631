"""Owns the two matches that are not strict, for any dialect: masked text, and the pointer of echoed tool-call ids.

Must not decide whether they may be used. Invariant: what is forwarded is never masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core import mask
from agentstate.core.fingerprint import in_canonical_order
from agentstate.core.model import Call, Item
from agentstate.dialects.base import Cache, Dialect, Scrubbed

_scrubbed: dict[tuple[str, bool], Cache] = {}
_MOST_BYTES = 8 * 1024 * 1024  # of messages whose masked form is kept, for each dialect


@dataclass(frozen=True, slots=True)
class Masked:
    """``skeleton``: digest of the request with volatile literals masked; ``literals``: those, in order; ``plain``: the
    texts that were not masked."""

    skeleton: bytes
    literals: tuple[str, ...]
    plain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    """``digest``: of the request less the content of tool results; ``ids``: the call ids whose results it sends."""

    digest: bytes
    ids: tuple[str, ...]


def masked(dialect: Dialect, call: Call, user_text: bool = False) -> Masked:
    """The call with system, developer and tool-result text masked; user text only where it was declared."""
    state = sha256(call.frame)
    literals: list[str] = []
    plain: list[str] = []
    names: dict[str, int] = {}
    for item in _all(call):
        found = scrubbed(dialect, item, user_text)
        literals.extend(found.literals)
        plain.extend(found.plain)
        places = ",".join(str(names.setdefault(call_id, len(names))) for call_id in item.call_ids)
        state.update(found.digest + places.encode() + b"\0")
    return Masked(state.digest(), tuple(literals), tuple(plain))


def scrubbed(dialect: Dialect, item: Item, user_text: bool) -> Scrubbed:
    """A message masked. Looking through a long text takes a millisecond for each 100 KB, and each request of a
    conversation brings it again: the result is kept."""
    cache = _scrubbed.setdefault((dialect.name, user_text), Cache(_MOST_BYTES))
    known: Scrubbed | None = cache.get(item.raw)
    if known is None:
        known = dialect.scrubbed(item, user_text)
        cache.put(item.raw, known)
    return known


def pointer(dialect: Dialect, call: Call) -> Pointer | None:
    """The call as what it follows; ``None`` when it sends no tool result. Call ids count as they are."""
    ids: list[str] = []
    state = sha256(call.frame)
    for part in call.context:
        state.update(part.digest)
    for item in in_canonical_order(call.items):
        blanked = dialect.blanked(item)
        ids.extend(blanked.ids)
        state.update(blanked.digest)
        state.update(b"\0")
    return Pointer(state.digest(), tuple(ids)) if ids else None


def _all(call: Call) -> Iterator[Item]:
    yield from call.context
    yield from in_canonical_order(call.items)


# --- for dialects ---


def scrub(text: str, literals: list[str]) -> str:
    """The text masked; its literals are added to ``literals``."""
    shown, found = mask.scrub(text)
    literals.extend(found)
    return shown


def texts(value: Any) -> list[str]:
    """All texts in a JSON value; what is JSON in a text, as tool arguments are, is looked into."""
    if isinstance(value, str):
        if value[:1] in ("{", "["):
            try:
                return [value, *texts(msgspec.json.decode(value))]
            except (msgspec.DecodeError, RecursionError):
                return [value]
        return [value]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    return []
