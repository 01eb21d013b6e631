"""What a request is answered with, rule by rule. The random programs show that the rules are right together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Deletion, Entry, Match, ReplayMode, State
from agentstate.core.replay import (
    NEVER_HISTORY,
    TRANSIENT,
    Ask,
    Execute,
    Follow,
    Miss,
    Replay,
    decide,
    is_history,
    is_poison,
    tells_end,
)
from tests.unit.core.profile import examples

NOW, BEFORE = 2, 1  # the run that asks, and an earlier one
DONE = Entry(1, 0, BEFORE, State.COMPLETED, started=1, finished=2)
GROWING = Entry(1, 0, BEFORE, State.IN_FLIGHT, 0, started=1, live=True, watched=True)
LOST = Entry(1, 0, BEFORE, State.INTERRUPTED, 0, started=1)
MINE = replace(DONE, run=NOW, mine=True)


def failed(status: int, **facts: bool) -> Entry:
    return replace(Entry(1, 0, BEFORE, State.FAILED, status, started=1, finished=2), **facts)


def test_nothing_recorded_is_a_miss() -> None:
    assert decide(Ask(), NOW, ()) == Miss()


# --- an earlier run's steps -------------------------------------------------------------------------------------------


def test_completed_step_of_an_earlier_run_is_replayed() -> None:
    assert decide(Ask(), NOW, [DONE]) == Replay(1, Match.STRICT, again=False)


def test_steps_are_handed_out_in_recorded_order() -> None:
    steps = [replace(DONE, step=step, number=step) for step in (3, 5, 8)]
    assert decide(Ask(), NOW, steps) == Replay(3)
    assert decide(Ask(), NOW, [replace(steps[0], mine=True), *steps[1:]]) == Replay(5)
    assert decide(Ask(), NOW, [replace(step, mine=True) for step in steps]) == Miss()


def test_step_of_this_or_a_later_run_is_not_an_earlier_ones() -> None:
    assert decide(Ask(), NOW, [replace(DONE, run=NOW)]) == Miss()
    assert decide(Ask(), NOW, [replace(DONE, run=NOW + 1)]) == Miss()


def test_step_of_a_living_sibling_is_not_handed_out() -> None:
    assert decide(Ask(), NOW, [replace(DONE, excluded=True)]) == Miss()
    assert decide(Ask(), NOW, [replace(DONE, excluded=True), replace(DONE, step=2)]) == Replay(2)


def test_growing_recording_of_an_earlier_run_is_followed_when_nobody_reads_it() -> None:
    assert decide(Ask(), NOW, [GROWING]) == Miss()
    assert decide(Ask(), NOW, [replace(GROWING, watched=False)]) == Follow(1)


def test_interrupted_step_of_an_earlier_run_is_asked_again() -> None:
    assert decide(Ask(), NOW, [LOST]) == Execute(1)


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_error_that_the_run_survived_is_history(status: int) -> None:
    assert decide(Ask(), NOW, [failed(status, went_on=True)]) == Replay(1)
    assert decide(Ask(), NOW, [failed(status)]) == Execute(1), "it was the last thing known"


@pytest.mark.parametrize("status", sorted(NEVER_HISTORY))
def test_error_of_the_moment_or_the_key_is_never_history(status: int) -> None:
    assert not is_history(failed(status, went_on=True))
    assert decide(Ask(), NOW, [failed(status, went_on=True)]) == Execute(1)


def test_step_number_breaks_ties_between_equals_only() -> None:
    steps = [replace(DONE, step=step, hint=step) for step in (1, 2, 3)]
    assert decide(Ask(hint=2), NOW, steps) == Replay(2)
    assert decide(Ask(hint=7), NOW, steps) == Replay(1)
    assert decide(Ask(hint=2), NOW, [replace(step, hint=0) for step in steps]) == Replay(1)
    assert decide(Ask(hint=2), NOW, [replace(steps[1], mine=True), steps[2]]) == Replay(3)
    assert decide(Ask(hint=2), NOW, ()) == Miss()


def test_poison_step_is_asked_anew_where_its_arguments_do_not_parse() -> None:
    deadly = replace(DONE, deaths=2)
    assert is_poison(deadly)
    assert not is_poison(replace(DONE, deaths=1))
    assert decide(Ask(), NOW, [replace(deadly, broken=True)]) == Execute(poison=1)
    assert decide(Ask(), NOW, [deadly]) == Replay(1), "with readable arguments a person decides"
    assert decide(Ask(), NOW, [replace(DONE, broken=True, deaths=1)]) == Replay(1)


# --- this run's own steps ---------------------------------------------------------------------------------------------


def test_answer_that_the_run_was_given_is_not_given_again() -> None:
    assert decide(Ask(), NOW, [MINE]) == Miss()
    assert decide(Ask(), NOW, [replace(DONE, mine=True)]) == Miss()


def test_answer_that_never_reached_its_reader_is_given_again() -> None:
    assert decide(Ask(), NOW, [replace(MINE, cut=True)]) == Replay(1, again=True)
    assert decide(Ask(), NOW, [MINE, replace(MINE, step=2, cut=True)]) == Replay(2, again=True)


def test_growing_recording_is_followed_when_its_reader_is_gone() -> None:
    growing = replace(GROWING, run=NOW, mine=True)
    assert decide(Ask(), NOW, [growing]) == Miss(), "parallel equal calls are samples of their own"
    assert decide(Ask(), NOW, [growing, replace(growing, step=2)]) == Miss()
    assert decide(Ask(), NOW, [growing, replace(growing, step=2, watched=False)]) == Follow(2, again=True)
    assert decide(Ask(), NOW, [replace(growing, cut=True, watched=False)]) == Follow(1, again=True)


@pytest.mark.parametrize("status", sorted(TRANSIENT))
def test_call_that_failed_in_passing_is_asked_again_as_the_same_step(status: int) -> None:
    assert decide(Ask(), NOW, [failed(status, mine=True)]) == Execute(1)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_call_that_failed_for_good_is_a_new_step_when_asked_again(status: int) -> None:
    assert decide(Ask(), NOW, [failed(status, mine=True)]) == Miss()


def test_interrupted_step_of_this_run_is_asked_again() -> None:
    assert decide(Ask(), NOW, [replace(LOST, run=NOW, mine=True)]) == Execute(1)


def test_own_orphan_comes_before_an_earlier_runs_step() -> None:
    assert decide(Ask(), NOW, [DONE, replace(MINE, step=2, cut=True)]) == Replay(2, again=True)


# --- proven retries ---------------------------------------------------------------------------------------------------


def test_retry_claims_what_lost_its_reader_before_anything_else() -> None:
    growing = replace(GROWING, run=NOW, mine=True)
    lost = replace(MINE, step=2, cut=True)
    assert decide(Ask(retry=1), NOW, [growing, lost]) == Replay(2, again=True)
    assert decide(Ask(retry=1), NOW, [growing, replace(growing, step=2, watched=False)]) == Follow(2, again=True)


def test_retry_does_not_take_an_answer_that_another_call_may_have_been_given() -> None:
    for entries in ([MINE, replace(MINE, step=2)], [replace(GROWING, mine=True), replace(MINE, step=2)]):
        assert decide(Ask(retry=1), NOW, entries) == Miss()


def test_retry_of_a_sending_that_never_arrived_is_a_call_of_its_own() -> None:
    """Five equal calls while the proxy was down: each comes as its own retry, and none is another one's."""
    first = replace(GROWING, run=NOW, mine=True, tries=1)
    assert decide(Ask(retry=1), NOW, [first]) == Miss()
    assert decide(Ask(retry=1), NOW, [replace(MINE, tries=1, fresh=True)]) == Miss()


