"""Owns the SQLite file: opening, settings, migrating, the meaning of its errors. Must not know what it keeps.

Invariant: a file that is opened has the present schema, made in one transaction for each version; what is not ours or
newer is refused and left as it is.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from agentstate.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreNewer, StoreReadOnly
from agentstate.store.changes import Telling

SQLITE = sqlite3.sqlite_version
APPLICATION_ID = 0x41675374  # "AgSt"
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
            raise StoreReadOnly(
                f"there is no journal at {path}; `agentstate serve` or `agentstate run` begins one, --db names another"
            )
        mode = "rwc" if write else "ro"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        conn = sqlite3.connect(
            uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False, cached_statements=256,
            factory=Telling if write else sqlite3.Connection,
        )  # fmt: skip
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


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where it is not there, now or yet."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


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
