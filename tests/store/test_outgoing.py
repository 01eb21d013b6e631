"""The outbox as the journal keeps it: what is next, what became of it, and that it is written with its fact alone."""

from __future__ import annotations

from pathlib import Path

from agentstate.core.model import SessionStatus
from agentstate.store.journal import Journal
from agentstate.store.rows import Message
from tests.store.kit import Book, crash, opened


def told(*targets: str, event: str = "session.failed") -> list[Message]:
    return [Message("msg_1", target, event, "{}", "s", "s") for target in targets]


async def post(book: Book, *targets: str) -> None:
    """Messages, by a status that changes each time."""
    failed = book.session.status is SessionStatus.FAILED
    status = SessionStatus.RUNNING if failed else SessionStatus.FAILED
    await book.journal.set_status(book.session.id, status, told=told(*targets))


def states(book: Book) -> list[str]:
    return [row.state for row in book.journal.read.messages()[::-1]]


async def test_the_next_message_of_a_target_is_its_oldest_that_is_neither_delivered_nor_dead(book: Book) -> None:
    for targets in (("a", "b"), ("a",), ("a", "b")):
        await post(book, *targets)
    read, journal = book.journal.read, book.journal
    found = []
    while (row := read.next_message("a")) is not None:
        found.append(row.id)
        await (journal.deliver_message(row.id) if len(found) % 2 else journal.bury_message(row.id, "gone"))
    assert found == [1, 3, 4]
    assert read.waiting_targets() == ["b"] and [row.id for row in read.messages("pending")] == [5, 2]
    assert [row.id for row in read.messages("dead")] == [3] and [row.id for row in read.messages("", 2, 4)] == [3, 2]


async def test_the_next_message_is_found_in_an_index(book: Book) -> None:
    plan = book.journal.read.raw("explain query plan " + book.journal.read.sql["next_message"], ("a",)).fetchall()
    assert [row[3] for row in plan] == ["SEARCH outbox USING INDEX outbox_due (target=?)"]


async def test_tries_are_counted_until_a_message_is_delivered_or_dead_and_anew_once_it_is_revived(book: Book) -> None:
    await post(book, "a", "b")
    journal = book.journal
    assert [await journal.try_message(1), await journal.try_message(1)] == [1, 2]
    await journal.postpone_message(1, 5e9, "busy")
    row = journal.read.message(1)
    assert row is not None and (row.next_at, row.error, row.state) == (5e9, "busy", "pending")
    assert await journal.revive_message(1) is False
    await journal.bury_message(1, "gone")
    assert await journal.try_message(1) == 0 and states(book) == ["dead", "pending"]
    assert await journal.revive_message(1) is True
    row = journal.read.message(1)
    assert row is not None and (row.attempts, row.dead_at, row.error) == (0, None, "gone") and row.next_at < 5e9
    await journal.deliver_message(1)
    assert await journal.try_message(1) == 0 and await journal.revive_message(1) is False
    await journal.bury_message(1, "late")
    assert states(book) == ["delivered", "pending"]


async def test_a_status_that_was_set_already_and_a_later_divergence_are_told_to_nobody(book: Book) -> None:
    run = await book.run("r1")
    calls: list[str] = []
    book.journal.posted = lambda: calls.append("posted")
    for _ in range(2):
        await book.journal.set_status(book.session.id, SessionStatus.FAILED, told=told("a"))
        await book.journal.report_divergence(book.session.id, run.id, "{}", told("a", event="run.diverged"))
    events = [row.event for row in book.journal.read.messages()[::-1]]
    assert events == ["session.failed", "run.diverged"] and "posted" in calls


async def test_those_who_deliver_are_woken_after_the_commit_and_only_where_there_is_something(book: Book) -> None:
    seen: list[int] = []
    book.journal.posted = lambda: seen.append(len(book.journal.read.messages()))
    await book.journal.set_status(book.session.id, SessionStatus.PAUSED)
    assert seen == []
    await post(book, "a")
    assert seen == [1]


async def test_messages_outlive_a_proxy_that_ends_without_a_farewell(path: Path) -> None:
    journal = opened(path)
    book = await Book.open(journal)
    await post(book, "a")
    await journal.try_message(1)
    crash(journal)
    again: Journal = opened(path)
    try:
        row = again.read.next_message("a")
        assert row is not None and (row.id, row.attempts, row.alert) == (1, 1, "msg_1")
    finally:
        again.close()
