"""What happened lately is found by the order of ids: attempts of the last hours, by model, and the last proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import clock
from agentstate.core.budget import Limit, Scope, Unit
from agentstate.core.model import SessionStatus, Verdict
from agentstate.core.routing import Candidate
from agentstate.engine import standing
from agentstate.engine.allowances import uses
from agentstate.store.detours import Detour, Failed
from agentstate.store.journal import Journal
from agentstate.store.reader import Reader
from tests.store.kit import Book, call

HOUR = 3600.0
MORNING = 1_790_000_000.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    at = [MORNING]
    monkeypatch.setattr(clock, "now", lambda: at[0])
    yield at


async def fill(journal: Journal, now: list[float]) -> None:
    book = await Book.open(journal)
    run = await book.run("r1")
    for prompt in ("a", "b", "c"):
        begun = await book.ask(run, prompt)
        now[0] += 2
        await book.end(begun, cost=0.5)
        now[0] += HOUR
    begun = await book.ask(run, "d")
    now[0] += 1
    busy = b'[["retry-after","600"]]'
    await journal.end_attempt(Failed(begun.step, 1, 429, busy, b"busy", "HTTP 429: busy"))
    elsewhere = book.new(run, call("d"))._replace(provider="anthropic")
    await journal.next_attempt(begun.step, 1, elsewhere, Detour("it is busy", "anthropic/claude-test"))
    now[0] += 3
    second = begun._replace(attempt=2)
    await book.end(second, cost=None, verdict=Verdict(model="claude-test"))
    await book.ask(run, "e")


def test_attempts_of_the_last_hours_stand_by_the_model_that_was_asked(journal: Journal, now: list[float]) -> None:
    asyncio.run(fill(journal, now))
    reader = Reader(journal.path)
    since = now[0] - 2.5 * HOUR
    seen, failed = standing.read(reader, since, now[0])
    reader.close()
    ours = seen[Candidate("openai", "gpt-test")]
    assert (ours.answered, ours.limited, ours.failed, ours.under_way) == (2, 1, 0, 1)  # the first is too long ago
    assert ours.p50 == pytest.approx(2.0)
    assert seen[Candidate("anthropic", "claude-test")].answered == 1
    assert set(failed) == {Candidate("openai", "gpt-test")}
    last = failed[Candidate("openai", "gpt-test")]
    assert (last.status, last.error, last.wait) == (429, "HTTP 429: busy", 600.0)


def test_the_first_step_of_a_span_is_found_whatever_the_span(journal: Journal, now: list[float]) -> None:
    asyncio.run(fill(journal, now))
    reader = Reader(journal.path)
    times = [row[0] for row in reader.raw("select created_at from step order by id")]
    for number, at in enumerate(times, 1):
        assert reader.first_step(at) == number
        assert reader.first_step(at + 0.5) == number + 1
    assert reader.first_step(0.0) == 1
    assert Reader(journal.path).first_step(now[0] + HOUR) == len(times) + 1
    reader.close()


def test_what_is_used_of_budgets_is_what_a_call_would_be_ruled_by(journal: Journal, now: list[float]) -> None:
    asyncio.run(fill(journal, now))
    limits = (Limit(Scope.DAY, Unit.USD, 2.0), Limit(Scope.SESSION, Unit.STEPS, 10))
    reader = Reader(journal.path)
    day, session = uses(reader, limits, now[0])
    reader.close()
    assert (day.session, day.used, day.most, day.share) == ("", 1.5, 2.0, 0.75)
    assert (session.session, session.used, session.share) == ("s", 5, 0.5)


def test_sessions_that_ended_have_no_share_to_watch(journal: Journal, now: list[float]) -> None:
    asyncio.run(fill(journal, now))
    session = journal.read.session("s")
    assert session is not None
    asyncio.run(journal.set_status(session.id, SessionStatus.COMPLETED))
    reader = Reader(journal.path)
    assert uses(reader, (Limit(Scope.SESSION, Unit.STEPS, 10),), now[0]) == []
    reader.close()


def test_a_journal_without_a_step_says_nothing(tmp_path: Path, journal: Journal) -> None:
    reader = Reader(journal.path)
    assert standing.read(reader, 0.0, 10.0) == ({}, {})
    assert reader.last_proposing(10) == []
    reader.close()
