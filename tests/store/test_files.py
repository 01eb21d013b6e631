"""The file: its schema, who may open it, what and where it must be."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate.errors import StoreCorrupt, StoreError, StoreLocked, StoreNewer, StoreReadOnly
from agentstate.store import lock, references, sqlite, stats_reader
from agentstate.store.journal import Journal
from agentstate.store.reader import Reader
from tests.store.kit import Book, opened

AS_ROOT = os.geteuid() == 0

_HOLDER = """
import sys
from pathlib import Path
from agentstate.errors import AgentStateError
from agentstate.store.journal import Journal
journal = Journal(Path(sys.argv[1]))
try:
    journal.open()
except AgentStateError as error:
    print(error.code, error.message, flush=True)
    sys.exit(3)
journal.lock.tell("http://127.0.0.1:8080")
print("open", flush=True)
sys.stdin.read()
journal.close()
"""


@contextlib.contextmanager
def another_server(path: Path) -> Iterator[str]:
    """Another process opens the journal and keeps it; the first line that it says."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


def _fill(path: Path, steps: int = 1) -> None:
    """A journal with some steps, closed."""

    async def scenario() -> None:
        journal = opened(path)
        book = await Book.open(journal)
        run = await book.run("r1")
        for number in range(steps):
            await book.say(run, f"q{number}", body=os.urandom(3000))
        journal.close()

    asyncio.run(scenario())


def _master(conn: sqlite3.Connection) -> list[tuple[str, str, str, str]]:
    rows = conn.execute("select type, name, tbl_name, coalesce(sql, '') from sqlite_master order by type, name")
    return [(kind, name, table, sql) for kind, name, table, sql in rows]


# --- schema ---


def test_the_migrated_schema_equals_a_fresh_one() -> None:
    fresh, migrated = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    sqlite.fresh(fresh)
    sqlite.migrate(migrated, 0)
    assert _master(fresh) == _master(migrated)
    for pragma in ("user_version", "application_id"):
        value = fresh.execute(f"pragma {pragma}").fetchone()
        assert value == migrated.execute(f"pragma {pragma}").fetchone()
    assert fresh.execute("pragma user_version").fetchone() == (sqlite.VERSION,)


def test_answers_that_were_held_before_their_names_were_kept_are_found_by_them_after_the_migration() -> None:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    for number, script in sqlite.migrations():
        if number == 4:
            conn.execute("insert into held (session, id, step) values (1, 'resp_1', 7), (1, 'resp_2', 8)")
            conn.execute("insert into release (step, mode, at) values (7, 'held', 0)")
        conn.executescript(script)
    assert conn.execute("select name, step from withheld").fetchall() == [("resp_1", 7)]


def test_migrations_are_numbered_in_order_each_once() -> None:
    numbers = [number for number, _ in sqlite.migrations()]
    assert numbers == sorted(set(numbers)) and numbers[0] == 1


def test_every_statement_of_the_package_is_valid_sql(journal: Journal) -> None:
    conn = sqlite3.connect(journal.path)
    stats_reader.teach(conn)
    for statement in references.watching():
        conn.execute(statement)
    for file in ("read.sql", "pages.sql", "write.sql", "prune.sql"):
        for name, sql in sqlite.named(file).items():
            names = {letter: None for letter in names_of(sql)}
            values: object = names or (None,) * sql.count("?")
            assert conn.execute(f"explain {sql}", values).fetchall(), name  # type: ignore[arg-type]
    conn.close()


def names_of(sql: str) -> set[str]:
    """The named parameters of a statement."""
    bare = "\n".join(line.partition("--")[0] for line in sql.splitlines())
    return {part for piece in bare.split(":")[1:] if (part := _word(piece))}


def _word(text: str) -> str:
    end = next((place for place, letter in enumerate(text) if not (letter.isalnum() or letter == "_")), len(text))
    return text[:end]


# --- opening ---


def test_a_fresh_journal_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "agentstate.db"
    journal = opened(path)
    try:
        journal._writer.write_now("t", lambda conn: conn.execute("insert into meta values ('k', 'v')") and None)
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file.name
        assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    finally:
        journal.close()


def test_close_folds_the_log_into_the_file(path: Path) -> None:
    _fill(path, 5)
    assert sorted(file.name for file in path.parent.iterdir()) == ["agentstate.db", "agentstate.db.lock"]
    alone = path.with_name("copy.db")
    shutil.copyfile(path, alone)
    reader = Reader(alone)
    assert reader.raw("select count(*) from step where state = 'completed'").fetchone() == (5,)
    reader.close()


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    path.touch()
    opened(path).close()
    assert sqlite3.connect(path).execute("pragma application_id").fetchone() == (sqlite.APPLICATION_ID,)


