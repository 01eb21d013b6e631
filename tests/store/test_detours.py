"""What the journal keeps of attempts that follow failed ones, and of breakers: each once, of steps in flight alone."""

from __future__ import annotations

import pytest

from agentstate.core.model import BreakerState, State
from agentstate.errors import StepTaken
from agentstate.store.detours import BreakerRow, Detour, Failed
from agentstate.store.rows import Message
from tests.store.kit import Book, call


def failed(step: int, attempt: int) -> Failed:
    return Failed(step, attempt, 429, b'[["retry-after","1"]]', b'{"error":"slow"}', "HTTP 429: slow")


async def test_a_step_stays_in_flight_from_attempt_to_attempt_and_all_of_them_are_kept(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.ask(run, "a")
    await book.journal.end_attempt(failed(begun.step, 1))
    assert book.read.answer(begun.step).state is State.IN_FLIGHT
    new = book.new(run, call("a"))._replace(provider="other")
    detour = Detour("rate_limit 429: HTTP 429; other/m is asked instead", "other/m", ("seed",))
    second = await book.journal.next_attempt(begun.step, 1, new, detour)
    assert (second.step, second.number, second.attempt) == (begun.step, begun.number, 2)
    await book.end(second, b"good")
    rows = book.read.attempts(begun.step)
    assert [(row.n, row.status, row.error) for row in rows] == [(1, 429, "HTTP 429: slow"), (2, 200, "")]
    assert [row.detour for row in rows] == [Detour(""), detour]
    assert rows[1].provider == "other"
    assert book.read.detour(begun.step, 2) == detour
    assert book.read.detour(begun.step, 1) is None
    answer = book.read.answer(begun.step)
    assert (answer.state, answer.body, answer.attempts) == (State.COMPLETED, b"good", 2)


async def test_an_attempt_ends_once_and_the_next_one_begins_once(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.ask(run, "a")
    await book.journal.end_attempt(failed(begun.step, 1))
    with pytest.raises(StepTaken):
        await book.journal.end_attempt(failed(begun.step, 1))
    new = book.new(run, call("a"))
    await book.journal.next_attempt(begun.step, 1, new, Detour("again"))
    with pytest.raises(StepTaken):
        await book.journal.next_attempt(begun.step, 1, new, Detour("again"))
    with pytest.raises(StepTaken):  # a late end of the first one
        await book.end(begun, b"late")
    assert [row.n for row in book.read.attempts(begun.step)] == [1, 2]


async def test_no_attempt_follows_at_a_step_that_is_over(book: Book) -> None:
    run = await book.run("r1")
    begun = await book.say(run, "a")
    with pytest.raises(StepTaken):
        await book.journal.end_attempt(failed(begun.step, 1))
    with pytest.raises(StepTaken):
        await book.journal.next_attempt(begun.step, 1, book.new(run, call("a")), Detour("again"))
    assert len(book.read.attempts(begun.step)) == 1


async def test_a_breaker_is_kept_as_it_was_last_changed_with_the_messages_of_it(book: Book) -> None:
    row = BreakerRow("openai", "gpt", BreakerState.OPEN, 1, 130.0, 100.0, "HTTP 503")
    told = (Message("msg_1", "ops", "provider.down", "{}"),)
    posted: list[bool] = []
    book.journal.posted = lambda: posted.append(True)
    await book.journal.set_breaker(row, told)
    assert book.read.breakers() == [row]
    assert [message.event for message in book.read.messages()] == ["provider.down"]
    assert posted == [True]
    closed = row._replace(state=BreakerState.CLOSED, opened=0)
    await book.journal.set_breaker(closed)
    assert book.read.breakers() == [closed]
    assert len(book.read.messages()) == 1
