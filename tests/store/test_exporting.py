"""Exports of journals that were written to break them: large, damaged, nested, empty, and of any bytes at all."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.core.dataset_filter import Filters
from agentstate.core.dataset_rules import faults
from agentstate.core.model import State
from agentstate.engine.exporting import Export, report
from agentstate.engine.shards import write
from agentstate.errors import StoreReadOnly
from agentstate.store.journal import Journal
from agentstate.store.reader import Reader
from tests.store.kit import Book, call_of, opened
from tests.support import chat


@pytest.fixture
def reader(path: Path, journal: Journal) -> Iterator[Reader]:
    made = Reader(path)
    yield made
    made.close()


async def said(book: Book, run: Any, body: bytes, answer: bytes) -> None:
    begun = await book.journal.begin_step(book.new(run, call_of(body)))
    await book.end(begun, answer)


EXPORTING = """
import resource, sys
from pathlib import Path
from agentstate.core.dataset_filter import Filters
from agentstate.engine.exporting import Export
from agentstate.engine.shards import streamed
from agentstate.store.reader import Reader
export = Export(Reader(Path(sys.argv[1])), Filters(sessions=tuple(sys.argv[2].split(",")), redact=False), "openai")
size = sum(map(len, streamed(export, "openai")))
print(export.report.lines, size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


async def test_memory_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    journal = opened(tmp_path / "large.db")
    text = " ".join(f"word{number}" for number in range(800))

    async def agent(number: int) -> None:
        book = await Book.open(journal, f"s{number}")
        run = await book.run("r")
        messages: list[dict[str, Any]] = [chat.user(f"{number} {text}")]
        for step in range(10):
            answer = f"{step} of {number} {text}"
            await said(book, run, chat.request(messages), chat.completion(answer))
            messages += [{"role": "assistant", "content": answer}, chat.user(f"and {step}? {text}")]

    for start in range(0, 300, 50):
        await asyncio.gather(*(agent(number) for number in range(start, start + 50)))
    journal.close()

    def exported(sessions: int) -> tuple[int, int, int]:
        """(lines, bytes of them, most bytes of memory)."""
        names = ",".join(f"s{number}" for number in range(sessions))
        command = [sys.executable, "-c", EXPORTING, str(tmp_path / "large.db"), names]
        lines, size, most = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return int(lines), int(size), int(most)

    few, all_ = exported(10), exported(300)
    assert (few[0], all_[0]) == (10, 300) and all_[1] > 35_000_000
    assert all_[2] - few[2] < 12_000_000


@pytest.mark.parametrize(
    ("body", "answer", "reason"),
    [
        (chat.request("hi"), b"\xff\xfe not json", "body that cannot be read"),
        (chat.request("hi"), b'{"ok": 1}', "no answer to train on"),
        (chat.request("hi"), b'{"choices": [{"message": "hi"}]}', "no answer to train on"),
        (chat.request("hi"), b'{"choices": [7]}', "parts that chat messages cannot hold"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', chat.completion(),
         "body that cannot be read"),
        (b'{"model": "m", "messages": [{"role": "user", "content": ' + b"[" * 400 + b"]" * 400 + b"}]}",
         chat.completion(), "parts that chat messages cannot hold"),
        (b'{"model": "m", "messages": [{"role": "robot", "content": "x"}]}', chat.completion(),
         "parts that chat messages cannot hold"),
        (chat.request([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]), chat.completion(),
         "parts that chat messages cannot hold"),
        (chat.request("hi"), chat.completion(None, tool_calls=[chat.tool_call("t", '{"a": NaN}')]),
         "arguments that are no JSON object"),
        (chat.request("hi"), chat.completion(None, tool_calls=[chat.tool_call("t", "[1]")]),
         "arguments that are no JSON object"),
        (chat.request("hi"), chat.completion(None, finish="content_filter"), "answer that was declined or filtered"),
        (chat.request("hi"), chat.completion(""), "no answer to train on"),
    ],
)  # fmt: skip
async def test_what_cannot_be_told_is_left_out_with_a_reason(
    book: Book, reader: Reader, body: bytes, answer: bytes, reason: str
) -> None:
    await said(book, await book.run("r"), body, answer)
    assert report(reader, Filters()).left_out == {reason: 1}


async def test_a_line_that_breaks_a_rule_is_not_written(book: Book, reader: Reader) -> None:
    tools = [{"type": "function", "function": {"name": f"t{number}"}} for number in range(129)]
    run = await book.run("r")
    await said(book, run, chat.request("hi", tools=tools), chat.completion("x"))
    await said(book, run, chat.request("hi", tools=tools[:128]), chat.completion("y"))
    found = report(reader, Filters())
    assert (found.lines, found.left_out) == (
        1, {"breaks a rule of the format: there are more than 128 tools, or none": 1},
    )  # fmt: skip


async def test_a_deeply_nested_argument_ends_no_export(book: Book, reader: Reader) -> None:
    run = await book.run("r")
    for depth in (200, 5_000, 200_000):
        deep = '{"a":' * depth + "1" + "}" * depth
        await said(book, run, chat.request(f"{depth}"), chat.completion(None, tool_calls=[chat.tool_call("t", deep)]))
    await said(book, run, chat.request("fine"), chat.completion("fine"))
    for form in ("openai", "trl", "trajectory"):
        found = report(reader, Filters(), form)  # type: ignore[arg-type]
        assert found.lines + found.left_out.total() == 4 and found.lines >= 1


async def test_messages_of_five_megabytes_are_lines_like_others(book: Book, reader: Reader) -> None:
    large = "x" * 5_000_000 + " jo@example.com"
    await said(book, await book.run("r"), chat.request(large), chat.completion(large))
    export = Export(reader, Filters(), "openai")
    [line] = export.lines()
    assert faults("openai", line.value) == [] and export.report.redacted == {"email": 2}
    assert line.value["messages"][1]["content"].endswith("x [redacted email]")


async def test_sessions_without_answers_are_told(book: Book, reader: Reader) -> None:
    assert report(reader, Filters()).left_out == {"session without answered steps": 1}
    begun = await book.ask(await book.run("r"), "hi")
    assert report(reader, Filters()).left_out == {"unfinished answer": 1}
    await book.end(begun, b"busy", state=State.FAILED, status=503)
    assert report(reader, Filters()).left_out == {"unfinished answer": 1}


async def test_a_secret_in_the_name_of_a_member_goes_too(book: Book, reader: Reader) -> None:
    arguments = json.dumps({"jo@example.com": {"password": "a b c"}, "card": 4111111111111111})
    answer = chat.completion(None, tool_calls=[chat.tool_call("t", arguments)])
    await said(book, await book.run("r"), chat.request("hi"), answer)
    [line] = Export(reader, Filters(), "trl").lines()
    assert line.value["messages"][1]["tool_calls"][0]["function"]["arguments"] == {
        "[redacted email]": {"password": "[redacted password]"}, "card": "[redacted card]",
    }  # fmt: skip


async def test_files_are_begun_anew_where_they_are_full(book: Book, reader: Reader, tmp_path: Path) -> None:
    run = await book.run("r")
    for number in range(6):
        await said(book, run, chat.request(f"question {number}"), chat.completion("x" * 400))
    paths = write(Export(reader, Filters(), "openai"), Filters(), "openai", tmp_path / "data.jsonl", most=1000)
    assert [path.name for path in paths] == [
        "data.jsonl", "data-002.jsonl", "data.manifest.json",
    ]  # fmt: skip
    lines = [line for path in paths[:-1] for line in path.read_text().splitlines()]
    assert len(lines) == 6
    manifest = json.loads(paths[-1].read_text())
    assert [file["bytes"] for file in manifest["files"]] == [path.stat().st_size for path in paths[:-1]]


async def test_an_export_that_fails_leaves_no_file(book: Book, reader: Reader, tmp_path: Path) -> None:
    run = await book.run("r")
    for number in range(3):
        await said(book, run, chat.request(f"question {number}"), chat.completion("x"))
    (tmp_path / "data.jsonl").write_text("what was there before")
    export = Export(reader, Filters(), "openai")

    def broken() -> Iterator[Any]:
        yield from list(Export(reader, Filters(), "openai").lines())[:2]
        raise OSError(28, "No space left on device")

    export.lines = broken  # type: ignore[method-assign]
    with pytest.raises(StoreReadOnly, match="No space left"):
        write(export, Filters(), "openai", tmp_path / "data.jsonl")
    assert (tmp_path / "data.jsonl").read_text() == "what was there before"
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.manifest.json"))
    with pytest.raises(StoreReadOnly, match="name another file"):
        write(Export(reader, Filters(), "openai"), Filters(), "openai", tmp_path / "nowhere" / "data.jsonl")


async def test_what_is_deleted_while_it_is_read_is_left_out(journal: Journal, path: Path, reader: Reader) -> None:
    for key in ("a", "b"):
        book = await Book.open(journal, key)
        run = await book.run("r")
        for question in ("one", "two"):
            await said(book, run, chat.request(f"{question} of {key}"), chat.completion(question))
    export = Export(reader, Filters(per="step"), "openai")
    found = export.lines()
    assert next(found).value["messages"][0]["content"] == "one of a"
    with sqlite3.connect(path) as conn:
        gone = "(select id from session where key = 'a') and number = 1"
        conn.execute(f"delete from attempt where step in (select id from step where session = {gone})")
        conn.execute(f"delete from step where session = {gone}")
        conn.execute("delete from branch where session = (select id from session where key = 'b')")
    conn.close()
    assert list(found) == [] and export.report.left_out == {"deleted while it was read": 2}