def test_a_reader_needs_a_file(path: Path) -> None:
    with pytest.raises(StoreReadOnly, match="no journal"):
        Reader(path)
    assert not path.exists()


def test_a_reader_cannot_write(journal: Journal) -> None:
    with pytest.raises(StoreReadOnly):
        journal.read.raw("delete from meta")


# --- who else has it ---


def test_a_second_server_is_told_who_serves(path: Path) -> None:
    with another_server(path) as said:
        assert said == "open"
        with pytest.raises(StoreLocked, match=r"process \d+ at http://127.0.0.1:8080"):
            opened(path)
    opened(path).close()  # it ended: the journal is free


def test_a_second_server_through_a_link_is_refused(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with another_server(path) as said:
        assert said == "open"
        with pytest.raises(StoreLocked):
            opened(link)
    folder = path.parent.with_name(path.parent.name + "-link")
    folder.symlink_to(path.parent)
    with another_server(folder / path.name) as said, pytest.raises(StoreLocked):
        opened(path)


def test_a_second_server_is_refused_when_the_lock_file_was_deleted(path: Path) -> None:
    with another_server(path) as said:
        assert said == "open"
        path.with_name(path.name + ".lock").unlink()
        with pytest.raises(StoreLocked):
            opened(path)


def test_a_lock_file_that_was_left_behind_locks_nothing(path: Path) -> None:
    path.with_name(path.name + ".lock").write_text('{"pid": 1, "url": "http://127.0.0.1:1"}')
    opened(path).close()


@pytest.mark.parametrize("text", ["", "[1]", "{", '"x"', "\x00"])
def test_a_lock_file_that_says_nothing_is_read_as_nothing(path: Path, text: str) -> None:
    path.write_text(text)
    assert lock.Lock.read(path) == {}


def test_a_database_that_another_program_holds_is_waited_for_and_no_longer(path: Path) -> None:
    _fill(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    before = time.monotonic()
    with pytest.raises(StoreLocked, match="locked by another program"):
        opened(path, busy_s=0.3)
    assert 0.2 < time.monotonic() - before < 5
    holder.execute("rollback")
    holder.close()
    opened(path).close()


async def test_a_write_that_finds_the_database_held_fails_alone_and_the_next_one_is_kept(path: Path) -> None:
    journal = opened(path, busy_s=0.2)
    book = await Book.open(journal)
    run = await book.run("r1")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    with pytest.raises(StoreLocked):
        await book.ask(run, "one")
    holder.execute("rollback")
    holder.close()
    assert (await book.say(run, "two")).number == 0
    journal.close()


# --- what it must be ---


@pytest.mark.parametrize("content", [b"not a database at all" * 300, b"x" * 50, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        opened(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    conn = sqlite3.connect(path)
    conn.execute("create table t (x)")
    conn.commit()
    conn.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="another program"):
        opened(path)
    assert path.read_bytes() == before
    assert not path.with_name(path.name + "-wal").exists()


def test_a_journal_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    opened(path).close()
    conn = sqlite3.connect(path)
    conn.execute(f"pragma user_version = {sqlite.VERSION + 1}")
    conn.close()
    before = path.read_bytes()
    with pytest.raises(StoreNewer, match="newer AgentState"):
        opened(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("part", [0.01, 0.3, 0.6, 0.95])
def test_a_truncated_journal_is_an_error_of_ours_at_the_latest_when_it_is_read(path: Path, part: float) -> None:
    _fill(path, 20)
    os.truncate(path, int(path.stat().st_size * part))
    with pytest.raises(StoreError):
        _read_everything(path)


def _read_everything(path: Path) -> None:
    journal = opened(path)
    try:
        session = journal.read.session("s")
        assert session is not None
        for row in journal.read.steps(session.id):
            journal.read.request(row.id)
            journal.read.answer(row.id)
        if journal.read.check():
            raise StoreCorrupt("found by the integrity check")
    finally:
        journal.close()


def test_a_failed_opening_lets_go_of_the_file(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 300)
    with pytest.raises(StoreCorrupt):
        opened(path)
    path.unlink()
    opened(path).close()


# --- where it must be ---


def test_a_path_that_is_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreReadOnly, match="cannot be written"):
        opened(path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreReadOnly):
        opened(tmp_path / "file" / "agentstate.db")


@pytest.mark.skipif(AS_ROOT, reason="root may write into every folder")
def test_a_folder_without_permission_is_refused(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StoreReadOnly, match="check its folder"):
            opened(path)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.skipif(AS_ROOT, reason="root may write every file")
def test_a_file_without_permission_is_refused(path: Path) -> None:
    opened(path).close()
    path.chmod(0o400)
    with pytest.raises(StoreReadOnly):
        opened(path)
