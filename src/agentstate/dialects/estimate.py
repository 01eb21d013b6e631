"""Owns how large a call may get, told from its request before it is sent. Pure. Must not price it.

Invariant: it is an estimate on the safe side, never an account of what was used: that is the provider's own usage.
"""

from __future__ import annotations

import re

from agentstate.core.model import Call
from agentstate.core.usage import Tokens
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.splice import members, value_of

# JSON text has about four bytes a token in English and fewer in other languages and in code.
BYTES_A_TOKEN = 3
# What a call makes where it sets no limit: most answers of agents are shorter.
UNLIMITED_TOKENS = 2048
# A picture or document, however many bytes it has: about what a large picture counts.
PICTURE_TOKENS = 1600
_ENCODED = re.compile(rb"[A-Za-z0-9+/=_-]{2000,}")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "max_tokens_to_sample")
_NESTED = (
    ("generationConfig", "maxOutputTokens"),
    ("generation_config", "max_output_tokens"),
    ("options", "num_predict"),
)


def of(call: Call) -> Tokens:
    """The most that a call is likely to take: ``input`` by its size, ``output`` by the limit that it sets itself."""
    body = call.body
    size, pictures = len(body), 0
    if size > 2000:
        for found in _ENCODED.finditer(body):
            pictures += 1
            size -= found.end() - found.start()
    given = size // BYTES_A_TOKEN + 1 + pictures * PICTURE_TOKENS
    return Tokens(given, 0 if call.pure else _most(body) * max(call.choices, 1))


def _most(body: bytes) -> int:
    try:
        fields = members(body) or {}
    except UNREADABLE:
        fields = {}
    found = [value_of(fields.get(name)) for name in _LIMITS]
    for outer, inner in _NESTED:
        value = value_of(fields.get(outer))
        found.append(value.get(inner) if isinstance(value, dict) else None)
    limits = [number for number in found if isinstance(number, int) and not isinstance(number, bool) and number > 0]
    return min(limits) if limits else UNLIMITED_TOKENS
