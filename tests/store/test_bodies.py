"""Bodies: every request and answer comes back byte for byte, each message is stored once, growth is linear."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Shape
from agentstate.errors import BadRequest
from agentstate.store import bodies
from agentstate.store.journal import Journal
from agentstate.store.sqlite import fresh
from tests.store.kit import Book, call, call_of
from tests.unit.core.profile import examples

TEXT = st.text(max_size=12) | st.sampled_from(
    ["", '"', "\\", "],[", '", "', "\u2028", "é", "🙂", "}, {", "\t\n", "\x00"]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUE = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
MESSAGE = st.fixed_dictionaries({"role": TEXT, "content": VALUE}) | st.dictionaries(TEXT, VALUE, max_size=3)
STYLES = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, None, 0, 1, 4, "\t"]),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,  ", " :\n"), None]),
        "ensure_ascii": st.booleans(),
    }
)


@st.composite
def request_bodies(draw: Any) -> bytes:
    """JSON objects with messages first, last, in the middle, empty, twice nested, or none; spelled in many ways."""
    before = draw(st.dictionaries(TEXT, VALUE, max_size=2))
    after = draw(st.dictionaries(TEXT, VALUE, max_size=2))
    messages = draw(st.none() | st.lists(MESSAGE, max_size=4) | VALUE)
    body = dict(before)
    if draw(st.booleans()):
        body["messages"] = messages
    body.update({name: value for name, value in after.items() if name != "messages"})
    if draw(st.booleans()):
        body["nested"] = {"messages": messages}
    text = json.dumps(body, **draw(STYLES))
    return (draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", "\n", "  "]))).encode()


def _stored(request: bytes) -> bytes | None:
    """The body as the journal would put it together again; ``None``: it is not one that is ever stored."""
    try:
        asked = call_of(request)
    except BadRequest:
        return None
    messages = [item.raw for item in asked.items] if asked.before else []
    return bodies.join(bodies.frame_of(asked), messages)


@examples(400)
@given(request_bodies())
def test_a_request_is_put_together_byte_for_byte(request: bytes) -> None:
    assert _stored(request) == request


@examples(40)
@given(st.lists(request_bodies(), min_size=1, max_size=6))
def test_requests_come_back_from_the_file_byte_for_byte(requests: list[bytes]) -> None:
    async def scenario(path: Path) -> None:
        journal = Journal(path)
        journal.open()
        try:
            book = await Book.open(journal)
            run = await book.run("r1")
            begun = [await journal.begin_step(book.new(run, call_of(request))) for request in requests]
            for step, request in zip(begun, requests, strict=True):
                assert journal.read.request(step.step) == ("openai_chat", "POST", "chat/completions", request)
        finally:
            journal.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder) / "agentstate.db"))


@examples(200)
@given(st.binary(max_size=4000) | st.binary(max_size=40).map(lambda part: part * 200))
def test_content_is_unpacked_as_it_was(content: bytes) -> None:
    codec, stored = bodies.packed(content)
    assert bodies.unpacked(codec, len(content), stored) == content
    assert len(stored) <= len(content)


async def test_an_answer_comes_back_byte_for_byte(book: Book) -> None:
    run = await book.run("r1")
    answers = [b'{"a": 1}', b"", b"\x00\xff" * 5000, b"data: {}\n\n" * 300]
    for body in answers:
        begun = await book.say(run, f"{len(body)}", body=body, head=b'[["x","y"]]' + body[:9], shape=Shape(True, True))
        row = book.read.answer(begun.step)
        assert (row.body, row.head, row.shape) == (body, b'[["x","y"]]' + body[:9], Shape(True, True))


async def test_equal_answers_and_messages_are_stored_once(book: Book) -> None:
    run = await book.run("r1")
    for _ in range(3):
        await book.say(run, "same", "words", body=b"the same answer")
    sizes = dict(book.read.raw("select hash, size from blob"))
    assert len(sizes) == 4  # two messages, one body around them, one answer
    assert book.read.raw("select count(*) from node").fetchone() == (2,)


async def test_a_transcript_that_branches_shares_its_beginning(book: Book) -> None:
    run = await book.run("r1")
    for last in ("x", "y", "z"):
        await book.say(run, "a", "b", "c", last)
    await book.say(run, "b", "c")  # the same messages after others are other transcripts
    assert book.read.raw("select count(*) from node").fetchone() == (3 + 3 + 2,)
    assert book.read.raw("select count(*) from node where parent is null").fetchone() == (2,)


async def test_a_strange_transcript_is_found_without_memory(path: Path) -> None:
    journal = Journal(path)
    journal.open()
    book = await Book.open(journal)
    prompts = [f"m{n}" for n in range(40)]
    await book.say(await book.run("r1"), *prompts)
    journal.close()
    again = Journal(path)
    again.open()
    try:
        book = await Book.open(again)
        run = book.row("r1")
        for length in (40, 1, 17, 39):
            begun = await book.ask(run, *prompts[:length], "new")
            assert book.read.request(begun.step)[3] == call(*prompts[:length], "new").body
        assert book.read.raw("select count(*) from node").fetchone() == (40 + 4,)
    finally:
        again.close()


async def test_a_chat_of_500_turns_grows_with_its_content(book: Book) -> None:
    """Uncompressed bytes of all bodies against the last request and all answers; the limit is the design's, 1.3."""
    run = await book.run("r1")
    messages: list[dict[str, str]] = [{"role": "system", "content": "You are terse. " * 70}]
    answered = 0
    request = b""
    for turn in range(500):
        messages.append({"role": "user", "content": f"{turn}: " + f"question {turn} " * 80})
        request = json.dumps({"model": "gpt-test", "messages": messages, "temperature": 0}).encode()
        asked = call_of(request)
        begun = await book.journal.begin_step(book.new(run, asked))
        reply = {"role": "assistant", "content": f"{turn}: " + f"answer {turn} " * 90}
        answer = json.dumps({"id": f"chatcmpl-{turn}", "choices": [{"index": 0, "message": reply}]}).encode()
        await book.end(begun, answer)
        answered += len(answer)
        messages.append(reply)
    stored, count = book.read.raw("select sum(size), count(*) from blob").fetchone()
    assert stored <= 1.3 * (len(request) + answered)
    assert count == len(messages) - 1 + 500 + 1  # each message once, each answer, one body around the messages
    last = book.read.step_by_number(book.session.id, 499)
    assert book.read.request(last)[3] == request
    assert fingerprint.of(call_of(request)).key == book.read.steps(book.session.id, 499)[0].fingerprint


async def test_the_file_grows_with_the_content_too(book: Book, path: Path) -> None:
    """Random text does not compress: what SQLite adds to the bodies is what is measured. Linear, not quadratic."""
    chance = random.Random(7)
    run = await book.run("r1")
    prompts: list[str] = []
    answered = 0
    for _ in range(200):
        prompts.append("".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1500)))
        body = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=1500)).encode()
        await book.say(run, *prompts, body=body)
        answered += len(body)
    request = len(call(*prompts).body)
    book.journal.close()
    tables = sqlite3.connect(":memory:", isolation_level=None)
    fresh(tables)
    empty = tables.execute("select page_count * page_size from pragma_page_count, pragma_page_size").fetchone()[0]
    tables.close()
    assert path.stat().st_size - empty <= 1.4 * (request + answered)
