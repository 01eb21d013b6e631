"""Which run a request belongs to: what proves a new one, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentstate.core.model import SessionStatus
from agentstate.core.runs import (
    Arrival,
    Evidence,
    NewRun,
    RunFacts,
    SameRun,
    identify,
    present_run,
    starts_generation,
)

PLAIN = RunFacts(1, "run_x")
CUT = replace(PLAIN, loose_cut=True)
NUMBERED = replace(PLAIN, hint_min=0, hint_max=4)
FIRST = Arrival(first=True)


def test_first_request_of_a_session_begins_its_first_run() -> None:
    for arrival in (Arrival(), Arrival(name="a"), Arrival(owner="7:1"), Arrival(hint=3), Arrival(retry=True)):
        assert identify(arrival, ()) == NewRun(Evidence.FIRST)


# --- run ids ----------------------------------------------------------------------------------------------------------


def test_known_run_id_is_that_run_and_an_unknown_one_is_new() -> None:
    runs = (RunFacts(2, "b", named=True), RunFacts(1, "a", named=True))
    assert identify(Arrival(name="a"), runs) == SameRun(runs[1])
    assert identify(Arrival(name="c"), runs) == NewRun(Evidence.RUN_ID)


def test_run_id_outweighs_every_other_sign() -> None:
    run = RunFacts(1, "a", named=True, owner="1:1", hint_min=0, hint_max=4, loose_cut=True, advanced=True)
    arrival = Arrival("a", "2:2", 0, hint_used=True, first=True, unique_first=True)
    assert identify(arrival, (run,)) == SameRun(run)


def test_unnamed_request_is_none_of_the_named_runs() -> None:
    named = RunFacts(2, "a", named=True)
    assert identify(Arrival(), (named,)) == NewRun(Evidence.NONE)
    assert identify(Arrival(), (named, PLAIN)) == SameRun(PLAIN)
    assert present_run(Arrival(name="zz"), (named, PLAIN)) is None


# --- processes --------------------------------------------------------------------------------------------------------


def test_another_process_is_a_new_run_and_the_same_one_is_not() -> None:
    runs = (RunFacts(2, "y", owner="8:1"), RunFacts(1, "x", owner="7:1"))
    assert identify(Arrival(owner="9:1"), runs) == NewRun(Evidence.PROCESS)
    assert identify(Arrival(owner="8:1"), runs) == SameRun(runs[0])
    assert identify(Arrival(owner="7:1"), runs) == SameRun(runs[1]), "a sibling that is still there"
    assert identify(Arrival(owner="7:2"), runs) == NewRun(Evidence.PROCESS), "a process id that was used again"


def test_run_whose_process_was_never_seen_may_be_this_one() -> None:
    assert identify(Arrival(owner="9:1"), (PLAIN,)) == SameRun(PLAIN)
    seen = RunFacts(1, "x", owner="7:1")
    assert identify(Arrival(), (seen,)) == SameRun(seen)


# --- step numbers -----------------------------------------------------------------------------------------------------


def test_number_that_goes_back_to_where_the_run_began_is_a_restart() -> None:
    assert identify(Arrival(hint=0, hint_used=True), (NUMBERED,)) == NewRun(Evidence.STEP_NUMBER)


@pytest.mark.parametrize("arrival", [
    Arrival(hint=4, hint_used=True), Arrival(hint=5), Arrival(hint=3), Arrival(hint=0),
    Arrival(hint=0, hint_used=True, talking=True), Arrival(hint=0, hint_used=True, retry=True),
    Arrival(hint=2, hint_used=True),
])  # fmt: skip
def test_number_that_proves_nothing_is_the_same_run(arrival: Arrival) -> None:
    assert identify(arrival, (NUMBERED,)) == SameRun(NUMBERED)


def test_constant_number_proves_nothing() -> None:
    constant = replace(PLAIN, hint_min=0, hint_max=0)
    assert identify(Arrival(hint=0, hint_used=True), (constant,)) == SameRun(constant)
    assert identify(Arrival(hint=0, hint_used=True), (PLAIN,)) == SameRun(PLAIN)


def test_number_that_goes_on_outweighs_a_cut_call_and_a_first_prompt() -> None:
    run = replace(NUMBERED, loose_cut=True, advanced=True)
    for hint in (1, 3, 5):
        assert identify(Arrival(hint=hint, first=True, unique_first=True), (run,)) == SameRun(run), hint
    assert identify(Arrival(hint=0, first=True), (run,)) == NewRun(Evidence.CUT_CALL)
    constant = replace(run, hint_max=0)
    assert identify(Arrival(hint=0, first=True), (constant,)) == NewRun(Evidence.CUT_CALL)


# --- cut calls and first prompts --------------------------------------------------------------------------------------


def test_first_prompt_after_a_cut_call_is_a_restart() -> None:
    assert identify(FIRST, (CUT,)) == NewRun(Evidence.CUT_CALL)


@pytest.mark.parametrize("arrival", [
    Arrival(), FIRST._replace(claims_orphan=True), FIRST._replace(others_open=True), FIRST._replace(talking=True),
    FIRST._replace(retry=True),
])  # fmt: skip
def test_cut_call_that_something_else_explains_proves_nothing(arrival: Arrival) -> None:
    assert identify(arrival, (CUT,)) == SameRun(CUT)


def test_first_prompt_alone_proves_nothing() -> None:
    advanced = replace(PLAIN, advanced=True)
    assert identify(FIRST, (advanced,)) == SameRun(advanced)


def test_first_prompt_that_was_declared_unique_is_a_restart_once_the_run_has_advanced() -> None:
    unique = FIRST._replace(unique_first=True)
    assert identify(unique, (replace(PLAIN, advanced=True),)) == NewRun(Evidence.FIRST_PROMPT)
    assert identify(unique, (PLAIN,)) == SameRun(PLAIN)
    for sign in ("claims_orphan", "talking", "retry"):
        run = replace(PLAIN, advanced=True)
        assert identify(unique._replace(**{sign: True}), (run,)) == SameRun(run), sign


def test_only_the_newest_unnamed_run_is_looked_at() -> None:
    newest = replace(PLAIN, id=3)
    assert identify(FIRST, (newest, CUT)) == SameRun(newest)


# --- generations ------------------------------------------------------------------------------------------------------


def test_finished_or_old_session_is_not_replayed_into() -> None:
    week = 7 * 86400.0
    assert starts_generation(SessionStatus.COMPLETED, 0.0, 1.0, week)
    assert starts_generation(SessionStatus.RUNNING, 0.0, week + 1, week)
    for status in (SessionStatus.RUNNING, SessionStatus.FAILED, SessionStatus.PAUSED):
        assert not starts_generation(status, 0.0, week, week)
