"""What follows a failed attempt: pure rules, over any failures."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, date, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.routing import (
    LASTING,
    LOST,
    Candidate,
    Failure,
    Fault,
    GiveUp,
    History,
    Limits,
    Next,
    Planned,
    Retry,
    Route,
    after_failure,
    asked_wait,
    candidate_of,
    plan,
    told,
    wait_before,
    warnings,
)

LIMITS = Limits(3, 0.5, 30.0, frozenset({408, 409, 429, 500, 502, 503, 504, 529}), 60.0, 1)
OTHER = Planned((Candidate("anthropic", "claude-x"),), frozenset(Fault) - {Fault.CONTENT_FILTER, Fault.REFUSED})
ALONE = Planned()
KINDS = {"openai": ("openai",), "anthropic": ("anthropic",), "ollama": ("ollama", "openai")}
failures = st.builds(
    Failure,
    st.sampled_from(list(Fault)),
    st.sampled_from([0, 200, 400, 401, 404, 408, 429, 500, 503, 529]),
    st.none() | st.floats(0, 1000),
    st.none() | st.booleans(),
)
histories = st.builds(History, st.integers(1, 30), st.floats(0, 60), st.integers(0, 5), st.floats(0, 200))
chances = st.floats(0, 1, exclude_max=True)
plans = st.sampled_from([ALONE, OTHER])


def after(failure: Failure, history: History = History(), planned: Planned = ALONE, acts: bool = False) -> object:  # noqa: B008
    return after_failure(failure, history, LIMITS, planned, acts, 0.5)


# --- properties ---


@given(failures, histories, plans, st.booleans(), chances)
def test_a_wait_that_is_asked_for_is_never_cut_short(
    failure: Failure, history: History, planned: Planned, acts: bool, chance: float
) -> None:
    found = after_failure(failure, history, LIMITS, planned, acts, chance)
    if isinstance(found, Retry):
        assert found.delay >= (failure.wait or 0)
        assert found.delay <= LIMITS.cap_s
        assert history.elapsed + found.delay < LIMITS.total_s
        assert history.tried < LIMITS.attempts


@given(failures, histories, plans, st.booleans(), chances)
def test_nothing_lasting_is_asked_of_the_same_again_and_nobody_is_asked_who_is_not_planned(
    failure: Failure, history: History, planned: Planned, acts: bool, chance: float
) -> None:
    found = after_failure(failure, history, LIMITS, planned, acts, chance)
    if failure.fault in LASTING:
        assert not isinstance(found, Retry)
    if isinstance(found, Next):
        assert planned.candidates
        assert failure.fault in planned.on
    if isinstance(found, GiveUp):
        assert found.reason


@given(failures, histories, plans, chances)
def test_what_may_have_acted_at_the_provider_is_never_sent_again(
    failure: Failure, history: History, planned: Planned, chance: float
) -> None:
    if failure.fault in LOST or failure.fault is Fault.SERVER_ERROR:
        assert isinstance(after_failure(failure, history, LIMITS, planned, True, chance), GiveUp)


@given(st.lists(chances, min_size=2, max_size=12), st.floats(0.01, 10), st.floats(1, 100))
def test_waits_grow_up_to_the_cap_whatever_chance_says(dice: list[float], base: float, cap: float) -> None:
    limits = Limits(20, base, cap, frozenset(), 1e9, 1)
    history, waits = History(), []
    for chance in dice:
        waits.append(wait_before(history, limits, None, chance))
        history = history.after(waits[-1], Failure(Fault.SERVER_ERROR))
    assert all(0 < wait <= cap for wait in waits)
    assert all(later > earlier or later == cap for earlier, later in itertools.pairwise(waits))


@given(chances, st.integers(1, 40))
def test_a_wait_is_spread_over_all_of_its_range(chance: float, tried: int) -> None:
    limits = Limits(50, 0.5, 30.0, frozenset(), 1e9, 1)
    most = min(30.0, 0.5 * 2.0 ** (tried - 1))
    assert wait_before(History(tried), limits, None, chance) == max(0.15, chance * most)


# --- examples ---


def test_a_rate_limit_is_tried_again_after_the_wait_that_is_asked_for() -> None:
    assert after(Failure(Fault.RATE_LIMIT, 429, 7.5)) == Retry(7.5)


def test_a_wait_above_the_cap_goes_to_the_fallback_and_without_one_to_the_agent() -> None:
    failure = Failure(Fault.RATE_LIMIT, 429, 90.0)
    assert isinstance(after(failure, planned=OTHER), Next)
    found = after(failure)
    assert isinstance(found, GiveUp)
    assert "90" in found.reason


def test_a_connection_that_never_came_about_is_tried_again_until_the_attempts_are_used_up() -> None:
    failure = Failure(Fault.UNREACHABLE)
    assert isinstance(after(failure), Retry)
    assert isinstance(after(failure, History(tried=3)), GiveUp)
    assert isinstance(after(failure, History(tried=3), OTHER), Next)


def test_a_lost_answer_is_asked_for_once_more_and_no_oftener() -> None:
    failure = Failure(Fault.CUT)
    assert isinstance(after(failure), Retry)
    assert isinstance(after(failure, History(tried=2, lost=1)), GiveUp)
    assert isinstance(after(failure, History(tried=2, lost=1), OTHER), Next)


def test_where_lost_answers_may_not_be_asked_for_again_nobody_else_is_asked_either() -> None:
    strict = Limits(3, 0.5, 30.0, LIMITS.statuses, 60.0, 0)
    assert isinstance(after_failure(Failure(Fault.TIMEOUT), History(), strict, OTHER, False, 0.5), GiveUp)


def test_the_total_time_ends_the_retries_and_the_agents_patience_everything() -> None:
    late = History(elapsed=61)
    assert isinstance(after(Failure(Fault.UNREACHABLE), late), GiveUp)
    assert isinstance(after(Failure(Fault.UNREACHABLE), late, OTHER), Next)
    impatient = replace(LIMITS, patience_s=20.0)
    assert isinstance(after_failure(Failure(Fault.UNREACHABLE), late, impatient, OTHER, False, 0.5), GiveUp)


def test_what_a_provider_says_of_trying_again_counts() -> None:
    assert isinstance(after(Failure(Fault.SERVER_ERROR, 500, again=False)), GiveUp)
    assert isinstance(after(Failure(Fault.SERVER_ERROR, 599, again=True)), Retry)
    assert isinstance(after(Failure(Fault.SERVER_ERROR, 599)), GiveUp)


def test_a_refusal_of_content_goes_elsewhere_only_where_the_route_says_so() -> None:
    failure = Failure(Fault.CONTENT_FILTER, 400)
    assert isinstance(after(failure, planned=OTHER), GiveUp)
    assert isinstance(after(failure, planned=OTHER._replace(on=frozenset({Fault.CONTENT_FILTER}))), Next)


# --- what is asked for by headers ---

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([("Retry-After", "3")], 3.0),
        ([("retry-after", "0.25")], 0.25),
        ([("retry-after-ms", "2500"), ("retry-after", "9")], 2.5),
        ([("Retry-After", format_datetime(datetime.fromtimestamp(NOW + 17, UTC), usegmt=True))], 17.0),
        ([("Retry-After", format_datetime(datetime.fromtimestamp(NOW - 17, UTC), usegmt=True))], 0.0),
        ([("retry-after", "soon")], None),
        ([("retry-after", "-3")], None),
        ([("retry-after", "nan")], None),
        ([("retry-after", "inf")], None),
        ([], None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: list[tuple[str, str]], wait: float | None) -> None:
    assert asked_wait(headers, NOW) == wait


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_header_makes_reading_it_fail(seconds: str, milliseconds: str) -> None:
    found = asked_wait([("retry-after", seconds), ("retry-after-ms", milliseconds)], NOW)
    assert found is None or found >= 0


# --- the plan ---


def test_a_route_is_for_the_models_that_match_it_and_the_first_one_counts() -> None:
    routes = [
        Route("gpt-4o*", ("gpt-4o-mini", "anthropic/claude-x", "ollama/llama3.2"), frozenset({Fault.TIMEOUT})),
        Route("*", ("nobody",), frozenset()),
    ]
    found = plan(Candidate("openai", "gpt-4o"), "", routes, KINDS, frozenset())
    assert found.candidates == (
        Candidate("openai", "gpt-4o-mini"), Candidate("anthropic", "claude-x"), Candidate("ollama", "llama3.2"),
    )  # fmt: skip
    assert found.on == {Fault.TIMEOUT}
    assert plan(Candidate("openai", "other"), "", routes, KINDS, frozenset()).candidates[0].model == "nobody"


def test_a_request_that_asks_for_no_fallback_has_none() -> None:
    routes = [Route("*", ("gpt-4o-mini",), frozenset(Fault))]
    assert plan(Candidate("openai", "gpt-4o"), "none", routes, KINDS, frozenset(Fault)) == Planned((), frozenset(Fault))


def test_a_request_that_lists_models_is_bound_by_its_list() -> None:
    routes = [Route("*", ("gpt-4o-mini",), frozenset(Fault))]
    found = plan(Candidate("openai", "gpt-4o"), " claude-x , gpt-4o, gpt-4o-mini,claude-x", routes, KINDS, frozenset())
    assert found.candidates == (Candidate("anthropic", "claude-x"), Candidate("openai", "gpt-4o-mini"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("ollama/llama3.2", Candidate("ollama", "llama3.2")),
        ("meta-llama/llama-3", Candidate("openai", "meta-llama/llama-3")),
        ("claude-sonnet", Candidate("anthropic", "claude-sonnet")),
        ("openai/claude-sonnet", Candidate("openai", "claude-sonnet")),
        ("anthropic/", Candidate("openai", "anthropic/")),
    ],
)
def test_a_name_is_a_provider_and_a_model_or_a_model_alone(name: str, wanted: Candidate) -> None:
    assert candidate_of(name, "openai", KINDS) == wanted


def test_what_is_told_names_who_answered_why_and_what_was_lost() -> None:
    assert told("a/b", "rate_limit 429", ()) == "a/b; because=rate_limit 429"
    assert told("a/b", "timeout", ("seed", "logprobs")) == "a/b; because=timeout; lost=seed,logprobs"


def test_a_candidate_that_is_shut_down_soon_or_was_is_warned_of_and_no_other() -> None:
    routes = [Route("gpt-*", ("openai/near", "far", "past", "unknown"), frozenset())]
    ends = {"near": date(2026, 3, 1), "far": date(2026, 3, 3), "past": date(2025, 1, 1)}
    found = warnings(routes, ends, date(2026, 1, 1))
    assert [line.split()[7].rstrip(",") for line in found] == ["openai/near", "past"]
    assert "will be" in found[0]
    assert "was" in found[1]
