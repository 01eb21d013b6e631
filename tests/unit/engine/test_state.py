"""What is decided but not committed yet is seen by the next decision, and forgotten once the journal has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentstate import clock
from agentstate.core.model import Entry, State
from agentstate.core.replay import Ask, Follow, Miss, Replay, decide
from agentstate.engine.recording import Recording
from agentstate.engine.state import FRESH_S, Floating, Live

RUN, OTHER, STEP, BRANCH = 1, 2, 10, 5
KEY = b"fingerprint"


def entry(state: State = State.COMPLETED, **more: Any) -> Entry:
    return Entry(STEP, 0, RUN, state, **more)


def live(floating: Floating, step: int | None = None, run: int = RUN, **more: Any) -> Live:
    return Live(7, BRANCH, run, KEY, Recording(), floating.temporary() if step is None else step, **more)


def seen(floating: Floating, *entries: Entry, run: int = RUN) -> list[Entry]:
    return floating.seen(entries, run, BRANCH, KEY)


def commit() -> asyncio.Future[object]:
    return asyncio.get_running_loop().create_future()


async def _done(future: asyncio.Future[object]) -> None:
    """The transaction is committed, and those who wait for it have been told."""
    future.set_result(None)
    told = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: told.set_result(None))
    async with asyncio.timeout(10):
        await told


def test_an_entry_that_nothing_is_known_about_is_seen_as_it_is() -> None:
    assert seen(Floating(), entry()) == [entry()]
    [shown] = seen(Floating(), entry(mine=True, lost=True, cut=True))
    assert (shown.mine, shown.lost, shown.cut, shown.live, shown.fresh) == (True, True, True, False, False)
    assert shown.tries > 1000, "how often it was sent before this process began is not known"


# --- claims and cuts ---


async def test_a_claim_makes_a_step_the_runs_own_until_it_is_committed() -> None:
    floating, first, second = Floating(), commit(), commit()
    floating.claim(RUN, STEP, first)
    floating.claim(RUN, STEP, second)
    assert floating.claimed(RUN, STEP)
    assert seen(floating, entry())[0].mine
    assert not seen(floating, entry(), run=OTHER)[0].mine
    await _done(first)
    assert floating.claimed(RUN, STEP)
    await _done(second)
    assert not floating.claimed(RUN, STEP)
    assert not seen(floating, entry())[0].mine


async def test_a_claim_that_could_not_be_committed_is_let_go() -> None:
    floating, failed = Floating(), commit()
    floating.claim(RUN, STEP, failed)
    failed.cancel()
    async with asyncio.timeout(10):
        while floating.claimed(RUN, STEP):
            await asyncio.sleep(0)
    assert not seen(floating, entry())[0].mine


async def test_a_cut_is_seen_at_once_and_a_claim_takes_it_back() -> None:
    floating, cut, claim = Floating(), commit(), commit()
    floating.cut(RUN, STEP, 5.0, cut)
    assert seen(floating, entry(mine=True))[0].cut
    assert not seen(floating, entry(mine=True), run=OTHER)[0].cut
    floating.claim(RUN, STEP, claim)
    assert not seen(floating, entry(mine=True, cut=True))[0].cut
    assert floating.loose_cut(RUN) == 0.0


async def test_the_latest_cut_of_a_run_is_loose_until_committed_or_claimed() -> None:
    floating, first, second = Floating(), commit(), commit()
    floating.cut(RUN, STEP, 5.0, first)
    floating.cut(RUN, STEP + 1, 9.0, second)
    floating.cut(OTHER, STEP, 11.0, commit())
    assert floating.loose_cut(RUN) == 9.0
    await _done(second)
    assert floating.loose_cut(RUN) == 5.0
    floating.claim_cuts(RUN)
    assert (floating.loose_cut(RUN), floating.loose_cut(OTHER)) == (0.0, 11.0)
    await _done(first)


# --- readers ---


def test_a_step_that_is_being_read_is_neither_lost_nor_cut() -> None:
    floating = Floating()
    floating.reads(RUN, STEP)
    [shown] = seen(floating, entry(lost=True, cut=True))
    assert (shown.lost, shown.cut) == (False, False)
    [theirs] = seen(floating, entry(lost=True, cut=True), run=OTHER)
    assert (theirs.lost, theirs.cut) == (True, True)


def test_the_last_of_several_readers_says_whether_any_got_it_all() -> None:
    floating = Floating()
    floating.reads(RUN, STEP)
    floating.reads(RUN, STEP)
    assert not floating.read(RUN, STEP, delivered=False)
    assert floating.read(RUN, STEP, delivered=False)
    assert seen(floating, entry(lost=True))[0].lost
    floating.reads(RUN, STEP)
    floating.reads(RUN, STEP)
    assert not floating.read(RUN, STEP, delivered=True)
    assert not floating.read(RUN, STEP, delivered=False)
    assert floating.delivered == {(RUN, STEP)}
    assert not seen(floating, entry(lost=True))[0].lost


def test_a_run_talks_while_any_of_its_readers_waits() -> None:
    floating = Floating()
    floating.reads(RUN, STEP)
    floating.reads(RUN, STEP + 1)
    assert floating.talking(RUN)
    assert not floating.talking(OTHER)
    floating.read(RUN, STEP, delivered=True)
    assert floating.talking(RUN)
    floating.read(RUN, STEP + 1, delivered=False)
    assert not floating.talking(RUN)


def test_the_next_answer_that_is_out_moves_those_who_wait_for_their_turn() -> None:
    floating = Floating()
    floating.reads(RUN, STEP)
    moved, theirs = floating.moves(RUN), floating.moves(OTHER)
    assert floating.being_read(RUN, [STEP, STEP + 1]) == {STEP}
    assert floating.being_read(OTHER, [STEP]) == set()
    floating.read(RUN, STEP, delivered=True)
    assert moved.is_set()
    assert not theirs.is_set()
    assert not floating.moves(RUN).is_set()
    assert floating.being_read(RUN, [STEP]) == set()


# --- recordings ---


def test_a_step_whose_beginning_is_not_committed_is_seen_by_the_next_decision() -> None:
    floating = Floating()
    new = live(floating, hint=3, retry_key=b"k", tries=2)
    floating.add(new)
    [shown] = seen(floating)
    assert (shown.step, shown.state, shown.live, shown.watched, shown.mine) == (
        new.step,
        State.IN_FLIGHT,
        True,
        False,
        True,
    )
    assert (shown.hint, shown.retry_key, shown.tries) == (3, b"k", 2)
    new.recording.enter()
    [theirs] = seen(floating, run=OTHER)
    assert (theirs.mine, theirs.watched, theirs.run) == (False, True, RUN)
    assert floating.seen([], RUN, BRANCH, b"another question") == []
    assert floating.seen([], RUN, BRANCH + 1, KEY) == []


def test_temporary_ids_are_never_those_of_steps() -> None:
    floating = Floating()
    assert len({floating.temporary() for _ in range(5)}) == 5
    assert floating.temporary() < 0


def test_a_beginning_that_is_committed_but_not_told_is_not_seen_twice() -> None:
    floating = Floating()
    floating.add(live(floating))
    shown = seen(floating, entry(State.IN_FLIGHT), entry(State.COMPLETED))
    assert [(one.state, one.live) for one in shown] == [(State.COMPLETED, False), (State.IN_FLIGHT, True)]


def test_a_begun_step_is_live_under_its_own_number() -> None:
    floating = Floating()
    new = live(floating)
    floating.add(new)
    floating.begun(new, STEP, 4, 2)
    assert new.ready.is_set()
    assert (floating.live, new.number, new.attempt) == ({STEP: new}, 4, 2)
    [shown] = seen(floating, entry(State.IN_FLIGHT))
    assert (shown.step, shown.live, shown.watched) == (STEP, True, False)
    new.recording.enter()
    assert seen(floating, entry(State.IN_FLIGHT))[0].watched


def test_a_beginning_that_failed_leaves_nothing() -> None:
    floating = Floating()
    new, stays = live(floating), live(floating)
    floating.add(new)
    floating.add(stays)
    floating.drop(new)
    assert new.ready.is_set()
    assert [shown.step for shown in seen(floating)] == [stays.step]
    floating.drop(stays)
    assert (seen(floating), floating.live, floating._new) == ([], {}, {})


def test_a_step_is_fresh_for_a_while_after_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    floating = Floating()
    ended = live(floating, STEP)
    floating.add(ended)
    floating.drop(ended)
    assert seen(floating, entry(mine=True))[0].fresh
    now += FRESH_S - 0.1
    assert seen(floating, entry(mine=True))[0].fresh
    now += 0.2
    assert not seen(floating, entry(mine=True))[0].fresh


def test_a_later_recording_of_a_step_is_not_dropped_with_the_earlier_one() -> None:
    floating = Floating()
    first, second = live(floating, STEP), live(floating, STEP)
    floating.add(first)
    floating.add(second)
    floating.drop(first)
    assert floating.live == {STEP: second}


# --- answers that are given from the journal before they are on disk ---


def earlier(**more: Any) -> Entry:
    """An answer of a life before."""
    return Entry(STEP, 0, RUN - 1, State.COMPLETED, **more)


async def test_an_answer_that_is_being_replayed_is_not_given_to_an_equal_call_beside_it() -> None:
    """Committed, its fsync on its way: the step still counts as growing, but nobody follows it."""
    floating = Floating()
    floating.add(live(floating, STEP, run=OTHER))
    assert decide(Ask(), RUN, seen(floating, earlier())) == Replay(STEP)
    floating.claim(RUN, STEP, commit())
    floating.reads(RUN, STEP)
    assert decide(Ask(), RUN, seen(floating, earlier())) == Miss()
    floating.read(RUN, STEP, delivered=False)
    assert decide(Ask(), RUN, seen(floating, earlier())) == Follow(STEP, again=True), "its reader left: it is an orphan"


async def test_an_answer_that_waits_for_a_person_is_not_given_to_an_equal_call_beside_it() -> None:
    """Its reader has found it in the journal, but does not wait with the others yet."""
    floating = Floating()
    assert decide(Ask(), RUN, seen(floating, earlier(unreleased=True))) == Replay(STEP)
    floating.claim(RUN, STEP, commit())
    floating.reads(RUN, STEP)
    assert decide(Ask(), RUN, seen(floating, earlier(unreleased=True))) == Miss()
