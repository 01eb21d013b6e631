"""The rows kept in memory equal the committed ones after each write, whatever is written and whoever waits for it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentstate.core.model import ApprovalKind, OnReject, Release, RunState, SessionStatus, Shape, State, Verdict
from agentstate.store.journal import Journal
from agentstate.store.rows import Ending, FinishedJob, NewApproval, SessionRow
from agentstate.store.steering import NewRevision, Steering
from tests.store.kit import Book, call, delivered, key_of, plan

PROMPTS = [f"q{n}" for n in range(4)]


def _lasting(row: SessionRow | None) -> Any:
    """A session's row without what steps change."""
    return row and dataclasses.replace(row, steps=0, clock=0, updated_at=0.0)


def _look(book: Book) -> None:
    """Ask for everything, so that it is remembered."""
    facts, session = book.journal.facts, book.session
    facts.session(book.key)
    facts.runs(session.id)
    for name in ("r1", "r2", "new"):
        facts.run(session.id, name)
    for prompt in PROMPTS:
        facts.holds(book.shown, key_of(prompt))


def _check(book: Book) -> None:
    facts, read, session = book.journal.facts, book.read, book.session
    assert _lasting(facts.session(book.key)) == _lasting(read.session(book.key))
    assert facts.runs(session.id) == tuple(read.runs(session.id, 50))
    for name in ("r1", "r2", "new"):
        assert facts.run(session.id, name) == read.run(session.id, name)
    present = read.fingerprints(book.shown)
    for prompt in PROMPTS:
        assert facts.holds(book.shown, key_of(prompt)) >= (key_of(prompt) in present)


async def _later(future: asyncio.Future[Any] | None, book: Book) -> None:
    """A note that nobody waits for, and its end."""
    if future is not None:
        await future
    await book.journal.open_session("behind it")


def _serve(book: Book, hint: int | None) -> Awaitable[Any]:
    return book.journal.serve(book.session.id, book.row("r2").id, 1, "replay", hint=hint)


async def _end(book: Book) -> None:
    await book.end(await book.ask(book.row("r1"), "q3"))


async def _again(book: Book) -> None:
    await book.journal.begin_attempt(2, State.FAILED, book.new(book.row("r2"), call("q1"), hint=8))


def _hold(book: Book) -> asyncio.Future[Any]:
    asked = NewApproval("apr_1", ApprovalKind.REQUEST, b"d", b"{}", OnReject.ERROR)
    return book.journal.hold_step(book.new(book.row("r1"), call("q3"))._replace(asked=asked))


async def _send_held(book: Book) -> None:
    await book.journal.send_held((await _hold(book)).step, book.new(book.row("r2"), call("q3"), hint=8))


async def _refuse(book: Book) -> None:
    begun = await _hold(book)
    ending = Ending(
        book.session.id, begun.step, 1, State.COMPLETED, 403, b"", b"no", True, Shape(), Verdict()
    )  # fmt: skip
    await book.journal.refuse_step(ending, Release.ERROR, "{}")


async def budgeted(book: Book, steps: int, hold: bool = True) -> Any:
    return await book.journal.begin_budgeted(book.new(book.row("r2"), call("q3"), hint=8), plan(steps, hold), None)


async def _send_budgeted(book: Book, steps: int) -> None:
    await book.journal.send_budgeted((await _hold(book)).step, book.new(book.row("r2"), call("q3")), plan(steps))


