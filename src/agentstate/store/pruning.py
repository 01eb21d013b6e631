"""Owns what pruning writes: a session goes, its steps follow, contents that nothing refers to are swept. A part of
``Journal``; must not decide what goes: ``core.retention`` does.

Invariant: each write is small, whole in itself and can be the last one: what is left to do stands in the journal
(``doomed``, and the note that there is garbage), and a journal is sound between any two of them. No id is given twice.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from agentstate import clock
from agentstate.core import retention
from agentstate.core.retention import Stands, Why
from agentstate.errors import NotFound
from agentstate.store import changes, decisions, pruned, references
from agentstate.store.changes import changed
from agentstate.store.counters import Counters
from agentstate.store.facts import Facts
from agentstate.store.outgoing import Outgoing
from agentstate.store.pruning_reader import stands, superseded
from agentstate.store.reader import Reader
from agentstate.store.sqlite import named
from agentstate.store.writer import Writer

T = TypeVar("T")
_SQL = named("prune.sql")
_WRITE = named("write.sql")
GARBAGE = "garbage"  # in meta: since when there may be contents that nothing refers to
# A write that says it is so large is never made by the event loop itself.
_FOR_THE_THREAD = 1 << 30


class Doomed(NamedTuple):
    """A session that is gone. ``steps``, ``cost`` (USD, what is known of it): what it had."""

    session: int
    key: str
    steps: int = 0
    cost: float = 0.0


class Batch(NamedTuple):
    """What one write did. ``done``: rows that are gone; ``seconds``: how long the writer was busy with it."""

    done: int
    seconds: float


class Pruning(Outgoing):
    """What ``Journal`` gives its part."""

    _counters: Counters
    _writer: Writer
    facts: Facts
    read: Reader

    # --- what people say ---

    async def pin(self, session: int, key: str, actor: str, reason: str) -> None:
        """A session is kept, whatever the rules say; with its entry in the audit log. Raises ``NotFound``."""

        def work(conn: sqlite3.Connection) -> None:
            if conn.execute("select 1 from session where id = ?", (session,)).fetchone() is None:
                raise NotFound(f"session {key!r} was deleted meanwhile")
            values = {"session": session, "actor": actor, "reason": reason, "now": clock.now()}
            conn.execute(_SQL["pin"], values)
            changed(conn, changes.SESSION, session, state="pinned")
            decisions.audit(conn, actor, "session.pinned", key, {"reason": reason})

        await self._write("pin", work)

    async def unpin(self, session: int, key: str, actor: str) -> bool:
        """The rules say again whether it is kept; false: it was not pinned."""

        def work(conn: sqlite3.Connection) -> bool:
            if conn.execute(_SQL["unpin"], (session,)).rowcount != 1:
                return False
            changed(conn, changes.SESSION, session, state="unpinned")
            decisions.audit(conn, actor, "session.unpinned", key, {})
            return True

        return await self._write("unpin", work)

    # --- a session goes ---

    async def doom_session(self, found: Stands, actor: str, why: Why, at_most: float | None = None) -> Doomed | Why:
        """A session is gone from here on, for everybody; or what keeps it. ``at_most``: when it was last used, as far
        as whoever decided that knew. With its entry in the audit log, which names the approvals that go with it."""

        def work(conn: sqlite3.Connection) -> Doomed | Why:
            now = stands(conn, found.id)
            if now is None:
                return Why.GONE
            kept = retention.kept_by(now)
            if kept is None and forks_of(conn, found.id):
                kept = Why.FORKED
            if kept is None and at_most is not None and now.used_at > at_most:
                kept = Why.USED_SINCE
            return kept or _doom(conn, self._counters, now._replace(cost=found.cost), actor, why)

        return await self._write("doom_session", work, True, None, _FOR_THE_THREAD)

    async def drop_steps(self, session: int, most: int) -> Batch:
        """Some of the steps of a session that is gone, with all that is about them; none: there are none left."""

        def work(conn: sqlite3.Connection) -> int:
            rows = conn.execute(_SQL["some_steps"], {"session": session, "limit": most}).fetchall()
            return _drop(conn, [row[0] for row in rows], 0)

        return await self._write("drop_steps", _timed(work), False, None, _FOR_THE_THREAD)

    async def drop_hand_outs(self, session: int, most: int) -> Batch:
        """Some hand-outs of other sessions' steps to runs of a session that is gone, as forks have them."""

        def work(conn: sqlite3.Connection) -> int:
            pairs = conn.execute(_SQL["some_hand_outs"], {"session": session, "limit": most}).fetchall()
            if pairs:
                pruned.sum_up_hand_outs(conn, pairs)
                conn.executemany("delete from served where run = ? and step = ?", pairs)
            return len(pairs)

        return await self._write("drop_hand_outs", _timed(work), False, None, _FOR_THE_THREAD)

    async def forget_session(self, session: int) -> None:
        """Nothing is left of a session but its runs: these go too."""

        def work(conn: sqlite3.Connection) -> None:
            _raise_ceiling(conn, "run")
            conn.execute("delete from run where session = ?", (session,))
            conn.execute("delete from doomed where session = ?", (session,))

        await self._write("forget_session", work, False)

    async def drop_superseded(self, session: int, before: float, most: int) -> Batch:
        """Some steps of a living session that nothing shows any more, that ended before that time, and of which nobody
        may ask what they did."""

        def work(conn: sqlite3.Connection) -> int:
            branches = {key: found.branch for key, found in self.read.branches_with(conn, session).items()}
            found = superseded(conn, session, branches, before)[:most]
            if found:
                _note_garbage(conn)
                changed(conn, changes.SESSION, session, state="pruned")
            return _drop(conn, found, session)

        return await self._write("drop_superseded", _timed(work), False, None, _FOR_THE_THREAD)

    # --- what nothing refers to ---

    async def watch_references(self) -> None:
        """From here on it is noted which contents and transcripts are referred to anew: what was garbage when somebody
        looked is none then."""

        def work(conn: sqlite3.Connection) -> None:
            for statement in (*references.unwatching(), *references.watching()):
                conn.execute(statement)

        await self._write("watch_references", work, False, None, _FOR_THE_THREAD)

    async def end_watch(self, clean: bool) -> None:
        """The sweep is over; ``clean``: it came to its end, and there is no garbage known of any more."""

        def work(conn: sqlite3.Connection) -> None:
            for statement in references.unwatching():
                conn.execute(statement)
            if clean:
                conn.execute("delete from meta where key = ?", (GARBAGE,))

        await self._write("end_watch", work, False, None, _FOR_THE_THREAD)

    async def sweep_nodes(self, ids: Sequence[int], kept: set[int]) -> Batch:
        """Delete transcripts that nothing refers to, from their ends: ``ids`` descend from batch to batch. ``kept``:
        those that lead to one that is referred to again; it grows with each batch."""

        def work(conn: sqlite3.Connection) -> int:
            wanted = json.dumps(ids)
            again = {row[0] for row in conn.execute(_SQL["touched_nodes"], (wanted,))}
            going = []
            for node, parent, key in conn.execute(_SQL["node_rows"], (wanted,)).fetchall():
                if node in again or node in kept:
                    kept.add(parent)
                else:
                    going.append(node)
                    self._counters.nodes.pop(bytes(key), None)
            _raise_ceiling(conn, "node")
            conn.execute(_SQL["drop_nodes"], (json.dumps(going),))
            return len(going)

        return await self._write("sweep_nodes", _timed(work), False, None, _FOR_THE_THREAD)

    async def sweep_blobs(self, ids: Sequence[int]) -> Batch:
        """Delete contents that nothing refers to, and has not begun to refer to since the watch began."""

        def work(conn: sqlite3.Connection) -> int:
            gone = conn.execute(_SQL["drop_blobs"], (json.dumps(ids),)).fetchall()
            for (key,) in gone:
                self._counters.bodies.pop(bytes(key), None)
            return len(gone)

        return await self._write("sweep_blobs", _timed(work), False, None, _FOR_THE_THREAD)

    async def give_back(self, pages: int) -> Batch:
        """Free pages go back to the file system; none: there are none, or the file was made without that."""

        def work(conn: sqlite3.Connection) -> int:
            [before] = conn.execute("pragma freelist_count").fetchone()
            for _ in range(min(pages, before)):  # one a call: of more, the driver takes only the first step
                conn.execute("pragma incremental_vacuum(1)")
            [after] = conn.execute("pragma freelist_count").fetchone()
            return int(before - after)

        return await self._write("give_back", _timed(work), False, None, _FOR_THE_THREAD)

    async def fold_log(self) -> None:
        """The write-ahead log is moved into the file and cut short, unless a reader is in the way."""
        self._writer.shrink()
        await self._write("fold_log", lambda conn: None, False)


