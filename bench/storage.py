"""Measures what one long conversation takes on disk: 300 steps, each a message of 1.5 KB longer than the one before.

Invariant: the size is that of the database after the proxy ended and its write-ahead log was folded in.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from bench import procs
from bench.peers import Bed, Peer, running

ANSWER_BYTES = 2048
REPEATED = ", one answer repeated"  # behind the name of what was measured so


@dataclass(frozen=True, slots=True)
class Stored:
    """``size``: bytes on disk. ``held``: bytes of the last request and all answers' text, each once, uncompressed."""

    steps: int
    size: int
    held: int


def measure(peer: Peer, bed: Bed, core: int | None, steps: int, repeat: bool = False) -> Stored:
    """A fresh ``peer``, one conversation of ``steps``, then its database. ``repeat``: its answers say one sentence over
    and over, else each says something else. Raises ``NotMeasured``, ``RuntimeError``."""
    with running(peer, bed) as target:
        spec = {
            "port": target.port,
            "path": target.path,
            "headers": target.headers,
            "name": "long",
            "mode": "growing",
            "least": steps,
            "most": steps,
            "session_steps": steps + 1,
            "repeat": repeat,
        }
        tally = procs.volley(spec, core, bed.folder / "load.log")
    if tally["errors"] or len(tally["whole"]) != steps:
        raise RuntimeError(f"{tally['errors']} errors in {steps} steps: {tally['last_error']}")
    return Stored(steps, database_size(bed.folder), steps * (1500 + ANSWER_BYTES))


def database_size(folder: Path) -> int:
    """Bytes of the SQLite files of ``folder``, their logs folded in first."""
    files = sorted(folder.glob("*.db"))
    if not files:
        raise RuntimeError("no database was written")
    for file in files:
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(part.stat().st_size for file in files for part in folder.glob(file.name + "*") if part.suffix != ".lock")