def test_retry_follows_only_the_sending_right_before_it() -> None:
    """A first sending and a third one are not one call: the second was somebody's, and it was not seen here."""
    growing = replace(GROWING, run=NOW, mine=True, tries=0)
    assert decide(Ask(retry=1), NOW, [growing]) == Follow(1, again=True)
    assert decide(Ask(retry=1), NOW, [replace(MINE, fresh=True)]) == Replay(1, again=True)
    assert decide(Ask(retry=3), NOW, [growing]) == Miss()
    assert decide(Ask(retry=3), NOW, [replace(MINE, fresh=True)]) == Miss()


def test_retry_of_an_answer_from_before_the_proxy_started_is_paid() -> None:
    """Polling: the proxy was restarted meanwhile, so that the retry may be of a sending that it never saw."""
    assert decide(Ask(retry=1), NOW, [MINE]) == Miss()


def test_same_idempotency_key_is_the_same_call() -> None:
    keyed = replace(MINE, retry_key=b"k")
    assert decide(Ask(retry_key=b"k"), NOW, [keyed]) == Replay(1, again=True)
    assert decide(Ask(retry_key=b"x"), NOW, [keyed]) == Miss()
    growing = replace(GROWING, run=NOW, mine=True, retry_key=b"k")
    assert decide(Ask(retry_key=b"k"), NOW, [MINE, replace(growing, step=2)]) == Follow(2, again=True)
    assert decide(Ask(retry_key=b"k"), NOW, [replace(LOST, mine=True, retry_key=b"k")]) == Execute(1)


