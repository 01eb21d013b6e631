"""Breakers as a serving process keeps them: whose trial it is, and how many are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate import clock
from agentstate.core.model import BreakerState
from agentstate.core.routing import Candidate, Failure, Fault
from agentstate.engine import breakers as engine
from agentstate.engine.breakers import Breakers
from agentstate.settings import BreakerSettings

DOWN = Failure(Fault.SERVER_ERROR, 500, text="HTTP 500")
MODEL = Candidate("openai", "gpt-test")


class Kept:
    """A journal and an outbox that keep nothing."""

    async def set_breaker(self, row: Any, told: Any = ()) -> None:
        return None

    def messages(self, *facts: Any) -> tuple[()]:
        return ()


def breakers(**more: Any) -> Breakers:
    kept: Any = Kept()
    return Breakers(BreakerSettings(**({"failures": 1} | more)), kept, kept)


async def test_a_call_that_is_not_the_trial_leaves_the_trial_of_another_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = breakers(open_s=10)
    await found.failed(MODEL, DOWN)
    later = clock.now() + 60
    monkeypatch.setattr(engine.clock, "now", lambda: later)
    assert found.shut(MODEL) == (0.0, True), "the first one tries"
    assert found.shut(MODEL) == (1.0, False)
    await found.failed(MODEL, Failure(Fault.RATE_LIMIT, 429))  # by one that had no other way, and is no trial
    assert found.shut(MODEL) == (1.0, False)
    found.left(MODEL)
    assert found.shut(MODEL) == (0.0, True)


async def test_models_that_agents_make_up_take_a_bounded_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_MOST", 20)
    found = breakers()
    for number in range(200):
        await found.failed(Candidate("openai", f"model-{number}"), DOWN)
        assert len(found.known) <= 21
    assert found.known[Candidate("openai", "model-199")].state is BreakerState.OPEN
