"""Two sessions, runs or branches are laid side by side as the journal has them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.core.comparing import Kind
from agentstate.core.model import Shape, Verdict
from agentstate.engine import comparing
from agentstate.errors import NotFound
from agentstate.store import transactions
from agentstate.store.journal import Journal
from agentstate.store.reader import Reader
from agentstate.store.steering import NewRevision
from tests.store.kit import CHAT, Book, call_of, opened
from tests.support import chat


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = opened(tmp_path / "agentstate.db")
    yield made
    made.close()


def said(text: str, name: str = "u1", **more: Any) -> bytes:
    return chat.completion(text, name=name, **more)


async def told(journal: Journal, key: str, *turns: tuple[str, str], run: str = "r1", first: int = 0) -> Book:
    """A session whose agent asked and was answered so."""
    book = await Book.open(journal, key)
    row = await book.run(run)
    for place, (question, answer) in enumerate(turns):
        await book.say(row, question, body=said(answer, f"{key}{first + place}"))
    return book


def kinds(reader: Reader, a: str, b: str) -> list[Kind]:
    return [pair.kind for pair in comparing.compare(reader, a, b).pairs]


async def test_a_session_is_the_same_as_itself(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"), ("two", "2"))
    found = comparing.compare(journal.read, "a", "a")
    assert found.same and found.first is None and found.counts == {Kind.SAME: 2}
    assert not comparing.pair(journal.read, "a", "a", 1).answer


async def test_answers_that_say_the_same_under_other_names_are_the_same(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"))
    await told(journal, "b", ("one", "1"))
    assert kinds(journal.read, "a", "b") == [Kind.SAME]


async def test_pairs_say_how_they_differ_and_the_first_that_does_is_told(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"), ("two", "2"), ("three", "3"), ("five", "5"))
    await told(journal, "b", ("one", "1"), ("two", "too"), ("four", "3"), ("five", "5"), ("six", "6"))
    found = comparing.compare(journal.read, "a", "b")
    assert [pair.kind for pair in found.pairs] == [Kind.SAME, Kind.ANSWER, Kind.REQUEST, Kind.SAME, Kind.RIGHT]
    assert found.first is not None
    assert (found.first.index, found.first.differs) == (1, ("text",))
    assert found.counts == {Kind.SAME: 2, Kind.ANSWER: 1, Kind.REQUEST: 1, Kind.RIGHT: 1}
    assert (found.left.steps, found.right.steps, found.left.tokens) == (4, 5, 12)
    assert found.left.models == ("gpt-test-1",)
    [field] = comparing.pair(journal.read, "a", "b", 1).answer.found
    assert (field.path, field.left, field.right) == ("text", "2", "too")
    request = comparing.pair(journal.read, "a", "b", 2).request
    assert [(field.path, field.left, field.right) for field in request.found] == [
        ("messages[0].content", "three", "four")
    ]


async def test_turned_round_the_sides_change_places(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"), ("two", "2"), ("three", "3"))
    await told(journal, "b", ("two", "x"), ("three", "3"), ("four", "4"))
    there, back = (comparing.compare(journal.read, *pair) for pair in (("a", "b"), ("b", "a")))
    swap = {Kind.LEFT: Kind.RIGHT, Kind.RIGHT: Kind.LEFT}
    assert {(pair.left, pair.right, pair.kind) for pair in there.pairs} == {
        (pair.right, pair.left, swap.get(pair.kind, pair.kind)) for pair in back.pairs
    }
    assert (there.left, there.right) == (back.right, back.left)


async def test_pages_hold_the_pairs_of_their_place_and_the_counts_of_all(journal: Journal) -> None:
    await told(journal, "a", *((str(place), "x") for place in range(7)))
    await told(journal, "b", *((str(place), "x" if place != 5 else "y") for place in range(7)))
    found = comparing.compare(journal.read, "a", "b", 2, 2)
    assert [pair.index for pair in found.pairs] == [2, 3]
    assert (found.total, found.counts) == (7, {Kind.SAME: 6, Kind.ANSWER: 1})
    assert found.first is not None and found.first.index == 5


async def test_a_run_is_what_it_was_given_and_a_branch_what_it_shows(journal: Journal) -> None:
    book = await told(journal, "a", ("one", "1"), ("two", "2"))
    second = await book.run("r2", evidence="run-id")
    await journal.serve(book.session.id, second.id, 1, "replay")
    assert comparing.compare(journal.read, "a#r1", "a#r2").counts == {Kind.SAME: 1, Kind.LEFT: 1}
    before = book.session.head
    await journal.roll_back(book.session, 1)
    await book.say(second, "other", body=said("9"))
    found = comparing.compare(journal.read, f"a@{before}", "a")
    assert [pair.kind for pair in found.pairs] == [Kind.SAME, Kind.REQUEST]
    assert (found.left.branch, found.right.branch) == (before, None)


@pytest.mark.parametrize("reference", ["z", "a#z", "a@99", "a@z", "#", ""])
async def test_a_reference_that_names_nothing_says_so(journal: Journal, reference: str) -> None:
    await told(journal, "a", ("one", "1"))
    with pytest.raises(NotFound):
        comparing.compare(journal.read, "a", reference)


async def test_a_session_whose_name_looks_like_a_reference_is_that_session(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"))
    await told(journal, "a#r1", ("two", "2"))
    assert comparing.compare(journal.read, "a#r1", "a#r1#r1").same


async def test_an_error_differs_from_an_answer(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"))
    book = await Book.open(journal, "b")
    await book.fail(await book.ask(await book.run("r1"), "one"))
    found = comparing.pair(journal.read, "a", "b", 0)
    assert found.pair.kind is Kind.ANSWER
    assert {"state", "status", "error"} <= {field.path for field in found.answer.found}


async def test_a_stream_that_says_what_a_plain_answer_says_is_the_same(journal: Journal) -> None:
    stream = b"".join(chat.chunks("hello there", name="b0"))
    plain = await Book.open(journal, "a")
    body = CHAT.convert(Shape(stream=True), Shape(), stream).replace(b"chatcmpl-b0", b"chatcmpl-a0")
    await plain.say(await plain.run("r1"), "one", body=body)
    book = await Book.open(journal, "b")
    shape, verdict = Shape(stream=True), Verdict(model="gpt-test-1", usage='{"total_tokens":3}')
    await book.say(await book.run("r1"), "one", body=stream, shape=shape, verdict=verdict)
    assert kinds(journal.read, "a", "b") == [Kind.SAME]


async def test_the_pair_of_a_step_is_found_by_its_number(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"), ("two", "2"))
    await told(journal, "b", ("zero", "0"), ("one", "1"), ("two", "3"))
    found = comparing.pair_of_step(journal.read, "a", "b", 1)
    assert found.pair.left is not None and found.pair.right is not None
    assert (found.pair.left.number, found.pair.right.number) == (1, 2)
    with pytest.raises(NotFound, match="has a step 9"):
        comparing.pair_of_step(journal.read, "a", "b", 9)


async def test_ten_thousand_steps_are_compared_in_about_a_second_and_no_equal_body_is_read(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b"):
        book = await Book.open(journal, key)
        row = await book.run("r1")
        begun = [journal.begin_step(book.new(row, _asked(place))) for place in range(10_000)]
        ends = [
            journal._writer.submit("end_step", lambda conn, ending=ending: _end(conn, journal, ending))
            for ending in [book.ending(await future, said("x", "same")) for future in begun]
        ]
        for end in ends:
            await end
    read: list[int] = []
    answer = Reader.received
    monkeypatch.setattr(Reader, "received", lambda self, step: read.append(step) or answer(self, step))  # type: ignore[func-returns-value]
    began = time.process_time()
    found = comparing.compare(journal.read, "a", "b", 9_990, 100)
    assert time.process_time() - began < 3
    assert (found.same, found.total, len(found.pairs), read) == (True, 10_000, 10, [])


def _asked(place: int) -> Any:
    content = json.dumps({"model": "gpt-test", "messages": [{"role": "user", "content": f"question {place}"}]})
    return call_of(content.encode())


def _end(conn: Any, journal: Journal, ending: Any) -> None:
    transactions.end_step(conn, journal._counters, ending)


async def test_in_flight_and_answered_differ_by_their_state(journal: Journal) -> None:
    await told(journal, "a", ("one", "1"))
    book = await Book.open(journal, "b")
    await book.ask(await book.run("r1"), "one")
    assert comparing.compare(journal.read, "a", "b").pairs[0].differs[0] == "state"


async def test_an_answer_that_a_person_edited_differs_in_what_is_released_from_the_branch_before(
    journal: Journal,
) -> None:
    book = await told(journal, "a", ("one", "1"), ("two", "2"))
    before = book.session.head
    step = journal.read.step_by_number(book.session.id, 1)
    assert step is not None
    revision = NewRevision(step, 1, before, 2, said("two, as edited"), "[]", "")
    await journal.edit(book.session, revision, "ann")
    found = comparing.pair(journal.read, f"a@{before}", "a", 1)
    assert (found.pair.kind, found.pair.differs, found.answer.found) == (Kind.ANSWER, ("released",), ())
    assert found.released is not None
    assert [(field.left, field.right) for field in found.released.found] == [("2", "two, as edited")]
    assert (found.left_text, found.right_text) == ("2", "two, as edited")
