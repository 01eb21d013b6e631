"""Random agent programs against the real rules: no stale answer, nothing paid twice, whatever dies and whenever.

The histories are made by ``world`` and ``agents``; here stands what must hold of them, and that a wrong rule is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import replay, runs
from agentstate.core.model import Entry, State
from agentstate.core.runs import Arrival, Evidence, NewRun, RunFacts, SameRun
from tests.unit.core.agents import Death, Mode, Outage, Scenario, Sdk, run
from tests.unit.core.profile import examples
from tests.unit.core.programs import Abandon, Ask, Chain, Equal, FanOut, Lanes, Poll, Program, Question, Sleep
from tests.unit.core.scenarios import KNOWN, faults, is_bounded, scenario
from tests.unit.core.world import Rules, real_fingerprint

# How many random programs are played in each mode: 2 100 together, about a hundredth of a second each.
PROGRAMS = {
    Mode.RUN_ID: 500,
    Mode.PROCESS: 400,
    Mode.STEP_NUMBER: 350,
    Mode.CUT_CALL: 350,
    Mode.UNIQUE_FIRST: 250,
    Mode.NONE: 250,
}


@pytest.mark.parametrize("mode", Mode)
def test_random_programs_are_never_answered_stale_and_known_restarts_pay_nothing_twice(mode: Mode) -> None:
    bounded = restarted = 0
    wrong: list[str] = []
    for seed in range(PROGRAMS[mode]):
        history = run(scenario(seed, mode))
        bounded += is_bounded(history)
        restarted += len(history.lives) > 1
        if found := faults(history):
            wrong.append(f"{mode} {seed}: {found[0]}")
    assert not wrong, f"{len(wrong)} of {PROGRAMS[mode]} programs: " + "; ".join(wrong[:5])
    # The scenarios must be able to show something: most restart, and where it can be known the bill is checked.
    assert restarted > PROGRAMS[mode] * 0.6
    if mode in KNOWN:
        assert bounded > PROGRAMS[mode] * 0.25


def test_a_seed_names_one_history() -> None:
    for mode in Mode:
        first, second = run(scenario(3, mode)), run(scenario(3, mode))
        assert [life.received for life in first.lives] == [life.received for life in second.lives]


# --- programs that hypothesis can shrink ------------------------------------------------------------------------------

_PROMPTS = st.sampled_from("abc")
_LEAVES = st.one_of(
    st.builds(Ask, _PROMPTS, st.integers(1, 3)),
    st.builds(Poll, _PROMPTS, st.integers(1, 3), st.just(0.3)),
    st.builds(Chain, _PROMPTS, st.integers(1, 3), st.booleans()),
    st.builds(Equal, _PROMPTS, st.integers(1, 3)),
    st.builds(Sleep, st.sampled_from((0.2, 6.0))),
)
_LANES = st.lists(st.lists(_LEAVES, min_size=1, max_size=2).map(tuple), min_size=1, max_size=3).map(tuple)
_PROGRAMS: st.SearchStrategy[Program] = st.lists(
    st.one_of(_LEAVES, st.builds(Lanes, _LANES)), min_size=1, max_size=4
).map(tuple)
_MOMENTS = st.integers(0, 400).map(lambda tick: tick / 20 + 0.0005)
_DEATHS = st.lists(
    st.one_of(
        st.builds(Death, at=_MOMENTS, restart=st.sampled_from((0.1, 8.0))),
        st.builds(Death, received=st.integers(1, 8), restart=st.sampled_from((0.1, 8.0))),
    ),
    max_size=3,
).map(tuple)
_OUTAGES = st.lists(st.builds(Outage, at=_MOMENTS, down=st.sampled_from((0.05, 2.0))), max_size=2).map(tuple)


@examples(250)
@given(_PROGRAMS, _DEATHS, _OUTAGES, st.booleans(), st.sampled_from((0.0, 1.0)), st.booleans(), st.booleans())
def test_programs_with_run_ids_are_recovered_whatever_dies(
    program: Program, deaths: tuple[Death, ...], outages: tuple[Outage, ...], says_retry: bool, timeout: float,
    pool: bool, flaky: bool,
) -> None:  # fmt: skip
    sdk = Sdk(timeout, 4, says_retry, pool)
    assert faults(run(Scenario(program, Mode.RUN_ID, "shrunk", sdk, deaths, outages, flaky))) == []


@examples(250)
@given(
    _PROGRAMS, _DEATHS, _OUTAGES, st.booleans(), st.booleans(),
    st.sampled_from((Mode.PROCESS, Mode.STEP_NUMBER, Mode.CUT_CALL, Mode.NONE)),
)  # fmt: skip
def test_programs_without_run_ids_are_never_answered_stale(
    program: Program, deaths: tuple[Death, ...], outages: tuple[Outage, ...], says_retry: bool, flaky: bool, mode: Mode
) -> None:
    sdk = Sdk(0.0, 4, says_retry)
    assert faults(run(Scenario(program, mode, "shrunk", sdk, deaths, outages, flaky))) == []


@examples(100)
@given(_PROGRAMS, _DEATHS, st.booleans())
def test_declared_first_prompts_that_never_recur_are_never_answered_stale(
    program: Program, deaths: tuple[Death, ...], says_retry: bool
) -> None:
    unique = (Ask("the task"), *program)
    assert faults(run(Scenario(unique, Mode.UNIQUE_FIRST, "shrunk", Sdk(says_retry=says_retry), deaths))) == []


# --- programs with a name ---------------------------------------------------------------------------------------------

NAMED: dict[str, Program] = {
    "linear chat": (Chain("task", 6),),
    "self-consistency, in sequence": (Ask("vote", 4),),
    "self-consistency, at once": (Equal("vote", 5), Chain("sum up", 1, grounded=True)),
    "fan-out, as completed": (FanOut(("one", "two", "three", "four")),),
    "polling from the start": (Poll("ready?", 5, 2.0),),
    "plan, then polling": (Chain("plan", 1), Poll("ready?", 5, 2.0)),
    "independent prompts": tuple(Ask(f"prompt {number}") for number in range(7)),
    "sub-agents": (Lanes(((Chain("x", 3),), (Ask("y", 2), Chain("y", 2)), (Sleep(2.0), Ask("z", 3)))),),
}


def _every_death(program: Program, mode: Mode) -> Iterable[Scenario]:
    """The program, its agent killed just before and after each thing that happens, and after each answer."""
    plain = Scenario(program, mode, "named")
    calm = run(plain)
    for at in sorted(set(calm.times)):
        yield from (replace(plain, deaths=(Death(at=at + shift, restart=20.0),)) for shift in (-0.0005, 0.0005))
    for count in range(1, len(calm.lives[0].received) + 1):
        yield replace(plain, deaths=(Death(received=count, restart=20.0),))


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("mode", [Mode.RUN_ID, Mode.PROCESS])
def test_death_at_any_moment_costs_nothing_where_the_restart_is_known(name: str, mode: Mode) -> None:
    for case in _every_death(NAMED[name], mode):
        history = run(case)
        assert is_bounded(history), case.deaths
        assert faults(history) == [], case.deaths
        assert len(history.lives) <= 2


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("mode", [Mode.STEP_NUMBER, Mode.CUT_CALL, Mode.NONE])
def test_death_at_any_moment_is_never_answered_stale_where_it_must_be_guessed(name: str, mode: Mode) -> None:
    for case in _every_death(NAMED[name], mode):
        assert faults(run(case)) == [], case.deaths


@pytest.mark.parametrize("name", NAMED)
def test_outage_at_any_moment_costs_at_most_what_was_in_flight(name: str) -> None:
    plain = Scenario(NAMED[name], Mode.RUN_ID, "named")
    for at in sorted(set(run(plain).times)):
        history = run(replace(plain, outages=(Outage(at + 0.0005, 0.3),)))
        assert faults(history) == [], at
        lost = history.proxy.lost_in_flight
        # What died in flight was asked again as the same step, so the bill of the finished answers is the least one.
        assert history.lost or history.proxy.lost_hand_overs or history.proxy.paid == len(history.proxy.steps), at
        assert lost <= max(len(op.prompts) if isinstance(op, FanOut) else 5 for op in NAMED[name])


def test_restart_known_by_its_step_numbers_is_fast_forwarded() -> None:
    history = run(Scenario((Chain("task", 6),), Mode.STEP_NUMBER, deaths=(Death(received=4, restart=1.0),)))
    assert history.proxy.paid == 6
    assert len(history.proxy.runs) == 2


def test_restart_after_a_cut_call_is_fast_forwarded() -> None:
    plain = Scenario((Chain("task", 6),), Mode.CUT_CALL, sdk=Sdk(pool=False))
    begun = run(plain).times[-3]  # the last call is in flight then
    history = run(replace(plain, deaths=(Death(at=begun, restart=20.0),)))
    assert history.proxy.paid == 6
    assert len(history.proxy.runs) == 2


def test_one_cut_call_excuses_one_restart_only() -> None:
    """The second life is killed between calls: there is no evidence for the third, which pays."""
    plain = Scenario((Chain("task", 6),), Mode.CUT_CALL, sdk=Sdk(pool=False))
    begun = run(plain).times[-3]
    history = run(replace(plain, deaths=(Death(at=begun, restart=20.0), Death(received=2, restart=20.0))))
    assert len(history.lives) == 3
    assert len(history.proxy.runs) == 2
    assert history.proxy.paid > 6
    assert faults(history) == []


def test_restart_with_a_declared_first_prompt_is_fast_forwarded() -> None:
    program = (Ask("the task"), Chain("work", 4))
    history = run(Scenario(program, Mode.UNIQUE_FIRST, deaths=(Death(received=3, restart=20.0),)))
    assert history.proxy.paid == 5
    assert len(history.proxy.runs) == 2


def test_restart_without_evidence_pays_again_and_is_not_answered_stale() -> None:
    history = run(Scenario((Ask("vote", 4),), Mode.NONE, deaths=(Death(received=2, restart=20.0),)))
    assert len(history.proxy.runs) == 1
    assert history.proxy.paid == 6
    assert faults(history) == []


def test_call_that_was_given_up_is_paid_once() -> None:
    program = (Ask("task"), Abandon("slow"), Ask("go on"))
    history = run(Scenario(program, Mode.RUN_ID, "3", deaths=(Death(received=2, restart=20.0),)))
    assert history.proxy.paid == 3


# --- a wrong rule is found --------------------------------------------------------------------------------------------


def _forgets_what_the_run_has(ask: replay.Ask, now: int, entries: Iterable[Entry]) -> replay.Decision:
    """A cache: any completed answer serves, as often as it is asked for."""
    return replay.decide(ask, now + 1, [replace(entry, mine=False) for entry in entries])


def _never_replays(ask: replay.Ask, now: int, entries: Iterable[Entry]) -> replay.Decision:
    return replay.Miss()


def _merges_samples(ask: replay.Ask, now: int, entries: Iterable[Entry]) -> replay.Decision:
    """Joins whatever is in flight, though its reader is there."""
    known = tuple(entries)
    growing = next((entry for entry in known if entry.live), None)
    return replay.Follow(growing.step) if growing is not None else replay.decide(ask, now, known)


def _trusts_the_retry_header(ask: replay.Ask, now: int, entries: Iterable[Entry]) -> replay.Decision:
    """Takes any repeated request for the retry of an answered one."""
    known = tuple(entries)
    done = [entry for entry in known if entry.mine and entry.state is State.COMPLETED]
    return replay.Replay(done[-1].step, again=True) if ask.retry and done else replay.decide(ask, now, known)


def _answers_from_the_last(ask: replay.Ask, now: int, entries: Iterable[Entry]) -> replay.Decision:
    """The latest recording of earlier runs serves, as often as it is asked for."""
    known = tuple(entries)
    lost = [entry for entry in known if entry.state is State.COMPLETED and entry.run < now]
    return replay.Replay(lost[-1].step) if lost else replay.decide(ask, now, known)


def _first_prompt_is_a_restart(arrival: Arrival, known: tuple[RunFacts, ...]) -> SameRun | NewRun:
    return NewRun(Evidence.FIRST_PROMPT) if arrival.first else runs.identify(arrival, known)


def _cut_is_used_again(arrival: Arrival, known: tuple[RunFacts, ...]) -> SameRun | NewRun:
    """Any first prompt after any cut call is a restart."""
    verdict = runs.identify(arrival, known)
    return NewRun(Evidence.CUT_CALL) if arrival.first and known and not arrival.talking else verdict


def _any_old_number_is_a_restart(arrival: Arrival, known: tuple[RunFacts, ...]) -> SameRun | NewRun:
    """A number below the highest one proves a restart, though a call that failed is sent again under its number."""
    verdict = runs.identify(arrival, known)
    back = known and arrival.hint is not None and arrival.hint < (known[0].hint_max or 0)
    return NewRun(Evidence.STEP_NUMBER) if back and not arrival.talking and not arrival.retry else verdict


def _last_message_only(question: Question) -> bytes:
    return real_fingerprint(question[-1:])


MUTATIONS: dict[str, tuple[Rules, Mode, str]] = {
    "decide ignores what the run was given": (Rules(decide=_forgets_what_the_run_has), Mode.RUN_ID, "twice"),
    "decide never replays": (Rules(decide=_never_replays), Mode.RUN_ID, "paid for"),
    "decide merges parallel samples": (Rules(decide=_merges_samples), Mode.RUN_ID, "twice"),
    "decide trusts the retry header": (Rules(decide=_trusts_the_retry_header), Mode.RUN_ID, "twice"),
    "decide answers from the last recording": (Rules(decide=_answers_from_the_last), Mode.PROCESS, "twice"),
    "identify takes the first prompt for a restart": (Rules(identify=_first_prompt_is_a_restart), Mode.NONE, "twice"),
    "identify uses a cut more than once": (Rules(identify=_cut_is_used_again), Mode.CUT_CALL, "twice"),
    "identify takes any old number for a restart": (
        Rules(identify=_any_old_number_is_a_restart),
        Mode.STEP_NUMBER,
        "twice",
    ),
    "fingerprint forgets the history": (Rules(fingerprint=_last_message_only), Mode.RUN_ID, "got an answer to"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_wrong_rule_is_found_by_the_checks(name: str) -> None:
    rules, mode, complaint = MUTATIONS[name]
    found = itertools.chain.from_iterable(_complaints(rules, scenario(seed, mode)) for seed in range(200))
    assert any(complaint in text for text in found)


def _complaints(rules: Rules, case: Scenario) -> list[str]:
    try:
        return faults(run(case, rules))
    except AssertionError as broken:  # a wrong rule may also break the world
        return [str(broken)]
