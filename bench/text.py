"""Owns the text of requests and answers: made-up words, so that it compresses about as prose does.

Must not read a clock or the system's chance: the same name gives the same text, so a request can be sent again.
"""

from __future__ import annotations

import random
from functools import lru_cache

_LETTERS = "etaoinshrdlucmfwypvbgk"


@lru_cache(maxsize=8)
def corpus(name: str, size: int) -> str:
    """``size`` characters of words out of 4096, the same for the same ``name``. Plain ASCII, nothing JSON escapes."""
    chance = random.Random(name)
    words = ["".join(chance.choices(_LETTERS, k=chance.randint(2, 9))) for _ in range(4096)]
    return " ".join(chance.choices(words, k=size // 3))[:size]


class Slices:
    """Hands out consecutive parts of one corpus; starts over, shifted, when it is used up."""

    def __init__(self, name: str, size: int = 262_144) -> None:
        self._text = corpus("bench", size)
        self._at = random.Random(name).randrange(size // 2)

    def take(self, length: int) -> str:
        """The next ``length`` characters."""
        if self._at + length > len(self._text):
            self._at = (self._at + length) % 997
        part = self._text[self._at : self._at + length]
        self._at += length
        return part
