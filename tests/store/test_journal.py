"""Every fact that is written, and what the questions say afterwards."""

from __future__ import annotations

import asyncio

import pytest

from agentstate.core.model import RunState, SessionStatus, Shape, State, Verdict
from agentstate.errors import IllegalTransition, StepTaken
from agentstate.store.journal import Journal
from tests.store.kit import Book, call, key_of, tool_call

COMPLETED, FAILED, INTERRUPTED, IN_FLIGHT = State.COMPLETED, State.FAILED, State.INTERRUPTED, State.IN_FLIGHT


# --- sessions ---


async def test_a_session_is_made_once_with_its_first_branch(journal: Journal) -> None:
    first, second = await asyncio.gather(journal.open_session("s"), journal.open_session("s"))
    assert first == second
    assert (first.status, first.steps, first.clock, first.note) == (SessionStatus.RUNNING, 0, 0, "")
    [branch] = journal.read.branches(first.id).values()
    assert (branch.branch.id, branch.branch.parent, branch.reason, branch.opening) == (first.head, None, "first", None)
    assert journal.read.session("other") is None


async def test_sessions_are_listed_latest_change_first_and_by_pages(journal: Journal) -> None:
    for key in "abcde":
        await journal.open_session(key)
    await journal.set_status(journal.read.session("b").id, SessionStatus.PAUSED, '{"why":"asked"}')  # type: ignore[union-attr]
    page = journal.read.sessions(2)
    found = [row.key for row in page]
    while page:
        page = journal.read.sessions(2, page[-1])
        found += [row.key for row in page]
    assert found == ["b", "e", "d", "c", "a"]
    [paused] = journal.read.sessions(9, status="PAUSED")
    assert (paused.key, paused.note) == ("b", '{"why":"asked"}')


# --- runs ---


async def test_a_run_sees_what_existed_when_it_began(book: Book) -> None:
    first = await book.run("r1", hint=4, owner="7:8", supervisor=9, siblings=(3, 5))
    assert (first.base, first.hint_min, first.hint_max, first.owner, first.supervisor) == (0, 4, 4, "7:8", 9)
    assert (first.siblings, first.state, first.named, first.evidence) == ((3, 5), RunState.OPEN, True, "run-id")
    await book.say(first, "a")
    await book.ask(first, "b")
    assert (await book.run("r2")).base == 2
    assert (await book.run("r3", evidence="none")).base == 0


async def test_a_known_run_that_begins_again_stays_as_it_is(book: Book) -> None:
    first = await book.run("r1")
    await book.say(first, "a")
    assert await book.run("r1", evidence="process", owner="1:1", generation=True) == first


async def test_a_replaced_run_is_fenced_and_stays_so(book: Book) -> None:
    old = await book.run("r1")
    await book.run("r2", replaces=old.id)
    fenced = book.row("r1")
    assert fenced.state is RunState.FENCED
    assert fenced.ended_at is not None
    with pytest.raises(IllegalTransition):
        await book.journal.end_run(book.session.id, old.id, RunState.ENDED, 0)
    assert book.row("r1") == fenced


async def test_an_ended_run_keeps_its_exit_code(book: Book) -> None:
    run = await book.run("r1")
    await book.journal.end_run(book.session.id, run.id, RunState.ENDED, 3)
    ended = book.row("r1")
    assert (ended.state, ended.exit_code) == (RunState.ENDED, 3)
    await book.journal.end_run(book.session.id, run.id, RunState.ENDED, 4)
    assert book.row("r1") == ended
    await book.journal.end_run(book.session.id, run.id, RunState.FENCED, None)
    assert (book.row("r1").state, book.row("r1").exit_code) == (RunState.FENCED, 3)


@pytest.mark.parametrize("status", [SessionStatus.COMPLETED, SessionStatus.FAILED, SessionStatus.PAUSED])
async def test_a_run_that_begins_wakes_a_finished_session_but_not_a_paused_one(
    book: Book, status: SessionStatus
) -> None:
    await book.journal.set_status(book.session.id, status, "n")
    await book.run("r1")
    paused = status is SessionStatus.PAUSED
    assert book.session.status is (SessionStatus.PAUSED if paused else SessionStatus.RUNNING)
    assert book.session.note == ("n" if paused else "")


async def test_the_first_known_owner_and_the_first_divergence_stay(book: Book) -> None:
    run = await book.run("r1")
    for owner in ("1:1", "2:2"):
        book.journal.note_owner(book.session.id, run.id, owner)
    for report in ('{"policy":"fork"}', '{"policy":"pause"}'):
        await book.journal.report_divergence(book.session.id, run.id, report)
    assert (book.row("r1").owner, book.row("r1").divergence) == ("1:1", '{"policy":"fork"}')


async def test_runs_are_listed_newest_first(book: Book) -> None:
    for name in ("a", "b", "c"):
        await book.run(name)
    assert [row.name for row in book.read.runs(book.session.id)] == ["c", "b", "a"]
    assert [row.name for row in book.read.runs(book.session.id, 2)] == ["c", "b"]


async def test_step_numbers_of_requests_widen_the_range_of_their_run(book: Book) -> None:
    run = await book.run("r1")
    assert run.hint_min is None
    begun = await book.ask(run, "a", hint=5)
    await book.end(begun)
    await book.serve(run, begun, hint=2)
    await book.ask(run, "b", hint=9)
    await book.ask(run, "c")
    assert (book.row("r1").hint_min, book.row("r1").hint_max) == (2, 9)


# --- steps ---