WRITES: dict[str, Callable[[Book], Awaitable[Any]]] = {
    "open_session": lambda book: book.journal.open_session(book.key),
    "begin_run": lambda book: book.run("new"),
    "begin_run of a generation": lambda book: book.run("new", generation=True),
    "begin_run that replaces": lambda book: book.run("new", replaces=book.row("r1").id),
    "claim_cuts": lambda book: book.journal.claim_cuts(book.row("r1").id),
    "note_owner": lambda book: _later(book.journal.note_owner(book.session.id, book.row("r1").id, "1:2"), book),
    "end_run": lambda book: book.journal.end_run(book.session.id, book.row("r1").id, RunState.ENDED, 1),
    "report_divergence": lambda book: book.journal.report_divergence(book.session.id, book.row("r1").id, "{}"),
    "set_status": lambda book: book.journal.set_status(book.session.id, SessionStatus.PAUSED, "n"),
    "roll_back": lambda book: book.journal.roll_back(book.session, 1),
    "fork": lambda book: book.journal.fork(book.session, book.session.head, 1, "forked", "kim"),
    "edit": lambda book: book.journal.edit(
        book.session,
        NewRevision(1, 0, book.session.head, book.session.steps, b"{}", "{}", "", left=((2, True),)),
        "kim",
    ),
    "begin_step": lambda book: book.ask(book.row("r1"), "q3"),
    "begin_step with a number": lambda book: book.ask(book.row("r1"), "q3", hint=9),
    "begin_step with carried ones": lambda book: book.ask(book.row("r2"), "q3", carried=(1,)),
    "begin_attempt": _again,
    "end_step": _end,
    "begin_budgeted": lambda book: budgeted(book, 9),
    "begin_budgeted that is held": lambda book: budgeted(book, 1),
    "begin_budgeted that is denied": lambda book: budgeted(book, 1, hold=False),
    "send_budgeted": lambda book: _send_budgeted(book, 9),
    "send_budgeted that has no room": lambda book: _send_budgeted(book, 1),
    "hold_step": _hold,
    "send_held": _send_held,
    "refuse_step": _refuse,
    "note_results": lambda book: book.journal.note_results([(1, 0, 0, b"done", False)]),
    "finish_job": lambda book: book.journal.finish_job(FinishedJob(book.session.id, "resp_1", 200, b"[]", b"{}")),
    "delete_job": lambda book: book.journal.delete_job(book.session.id, "resp_1", "r1", 200),
    "interrupt_step": lambda book: book.journal.interrupt_step(3),
    "serve": lambda book: _serve(book, None),
    "serve with a number": lambda book: _serve(book, 4),
    "note_cut": lambda book: book.journal.note_cut(book.row("r1").id, 1, 5.0),
    "note_delivered": lambda book: delivered(book, book.row("r1").id, 1),
}


async def _filled(book: Book) -> None:
    run = await book.run("r1")
    await book.say(run, "q0")
    await book.fail(await book.ask(run, "q1"))
    await book.ask(run, "q2")
    await book.run("r2")
    _look(book)


@pytest.mark.parametrize("name", WRITES)
async def test_what_is_remembered_is_true_after(name: str, book: Book) -> None:
    await _filled(book)
    await WRITES[name](book)
    _check(book)


def test_every_writing_method_of_the_journal_is_among_them() -> None:
    written = vars(Journal) | vars(Steering)
    public = {name for name, value in written.items() if callable(value) and not name.startswith("_")}
    assert public - {"open", "check", "close", "tell"} == {name.partition(" ")[0] for name in WRITES}


@pytest.mark.parametrize(
    "name", ["begin_run", "set_status", "roll_back", "edit", "end_run", "report_divergence", "begin_step"]
)
async def test_what_is_remembered_is_true_after_a_caller_was_cancelled(name: str, book: Book) -> None:
    await _filled(book)
    task = asyncio.ensure_future(WRITES[name](book))
    await asyncio.sleep(0)  # the write is queued: it will be committed whether or not its caller waits
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await book.journal.open_session("behind it")
    _check(book)


async def test_a_row_that_did_not_exist_is_found_once_it_does(book: Book) -> None:
    facts = book.journal.facts
    assert facts.session("late") is None
    late = await Book.open(book.journal, "late")
    assert facts.session("late") == late.session
    assert facts.run(late.session.id, "r") is None
    run = await late.run("r")
    assert facts.run(late.session.id, "r") == run


async def test_a_fingerprint_of_another_branch_is_not_held(book: Book) -> None:
    await _filled(book)
    await book.journal.roll_back(book.session, 1)
    held = [book.journal.facts.holds(book.shown, key_of(prompt)) for prompt in PROMPTS]
    assert held == [True, False, False, False]
