"""Owns what the wrapper tests share: an environment free of our variables and of keys, and a recording server.

Invariant: no test here can reach anything but a server that it started on 127.0.0.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.upstream import Upstream


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AGENTSTATE_", "OPENAI_", "ANTHROPIC_")) or name.lower() in (
            "http_proxy",
            "https_proxy",
            "all_proxy",
        ):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Upstream]:
    """Stands where the proxy would: answers every chat call and keeps what arrived."""
    with Upstream() as running:
        yield running
