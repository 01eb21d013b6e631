"""Owns how durations are counted: a row of counters, one for each bucket. Must not measure them.

Invariant: counting one allocates nothing, so that whoever is in a hurry may do it with every call.
"""

from __future__ import annotations

from bisect import bisect_left

# Upper bounds of buckets, in seconds: for what a model takes, and for what takes us or a disk no time to speak of.
OF_MODELS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
OF_US = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Durations:
    """``counts[i]``: how many were at most ``bounds[i]`` seconds long, and longer than the bound before; the last one:
    all that were longer. ``total``: their sum, in seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = OF_US) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> tuple[list[tuple[float, int]], float]:
        """Each bound with how many were at most so long, infinity last; and the sum, in seconds."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, float("inf")), list(self.counts), strict=True):
            so_far += count
            found.append((bound, so_far))
        return found, self.total
