"""What is remembered of budgets is what the journal says, whatever was begun, settled, given up or decided."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from agentstate.core.approval import Decision, Vote
from agentstate.core.budget import Amount, Ruling, Scope, Used, day_of
from agentstate.core.model import SessionStatus, State, Verdict
from agentstate.store import reserving
from agentstate.store.journal import Journal
from agentstate.store.rows import Begun
from tests.store.kit import Book, call, crash, opened, plan

USAGE = '{"prompt_tokens": 7, "completion_tokens": 5}'


def remembered(journal: Journal) -> dict[tuple[Scope, int], Used]:
    return dict(journal._counters.spent)


def recorded(journal: Journal, key: tuple[Scope, int]) -> Used:
    conn = journal._writer.lend()
    assert conn is not None
    return reserving.read_used(conn, *key)


def same(one: Used, other: Used) -> bool:
    return (
        one.settled == pytest.approx(other.settled) and one.reserved == pytest.approx(other.reserved)
        and dict(one.raised) == dict(other.raised)
    )  # fmt: skip


async def begin(book: Book, prompt: str, **more: int) -> Begun | Ruling:
    return await book.journal.begin_budgeted(book.new(book.row("r1"), call(prompt)), plan(**more), None)


async def end(book: Book, begun: Begun, cost: float | None) -> None:
    verdict = Verdict(model="m", usage=USAGE if cost is not None else "")
    await book.end(begun, verdict=verdict, cost=cost, budgeted=True)


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_what_is_remembered_is_what_is_recorded(seed: int, book: Book) -> None:
    chance = random.Random(seed)
    await book.run("r1")
    open_, failed = [], []
    for number in range(40):
        match chance.choice(("begin", "begin", "end", "end", "fail", "again", "interrupt", "forget")):
            case "begin":
                begun = await begin(book, f"q{number}")
                assert isinstance(begun, Begun)
                open_.append(begun)
            case "end" if open_:
                await end(book, open_.pop(), chance.choice((0.25, None, 1.5)))
            case "fail" if open_:
                begun = open_.pop()
                await book.end(begun, b"", state=State.FAILED, status=503, verdict=Verdict(), budgeted=True)
                failed.append(begun)
            case "again" if failed:
                again = failed.pop()
                new = book.new(book.row("r1"), call("again"))
                begun = await book.journal.begin_budgeted(new, plan(), (again.step, State.FAILED))
                assert isinstance(begun, Begun) and begun.attempt == again.attempt + 1
                open_.append(begun)
            case "interrupt" if open_:
                await book.journal.interrupt_step(open_.pop().step)
            case "forget":
                book.journal._counters.forget()
        for key, used in remembered(book.journal).items():
            assert same(used, recorded(book.journal, key)), key


async def test_calls_in_flight_reserve_what_they_may_take_and_settle_what_they_took(book: Book) -> None:
    await book.run("r1")
    begun = await begin(book, "a")
    assert isinstance(begun, Begun)
    key = (Scope.SESSION, book.session.id)
    assert remembered(book.journal)[key] == Used(Amount(0.0, 1, 0), Amount(0.5, 0, 10), {})
    await end(book, begun, 0.25)
    assert remembered(book.journal)[key] == Used(Amount(0.25, 1, 12), Amount(), {})


async def test_a_proxy_that_is_gone_reserves_nothing_any_more(path: Path) -> None:
    book = await Book.open(opened(path))
    await book.run("r1")
    assert isinstance(await begin(book, "a"), Begun)
    session = book.session.id
    crash(book.journal)
    journal = opened(path)
    assert recorded(journal, (Scope.SESSION, session)) == Used(Amount(0.0, 1, 0), Amount(), {})
    journal.close()


async def test_of_many_at_once_only_those_that_fit_begin(book: Book) -> None:
    await book.run("r1")
    found = await asyncio.gather(*(begin(book, f"q{number}", steps=3, hold=False) for number in range(10)))
    assert [isinstance(one, Begun) for one in found] == [True] * 3 + [False] * 7


async def test_a_raise_counts_and_a_stop_pauses(book: Book) -> None:
    await book.run("r1")
    await begin(book, "a", steps=1)
    held = await begin(book, "b", steps=1)
    assert isinstance(held, Begun)
    [asked] = book.read.approvals_of(held.step)
    await book.journal.decide(asked.id, Vote("ann", Decision.EDITED, '{"raise": 2}'), "")
    new = book.new(book.row("r1"), call("b"))
    assert isinstance(await book.journal.send_budgeted(held.step, new, plan(1)), Begun)
    assert dict(remembered(book.journal)[Scope.SESSION, book.session.id].raised) == {"session_steps": 2.0}
    assert isinstance(await begin(book, "c", steps=1), Begun)
    stopped = await begin(book, "d", steps=1)
    assert isinstance(stopped, Begun)
    [asked] = book.read.approvals_of(stopped.step)
    await book.journal.decide(asked.id, Vote("ann", Decision.REJECTED), "enough")
    assert book.session.status is SessionStatus.PAUSED
    row = book.journal.facts.session(book.key)
    assert row is not None and row.status is SessionStatus.PAUSED


async def test_what_was_used_on_another_day_is_not_todays(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    await book.run("r1")
    begun = await begin(book, "a")
    assert isinstance(begun, Begun)
    await end(book, begun, 0.25)
    today = day_of(plan().at)
    assert recorded(book.journal, (Scope.DAY, today)).settled == Amount(0.25, 1, 12)
    assert recorded(book.journal, (Scope.DAY, today + 1)).settled == Amount()
    assert recorded(book.journal, (Scope.DAY, today - 1)).settled == Amount()
