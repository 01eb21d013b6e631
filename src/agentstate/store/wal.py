"""Owns moving the write-ahead log into the file, and rewriting a whole file that nobody uses. Must not write facts.

Invariant: nothing is lost when it does not work; the log is moved another time.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from agentstate.store.lock import Lock
from agentstate.store.sqlite import connect, errors

log = logging.getLogger("agentstate")


def fold(conn: sqlite3.Connection, path: Path, beyond: int, cut: bool = False) -> None:
    """Move the log into the file where it has grown beyond so many bytes; ``cut``: whatever its size is, and cut it
    short. A reader in the way puts it off."""
    try:
        if cut:
            conn.execute("pragma wal_checkpoint(truncate)").fetchall()
        elif path.with_name(path.name + "-wal").stat().st_size > beyond:
            conn.execute("pragma wal_checkpoint(passive)").fetchall()
    except (OSError, sqlite3.Error) as error:  # nothing is lost: it stays in the log, and is moved another time
        log.warning("the write-ahead log of %s could not be moved into it: %s", path, error)


def fold_aside(path: Path, busy_s: float) -> None:
    """Move what there is of the log into the file, beside the writer, who need not wait for it. For a thread."""
    conn = connect(path, busy_s)
    try:
        fold(conn, path, 0)
    finally:
        conn.close()


def rewrite(path: Path, busy_s: float) -> None:
    """Write the whole file anew, without free pages, while nobody serves it. It takes as much room again meanwhile.

    Raises ``StoreLocked`` where a proxy serves it, ``StoreError``.
    """
    lock = Lock(path)
    lock.take()
    try:
        conn = connect(path, busy_s)
        try:
            with errors(path):
                conn.execute("pragma auto_vacuum = incremental")
                conn.execute("vacuum")
                conn.execute("pragma wal_checkpoint(truncate)").fetchall()
        finally:
            conn.close()
    finally:
        lock.release()
