"""Durations fall into the bucket whose bound they do not pass, and add up."""

from __future__ import annotations

from agentstate.core.durations import OF_MODELS, OF_US, Durations


def test_a_duration_counts_in_every_bucket_that_it_does_not_pass() -> None:
    durations = Durations((0.1, 1.0, 10.0))
    for seconds in (0.05, 0.1, 0.5, 10.0, 11.0):
        durations.add(seconds)
    buckets, total = durations.cumulative()
    assert buckets == [(0.1, 2), (1.0, 3), (10.0, 4), (float("inf"), 5)]
    assert round(total, 6) == 21.65


def test_bounds_ascend() -> None:
    assert all(list(bounds) == sorted(set(bounds)) for bounds in (OF_MODELS, OF_US))
