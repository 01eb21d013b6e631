"""Owns the SQLite file: opening, migrating, one writer thread with group commit, reads. Must not know what it keeps.

Invariant: a write's future resolves only after its transaction is committed, and, unless it said it can do without,
after an fsync. A write that fails leaves nothing behind and does not spoil the others of its group.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agentstate.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreNewer, StoreReadOnly

T = TypeVar("T")

APPLICATION_ID = 0x41675374  # "AgSt"
GROUP = 64  # most writes in one transaction; larger groups only add latency
CHECKPOINT_BYTES = 16 * 1024 * 1024  # of WAL before it is moved into the file
CHECK_EVERY = 128  # commits between looks at the WAL's size
SMALL_GROUP, SMALL_BYTES = 8, 64 * 1024  # what the event loop may commit itself, where no fsync is needed
HERE = Path(__file__).parent


def migrations() -> list[tuple[int, str]]:
    """(version, SQL) in order."""
    files = sorted((HERE / "migrations").glob("[0-9]*.sql"))
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files]


VERSION = migrations()[-1][0]


def mapped(error: sqlite3.Error, path: Path) -> StoreError:
    """SQLite's error as ours, with what to do next."""
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLocked(f"the journal {path} is locked by another program; close it or wait, then try again")
    if code == sqlite3.SQLITE_FULL or "disk is full" in text:
        return StoreFull(f"the disk of the journal {path} is full; free space, nothing else is needed")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreReadOnly(f"the journal {path} cannot be written ({text}); check its folder and permissions")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(
            f"the journal {path} is damaged ({text}); run `agentstate doctor`, restore a backup or move the file away"
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"the journal {path} cannot be read or written ({text}); check the disk")
    return StoreError(f"the journal {path} refused: {text}")


def connect(path: Path, busy_s: float, write: bool = True) -> sqlite3.Connection:
    """A connection in autocommit mode, settings applied. Raises ``StoreError``."""
    try:
        if not write and not path.exists():
            raise StoreReadOnly(f"there is no journal at {path}")
        mode = "rwc" if write else "ro"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        conn = sqlite3.connect(
            uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        conn.execute(f"pragma busy_timeout = {int(busy_s * 1000)}")
        conn.execute("pragma cache_size = -8000")
        conn.execute("pragma mmap_size = 33554432")
        conn.execute("pragma temp_store = memory")
        if not write:
            conn.execute("pragma query_only = 1")
        return conn
    except sqlite3.Error as error:
        raise mapped(error, path) from error


def prepare(conn: sqlite3.Connection, path: Path) -> None:
    """Bring a file to the present schema: fresh, or by migrations. Raises ``StoreError``."""
    try:
        version = conn.execute("pragma user_version").fetchone()[0]
        ours = conn.execute("pragma application_id").fetchone()[0] == APPLICATION_ID
        empty = not ours and conn.execute("select count(*) from sqlite_master").fetchone()[0] == 0
        if not ours and not empty:
            raise StoreCorrupt(f"{path} is a database of another program; name another file with --db")
        if version > VERSION:
            raise StoreNewer(
                f"the journal {path} was written by a newer AgentState (schema {version}, this one knows {VERSION}); "
                "upgrade agentstate-proxy or name another file with --db"
            )
        if empty:
            conn.execute("pragma auto_vacuum = incremental")
        conn.execute("pragma journal_mode = wal")
        conn.execute("pragma synchronous = full")
        conn.execute("pragma wal_autocheckpoint = 0")  # the writer's thread does it, never the event loop
        if empty:
            fresh(conn)
        else:
            migrate(conn, version)
    except sqlite3.Error as error:
        raise mapped(error, path) from error


def fresh(conn: sqlite3.Connection) -> None:
    """Make the schema in an empty file, in one transaction."""
    _script(conn, (HERE / "schema.sql").read_text("utf-8"), VERSION)


def migrate(conn: sqlite3.Connection, version: int) -> None:
    """Apply the migrations after ``version``, each in one transaction."""
    for number, sql in migrations():
        if number > version:
            _script(conn, sql, number)


def _script(conn: sqlite3.Connection, sql: str, version: int) -> None:
    conn.executescript(
        f"begin immediate;\n{sql}\npragma user_version = {version};\npragma application_id = {APPLICATION_ID};\ncommit;"
    )


@dataclass(slots=True)
class _Write:
    name: str
    work: Callable[[sqlite3.Connection], Any]
    durable: bool
    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Any] | None
    size: int = 0
    result: Any = None
    error: BaseException | None = None
    done: threading.Event | None = field(default=None)


