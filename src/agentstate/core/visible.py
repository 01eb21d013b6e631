"""Owns how texts from agents and models are made fit for a person to judge. Must not shorten them.

Invariant: what a person sees is what there is: no character is invisible, changes the order of others or passes for a
plain space, and arguments that cannot be laid out without loss are shown to the letter.
"""

from __future__ import annotations

import json
import math
import unicodedata
from decimal import Decimal
from typing import Any

# Seen as nothing or as a space though their category does not say so: fillers, joiners, the blank Braille pattern.
_HIDDEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text with every character that cannot be seen, or moves others, as ``‹U+202E›``; lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"‹U+{ord(char):04X}›" if _unseen(char) else char for char in text)


def _unseen(char: str) -> bool:
    if char in "\n\t" or " " <= char <= "~":
        return False
    if char in _HIDDEN or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return True
    category = unicodedata.category(char)
    return category in _CATEGORIES or (category == "Zs" and char != " ")


def laid_out(arguments: str) -> tuple[str, str]:
    """(the arguments of a call for a person to read, why they are shown to the letter; empty: they are laid out)."""
    try:
        value = json.loads(arguments, object_pairs_hook=_once, parse_float=_exact, parse_constant=_no_number)
        return visible(json.dumps(value, indent=2, ensure_ascii=False)), ""
    except _Loss as loss:
        return visible(arguments), str(loss)
    except (ValueError, RecursionError):
        return visible(arguments), "they are not JSON" if arguments.strip() else "there are none"


class _Loss(Exception):
    """Laid out, something would be lost."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Loss("a name stands in them twice, and programs differ in which one counts")
    return found


def _exact(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Loss("a number in them is too large")
    try:
        if Decimal(repr(value)) == Decimal(text):
            return value
    except ArithmeticError as error:
        raise _Loss("a number in them is too small") from error
    raise _Loss("a number in them has more digits than programs keep")


def _no_number(text: str) -> float:
    raise _Loss(f"{text} stands in them, which is no JSON")
