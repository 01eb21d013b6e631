"""What a full disk, a file that goes away, a dead proxy or a dead machine does to the journal."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agentstate import clock
from agentstate.core.model import State
from agentstate.errors import StoreFull, StoreReadOnly
from agentstate.store.reader import Reader
from tests.store.kit import Book, crash, opened

# --- full disk ---


async def test_a_full_disk_refuses_writes_and_later_takes_them_again(book: Book) -> None:
    run = await book.run("r1")
    await book.say(run, "before")
    writer = book.journal._writer
    pages = book.read.raw("pragma page_count").fetchone()[0]
    writer.write_now("limit", lambda conn: conn.execute(f"pragma max_page_count = {pages + 2}").fetchone())
    begun = await book.ask(run, "small")
    with pytest.raises(StoreFull, match="free space"):
        await book.end(begun, os.urandom(100_000))
    [entry] = book.entries(run, "small")
    assert (entry.state, entry.number) == (State.IN_FLIGHT, 1)
    writer.write_now("limit", lambda conn: conn.execute("pragma max_page_count = 1000000").fetchone())
    await book.end(begun, b"now")
    assert book.read.answer(begun.step).body == b"now"
    assert (await book.say(run, "after", body=os.urandom(100_000))).number == 2
    assert book.session.clock == 6


def test_a_file_that_may_not_grow_is_an_error_of_ours_and_the_journal_stays_sound(path: Path) -> None:
    script = """
        import asyncio, os, resource, signal, sys
        from pathlib import Path
        from agentstate.errors import StoreError
        from tests.store.kit import Book, opened

        async def main():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            journal = opened(Path(sys.argv[1]))
            book = await Book.open(journal)
            run = await book.run("r1")
            await book.say(run, "before")
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
            begun = await book.ask(run, "small")
            try:
                await book.end(begun, os.urandom(800_000))
            except StoreError as error:
                print(error.code, flush=True)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await book.end(begun, b"now")
            await book.say(run, "after", body=os.urandom(800_000))
            journal.close()

        asyncio.run(main())
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ("journal_full", "journal_unavailable")
    reader = Reader(path)
    assert reader.check() == []
    assert reader.raw("select number, state from step order by number").fetchall() == [
        (0, "completed"), (1, "completed"), (2, "completed"),
    ]  # fmt: skip
    reader.close()


# --- removed or replaced ---


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
async def test_a_journal_that_went_away_takes_no_writes(book: Book, path: Path, how: str) -> None:
    run = await book.run("r1")
    begun = await book.ask(run, "one")
    if how == "replaced":
        shutil.copyfile(path, path.with_name("copy"))
        path.with_name("copy").replace(path)
    elif how == "moved":
        path.rename(path.with_name("moved.db"))
    else:
        path.unlink()
    for work in (book.end(begun), book.journal.open_session("new")):
        with pytest.raises(StoreReadOnly, match="removed or replaced"):
            await work
    if how == "moved":
        path.with_name("moved.db").rename(path)
        await book.end(begun)
        assert book.read.answer(begun.step).state is State.COMPLETED


# --- a farewell, or none ---


async def _left_in_flight(path: Path) -> None:
    journal = opened(path)
    book = await Book.open(journal)
    await book.say(await book.run("r1"), "one")
    run = await book.run("r2")
    await book.ask(run, "two")
    await book.journal.end_run(book.session.id, book.row("r1").id, book.row("r1").state.ENDED, 0)
    await book.run("r3")
    crash(journal)


async def _bases(path: Path) -> dict[str, int]:
    journal = opened(path)
    book = await Book.open(journal)
    found = {row.name: row.base for row in journal.read.runs(book.session.id)}
    journal.close()
    return found


async def test_what_was_in_flight_when_the_proxy_died_is_interrupted(path: Path) -> None:
    await _left_in_flight(path)
    journal = opened(path)
    book = await Book.open(journal)
    [entry] = book.entries(book.row("r2"), "two")
    assert entry.state is State.INTERRUPTED
    [attempt] = journal.read.raw("select error, finished_at from attempt where step = ?", (entry.step,)).fetchall()
    assert "ended before" in attempt[0]
    assert attempt[1] is not None
    [whole] = book.entries(book.row("r1"), "one")
    assert whole.state is State.COMPLETED
    journal.close()


async def test_a_dead_machine_seals_the_open_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-1")
    await _left_in_flight(path)
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-2")
    assert await _bases(path) == {"r1": 0, "r2": 0, "r3": 0}
    assert await _bases(path) == {"r1": 0, "r2": 0, "r3": 0}


async def test_a_dead_proxy_on_a_living_machine_seals_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-1")
    await _left_in_flight(path)
    assert await _bases(path) == {"r1": 0, "r2": 1, "r3": 2}


async def test_a_clean_close_before_the_machine_restarts_seals_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-1")
    await _left_in_flight(path)
    opened(path).close()
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-2")
    assert await _bases(path) == {"r1": 0, "r2": 1, "r3": 2}


async def test_an_ended_run_is_not_sealed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-1")
    journal = opened(path)
    book = await Book.open(journal)
    await book.say(await book.run("r1"), "one")
    await journal.end_run(book.session.id, (await book.run("r2")).id, book.row("r2").state.ENDED, 0)
    crash(journal)
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-2")
    assert await _bases(path) == {"r1": 0, "r2": 1}


async def test_a_check_says_whether_the_journal_takes_writes(book: Book, path: Path) -> None:
    book.journal.check()
    path.rename(path.with_name("moved.db"))
    with pytest.raises(StoreReadOnly, match="removed or replaced"):
        book.journal.check()
    path.with_name("moved.db").rename(path)
    book.journal.check()