def _timed(work: Callable[[sqlite3.Connection], int]) -> Callable[[sqlite3.Connection], Batch]:
    """Work of which nobody can tell before how long it takes."""

    def timed(conn: sqlite3.Connection) -> Batch:
        began = clock.monotonic()
        done = work(conn)
        return Batch(done, clock.monotonic() - began)

    return timed


def forks_of(conn: sqlite3.Connection, session: int) -> list[str]:
    """The sessions whose branches begin on one of this session's."""
    return [row[0] for row in conn.execute(_SQL["forks_of"], {"session": session})]


def _doom(conn: sqlite3.Connection, counters: Counters, found: Stands, actor: str, why: Why) -> Doomed:
    now = clock.now()
    approvals = [row[0] for row in conn.execute(_SQL["approvals_in"], (found.id,))]
    detail = {
        "why": why.value, "steps": found.steps, "cost": found.cost, "labels": list(found.labels),
        "status": found.status, "created_at": found.created_at, "used_at": found.used_at, "approvals": approvals,
    }  # fmt: skip
    _note_garbage(conn)
    _raise_ceiling(conn, "session")
    _raise_ceiling(conn, "branch")
    conn.execute(_SQL["doom"], {"session": found.id, "key": found.key, "now": now})
    conn.execute(_SQL["end_runs"], (found.id,))
    branches = [row[0] for row in conn.execute(_SQL["branches_in"], (found.id,))]
    for table, column in references.OF_BRANCHES:
        conn.execute(references.dropping(table, column), {"ids": json.dumps(branches)})
    for table, column in references.OF_SESSIONS:
        conn.execute(references.dropping(table, column), {"ids": json.dumps([found.id])})
    conn.execute("delete from outbox where session = ?", (found.key,))
    conn.execute("delete from reached where which = ? and name like 'session%'", (found.id,))
    pruned.fold(conn, found.id)
    conn.execute("delete from session where id = ?", (found.id,))
    changed(conn, changes.SESSION, subject=found.key, state="deleted")
    decisions.audit(conn, actor, "session.pruned", found.key, detail)
    counters.gone(found.id)
    return Doomed(found.id, found.key, found.steps, found.cost)


def _drop(conn: sqlite3.Connection, steps: Sequence[int], session: int) -> int:
    """Delete steps and all that is about them, and keep their sums."""
    if not steps:
        return 0
    pruned.sum_up(conn, steps, session)
    _raise_ceiling(conn, "step")
    values = {"steps": json.dumps(steps)}
    conn.execute(_SQL["leave_names"], values)
    conn.execute(_SQL["drop_votes_of"], values)
    for table, column in references.OF_STEPS:
        conn.execute(references.dropping(table, column), {"ids": values["steps"]})
    return len(steps)


def _note_garbage(conn: sqlite3.Connection) -> None:
    conn.execute(_WRITE["set_meta"], {"key": GARBAGE, "value": str(clock.now())})


def _raise_ceiling(conn: sqlite3.Connection, table: str) -> None:
    """Remember the largest id of a table before rows of it go: it is given to nobody again."""
    [most] = conn.execute(f"select coalesce(max(id), 0) from {table}").fetchone()  # noqa: S608 - a name of ours
    conn.execute(_SQL["ceiling"], {"key": f"last_{table}", "most": most})