class Writer:
    """The only one who writes. Writes queue up while its thread commits and then share the next transaction.

    A small group that needs no fsync is committed by the event loop itself while the thread has nothing to do: that
    takes less time than waking it. The order of writes is that in which they were submitted, either way.
    """

    def __init__(self, path: Path, busy_s: float, on_rollback: Callable[[], None] | None = None) -> None:
        self._path = path
        self._busy_s = busy_s
        self._on_rollback = on_rollback
        self._queue: queue.SimpleQueue[list[_Write] | None] = queue.SimpleQueue()
        self._pending: list[_Write] = []  # of this turn of the event loop
        self._given = self._done = 0  # groups given to the thread, and done by it: equal while it waits
        self._commits = 0
        self._patient = True
        self._conn: sqlite3.Connection | None = None
        self._full = True
        self._inode = 0
        self._thread = threading.Thread(target=self._run, name="agentstate-journal-writer", daemon=True)
        self._ready = threading.Event()
        self._fault: BaseException | None = None

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

    async def write(self, name: str, work: Callable[[sqlite3.Connection], T], durable: bool = True) -> T:
        """Run ``work`` in the writer's next transaction. ``name`` names the fact. Raises ``StoreError``."""
        return await self.submit(name, work, durable)  # type: ignore[no-any-return]

    def submit(
        self, name: str, work: Callable[[sqlite3.Connection], Any], durable: bool = True, size: int = 0
    ) -> asyncio.Future[Any]:
        """Queue ``work`` at once; the future resolves after the commit. ``size``: bytes that it may have to store."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._pending:
            # One wake-up of the thread for all writes of a turn of the loop: each costs more than a small write.
            loop.call_soon(self._flush)
        self._pending.append(_Write(name, work, durable, loop, future, size))
        return future

    def _flush(self) -> None:
        if self._pending:
            group, self._pending = self._pending, []
            if not self._commit_here(group):
                self._give(group)

    def _give(self, group: list[_Write]) -> None:
        self._given += 1
        self._queue.put(group)

    def _commit_here(self, group: list[_Write]) -> bool:
        """Commit in the caller's thread; false: it is not that small, or did not work, and is the thread's."""
        if self._given != self._done or len(group) > SMALL_GROUP:
            return False
        if any(item.durable for item in group) or sum(item.size for item in group) > SMALL_BYTES:
            return False
        try:
            self._wait_for_locks(False)
            self._transaction(group)
        except Exception:  # noqa: BLE001 - the thread does it again, waits for locks, and keeps errors apart
            return False
        self._commits += 1
        if self._commits % CHECK_EVERY == 0:
            self._give([])
        _hand_over(group)
        return True

    def _wait_for_locks(self, patient: bool) -> None:
        if patient != self._patient and self._conn is not None:
            self._conn.execute(f"pragma busy_timeout = {int(self._busy_s * 1000) if patient else 0}")
            self._patient = patient

    def _checkpoint(self) -> None:
        """Move the WAL into the file when it has grown; a reader in the way puts it off."""
        with contextlib.suppress(OSError):
            if self._path.with_name(self._path.name + "-wal").stat().st_size > CHECKPOINT_BYTES and self._conn:
                self._conn.execute("pragma wal_checkpoint(passive)").fetchall()

    def write_now(self, name: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same for callers without an event loop; blocks."""
        item = _Write(name, work, True, None, None, done=threading.Event())
        self._give([item])
        assert item.done is not None
        item.done.wait()
        if item.error is not None:
            raise item.error
        return item.result  # type: ignore[no-any-return]

    def _run(self) -> None:
        try:
            self._conn = connect(self._path, self._busy_s)
            prepare(self._conn, self._path)
            self._inode = self._path.stat().st_ino
        except BaseException as error:  # noqa: BLE001 - handed to start(), which raises it
            self._fault = error
            self._ready.set()
            return
        self._ready.set()
        while True:
            group, taken = self._take()
            if not taken:
                break
            self._wait_for_locks(True)
            self._commit(group)
            self._commits += 1
            if not group or self._commits % CHECK_EVERY == 0:
                self._checkpoint()
            self._done += taken
            self._resolve(group)
        self._conn.close()

    def _take(self) -> tuple[list[_Write], int]:
        """The next writes, in order, and how many groups they are; no group: stop. An empty one asks for a look at the
        WAL only."""
        first = self._queue.get()
        if first is None:
            return [], 0
        group, taken = list(first), 1
        while len(group) < GROUP:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._queue.put(None)
                break
            group.extend(more)
            taken += 1
        return group, taken

    def _commit(self, group: list[_Write]) -> None:
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

    def _transaction(self, group: list[_Write]) -> None:
        conn = self._conn
        assert conn is not None
        self.check_place()
        self._sync(conn, any(item.durable for item in group))
        conn.execute("begin immediate")
        try:
            for item in group:
                item.result = item.work(conn)
            conn.execute("commit")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself after some errors
                conn.execute("rollback")
            if self._on_rollback is not None:
                self._on_rollback()
            raise

    def check_place(self) -> None:
        """A file that was deleted or replaced would take every write and lose it."""
        try:
            here = self._path.stat().st_ino
        except OSError:
            here = 0
        if here != self._inode:
            raise StoreReadOnly(f"the journal {self._path} was removed or replaced while in use; stop the proxy")

    def _sync(self, conn: sqlite3.Connection, full: bool) -> None:
        if full != self._full:
            conn.execute("pragma synchronous = full" if full else "pragma synchronous = normal")
            self._full = full

    @staticmethod
    def _resolve(group: list[_Write]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Write]] = {}
        for item in group:
            if item.loop is not None:
                by_loop.setdefault(item.loop, []).append(item)
            elif item.done is not None:
                item.done.set()
        for loop, items in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_hand_over, items)


def _hand_over(items: list[_Write]) -> None:
    for item in items:
        future = item.future
        if future is None or future.done():
            continue
        if item.error is not None:
            future.set_exception(item.error)
        else:
            future.set_result(item.result)


def named(file: str) -> dict[str, str]:
    """The statements of ``sql/<file>``, by the name in their ``-- name:`` line."""
    found: dict[str, str] = {}
    name = ""
    for line in (HERE / "sql" / file).read_text("utf-8").splitlines():
        if line.startswith("-- name:"):
            name = line.removeprefix("-- name:").strip()
            found[name] = ""
        elif name and not line.startswith("--"):
            found[name] += line + "\n"
    return {key: text.strip().rstrip(";") for key, text in found.items()}


@contextlib.contextmanager
def errors(path: Path) -> Iterator[None]:
    """Maps SQLite's errors of a read."""
    try:
        yield
    except sqlite3.Error as error:
        raise mapped(error, path) from error
