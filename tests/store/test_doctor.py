"""Doctor finds each kind of damage, and nothing in a sound journal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentstate.core.model import State, Verdict
from agentstate.errors import StoreCorrupt
from agentstate.store import doctor
from agentstate.store.journal import Journal
from agentstate.store.reader import Reader
from tests.store.kit import Book, call, opened, parse, tool_call

# What is done to the file → what doctor says of it. Each journal has steps 1 (completed) to 4 and several bodies.
DAMAGE: dict[str, tuple[str, str]] = {
    "a byte of a plain body": (
        "update blob set data = cast('?' || substr(data, 2) as blob) "
        "where id = (select min(id) from blob where codec = 0)",
        "its content does not match its hash",
    ),
    "a byte of a compressed body": (
        "update blob set data = cast(substr(data, 1, length(data) - 2) || x'0000' as blob) where codec = 1",
        "body",
    ),
    "the size of a compressed body": ("update blob set size = size - 1 where codec = 1", "cannot be unpacked"),
    "a body exchanged for another": (
        "update attempt set body = null where step = 1",
        "is completed but has no answer",
    ),
    "the hash of a body": ("update blob set hash = zeroblob(32) where id = 1", "its content does not match its hash"),
    "the body of a message gone": (
        "delete from blob where id = (select blob from node limit 1)",
        "its message is missing",
    ),
    "the body around the messages gone": (
        "delete from blob where id = (select frame from step limit 1)",
        "cannot be read",
    ),
    "the body of an answer gone": (
        "delete from blob where id = (select body from attempt where body is not null)",
        "is completed but has no answer",
    ),
    "a message gone": ("delete from node where parent is null", "parent"),
    "the last message gone": (
        "delete from node where id = (select node from step where number = 1)",
        "does not match its fingerprint",
    ),
    "a fingerprint": ("update step set fingerprint = zeroblob(32) where number = 0", "does not match its fingerprint"),
    "the hash of a message": ("update node set hash = zeroblob(32) where id = 2", "does not match its hash"),
    "messages in another order": ("update node set parent = null where parent is not null", "does not match its hash"),
    "a step's messages exchanged": ("update step set node = 1 where number = 1", "does not match its fingerprint"),
    "an unknown dialect": ("update step set dialect = 'strange' where number = 0", "cannot be read"),
    "a head that points nowhere": ("update session set head = 99", "head is not one of its branches"),
    "a head in another session": (
        "insert into branch (id, session, upto, reason, created_at) values (50, 2, 0, 'x', 0); "
        "update session set head = 50 where id = 1",
        "head is not one of its branches",
    ),
    "an attempt gone": ("delete from attempt where step = 1", "without its last attempt"),
    "the last attempt gone": ("delete from attempt where step = 3 and n = 2", "without its last attempt"),
    "a hand-out gone": ("delete from served where step = 2", "given to nobody"),
    "a step gone": ("delete from step where id = 2", "a hand-out of a step that does not exist"),
    "a count too low": ("update session set steps = 1", "not below its session's count"),
    "no finishing tick": ("update step set finished = 0 where id = 1", "no finishing tick"),
    "an index that lost a row": (
        "pragma writable_schema = on; update sqlite_master set rootpage = "
        "(select rootpage from sqlite_master where name = 'branch_session') where name = 'step_fingerprint'",
        "",
    ),
}


async def _fill(path: Path) -> None:
    journal = opened(path)
    await Book.open(journal, "s")
    await Book.open(journal, "other")
    book = await Book.open(journal, "s")
    run = await book.run("r1")
    calls = Verdict(calls=(tool_call("c1", "read"),))
    await book.say(run, "a", body=b"a plain answer", verdict=calls)
    await book.say(run, "a", "b", body=b"a long answer " * 50)
    failed = await book.ask(run, "a", "b", "c")
    await book.fail(failed)
    await book.journal.begin_attempt(failed.step, State.FAILED, book.new(run, call("a", "b", "c")))
    await book.ask(run, "d")
    await book.journal.roll_back(book.session, 1)
    journal.close()


def _findings(path: Path) -> list[str]:
    reader = Reader(path)
    try:
        return [f"{found.where}: {found.what}" for found in doctor.examine(reader, parse)]
    finally:
        reader.close()


async def test_a_sound_journal_has_no_findings(path: Path) -> None:
    await _fill(path)
    told: list[tuple[str, int, int]] = []
    reader = Reader(path)
    assert list(doctor.examine(reader, parse, lambda *args: told.append(args))) == []
    assert doctor.sound(reader, parse)
    reader.close()
    assert told[-1] == ("steps", 4, 4)
    assert ("bodies", 1, told[0][2]) == told[0]


def test_an_empty_journal_is_sound(path: Path) -> None:
    opened(path).close()
    assert _findings(path) == []


async def test_a_journal_in_use_is_sound(book: Book, path: Path) -> None:
    await book.say(await book.run("r1"), "a")
    assert _findings(path) == []


@pytest.mark.parametrize("name", DAMAGE)
async def test_doctor_finds(name: str, path: Path) -> None:
    await _fill(path)
    sql, said = DAMAGE[name]
    conn = sqlite3.connect(path, isolation_level=None)
    before = conn.total_changes
    conn.executescript(sql)
    assert conn.total_changes > before, "the damage was not done"
    conn.close()
    found = _findings(path)
    assert any(said in finding for finding in found), found
    reader = Reader(path)
    assert not doctor.sound(reader, parse)
    reader.close()


async def test_doctor_finds_a_flipped_byte_in_any_body_of_the_file(path: Path) -> None:
    await _fill(path)
    conn = sqlite3.connect(path, isolation_level=None)
    rows = conn.execute("select id, data from blob").fetchall()
    assert len(rows) >= 6
    for blob, data in rows:
        for place in {0, len(data) // 2, len(data) - 1}:
            spoiled = bytearray(data)
            spoiled[place] ^= 0x20
            conn.execute("update blob set data = ? where id = ?", (bytes(spoiled), blob))
            found = _findings(path)
            assert any(finding.startswith(f"body {blob}:") for finding in found), (blob, place, found)
        conn.execute("update blob set data = ? where id = ?", (data, blob))
    conn.close()
    assert _findings(path) == []


async def test_doctor_changes_nothing(path: Path) -> None:
    await _fill(path)
    before = path.read_bytes()
    _findings(path)
    assert path.read_bytes() == before


async def test_a_damaged_answer_is_never_handed_out(path: Path) -> None:
    await _fill(path)
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("update blob set data = zeroblob(length(data)) where codec = 1")
    conn.close()
    journal = Journal(path)
    journal.open()
    try:
        with pytest.raises(StoreCorrupt, match="agentstate doctor"):
            journal.read.answer(2)
    finally:
        journal.close()