async def test_a_step_is_in_flight_until_its_answer_is_kept(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.ask(run, "a", retry_key=b"k", hint=7)
    [entry] = book.entries(run, "a")
    assert (entry.step, entry.number, entry.run, entry.state) == (begun.step, 0, run.id, IN_FLIGHT)
    assert (entry.retry_key, entry.hint, entry.mine, entry.cut) == (b"k", 7, True, False)
    assert (entry.started, entry.finished) == (1, 0)
    assert book.read.answer(begun.step).body == b""
    await book.end(begun, b"answer", cost=0.25, shape=Shape(True), verdict=Verdict(model="m-1", usage="{}"))
    [entry] = book.entries(run, "a")
    assert (entry.state, entry.status, entry.started, entry.finished) == (COMPLETED, 200, 1, 2)
    row = book.read.answer(begun.step)
    assert (row.body, row.model, row.usage, row.cost, row.state) == (b"answer", "m-1", "{}", 0.25, COMPLETED)
    assert (row.number, row.started, row.finished, row.dialect) == (0, 1, 2, "openai_chat")
    [listed] = book.read.steps(book.session.id)
    assert (listed.id, listed.asked_model, listed.model, listed.attempts) == (begun.step, "gpt-test", "m-1", 1)
    assert (listed.fingerprint, listed.has_body, listed.hint) == (key_of("a"), True, 7)
    assert (listed.provider, listed.path) == ("openai", "chat/completions")


async def test_a_step_ends_once(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.say(run, "a", body=b"first")
    with pytest.raises(StepTaken):
        await book.end(begun, b"second")
    assert book.read.answer(begun.step).body == b"first"
    assert book.session.clock == 2
    with pytest.raises(IllegalTransition):
        await book.end(begun, state=IN_FLIGHT)


async def test_a_failed_step_is_tried_again_as_the_same_step(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.ask(run, "a")
    await book.fail(begun)
    other = await book.run("r2")
    again = await book.journal.begin_attempt(begun.step, FAILED, book.new(other, call("a")))
    assert (again.step, again.number, again.attempt) == (begun.step, 0, 2)
    with pytest.raises(StepTaken):  # somebody else was faster
        await book.journal.begin_attempt(begun.step, FAILED, book.new(other, call("a")))
    with pytest.raises(StepTaken):  # an end of the first attempt that comes late
        await book.end(begun, b"late")
    await book.end(again, b"good", cost=0.5)
    assert book.read.answer(begun.step).body == b"good"
    [entry] = book.entries(other, "a")
    assert (entry.state, entry.run, entry.mine) == (COMPLETED, run.id, True)
    asked = "select n, run, status, error from attempt where step = ? order by n"
    rows = book.read.raw(asked, (begun.step,)).fetchall()
    assert [tuple(row) for row in rows] == [
        (1, run.id, 503, "HTTP 503: busy"), (2, other.id, 200, ""),
    ]  # fmt: skip
    assert book.session.steps == 1


async def test_a_completed_step_is_never_sent_again(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.say(run, "a")
    with pytest.raises(IllegalTransition):
        await book.journal.begin_attempt(begun.step, COMPLETED, book.new(run, call("a")))
    with pytest.raises(StepTaken):
        await book.journal.begin_attempt(begun.step, FAILED, book.new(run, call("a")))
    [entry] = book.entries(run, "a")
    assert (entry.state, entry.started, entry.finished) == (COMPLETED, 1, 2)


async def test_an_interrupted_step_is_no_longer_in_flight(book: Book) -> None:
    run = await book.run("r1")
    begun, whole = await book.ask(run, "a"), await book.say(run, "b")
    for step in (begun.step, whole.step):
        await book.journal.interrupt_step(step)
    assert [book.entries(run, name)[0].state for name in "ab"] == [INTERRUPTED, COMPLETED]
    [(error,)] = book.read.raw("select error from attempt where step = ?", (begun.step,)).fetchall()
    assert error == "its end could not be recorded"
    await book.journal.begin_attempt(begun.step, INTERRUPTED, book.new(run, call("a")))


async def test_tool_calls_are_kept_of_finished_answers_only(book: Book) -> None:
    run = await book.run("r1")
    calls = Verdict(calls=(tool_call("c1", "read"), tool_call("c2", "send", index=1), tool_call("c3", "x", choice=1)))
    good = await book.say(run, "a", verdict=calls)
    bad = await book.ask(run, "b")
    await book.end(bad, state=FAILED, verdict=calls)
    assert book.read.tool_names([good.step, bad.step]) == {good.step: ("read", "send", "x")}
    owners = book.read.call_owners(book.session.id, ["c2", "c3", "c9"])
    assert sorted(owners) == [(good.step, "c2", "send"), (good.step, "c3", "x")]
    stranger = await Book.open(book.journal, "other")
    assert book.read.call_owners(stranger.session.id, ["c2"]) == []


async def test_the_opening_of_a_branch_is_its_first_step(book: Book) -> None:
    run = await book.run("r1")
    for prompt in ("a", "b"):
        await book.ask(run, prompt, opening=True)
    [branch] = book.read.branches(book.session.id).values()
    assert branch.opening == key_of("a")


async def test_equal_questions_are_listed_in_recorded_order(book: Book) -> None:
    run = await book.run("r1")
    for _ in range(3):
        await book.say(run, "same")
    await book.say(run, "other")
    assert [entry.number for entry in book.entries(run, "same")] == [0, 1, 2]
    assert book.read.fingerprints(book.shown) == {key_of("same"), key_of("other")}
