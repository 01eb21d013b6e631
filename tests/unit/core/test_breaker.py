"""Breakers: pure rules over any order of failures, successes and pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import lifecycle
from agentstate.core.breaker import Breaker, Rules, after_failure, after_success, seen
from agentstate.core.model import BreakerState
from agentstate.errors import IllegalTransition

RULES = Rules(failures=3, window_s=60.0, open_s=30.0, cap_s=100.0)
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(3):
        breaker = after_failure(breaker, RULES, at, "down")
    return breaker


def test_so_many_failures_in_a_row_open_it_and_no_fewer() -> None:
    breaker = Breaker()
    states = []
    for second in range(4):
        breaker = after_failure(breaker, RULES, float(second), "down")
        states.append(breaker.state)
    assert states == [CLOSED, CLOSED, OPEN, OPEN]
    assert breaker.until == 32.0


def test_a_success_or_a_long_pause_ends_a_row() -> None:
    twice = after_failure(after_failure(Breaker(), RULES, 0.0, ""), RULES, 1.0, "")
    assert after_failure(after_success(twice, 2.0), RULES, 3.0, "").state is CLOSED
    assert after_failure(twice, RULES, 62.0, "").state is CLOSED
    assert after_failure(twice, RULES, 61.0, "").state is OPEN


def test_an_open_one_becomes_half_open_in_time_and_a_failed_trial_doubles_the_time_up_to_the_cap() -> None:
    breaker, now, lengths = opened(), 0.0, []
    for _ in range(4):
        assert seen(breaker, breaker.until - 0.01).state is OPEN
        assert seen(breaker, breaker.until).state is HALF_OPEN
        lengths.append(breaker.until - now)
        now = breaker.until
        breaker = after_failure(breaker, RULES, now, "")
    assert lengths == [30.0, 60.0, 100.0, 100.0]


def test_a_trial_that_is_answered_closes_it_and_forgets_all() -> None:
    closed = after_success(opened(), 31.0)
    assert (closed.state, closed.failures, closed.opened) == (CLOSED, 0, 0)


def test_no_failures_open_it_where_that_is_switched_off() -> None:
    breaker = Breaker()
    for _ in range(50):
        breaker = after_failure(breaker, Rules(0, 60.0, 30.0, 100.0), 0.0, "")
    assert breaker.state is CLOSED


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 200))))
def test_whatever_happens_the_state_moves_as_the_table_allows(events: list[tuple[bool, float]]) -> None:
    breaker, now = Breaker(), 0.0
    for success, pause in events:
        now += pause
        before = seen(breaker, now)
        breaker = after_success(breaker, now) if success else after_failure(breaker, RULES, now, "")
        if breaker.state is not before.state:
            assert breaker.state in lifecycle.BREAKER[before.state]
        if success:
            assert breaker.state is CLOSED
        if breaker.state is OPEN:
            assert breaker.until <= now + RULES.cap_s


def test_an_illegal_move_of_a_breaker_raises() -> None:
    with pytest.raises(IllegalTransition):
        lifecycle.move_breaker(CLOSED, HALF_OPEN)
