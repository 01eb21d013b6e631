"""Owns the part of the person in tests of tool calls: waiting for a question, and giving the answer that is true.

What is true, the counter of effects says. Must not guess. Invariant: every wait is bounded.
"""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Callable
from typing import Any, TypeVar

from tests.support.effects import EffectsCounter
from tests.support.proxy import Proxy

T = TypeVar("T")
BOUND_S = 30.0
_LOOK_S = 0.02


def until(look: Callable[[], T], what: str) -> T:
    """What ``look`` gives as soon as it gives something."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(_LOOK_S)
    raise AssertionError(f"within {BOUND_S} s there was no {what}")


def effects_of(proxy: Proxy, session: str) -> list[dict[str, Any]]:
    """What the proxy says of the session's tool calls; none where there is no such session yet."""
    try:
        return list(proxy.control.get(f"/api/sessions/{session}/effects"))
    except urllib.error.HTTPError as error:
        with error:
            assert error.code == 404, error.read()
        return []


def question(proxy: Proxy, session: str, state: str = "in_doubt") -> dict[str, Any]:
    """The first call of the session that waits for a person in that state."""

    def look() -> dict[str, Any] | None:
        return next((one for one in effects_of(proxy, session) if one["state"] == state and one["approval"]), None)

    return until(look, f"question about a call that is {state}")


def settle(proxy: Proxy, session: str, step: int, outcome: str, **more: Any) -> None:
    proxy.control.post(f"/api/sessions/{session}/effects/{step}/settle", {"outcome": outcome, **more})


def settle_rightly(proxy: Proxy, counter: EffectsCounter, session: str, result: Any = None) -> str:
    """Answer the question as the counter knows it: the outcome that was said."""
    asked = question(proxy, session)
    ran = any(one["key"] == asked["key"] for one in counter.effects)
    outcome = "ran" if ran else "did_not_run"
    settle(proxy, session, asked["step_number"], outcome, **({"result": result} if ran else {}))
    return outcome
