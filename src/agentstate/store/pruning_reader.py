"""Owns the questions of retention: how sessions stand, how large the journal is, what is left to do, what nothing
refers to. A part of ``Reader``; must not run on the event loop, nor write.

Invariant: as for ``Reader``. What is called garbage was referred to by nothing in one snapshot of the journal.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentstate import clock
from agentstate.core import budget, retention
from agentstate.core.branching import Branch
from agentstate.core.retention import Stands
from agentstate.store import references
from agentstate.store.branches import BranchReader
from agentstate.store.sqlite import connect, errors, named, size_of

_SQL = named("prune.sql")


class Pinned(NamedTuple):
    key: str
    actor: str
    reason: str
    at: float


class Size(NamedTuple):
    """Bytes of the file, of its write-ahead log, of free pages within the file; and what the file holds."""

    file: int
    log: int
    free: int
    sessions: int
    steps: int

    @property
    def used(self) -> int:
        return max(0, self.file - self.free)


class Left(NamedTuple):
    """What an earlier pruning did not come to: sessions of which rows are left, and whether there may be garbage."""

    doomed: tuple[tuple[int, str], ...]
    garbage: bool


class PruningReader(BranchReader):
    """What ``Reader`` gives its parts."""

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that is asked within shows the journal as it was at one moment, whatever is deleted meanwhile.
        Keep it short: the write-ahead log cannot begin anew until it ends."""
        with errors(self.path):
            self._conn.execute("begin")
        try:
            yield
        finally:
            self._conn.execute("rollback")

    def standing(self, in_use: frozenset[int] = frozenset()) -> list[Stands]:
        """How all sessions stand. ``in_use``: those that the serving process knows to be."""
        with errors(self.path):
            day = budget.day_of(clock.now()) * budget.SECONDS_OF_DAY
            count = {name: dict(self._rows(f"all_{name}")) for name in ("pending", "doubts", "messages", "uses")}
            pins = {row[0] for row in self._rows("all_pins")}
            raised = {row[0] for row in self._conn.execute(_SQL["all_raises"], {"day": day})}
            labels: dict[int, tuple[str, ...]] = {}
            for session, name in self._rows("all_labels"):
                labels[session] = (*labels.get(session, ()), name)
            return [
                Stands(
                    key, name, status, steps, created_at, max(updated_at, count["uses"].get(key) or 0.0),
                    labels.get(key, ()), key in pins, count["pending"].get(key, 0), count["doubts"].get(key, 0),
                    count["messages"].get(name, 0), key in raised, key in in_use,
                )
                for key, name, status, steps, created_at, updated_at in self._rows("rows_of_sessions")
            ]  # fmt: skip

    def stands(self, session: int) -> Stands | None:
        """The same of one; ``None``: there is none."""
        with errors(self.path):
            return stands(self._conn, session)

    def cost_of(self, session: int) -> float:
        """What is known of what a session cost, USD."""
        with errors(self.path):
            [cost] = self._conn.execute(_SQL["session_cost"], (session,)).fetchone()
            return float(cost or 0.0)

    def forks(self) -> dict[int, list[int]]:
        """By session, those whose branches begin on one of its own."""
        found: dict[int, list[int]] = {}
        with errors(self.path):
            for source, fork in self._rows("all_forks"):
                found.setdefault(source, []).append(fork)
        return found

    def forks_of(self, session: int) -> list[str]:
        """The same of one session, by their ids as agents know them."""
        with errors(self.path):
            return [row[0] for row in self._conn.execute(_SQL["forks_of"], {"session": session})]

    def pinned(self) -> list[Pinned]:
        with errors(self.path):
            return [Pinned(*row[1:]) for row in self._rows("pinned")]

    def supervised_runs(self) -> list[tuple[int, int]]:
        """(session, pid of the supervisor) of each run that has one and has not ended."""
        with errors(self.path):
            return [(row[0], row[1]) for row in self._rows("supervised")]

    def old_rollbacks(self, before: float) -> list[int]:
        """Sessions that were rolled back, or forked off, before that time."""
        with errors(self.path):
            return [row[0] for row in self._conn.execute(_SQL["old_rollbacks"], {"before": before})]

    def superseded_of(self, session: int, before: float) -> list[int]:
        """The steps of a session that may go as superseded."""
        branches = {key: found.branch for key, found in self.branches(session).items()}
        with errors(self.path):
            return superseded(self._conn, session, branches, before)

    def size(self) -> Size:
        with errors(self.path):
            page, free, pages = (
                self._conn.execute(f"pragma {name}").fetchone()[0]
                for name in ("page_size", "freelist_count", "page_count")
            )
            sessions, steps = self._conn.execute(_SQL["counts"]).fetchone()
        log = size_of(self.path.with_name(self.path.name + "-wal"))
        return Size(page * pages, log, page * free, sessions, steps)

    def left(self) -> Left:
        with errors(self.path):
            doomed = tuple((row[0], row[1]) for row in self._rows("doomed"))
            garbage = self._conn.execute("select 1 from meta where key = 'garbage'").fetchone() is not None
        return Left(doomed, garbage)

    def _rows(self, name: str) -> list[Any]:
        found: list[Any] = self._conn.execute(_SQL[name]).fetchall()
        return found


