"""Owns what the client tests share: a real proxy before a scripted provider, and one before the simulator.

Invariant: everything listens on 127.0.0.1 and is ended with the test module that started it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.lives import Life
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream


@pytest.fixture(scope="module")
def provider() -> Iterator[Upstream]:
    """The scripted provider behind ``proxy``; reset its script in each test."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, provider: Upstream) -> Iterator[Proxy]:
    """``agentstate serve`` before the scripted provider."""
    with Proxy(tmp_path_factory.mktemp("proxy"), provider.url, file="policies = []\n") as running:
        yield running


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """``agentstate serve --simulate``."""
    with Proxy(tmp_path_factory.mktemp("simulator"), arguments=["--simulate"]) as running:
        yield running


@pytest.fixture
def lives() -> Iterator[list[Life]]:
    """The agent processes of a test; whichever still runs at its end is killed."""
    started: list[Life] = []
    yield started
    for life in started:
        life.kill()
