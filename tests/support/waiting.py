"""Owns waiting for what another process or thread brings about. Must not decide whether that is right.

Invariant: every wait is bounded, and says what did not come about.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BOUND_S = 20.0


def until(condition: Callable[[], Any], what: str = "it did not come about", seconds: float = BOUND_S) -> Any:
    """What ``condition`` gives once it is true; fails after a bound."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found
