"""Group commit: a write's failure is its own, a rollback leaves no trace, numbers go on without gap or clash."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentstate.errors import StepTaken, StoreError
from agentstate.store import writer as writer_module
from agentstate.store.journal import Journal
from agentstate.store.transactions import begin_step
from agentstate.store.writer import SMALL_BYTES
from tests.store.kit import Book, call


def _insert(key: str) -> Any:
    def work(conn: sqlite3.Connection) -> str:
        conn.execute("insert into meta (key, value) values (?, 'x')", (key,))
        return key

    return work


def _broken(conn: sqlite3.Connection) -> None:
    conn.execute("insert into meta (key, value) values ('spoiled', 'x')")
    conn.execute("insert into meta (key, value) values ('spoiled', null)")


def _metas(journal: Journal) -> set[str]:
    return {row[0] for row in journal.read.raw("select key from meta where key <> 'boot'")}


def _groups(journal: Journal) -> list[int]:
    """Grows with each transaction that is begun: how many writes share it."""
    sizes: list[int] = []
    real = journal._writer._transaction

    def counted(group: Any) -> None:
        sizes.append(len(group))
        real(group)

    journal._writer._transaction = counted  # type: ignore[method-assign]
    return sizes


async def test_writes_of_one_turn_of_the_loop_share_a_transaction(journal: Journal) -> None:
    sizes = _groups(journal)
    writer = journal._writer
    assert await asyncio.gather(*(writer.submit("t", _insert(f"k{n}")) for n in range(5))) == [
        f"k{n}" for n in range(5)
    ]
    assert sizes == [5]


async def test_a_failing_write_does_not_spoil_the_others_of_its_group(journal: Journal) -> None:
    sizes = _groups(journal)
    writer = journal._writer
    futures = [writer.submit("t", _insert("a")), writer.submit("bad", _broken), writer.submit("t", _insert("b"))]
    first, bad, last = await asyncio.gather(*futures, return_exceptions=True)
    assert (first, last) == ("a", "b")
    assert isinstance(bad, StoreError)
    assert sizes == [3, 3, 1, 1, 1]  # by the loop, by the thread, then one by one
    assert _metas(journal) == {"a", "b"}


async def test_an_error_of_ours_inside_a_write_reaches_its_caller_as_it_is(journal: Journal) -> None:
    def work(conn: sqlite3.Connection) -> None:
        _insert("gone")(conn)
        raise StepTaken("taken")

    with pytest.raises(StepTaken, match="taken"):
        await journal._writer.submit("t", work)
    assert _metas(journal) == set()


async def test_what_is_committed_is_seen_as_soon_as_the_future_resolves(journal: Journal) -> None:
    for n in range(20):
        await journal._writer.submit("t", _insert(str(n)), durable=n % 2 == 0)
        assert str(n) in _metas(journal)


class _Disk:
    """Stands for the disk: an fsync ends when it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.error: OSError | None = None
        self._through = threading.Semaphore(0)
        monkeypatch.setattr(writer_module, "fdatasync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        self.asked += 1
        assert self._through.acquire(timeout=30)
        if self.error is not None:
            raise self.error
        os.fdatasync(descriptor)

    def let(self, times: int = 1) -> None:
        self._through.release(times)


async def test_a_durable_write_is_told_only_after_its_fsync(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _Disk(monkeypatch)
    writer = journal._writer
    quick, durable = writer.submit("t", _insert("quick"), False), writer.submit("t", _insert("durable"))
    assert await quick == "quick"
    assert "durable" in _metas(journal)
    await asyncio.wait_for(_until(lambda: disk.asked == 1), 30)
    # While the disk is busy others commit; what needs the disk waits for the next fsync, all together.
    assert await writer.submit("t", _insert("quick too"), False) == "quick too"
    more = [writer.submit("t", _insert(f"d{n}")) for n in range(3)]
    await asyncio.wait_for(_until(lambda: "d2" in _metas(journal)), 30)
    assert not durable.done()
    disk.let()
    assert await durable == "durable"
    assert not any(future.done() for future in more)
    disk.let()
    assert await asyncio.gather(*more) == ["d0", "d1", "d2"]
    assert disk.asked == 2
    disk.let()  # for the farewell


async def test_a_large_write_gets_its_fsync_from_the_same_thread(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    writer = journal._writer
    large = writer.submit("t", _insert("large"), True, size=SMALL_BYTES + 1)
    await asyncio.wait_for(_until(lambda: disk.asked == 1), 30)
    assert "large" in _metas(journal)
    assert not large.done()
    disk.let()
    assert await large == "large"
    disk.let()


async def test_after_an_fsync_that_failed_nothing_is_promised_any_more(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk(monkeypatch)
    disk.error = OSError(5, "Input/output error")
    disk.let(10)
    writer = journal._writer
    with pytest.raises(StoreError, match=r"could not be put on disk .*doctor"):
        await writer.submit("t", _insert("doubtful"))
    disk.error = None
    for durable in (True, False):
        with pytest.raises(StoreError, match="could not be put on disk"):
            await writer.submit("t", _insert("later"), durable)
    assert "later" not in _metas(journal)


async def test_a_note_goes_with_the_next_transaction_or_soon_alone(journal: Journal) -> None:
    sizes = _groups(journal)
    told: list[str] = []
    writer = journal._writer
    writer.note("n", _insert("a"), lambda: told.append("a"))
    await writer.submit("t", _insert("b"), False)
    assert (sizes, told) == ([2], ["a"])
    writer.note("n", _insert("c"), lambda: told.append("c"))
    await asyncio.wait_for(_until(lambda: bool(told[1:])), 30)
    assert sizes == [2, 1]
    assert _metas(journal) == {"a", "b", "c"}


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.001)


async def test_numbers_ids_and_ticks_go_on_after_a_rollback(book: Book) -> None:
    run = await book.run("r1")
    first = await book.say(run, "one")
    writer = book.journal._writer
    futures = [
        asyncio.ensure_future(book.ask(run, "two")),
        asyncio.ensure_future(writer.submit("bad", _broken)),
        asyncio.ensure_future(book.ask(run, "three")),
    ]
    two, bad, three = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(bad, StoreError)
    assert [first.number, two.number, three.number] == [0, 1, 2]  # type: ignore[union-attr]
    assert [two.step - first.step, three.step - first.step] == [1, 2]  # type: ignore[union-attr]
    ticks = [row for row in book.read.raw("select started, finished from step order by number")]
    assert ticks == [(1, 2), (3, 0), (4, 0)]
    assert (book.session.steps, book.session.clock) == (3, 4)


async def test_a_step_that_was_rolled_back_leaves_no_body_and_no_number(book: Book) -> None:
    run = await book.run("r1")

    new = book.new(run, call("never"))

    def work(conn: sqlite3.Connection) -> None:
        begin_step(conn, book.journal._counters, new)
        raise StepTaken("too late")

    with pytest.raises(StepTaken):
        await book.journal._writer.submit("begin_step", work)
    assert book.read.raw("select count(*) from blob").fetchone() == (0,)
    begun = await book.say(run, "never")
    assert begun.number == 0
    _, _, _, body = book.read.request(begun.step)
    assert body == call("never").body


async def test_many_questions_at_once_get_numbers_without_gap_or_clash(book: Book) -> None:
    other = await Book.open(book.journal, "other")
    run, theirs = await book.run("r1"), await other.run("r1")
    begun = await asyncio.gather(
        *(book.ask(run, f"q{n}") for n in range(100)), *(other.ask(theirs, "q") for _ in range(9))
    )
    assert sorted(step.number for step in begun[:100]) == list(range(100))
    assert sorted(step.number for step in begun[100:]) == list(range(9))
    assert len({step.step for step in begun}) == 109
    rows = book.read.raw("select count(*), count(distinct started), max(started) from step where session = ?",
                         (book.session.id,)).fetchone()  # fmt: skip
    assert rows == (100, 100, 100)


async def test_a_reopened_journal_goes_on_counting(book: Book, path: Any) -> None:
    run = await book.run("r1")
    await book.say(run, "one")
    book.journal.close()
    again = Journal(path)
    again.open()
    try:
        reopened = await Book.open(again)
        begun = await reopened.say(reopened.row("r1"), "two")
        assert (begun.number, begun.step) == (1, 2)
        assert reopened.session.clock == 4
    finally:
        again.close()


async def test_a_write_whose_caller_was_cancelled_is_kept_and_seen(book: Book) -> None:
    run = await book.run("r1")
    task = asyncio.ensure_future(book.ask(run, "one"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await book.ask(run, "two")).number == 1
    assert [entry.number for entry in book.entries(run, "one")] == [0]


async def test_write_ahead_log_is_moved_when_it_has_grown_and_not_all_the_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_BYTES", 400_000)
    monkeypatch.setattr(writer_module, "KEPT_BYTES", 300_000)
    monkeypatch.setattr(writer_module, "CHECK_EVERY", 4)
    moved: list[int] = []
    log = path.with_name(path.name + "-wal")
    real = writer_module.Writer._checkpoint

    def counted(self: writer_module.Writer) -> None:
        before = log.stat().st_size
        real(self)
        if before > 400_000:
            moved.append(before)

    monkeypatch.setattr(writer_module.Writer, "_checkpoint", counted)
    journal = Journal(path)
    journal.open()
    try:
        for n in range(400):
            await journal._writer.submit("t", _insert(f"{n:0500}"), durable=False)
    finally:
        journal.close()
    assert 2 <= len(moved) <= 40  # 100 looks at it
    assert max(moved) < 1_000_000


async def test_log_that_cannot_be_moved_stays_and_writes_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(writer_module, "CHECK_EVERY", 1)
    journal = Journal(path)
    journal.open()

    class Refusing:
        def __init__(self, conn: sqlite3.Connection) -> None:
            self._conn = conn

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if "wal_checkpoint" in sql:
                raise sqlite3.OperationalError("disk I/O error")
            return self._conn.execute(sql, *values)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._conn, name)

    real = journal._writer._conn
    assert real is not None
    journal._writer._conn = Refusing(real)  # type: ignore[assignment]
    try:
        for n in range(20):
            assert await asyncio.wait_for(journal._writer.submit("t", _insert(str(n))), 30) == str(n)
        assert "could not be moved" in caplog.text
    finally:
        journal._writer._conn = real
        journal.close()


async def test_something_unforeseen_in_the_thread_is_told_to_all_who_wait_and_to_all_who_come_later(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = journal._writer

    def unforeseen(waiting: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(writer, "_synchronise", unforeseen)
    async with asyncio.timeout(10):
        told = await asyncio.gather(
            writer.submit("small", _insert("a")),
            writer.submit("large", _insert("b"), size=SMALL_BYTES + 1),
            return_exceptions=True,
        )
        monkeypatch.undo()
        later = await asyncio.gather(writer.submit("t", _insert("c")), return_exceptions=True)
        with pytest.raises(StoreError, match="start the proxy again"):
            await asyncio.to_thread(writer.write_now, "t", _insert("d"))
    assert all(isinstance(error, StoreError) and "MemoryError" in str(error) for error in [*told, *later])
    assert not _metas(journal) & {"c", "d"}


async def test_what_follows_a_write_may_fail_without_the_others_waiting_for_ever(journal: Journal) -> None:
    def failing() -> None:
        raise KeyError("follow-up")

    writer = journal._writer
    for size in (0, SMALL_BYTES + 1):
        async with asyncio.timeout(10):
            first = writer.submit("t", _insert(f"a{size}"), size=size, then=failing)
            assert await asyncio.gather(first, writer.submit("t", _insert(f"b{size}"))) == [f"a{size}", f"b{size}"]


async def test_commits_that_follow_each_other_without_end_are_gathered_and_a_burst_is_not(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(writer_module.clock, "monotonic", lambda: now)
    writer = journal._writer
    sizes = _groups(journal)
    for number in range(writer_module.BUSY + 1):
        await writer.submit("t", _insert(f"burst{number}"), False)
    assert sizes == [1] * (writer_module.BUSY + 1)
    first = writer.submit("t", _insert("busy1"), False)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not first.done()  # other writes may still join it
    assert await asyncio.gather(first, writer.submit("t", _insert("busy2"), False)) == ["busy1", "busy2"]
    assert sizes[-1] == 2
    now += 1
    await writer.submit("t", _insert("after a pause"), False)
    assert sizes[-1] == 1
