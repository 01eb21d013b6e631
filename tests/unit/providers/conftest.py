"""Owns what the tests of providers share: each asynchronous one runs on both event loops that the proxy may use.

Must not hold scripts. Invariant: both loops run the same test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """By name: who makes the loop."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
