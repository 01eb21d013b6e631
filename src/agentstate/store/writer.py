"""Owns the one writer of a journal: group commit, the fsyncs, who does which. Must not know what is written.

Invariant: a write's future resolves only after its transaction is committed, and, unless it said it can do without,
after an fsync. A write that fails leaves nothing behind and does not spoil the others of its group.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from agentstate import clock
from agentstate.core.durations import Durations
from agentstate.errors import StoreError, StoreReadOnly
from agentstate.store.changes import Change, Telling
from agentstate.store.sqlite import connect, mapped, prepare
from agentstate.store.wal import fold
from agentstate.store.writes import Group, Write, hand_over

T = TypeVar("T")
log = logging.getLogger("agentstate")

GROUP = 64  # most writes in one transaction; larger groups only add latency
CHECKPOINT_BYTES = 16 * 1024 * 1024  # of WAL before it is moved into the file
# What of it is kept when it begins anew: nearly all, since overwriting is quicker than growing; less than what asks for
# a checkpoint, since its size is how much has been written.
KEPT_BYTES = CHECKPOINT_BYTES - 1024 * 1024
CHECK_EVERY, MEASURE_EVERY = 128, 8  # commits between looks at the WAL's size, and between those that are timed
SMALL_GROUP, SMALL_BYTES = 32, 128 * 1024  # what the event loop commits itself: it takes less than waking the thread
QUICK_S = (
    0.001  # an fsync that the event loop may make itself while nobody else is served: it spares two thread switches
)
# Between commits while there is much to do: each writes the pages that its facts share once more. Who comes after a
# pause does not wait, nor does a burst: only what has followed each other for BUSY commits.
INTERVAL_S, BUSY = 0.002, 32
NOTE_S = 0.002  # how long a note waits for a transaction that it can share


class Writer:
    """The only one who writes. The writes of one turn of the event loop, or of two milliseconds where there is no end
    of them, share a transaction.

    The event loop commits small groups itself, into the write-ahead log, without an fsync: that takes less time than
    waking a thread. The thread makes the fsyncs, one for all transactions that wait for it, commits large groups, and
    those that meet a lock or an error. The order of writes is that in which they were submitted, either way.
    """

    def __init__(self, path: Path, busy_s: float, on_rollback: Callable[[], None] | None = None) -> None:
        self._path = path
        self._file = str(path)
        self._busy_s = busy_s
        self._on_rollback = on_rollback
        self._queue: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self._pending: list[Write] = []  # of this turn of the event loop
        self._flushing = self._timing = False
        self._given = self._done = 0  # groups given to the thread to commit, and done: equal while it commits none
        self._commits = 0
        self._last = 0.0  # when writes were last committed
        self._following = 0  # commits that came soon after each other
        self._patient = True
        self._shrinking = False  # the next look at the WAL's size cuts it short
        self.commits, self.fsyncs = Durations(), Durations()
        self._conn: Telling | None = None
        self.told: Callable[[list[Change]], None] | None = None  # called in the event loop after each commit
        self._log: int | None = None  # a descriptor of the write-ahead log
        self._syncing_s = 1.0  # what an fsync takes at most, by experience
        self._inode = 0
        self._thread = threading.Thread(target=self._run, name="agentstate-journal-writer", daemon=True)
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._refusing: StoreError | None = None  # what is on disk is not known any more: an fsync failed, or worse

    def start(self) -> None:
        """Open and migrate the file. Raises ``StoreError``."""
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Finish what is queued, then close the file."""
        if self._thread.is_alive():
            self._flush()
            self._queue.put(None)
            self._thread.join()

    def lend(self) -> sqlite3.Connection | None:
        """The connection, for a read in the event loop; ``None`` while the thread commits."""
        return self._conn if self._given == self._done else None

    def submit(
        self,
        name: str,
        work: Callable[[sqlite3.Connection], Any],
        durable: bool = True,
        size: int = 0,
        then: Callable[[], None] | None = None,
        alone: bool = False,
    ) -> asyncio.Future[Any]:
        """Run ``work`` in the next transaction; the future resolves after it, and an fsync if ``durable``.

        ``name`` names the fact; ``size``: bytes that it may have to store; ``then`` is called in the event loop after
        the commit, whether or not anybody waits for the future; ``alone``: nothing else is going on: there is no
        other write to wait for, and nobody whom a quick fsync would hold up. The future may raise ``StoreError``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._pending.append(Write(name, work, durable, loop, future, size, then))
        if alone and not self._flushing:
            self._flush(alone)
        elif not self._flushing:
            self._flushing = True
            rest = self._last + INTERVAL_S - clock.monotonic()
            if rest > 0 and self._following >= BUSY:
                loop.call_later(rest, self._flush)
            else:
                loop.call_soon(self._flush)
        return future

    def note(self, name: str, work: Callable[[sqlite3.Connection], Any], then: Callable[[], None]) -> None:
        """Like ``submit`` for a fact that nobody waits for: it goes with the next transaction, or soon alone."""
        loop = asyncio.get_running_loop()
        if not self._flushing and not self._timing:
            self._timing = True
            loop.call_later(NOTE_S, self._time_is_up)
        self._pending.append(Write(name, work, False, loop, None, 0, then))

    def _time_is_up(self) -> None:
        self._timing = False
        self._flush()

    def _flush(self, alone: bool = False) -> None:
        self._flushing = False
        now = clock.monotonic()
        self._following = self._following + 1 if now - self._last < 4 * INTERVAL_S else 0
        self._last = now
        if self._pending:
            group, self._pending = self._pending, []
            if not self._commit_here(group, alone):
                self._give(group)

    def _give(self, group: list[Write]) -> None:
        self._given += 1
        self._queue.put(Group(group, True))

    def _commit_here(self, group: list[Write], alone: bool) -> bool:
        """Commit in the caller's thread; false: it is not that small, or did not work, and is the thread's."""
        if self._given != self._done or len(group) > SMALL_GROUP or sum([item.size for item in group]) > SMALL_BYTES:
            return False
        try:
            self._wait_for_locks(False)
            self._transaction(group)
        except Exception:  # noqa: BLE001 - the thread does it again, waits for locks, and keeps errors apart
            return False
        self._commits += 1
        if self._commits % MEASURE_EVERY == 0:
            self.commits.add(clock.monotonic() - self._last)
            if self._commits % CHECK_EVERY == 0:
                self._give([])
        waiting = []
        for item in group:
            item.committed()
            if item.durable:
                item.then = item.changes = None
                waiting.append(item)
            elif item.future is not None and not item.future.done():
                item.future.set_result(item.result)
        if waiting and alone and self._syncing_s < QUICK_S and self._given == self._done:
            self._synchronise(waiting)
            hand_over(waiting)
        elif waiting:
            self._queue.put(Group(waiting, False))
        return True

    def _wait_for_locks(self, patient: bool) -> None:
        if patient != self._patient and self._conn is not None:
            self._conn.execute(f"pragma busy_timeout = {int(self._busy_s * 1000) if patient else 0}")
            self._patient = patient

    def _checkpoint(self) -> None:
        shrinking, self._shrinking = self._shrinking, False
        if shrinking:
            self._wait_for_locks(False)  # nobody's calls wait for a reader that takes its time
        if self._conn is not None:
            fold(self._conn, self._path, CHECKPOINT_BYTES, shrinking)

    def shrink(self) -> None:
        """Move the whole WAL into the file and cut it short, before the next write that is submitted is told of."""
        self._shrinking = True
        self._give([])

    def write_now(self, name: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same for callers without an event loop; blocks."""
        item = Write(name, work, True, None, None, done=threading.Event())
        self._give([item])
        assert item.done is not None
        item.done.wait()
        if item.error is not None:
            raise item.error
        return item.result  # type: ignore[no-any-return]

    # --- the thread ---

    def _run(self) -> None:
        try:
            conn = connect(self._path, self._busy_s)
            assert isinstance(conn, Telling)
            self._conn = conn
            prepare(self._conn, self._path)
            self._conn.execute("pragma synchronous = normal")  # the fsync of a commit is ours, see _synchronise
            self._conn.execute(f"pragma journal_size_limit = {KEPT_BYTES}").fetchone()
            self._inode = self._path.stat().st_ino
        except BaseException as error:  # noqa: BLE001 - handed to start(), which raises it
            self._fault = error
            self._ready.set()
            return
        self._ready.set()
        while groups := self._take():
            done = [item for group in groups for item in group]
            try:
                self._commit_all([group for group in groups if group.commit])
                waiting = [item for item in done if item.durable and item.error is None]
                if waiting:
                    self._synchronise(waiting)
            except BaseException as error:  # noqa: BLE001 - told to all who wait, now and later: nobody may hang
                self._give_up(error, done)
            self._resolve(done)
        self._conn.close()
        if self._log is not None:
            os.close(self._log)

    def _give_up(self, error: BaseException, group: list[Write]) -> None:
        """Something that was not foreseen: what of the group is on disk is not known, so nothing more is taken."""
        self._refusing = StoreError(
            f"the journal {self._path} cannot be written any more ({type(error).__name__}: {error}); run "
            "`agentstate doctor`, start the proxy again"
        )
        log.error("%s", self._refusing, exc_info=error)
        for item in group:
            item.error = self._refusing

    def _take(self) -> list[Group]:
        """What there is to do, in order; nothing: stop."""
        first = self._queue.get()
        if first is None:
            return []
        groups = [first]
        while sum(map(len, groups)) < GROUP:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._queue.put(None)
                break
            groups.append(more)
        return groups

    def _commit_all(self, groups: list[Group]) -> None:
        """In one transaction. An empty group asks for a look at the WAL's size only."""
        if not groups:
            return
        self._wait_for_locks(True)
        began = clock.monotonic()
        try:
            self._commit([item for group in groups for item in group])
            self._commits += 1
            if self._commits % MEASURE_EVERY == 0:
                self.commits.add(clock.monotonic() - began)
            if not all(groups) or self._commits % CHECK_EVERY == 0:
                self._checkpoint()
        finally:
            self._done += len(groups)  # from here on the event loop may commit again

    def _commit(self, group: list[Write]) -> None:
        """One transaction for all; where one write fails, each gets a transaction of its own."""
        if not group:
            return
        try:
            self._transaction(group)
        except BaseException as error:  # noqa: BLE001 - kept with the write it belongs to
            if len(group) == 1:
                group[0].error = mapped(error, self._path) if isinstance(error, sqlite3.Error) else error
                return
            for item in group:
                self._commit([item])

    def _transaction(self, group: list[Write]) -> None:
        conn = self._conn
        assert conn is not None
        if self._refusing is not None:
            raise self._refusing
        self.check_place()
        conn.execute("begin immediate")
        try:
            for item in group:
                item.result = item.work(conn)
                if conn.changes:
                    item.changes, item.told, conn.changes = conn.changes, self.told, []
            conn.execute("commit")
        except BaseException:
            conn.changes = []
            for item in group:
                item.changes = None
            with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself after some errors
                conn.execute("rollback")
            if self._on_rollback is not None:
                self._on_rollback()
            raise

    def _synchronise(self, waiting: list[Write]) -> None:
        """Put on disk what was committed: the write-ahead log, and, once, that there is one."""
        try:
            if self._log is None:
                self._log = os.open(self._file + "-wal", os.O_RDONLY | os.O_CLOEXEC)
                folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
            began = clock.monotonic()
            fdatasync(self._log)
            took = clock.monotonic() - began
            # Quickly up, slowly down: a disk that was slow once is not trusted again at once.
            self._syncing_s = max(took, self._syncing_s * 0.95)
            self.fsyncs.add(took)
        except OSError as error:
            # The kernel may have dropped what it could not write: no later fsync would tell.
            self._refusing = StoreError(
                f"the journal {self._path} could not be put on disk ({error.strerror}); check the disk, run "
                "`agentstate doctor`, start the proxy again"
            )
            log.error("%s", self._refusing)
            for item in waiting:
                item.error = self._refusing

    def check_place(self) -> None:
        """A file that was deleted or replaced would take every write and lose it."""
        try:
            here = self._path.stat().st_ino
        except OSError:
            here = 0
        if here != self._inode:
            raise StoreReadOnly(f"the journal {self._path} was removed or replaced while in use; stop the proxy")

    @staticmethod
    def _resolve(group: list[Write]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Write]] = {}
        for item in group:
            if item.loop is not None:
                by_loop.setdefault(item.loop, []).append(item)
            elif item.done is not None:
                item.done.set()
        for loop, items in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(hand_over, items)


def fdatasync(descriptor: int) -> None:
    """Put a file's content on disk. Raises ``OSError``."""
    getattr(os, "fdatasync", os.fsync)(descriptor)
