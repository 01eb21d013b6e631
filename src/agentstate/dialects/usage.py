"""Owns reading the usage that an answer tells, as it is kept: JSON text. What it counts is in ``core.usage``.

Invariant: what a provider does not tell counts as nothing, and a usage that cannot be read is no error.
"""

from __future__ import annotations

import msgspec

from agentstate.core.usage import Tokens, counted
from agentstate.dialects.base import UNREADABLE

NONE = Tokens()


def tokens(usage: str) -> Tokens:
    """The tokens of a usage object (JSON text); none where it is empty or not to be understood."""
    if not usage:
        return NONE
    try:
        return counted(msgspec.json.decode(usage)) or NONE
    except UNREADABLE:
        return NONE
