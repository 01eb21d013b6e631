"""A call is let through exactly where every limit has room for it beside all that is used and reserved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import budget
from agentstate.core.budget import Amount, Decision, Limit, Scope, Unit, Used, decide

amounts = st.builds(Amount, st.floats(0, 10, allow_nan=False), st.integers(0, 10), st.integers(0, 10_000))
limits = st.lists(
    st.builds(Limit, st.sampled_from(Scope), st.sampled_from(Unit), st.floats(0.01, 10_000)),
    max_size=6, unique_by=lambda limit: limit.name,
)  # fmt: skip
uses = st.fixed_dictionaries({scope: st.builds(Used, amounts, amounts) for scope in Scope})


@given(limits, uses, amounts, st.booleans())
def test_what_is_let_through_fits_beside_everything_that_is_used_and_reserved(
    given_limits: list[Limit], used: dict[Scope, Used], call: Amount, patient: bool
) -> None:
    ruling = decide(given_limits, used, call, patient)
    for limit in given_limits:
        of, adds = used[limit.scope], call.of(limit.unit)
        if limit.unit is Unit.STEPS and not adds:
            continue
        if ruling.decision is Decision.ALLOW:
            assert of.settled.of(limit.unit) + of.reserved.of(limit.unit) + adds <= limit.most * (1 + 1e-6)
        if ruling.limit == limit.name and ruling.decision is Decision.WAIT:
            assert patient
            assert of.settled.of(limit.unit) + adds <= limit.most * (1 + 1e-6)


@given(limits, uses, amounts)
def test_who_has_waited_long_enough_is_told_and_does_not_wait_on(
    given_limits: list[Limit], used: dict[Scope, Used], call: Amount
) -> None:
    patient, hurried = (decide(given_limits, used, call, one) for one in (True, False))
    assert hurried.decision is not Decision.WAIT
    assert (patient.decision is Decision.ALLOW) == (hurried.decision is Decision.ALLOW)


@given(limits, uses, amounts, st.floats(0.5, 1000))
def test_raising_a_limit_never_keeps_a_call_back(
    given_limits: list[Limit], used: dict[Scope, Used], call: Amount, by: float
) -> None:
    raised = {scope: of._replace(raised={limit.name: by for limit in given_limits}) for scope, of in used.items()}
    order = (Decision.OVER, Decision.WAIT, Decision.ALLOW)
    before, after = decide(given_limits, used, call), decide(given_limits, raised, call)
    assert order.index(after.decision) >= order.index(before.decision)


SESSION_USD = Limit(Scope.SESSION, Unit.USD, 1.0)


@pytest.mark.parametrize(
    ("settled", "reserved", "adds", "decision"),
    [
        (0.0, 0.0, 1.0, Decision.ALLOW),
        (0.5, 0.4, 0.2, Decision.WAIT),
        (0.5, 0.4, 0.6, Decision.OVER),
        (1.0, 0.0, 0.0, Decision.OVER),  # used up: what costs nothing known is kept back too
        (0.1 + 0.2, 0.0, 0.7, Decision.ALLOW),  # sums of floats are not exact
    ],
)
def test_a_limit_in_money(settled: float, reserved: float, adds: float, decision: Decision) -> None:
    used = {Scope.SESSION: Used(Amount(settled), Amount(reserved))}
    assert decide([SESSION_USD], used, Amount(adds)).decision is decision


def test_a_further_attempt_of_a_step_is_no_further_step() -> None:
    used = {Scope.SESSION: Used(Amount(steps=3))}
    limit = Limit(Scope.SESSION, Unit.STEPS, 3)
    assert decide([limit], used, Amount(steps=0)).decision is Decision.ALLOW
    assert decide([limit], used, Amount(steps=1)).decision is Decision.OVER


def test_what_is_reached_is_told_before_what_is_to_be_waited_for() -> None:
    used = {Scope.SESSION: Used(Amount(usd=0.5, steps=9), Amount(usd=0.5))}
    found = decide([SESSION_USD, Limit(Scope.SESSION, Unit.STEPS, 9)], used, Amount(0.1, 1))
    assert (found.decision, found.limit) == (Decision.OVER, "session_steps")


@given(amounts, amounts)
def test_amounts_never_fall_below_nothing(one: Amount, other: Amount) -> None:
    assert min(one.less(other)) >= 0
    assert one.plus(other).less(other) == pytest.approx(one)


def test_days_begin_at_midnight_utc() -> None:
    assert budget.day_of(86_399.9) == 0
    assert budget.day_of(86_400) == 1
    assert budget.until_tomorrow(86_400 - 10) == 10


def test_sentences_name_the_limit_and_the_figures() -> None:
    found = budget.sentence(budget.Ruling(Decision.OVER, "session_usd", 1.5, 1.25, 0.5), "s")
    assert found == "session s has used $1.25 of $1.5 (budget.session_usd), and this call may take $0.5"
    assert "all sessions together have used 12 steps of 12 steps" in budget.sentence(
        budget.Ruling(Decision.OVER, "day_steps", 12, 12, 1), "s"
    )
    assert "asked the same 25 times" in budget.sentence(budget.Ruling(Decision.OVER, "repeats", 25, 25, 1), "s")
