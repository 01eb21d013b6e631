"""Owns the two matches that are not strict, for any dialect: masked text, and the pointer of echoed tool-call ids.

Must not decide whether they may be used. Invariant: what is forwarded is never masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
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

# Marks in which clients put what they, not their user, have to say in a message of the role user: Claude Code's
# reminders and Codex's description of the place.
GENERATED = ("system-reminder", "environment_context")

# While a message is masked: the folders that are, and whether it is the client who speaks. Dialects know only texts.
_masking: ContextVar[tuple[tuple[str, ...], bool]] = ContextVar("masking", default=((), True))


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


def masked(dialect: Dialect, call: Call, user_text: bool = False, folders: tuple[str, ...] = ()) -> Masked:
    """The call with system, developer and tool-result text masked; user text only where it was declared.

    ``folders``: masked wherever they stand in such text, see ``mask.scrub``.
    """
    state = sha256(call.frame)
    literals: list[str] = []
    plain: list[str] = []
    names: dict[str, int] = {}
    for item in _all(call):
        found = scrubbed(dialect, item, user_text, folders)
        literals.extend(found.literals)
        plain.extend(found.plain)
        places = ",".join(str(names.setdefault(call_id, len(names))) for call_id in item.call_ids)
        state.update(found.digest + places.encode() + b"\0")
    return Masked(state.digest(), tuple(literals), tuple(plain))


def compared(dialect: Dialect, old: Call, new: Call, user_text: bool) -> tuple[Masked, Masked] | None:
    """Both calls masked, if they are equal then; ``None``: they differ in more than volatile text.

    An agent that has moved names its new folders in one message and meets them in others, so that those are masked
    everywhere, but only if they have changed.
    """
    alike = (old.dialect, old.method, old.path, old.frame) == (new.dialect, new.method, new.path, new.frame)
    if not alike or len(old.items) != len(new.items) or len(old.context) != len(new.context):
        return None
    pairs = zip((*old.context, *old.items), (*new.context, *new.items), strict=True)
    changed = [(was, is_) for was, is_ in pairs if was.digest != is_.digest]
    if any(was.role != is_.role for was, is_ in changed):
        return None
    was_folders, is_folders = (
        mask.folders_in(text for pair in changed for text in scrubbed(dialect, pair[side], user_text).literals)
        for side in (0, 1)
    )
    if was_folders == is_folders:
        was_folders = is_folders = ()
    # What differs must be equal once it is masked; that is looked at first, as it costs little.
    for was_item, is_item in changed:
        one = scrubbed(dialect, was_item, user_text, was_folders)
        if one.digest != scrubbed(dialect, is_item, user_text, is_folders).digest:
            return None
    was, is_ = masked(dialect, old, user_text, was_folders), masked(dialect, new, user_text, is_folders)
    return (was, is_) if was.skeleton == is_.skeleton else None


def scrubbed(dialect: Dialect, item: Item, user_text: bool, folders: tuple[str, ...] = ()) -> Scrubbed:
    """A message masked. Looking through a long text takes 20 ms for each 100 KB (source code, on the machine where the
    tests run), and each request of a conversation brings it again: the result is kept."""
    cache = _scrubbed.setdefault((dialect.name, user_text), Cache(_MOST_BYTES))
    key = b"\0".join([*(path.encode() for path in folders), item.raw])
    known: Scrubbed | None = cache.get(key)
    if known is None:
        speaks = item.role in ("system", "developer") or (user_text and item.role == "user")
        token = _masking.set((folders, speaks))
        try:
            known = dialect.scrubbed(item, user_text)
        finally:
            _masking.reset(token)
        known = Scrubbed(known.digest, known.literals, _said(item, known.plain))
        cache.put(key, known)
    return known


def _said(item: Item, plain: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of a message less its role, which dialects that look at it whole take for one: a folder may be called
    like it."""
    if plain.count(item.role) == 0 or plain.count(item.role) < texts(msgspec.json.decode(item.raw)).count(item.role):
        return plain
    place = plain.index(item.role)
    return plain[:place] + plain[place + 1 :]


def pointer(dialect: Dialect, call: Call) -> Pointer | None:
    """The call as what it follows; ``None`` when it sends no tool result. Call ids count as they are."""
    ids: list[str] = []
    state = sha256(f"{call.method}\0{call.path}\0".encode() + call.frame)
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
    folders, speaks = _masking.get()
    shown, found = mask.scrub(text, folders, speaks or is_generated(text))
    literals.extend(found)
    return shown


def is_generated(part: Any) -> bool:
    """Whether a text part of a user's message is, as a whole, what the client has to say: one block in its marks.

    A part in which anything stands outside of them, or which opens or closes them twice, is the user's.
    """
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        return False
    text = text.strip()
    return any(
        text.startswith(f"<{mark}>")
        and text.endswith(f"</{mark}>")
        and text.count(f"<{mark}>") == 1 == text.count(f"</{mark}>")
        for mark in GENERATED
    )


def mask_generated(message: dict[str, Any], literals: list[str]) -> dict[str, Any]:
    """Mask, in place, the parts of a user's message that the client has generated; the message without them."""
    content = message.get("content")
    if is_generated(content):
        message["content"] = scrub(str(content), literals)
        return message | {"content": None}
    if not isinstance(content, list):
        return message
    own = []
    for part in content:
        if isinstance(part, dict) and is_generated(part):
            part["text"] = scrub(part["text"], literals)
        else:
            own.append(part)
    return message | {"content": own}


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