def stands(conn: sqlite3.Connection, session: int) -> Stands | None:
    """What is known of a session in the transaction at hand; ``None``: there is none."""
    day = budget.day_of(clock.now()) * budget.SECONDS_OF_DAY
    row = conn.execute(_SQL["stands"], {"session": session, "day": day}).fetchone()
    if row is None:
        return None
    key, status, steps, created_at, updated_at, labels, pins, pending, doubts, messages, raised, served = row[1:]
    return Stands(
        session, key, status, steps, created_at, max(updated_at, served or 0.0), tuple(json.loads(labels)), pins > 0,
        pending, doubts, messages, raised > 0,
    )  # fmt: skip


def superseded(conn: sqlite3.Connection, session: int, branches: Mapping[int, Branch], before: float) -> list[int]:
    """The steps of a session that neither its head nor a fork shows, that ended before that time, and of which nobody
    may ask what they did; of a pinned session none. ``branches``: its own, and those that it goes on from."""
    row = conn.execute("select head from session where id = ?", (session,)).fetchone()
    if row is None or conn.execute("select 1 from pin where session = ?", (session,)).fetchone():
        return []
    forks = [Branch(*found) for found in conn.execute(_SQL["forks_at"], {"session": session})]
    steps = conn.execute(_SQL["off_steps"], {"session": session, "before": before}).fetchall()
    return retention.superseded(steps, retention.shown_by(branches, row[0], forks))


@contextlib.contextmanager
def _marking(path: Path, busy_s: float) -> Iterator[Any]:
    """A connection that may make temporary tables, in one snapshot of the journal."""
    conn = connect(path, busy_s, write=False)
    try:
        with errors(path):
            conn.execute("pragma query_only = 0")  # of the file it still cannot write: it is opened for reading
            conn.execute("create temp table live (id integer primary key)")
            conn.execute("begin")
            yield conn
            conn.execute("rollback")
    finally:
        conn.close()


def garbage_nodes(path: Path, busy_s: float) -> array[int]:
    """Transcripts that no step leads to, the newest first: none of them is part of one that a step leads to."""
    with _marking(path, busy_s) as conn:
        conn.execute(references.marking_nodes())
        rows = conn.execute("select id from node where id not in (select id from live) order by id desc")
        return array("q", (row[0] for row in rows))


def garbage_blobs(path: Path, busy_s: float) -> array[int]:
    """Contents that no column refers to."""
    with _marking(path, busy_s) as conn:
        for statement in references.marking():
            conn.execute(statement)
        rows = conn.execute("select id from blob where id not in (select id from live) order by id")
        return array("q", (row[0] for row in rows))
