"""Sums over the journal count what was sent and handed out, and what is unknown apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import clock
from agentstate.core.model import Verdict
from agentstate.core.usage import Tokens
from agentstate.engine.stats import BY, Row, Stats, stats
from agentstate.errors import BadRequest, NotFound
from agentstate.store.journal import Journal
from agentstate.store.reader import Reader
from tests.store.kit import Book

USAGE = '{"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}}'
DAY = 86_400.0
MORNING = 1_790_000_000.0 // DAY * DAY


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time that the journal writes down; the test moves it."""
    at = [MORNING]
    monkeypatch.setattr(clock, "now", lambda: at[0])
    yield at


async def paid(
    book: Book, run: str, prompt: str, model: str = "gpt-a", cost: float | None = 0.5, usage: str = USAGE
) -> int:
    row = book.read.run(book.session.id, run) or await book.run(run)
    begun = await book.ask(row, prompt)
    await book.end(begun, verdict=Verdict(model=model, usage=usage), cost=cost, prices="settings" if cost else "")
    return begun.step


async def fill(journal: Journal, now: list[float]) -> None:
    one, two = await Book.open(journal, "one"), await Book.open(journal, "two")
    await paid(one, "r1", "a")
    await paid(one, "r1", "b", cost=None)
    begun = await one.ask(one.row("r1"), "c")
    await one.fail(begun)
    now[0] += DAY
    await paid(two, "r1", "a", model="gpt-b", cost=0.25, usage="")
    again = await one.run("r2")
    entries = journal.read.steps(one.session.id)
    for step in entries[:2]:
        await journal.serve(one.session.id, again.id, step.id, "replay")
    await journal.serve(one.session.id, again.id, entries[0].id, "replay")  # its client asked once more
    await journal.serve(one.session.id, again.id, entries[2].id, "carried")


def figures(journal: Journal, now: list[float], **asked: str) -> Stats:
    asyncio.run(fill(journal, now))
    reader = Reader(journal.path)
    try:
        return stats(reader, **asked)
    finally:
        reader.close()


def test_all_that_was_sent_and_spared_is_summed_up(journal: Journal, now: list[float]) -> None:
    sent, spared = figures(journal, now).total[1:]
    assert (sent.calls, sent.failed, sent.cost, sent.unpriced) == (4, 1, 0.75, 1)
    assert (sent.tokens, sent.uncounted) == (Tokens(200, 40, 80), 2)
    # The first answer was given twice more, the second once; what that one cost is not known.
    assert (spared.replays, spared.saved, spared.unpriced) == (3, 1.0, 1)


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("day", {"2026-09-21": (3, 0), "2026-09-22": (1, 3)}),
        ("model", {"gpt-a": (2, 3), "gpt-b": (1, 0), "gpt-test": (1, 0)}),
        ("provider", {"openai": (4, 3)}),
        ("session", {"one": (3, 3), "two": (1, 0)}),
    ],
)
def test_sums_stand_by_what_is_asked_for(
    journal: Journal, now: list[float], by: str, rows: dict[str, tuple[int, int]]
) -> None:
    found = figures(journal, now, by=by)
    assert {row.name: (row.sent.calls, row.spared.replays) for row in found.rows} == rows
    assert sum(row.sent.cost for row in found.rows) == found.total.sent.cost
    assert sum(row.spared.saved for row in found.rows) == found.total.spared.saved


def test_under_labels_a_session_counts_once_for_each_and_those_without_stand_apart(
    journal: Journal, now: list[float]
) -> None:
    asyncio.run(fill(journal, now))
    session = journal.read.session("one")
    assert session is not None
    asyncio.run(journal.set_labels(session, ["night", "billing"], [], "ana"))
    reader = Reader(journal.path)
    found = stats(reader, by="label")
    reader.close()
    assert {row.name: row.sent.calls for row in found.rows} == {"": 1, "billing": 3, "night": 3}
    assert {row.name: row.spared.replays for row in found.rows} == {"": 0, "billing": 3, "night": 3}
    assert found.total.sent.calls == 4


def test_first_and_last_day_and_the_session_bound_what_counts(journal: Journal, now: list[float]) -> None:
    assert figures(journal, now, since="2026-09-22").total.sent.calls == 1
    reader = Reader(journal.path)
    assert stats(reader, until="2026-09-21").total.sent.calls == 3
    assert stats(reader, until="2026-09-21").total.spared.replays == 0
    assert stats(reader, since="2026-09-21", until="2026-09-22", session="one").total.sent.calls == 3
    reader.close()


def test_an_empty_journal_has_nothing_and_nothing_unknown(journal: Journal) -> None:
    reader = Reader(journal.path)
    found = stats(reader)
    assert (found.rows, found.total) == ((), Row("", *(type(part)() for part in found.total[1:])))  # type: ignore[arg-type]
    reader.close()


@pytest.mark.parametrize(
    "asked", [{"by": "hour"}, {"since": "yesterday"}, {"until": "2026-13-01"}, {"since": "2026-1-1"}]
)
def test_what_cannot_be_understood_is_refused(journal: Journal, asked: dict[str, str]) -> None:
    reader = Reader(journal.path)
    with pytest.raises(BadRequest):
        stats(reader, **asked)
    with pytest.raises(NotFound):
        stats(reader, session="nobody")
    reader.close()
    assert len(BY) == 5


def test_a_question_in_flight_is_no_call_yet_and_one_that_was_interrupted_may_have_cost(tmp_path: Path) -> None:
    async def scenario(path: Path) -> None:
        journal = Journal(path)
        journal.open()
        book = await Book.open(journal)
        await book.ask(await book.run("r1"), "a")
        reader = Reader(path)
        assert stats(reader).total.sent.calls == 0
        await journal.interrupt_step(1)
        assert stats(reader).total.sent[:2] == (1, 1)
        assert stats(reader).total.sent.unpriced == 1
        reader.close()
        journal.close()

    asyncio.run(scenario(tmp_path / "j.db"))
