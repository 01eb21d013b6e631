"""Owns how large the writes of long work are, and how long it rests between them, so that live calls do not notice it.

Must not know the work. Invariant: a write that took too long makes the next one smaller, and the writer is free for
longer than it was busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

AIM_S = 0.003  # how long one write may keep the writer busy
_FIRST, _MOST = 16, 512
_REST = 2.0  # times as long as a write took


class Pace:
    """``size``: of the next write."""

    def __init__(self) -> None:
        self.size = _FIRST

    async def rest(self, seconds: float) -> None:
        """A write kept the writer busy for so long: rest, and let the next one be of the right size."""
        if seconds > AIM_S:
            self.size = max(1, self.size // 2)
        elif seconds < AIM_S / 2:
            self.size = min(_MOST, self.size * 2)
        await asyncio.sleep(_REST * seconds)


def ids_at_a_time(ids: Sequence[int], pace: Pace) -> Iterator[list[int]]:
    """All of them, in pieces of the size that is right then."""
    at = 0
    while at < len(ids):
        size = pace.size
        yield list(ids[at : at + size])
        at += size