def test_idempotency_key_of_an_earlier_run_is_none_of_this_ones() -> None:
    other = replace(DONE, retry_key=b"k", step=2)
    assert decide(Ask(retry_key=b"k"), NOW, [DONE, other]) == Replay(1)


# --- pure endpoints, and no replay ------------------------------------------------------------------------------------


def test_pure_endpoint_is_answered_from_any_completed_step_any_number_of_times() -> None:
    assert decide(Ask(pure=True), NOW, [LOST, replace(MINE, step=2)]) == Replay(2)
    assert decide(Ask(pure=True), NOW, [replace(DONE, excluded=True)]) == Replay(1)
    assert decide(Ask(pure=True), NOW, [GROWING]) == Follow(1)
    assert decide(Ask(pure=True), NOW, [LOST]) == Miss()


def test_replay_switched_off_asks_the_provider_anew() -> None:
    for entries in ([], [DONE], [replace(MINE, cut=True)], [LOST]):
        assert decide(Ask(mode=ReplayMode.OFF), NOW, entries) == Execute()


# --- whatever the entries ---------------------------------------------------------------------------------------------


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    found = []
    for number in range(draw(st.integers(0, 5))):
        state = draw(st.sampled_from(State))
        live = state is State.IN_FLIGHT and draw(st.booleans())
        mine = draw(st.booleans())
        status = draw(st.sampled_from((400, 401, 429, 503))) if state is State.FAILED else 200
        found.append(
            Entry(
                number + 10, number, draw(st.integers(1, 3)), state, status, number * 2, number * 2 + 1, mine,
                mine and draw(st.booleans()), draw(st.booleans()), live, live and draw(st.booleans()),
                draw(st.booleans()), draw(st.integers(0, 3)), draw(st.sampled_from((None, 1, 2))),
                draw(st.sampled_from((b"", b"k"))), draw(st.booleans()), draw(st.integers(0, 2)), draw(st.booleans()),
            )
        )  # fmt: skip
    return found


@given(entries(), st.integers(0, 2), st.sampled_from((b"", b"k")), st.sampled_from((None, 1)))
@examples(800)
def test_decision_never_hands_out_what_it_must_not(
    known: list[Entry], retry: int, key: bytes, hint: int | None
) -> None:
    decision = decide(Ask(retry=retry, retry_key=key, hint=hint), NOW, known)
    by_step = {entry.step: entry for entry in known}
    if isinstance(decision, Replay):
        entry = by_step[decision.step]
        assert entry.state is State.COMPLETED or is_history(entry)
        assert not (entry.excluded and not entry.mine)
        assert decision.again == entry.mine
        proven = entry.cut or (key and entry.retry_key == key) or (retry > entry.tries and entry.fresh)
        assert not entry.mine or proven, "an answer that arrived was handed out again"
    elif isinstance(decision, Follow):
        entry = by_step[decision.step]
        assert entry.live
        alone = retry > entry.tries and sum(other.mine for other in known) == 1
        # A cut recording that is watched is watched by another run: this run has no reader of it.
        assert not entry.watched or alone or entry.cut or (key and entry.retry_key == key), "two readers, one sample"
    elif isinstance(decision, Execute) and decision.step is not None:
        entry = by_step[decision.step]
        assert not entry.live and entry.state is not State.COMPLETED
        assert entry.mine or entry.run < NOW


@given(entries())
@examples(500)
def test_decision_is_a_miss_only_where_nothing_of_an_earlier_run_is_left(known: list[Entry]) -> None:
    if decide(Ask(), NOW, known) == Miss():
        for entry in known:
            free = not entry.mine and not entry.excluded and entry.run < NOW
            assert not free or entry.watched


# --- polls of jobs ----------------------------------------------------------------------------------------------------


def test_recorded_end_of_a_job_answers_every_poll_until_it_is_deleted() -> None:
    assert tells_end(None, NOW, given=False) and tells_end(None, None, given=False)


@pytest.mark.parametrize(
    ("upto", "mine", "run", "given", "told"),
    [
        (BEFORE, False, NOW, True, True),
        (BEFORE, True, NOW, True, False),  # it has deleted it too
        (NOW, False, NOW, True, False),  # it lived beside the deletion
        (BEFORE, False, NOW, False, False),  # it was not given the job by the journal
        (BEFORE, False, None, True, False),
    ],
)
def test_end_of_a_deleted_job_is_told_to_a_run_that_lives_through_it_again_only(
    upto: int, mine: bool, run: int | None, given: bool, told: bool
) -> None:
    assert tells_end(Deletion(upto, mine, True), run, given) is told
