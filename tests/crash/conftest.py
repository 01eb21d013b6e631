"""What the tests that kill agents, proxies and servers of tools share: a counter of effects in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.effects import EffectsCounter


@pytest.fixture(scope="module")
def counter_process() -> Iterator[EffectsCounter]:
    with EffectsCounter() as counter:
        yield counter


@pytest.fixture
def counter(counter_process: EffectsCounter) -> EffectsCounter:
    """The module's counter, with nothing counted and nothing armed."""
    counter_process.reset()
    return counter_process
