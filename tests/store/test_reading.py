"""What the questions say of hand-outs, unread steps, rollbacks, generations and figures."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest

from agentstate.core.branching import NO_LIMIT
from agentstate.core.model import SessionStatus, State, Verdict
from agentstate.errors import Conflict
from tests.store.kit import Book, call, delivered, key_of

COMPLETED, FAILED, INTERRUPTED, IN_FLIGHT = State.COMPLETED, State.FAILED, State.INTERRUPTED, State.IN_FLIGHT


# --- what was given to whom ---


async def test_a_served_step_is_the_runs_own(book: Book) -> None:
    begun = await book.say(await book.run("r1"), "a")
    run = await book.run("r2")
    assert not book.entries(run, "a")[0].mine
    await book.serve(run, begun, hint=6)
    [entry] = book.entries(run, "a")
    assert (entry.mine, entry.cut, entry.lost, entry.hint) == (True, False, True, 6)
    assert book.read.served_among(run.id, [begun.step, 99]) == {begun.step}


async def test_delivered_and_cut_and_handed_out_again(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.say(run, "a")
    assert book.entries(run, "a")[0].lost
    await asyncio.gather(delivered(book, run.id, begun.step), delivered(book, 77, 77))
    assert not book.entries(run, "a")[0].lost
    await book.journal.note_cut(run.id, begun.step, 1e12)
    assert book.entries(run, "a")[0].cut
    assert book.read.loose_cut(run.id) == 1e12
    await book.serve(run, begun, "joined")
    [entry] = book.entries(run, "a")
    assert (entry.cut, entry.lost) == (False, True)
    assert book.read.loose_cut(run.id) == 0.0
    [(_, _, outcome, match, cut, joins, _)] = book.read.served_of([begun.step])
    assert (outcome, match, cut, joins) == ("live", "strict", False, 1)


async def test_a_cut_is_loose_until_the_run_asks_on_or_it_is_claimed(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.say(run, "a")
    assert not book.read.advanced(run.id)
    await book.journal.note_cut(run.id, begun.step, 1.0)  # before anything that the run was given
    assert book.read.loose_cut(run.id) == 0.0
    await book.journal.note_cut(run.id, begun.step, 1e12)
    assert book.read.loose_cut(run.id) == 1e12
    await book.journal.claim_cuts(run.id)
    assert book.read.loose_cut(run.id) == 0.0
    assert not book.entries(run, "a")[0].cut
    await book.say(run, "b")
    assert book.read.advanced(run.id)


async def test_siblings_keep_their_steps_to_themselves(book: Book) -> None:
    old, sibling = await book.run("old"), await book.run("sibling")
    theirs, given, free = await book.say(sibling, "a"), await book.say(old, "a"), await book.say(old, "a")
    await book.serve(sibling, given)
    run = await book.run("r", siblings=(sibling.id,))
    excluded = {entry.step: entry.excluded for entry in book.entries(run, "a")}
    assert excluded == {theirs.step: True, given.step: True, free.step: False}
    assert book.unread(run) == [free.number]


async def test_a_failed_step_tells_whether_its_run_went_on(book: Book) -> None:
    run = await book.run("r1")
    parallel = await book.ask(run, "beside")
    begun = await book.ask(run, "a")
    await book.fail(begun)
    await book.end(parallel)
    [entry] = book.entries(run, "a")
    assert (entry.state, entry.status, entry.went_on) == (FAILED, 503, False)
    await book.say(run, "b")
    assert book.entries(run, "a")[0].went_on


async def test_a_broken_answer_counts_the_runs_that_got_no_further(book: Book) -> None:
    first = await book.run("r1")
    begun = await book.say(first, "a", verdict=Verdict(broken=True))
    second, third, me = await book.run("r2"), await book.run("r3"), await book.run("me")
    for run in (second, third):
        await book.serve(run, begun)
    await book.say(third, "b")
    [entry] = book.entries(me, "a")
    assert (entry.broken, entry.deaths) == (True, 2)
    assert book.entries(second, "a")[0].deaths == 1


async def test_the_last_step_of_each_earlier_run_is_known(book: Book) -> None:
    first = await book.run("r1")
    a, b = await book.say(first, "a"), await book.say(first, "b")
    second, third, newest = await book.run("r2"), await book.run("r3"), await book.run("r4")
    await book.serve(second, a)
    await book.serve(second, b)
    await book.serve(third, a)
    await book.serve(newest, a)
    assert book.read.last_given(book.session.id) == {b.step: 2, a.step: 1}


# --- unread ---


async def test_what_earlier_lives_completed_is_unread_until_it_is_given(book: Book) -> None:
    first = await book.run("r1")
    a, b = await book.say(first, "a"), await book.say(first, "b")
    failed = await book.ask(first, "c")
    await book.fail(failed)
    await book.ask(first, "d")
    run = await book.run("r2")
    await book.say(first, "too late")
    assert book.unread(run) == [0, 1]
    assert book.read.first_unread(book.session.id, run, 0) == 0
    await book.serve(run, a)
    assert book.unread(run) == [1]
    assert book.read.first_unread(book.session.id, run, 0) == 1
    await book.ask(run, "x", carried=(b.step,))
    assert book.unread(run) == []
    assert book.read.first_unread(book.session.id, run, 0) == failed.number
    assert book.read.first_unread(book.session.id, run, 4) is None
    assert book.read.served_among(run.id, [b.step]) == {b.step}
    [unread] = book.read.unread(book.session.id, book.shown, await book.run("r3"), 1, 1)
    assert (unread.step, unread.number, unread.started, unread.finished) == (b.step, 1, 3, 4)


@pytest.mark.parametrize(("policy", "left"), [("fork", []), ("pause", []), ("strict", [1])])
async def test_what_a_run_left_behind_when_it_diverged_is_not_missed(book: Book, policy: str, left: list[int]) -> None:
    first = await book.run("r1")
    a = await book.say(first, "a")
    await book.say(first, "b")
    second = await book.run("r2")
    await book.serve(second, a)
    await book.journal.report_divergence(book.session.id, second.id, f'{{"policy":"{policy}"}}')
    other = await book.say(second, "other")
    run = await book.run("r3")
    assert book.unread(run) == [0, *left, other.number]


async def test_overlapping_steps_that_finished_before_are_found(book: Book) -> None:
    run = await book.run("r1")
    before = await book.say(run, "before")
    slow, quick, open_one = await book.ask(run, "slow"), await book.ask(run, "quick"), await book.ask(run, "open")
    await book.end(quick)
    await book.end(slow)
    row = book.read.answer(slow.step)
    args = (row.branch, row.number, row.started, row.finished)
    assert book.read.overlapped(*args) == [quick.step]
    assert before.step and open_one.step
    row = book.read.answer(quick.step)
    assert book.read.overlapped(row.branch, row.number, row.started, row.finished) == []


# --- rollback and generations ---


async def _numbers(book: Book, *prompts: str) -> list[int]:
    run = book.read.runs(book.session.id)[0]
    return [entry.number for prompt in prompts for entry in book.entries(run, prompt)]


async def test_a_rollback_hides_later_steps_and_deletes_none(book: Book) -> None:
    run = await book.run("r1")
    for prompt in "abcd":
        await book.say(run, prompt)
    await book.journal.set_status(book.session.id, SessionStatus.PAUSED, "why")
    made = await book.journal.roll_back(book.session, 2)
    assert (book.session.head, book.session.status, book.session.note) == (made, SessionStatus.RUNNING, "")
    assert await _numbers(book, *"abcd") == [0, 1]
    branch = book.read.branches(book.session.id)[made]
    assert (branch.reason, branch.opening, branch.branch.upto) == ("rollback", key_of("a"), 2)
    assert (await book.say(run, "c")).number == 4
    assert await _numbers(book, *"abcd") == [0, 1, 4]
    assert [row.number for row in book.read.steps(book.session.id)] == [0, 1, 2, 3, 4]
    assert book.read.fingerprints(book.shown) == {key_of(prompt) for prompt in "abc"}


async def test_rollbacks_of_rollbacks_show_what_all_of_them_left(book: Book) -> None:
    run = await book.run("r1")
    for prompt in "abc":
        await book.say(run, prompt)
    await book.journal.roll_back(book.session, 2)
    for prompt in "de":  # 3, 4
        await book.say(run, prompt)
    await book.journal.roll_back(book.session, 4)
    await book.say(run, "f")  # 5
    assert await _numbers(book, *"abcdef") == [0, 1, 3, 5]
    await book.journal.roll_back(book.session, 1)
    assert await _numbers(book, *"abcdef") == [0]
    assert [upto for _, upto in book.shown] == [NO_LIMIT, 1, 1, 1]
    await book.journal.roll_back(book.session, 5)
    assert await _numbers(book, *"abcdef") == [0]


async def test_a_rollback_to_0_shows_nothing_and_has_no_opening(book: Book) -> None:
    run = await book.run("r1")
    await book.say(run, "a")
    made = await book.journal.roll_back(book.session, 0)
    assert await _numbers(book, "a") == []
    assert book.read.branches(book.session.id)[made].opening is None
    assert book.unread(await book.run("r2")) == []


async def test_of_two_rollbacks_at_once_one_is_refused(book: Book) -> None:
    run = await book.run("r1")
    await book.say(run, "a")
    seen = book.session
    await book.journal.roll_back(seen, 1)
    with pytest.raises(Conflict, match="look at it again"):
        await book.journal.roll_back(seen, 0)
    assert await _numbers(book, "a") == [0]


async def test_a_new_generation_shows_nothing_and_goes_on_counting(book: Book) -> None:
    first = await book.run("r1")
    await book.say(first, "a")
    run = await book.run("r2", generation=True)
    assert run.base == 0
    assert book.entries(run, "a") == []
    assert book.unread(run) == []
    assert (await book.say(run, "a")).number == 1
    assert [entry.number for entry in book.entries(run, "a")] == [1]
    later = await book.run("r3")
    assert (later.base, book.unread(later)) == (2, [1])


# --- figures ---


async def test_the_figures_of_runs_and_sessions_add_up(book: Book) -> None:
    first = await book.run("r1")
    a = await book.say(first, "a", cost=0.5)
    unknown = await book.say(first, "b", cost=None)
    failed = await book.ask(first, "c")
    await book.fail(failed)
    assert book.read.run_paid(first.id) == (3, 0.5, 1)
    assert book.read.session_totals(book.session.id) == (3, 1, 0.5, 1)
    run = await book.run("r2")
    await book.serve(run, a)
    await book.serve(run, a)
    await book.serve(run, unknown, "joined")
    again = await book.journal.begin_attempt(failed.step, FAILED, book.new(run, call("c")))
    await book.end(again, cost=0.25)
    new = await book.ask(run, "d")
    assert book.read.run_counts(run.id) == {
        "replay": (1, 1, 1.0, 0), "joined": (1, 0, None, 1), "live": (2, 0, None, 0),
    }  # fmt: skip
    assert book.read.run_paid(run.id) == (2, 0.25, 0)
    assert book.read.run_paid(first.id) == (3, 0.5, 1)
    await book.end(new, cost=1.0)
    assert book.read.session_totals(book.session.id) == (4, 0, 1.75, 2)
    assert book.read.run_counts(99) == {}
    assert book.read.run_paid(99) == (0, None, 0)


async def test_steps_are_listed_by_number_between_limits(book: Book) -> None:
    run = await book.run("r1")
    for n in range(6):
        await book.say(run, f"q{n}")
    listed = [row.number for row in book.read.steps(book.session.id, 1, 4, 3)]
    assert listed == [1, 2, 3]
    assert book.read.step_by_number(book.session.id, 5) is not None
    assert book.read.step_by_number(book.session.id, 6) is None


async def test_a_note_that_cannot_be_kept_is_logged_and_hurts_nobody(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    run = await book.run("r1")
    begun = await book.say(run, "a")
    book.journal.path.rename(book.journal.path.with_name("moved"))
    with caplog.at_level(logging.WARNING, "agentstate"):
        done, _ = await asyncio.wait({book.journal.note_cut(run.id, begun.step, 1.0)}, timeout=10)
        assert len(done) == 1
        await asyncio.gather(*done, return_exceptions=True)
    assert "a note was not kept" in caplog.text
    book.journal.path.with_name("moved").rename(book.journal.path)


async def test_rows_are_frozen(book: Book) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        book.session.steps = 9  # type: ignore[misc]
