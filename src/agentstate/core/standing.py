"""Owns what the attempts of a span of time say of a provider's model: shares, durations, a strip of outcomes.

Must not read a clock or a journal: *now* comes in. Invariant: every attempt is in exactly one slot of the strip and
counted once; an attempt that is still under way is neither answered nor failed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

SLOTS = 48  # of a strip


class How(StrEnum):
    """How an attempt ended. ``LIMITED``: the provider had no room for it (429)."""

    ANSWERED = "answered"
    LIMITED = "limited"
    FAILED = "failed"
    UNDER_WAY = "under way"


class Tried(NamedTuple):
    """An attempt. ``status``: HTTP, 0 where none came; ``error``: in words, empty where it was answered; times are
    seconds since the epoch, ``finished_at``: ``None`` while it is under way."""

    status: int
    error: str
    started_at: float
    finished_at: float | None


class Slot(NamedTuple):
    """The attempts that began within one part of the span, from ``since`` on (seconds since the epoch)."""

    since: float
    answered: int = 0
    limited: int = 0
    failed: int = 0

    @property
    def calls(self) -> int:
        return self.answered + self.limited + self.failed


class Standing(NamedTuple):
    """``p50``, ``p95``: whole durations of answered attempts, seconds; ``None``: there was none."""

    answered: int = 0
    limited: int = 0
    failed: int = 0
    under_way: int = 0
    p50: float | None = None
    p95: float | None = None
    strip: tuple[Slot, ...] = ()

    @property
    def calls(self) -> int:
        """Attempts that are over."""
        return self.answered + self.limited + self.failed

    @property
    def failing(self) -> float | None:
        """The share, 0 to 1, of attempts that were not answered; ``None``: there was none."""
        return (self.limited + self.failed) / self.calls if self.calls else None


def how(tried: Tried) -> How:
    """How an attempt ended."""
    if tried.finished_at is None:
        return How.UNDER_WAY
    if 200 <= tried.status < 300 and not tried.error:
        return How.ANSWERED
    return How.LIMITED if tried.status == 429 else How.FAILED


class Tally:
    """Adds attempts up to a ``Standing``. ``since``, ``until``: the span, seconds since the epoch."""

    def __init__(self, since: float, until: float) -> None:
        self._since, self._width = since, (until - since) / SLOTS
        self._counts = {kind: [0] * SLOTS for kind in (How.ANSWERED, How.LIMITED, How.FAILED)}
        self._under_way = 0
        self._durations = array("d")

    def add(self, tried: Tried) -> None:
        kind = how(tried)
        if kind is How.UNDER_WAY:
            self._under_way += 1
            return
        place = int((tried.started_at - self._since) / self._width)
        self._counts[kind][min(max(place, 0), SLOTS - 1)] += 1
        if kind is How.ANSWERED and tried.finished_at is not None:
            self._durations.append(max(0.0, tried.finished_at - tried.started_at))

    def standing(self) -> Standing:
        answered, limited, failed = self._counts.values()
        took = sorted(self._durations)
        strip = tuple(
            Slot(self._since + place * self._width, *counts)
            for place, counts in enumerate(zip(answered, limited, failed, strict=True))
        )
        return Standing(
            sum(answered), sum(limited), sum(failed), self._under_way, quantile(took, 0.5), quantile(took, 0.95), strip
        )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value below or at which so large a share of the ordered ones lies (nearest rank); ``None``: of nothing."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
