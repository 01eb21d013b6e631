"""Owns how property tests are run: the same examples every time, bounded, whatever profile the developer has loaded.

Must not hold strategies. Invariant: a failure seen once is seen again, on every machine.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """Run a property test with ``count`` examples, derandomised."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example],
    )
