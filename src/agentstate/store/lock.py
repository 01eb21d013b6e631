"""Owns the claim of one serving process on a journal file. Must not open the journal as a database.

Invariant: one file has one serving process at a time, whatever link leads to it and whoever deletes the lock file.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from agentstate.errors import StoreLocked, StoreReadOnly


class Lock:
    """The serving process's claim on a journal file.

    Two advisory locks: on the file itself, which nobody deletes by mistake (SQLite's own locks are of another kind),
    and on ``<file>.lock``, which also names the process and its address.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._journal = path
        self._file: int | None = None
        self._own: int | None = None

    def take(self) -> None:
        """``StoreLocked``: another process serves this journal. Makes the file, readable by its owner only."""
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            self._own = os.open(self._journal, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._close()
            raise StoreReadOnly(f"{error.filename} cannot be written: {error.strerror}; check its folder") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._own, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = self.read(self.path)
            self._close()
            raise StoreLocked(
                f"the journal is already served by process {other.get('pid', '?')} at {other.get('url', '?')}; "
                "use that one, or name another file with --db"
            ) from None

    def tell(self, url: str) -> None:
        """Write down who serves and where."""
        assert self._file is not None
        line = json.dumps({"pid": os.getpid(), "url": url}).encode() + b"\n"
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, line, 0)

    def release(self) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
        self._close()

    def _close(self) -> None:
        # Closing the journal's descriptor would drop SQLite's locks on it: only when SQLite has let go, or never began.
        for file in (self._file, self._own):
            if file is not None:
                os.close(file)
        self._file = self._own = None

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """What a lock file says; empty when it says nothing."""
        try:
            found = json.loads(path.read_text("utf-8") or "{}")
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
