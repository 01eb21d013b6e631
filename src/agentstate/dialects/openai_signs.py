"""Owns what stands beside the calls of a chat answer and gives them away: log probabilities, signed reasoning.

Must not touch the calls. Invariant: what tells nothing of a call stays as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from agentstate.dialects.base import list_of
from agentstate.dialects.splice import NOTHING, NULL, elements, members, of_elements, of_members, value_of

# The ids of encrypted reasoning that are of the reasoning itself; other providers give it that of a call.
_OWN = b'"rs_'


def signs_call(details: msgspec.Raw | bytes) -> bool:
    """Whether reasoning in a delta names a call that is to come: some providers sign it with the call's id."""
    raw = bytes(details)
    if b"reasoning.encrypted" not in raw:
        return False
    ids = [(members(detail) or {}).get("id", NULL) for detail in elements(raw)]
    return any(name not in NOTHING and not name.startswith(_OWN) for name in ids)


def unsigned(message: dict[str, bytes], gone: frozenset[str]) -> bool:
    """Take out of a message, or a delta, the reasoning that names calls which are gone; whether there was any."""
    details = elements(message.get("reasoning_details")) if gone else []
    kept = [detail for detail in details if value_of((members(detail) or {}).get("id")) not in gone]
    if len(kept) == len(details):
        return False
    if kept:
        message["reasoning_details"] = of_elements(kept)
    else:
        del message["reasoning_details"]
    return True


def trim_logprobs(fields: dict[str, bytes], content: bytes | None) -> None:
    """Keep of a choice's log probabilities what spells its content: some providers tell those of calls as well."""
    logprobs = members(fields.get("logprobs"))
    if not logprobs or list_of(logprobs.get("content", NULL)) is None:
        return
    text = value_of(content)
    tokens = elements(logprobs["content"])
    kept = spelling(tokens, text if isinstance(text, str) else "")
    if len(kept) < len(tokens):
        refused = logprobs.get("refusal", NULL) not in NOTHING
        fields["logprobs"] = of_members({**logprobs, "content": of_elements(kept)}) if kept or refused else NULL


def spelling(tokens: Sequence[bytes], text: str) -> list[bytes]:
    """The first of some tokens, as long as they spell a text."""
    wanted = text.encode("utf-8", "replace")
    kept: list[bytes] = []
    spelt = b""
    for token in tokens:
        spelt += _spelt(value_of(token))
        if not wanted.startswith(spelt):
            break
        kept.append(token)
    return kept


def _spelt(token: Any) -> bytes:
    """The bytes of a token; of what is none, some that no text holds."""
    if not isinstance(token, dict):
        return b"\xff"
    raw, text = token.get("bytes"), token.get("token")
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        return bytes(raw)
    return text.encode("utf-8", "replace") if isinstance(text, str) else b"\xff"
