"""Owns the verbs of retention: prune, delete a session, pin, collect garbage, give space back; and doing so by itself
where the settings ask for it. Must not decide what goes: ``core.retention`` does.

Invariant: nothing goes of which a call is under way here; live calls wait for no more than one small write at a time;
whatever this is stopped in, the next one finishes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agentstate import clock
from agentstate.core import retention
from agentstate.core.approval import Person
from agentstate.core.retention import DAY_S, WORDS, Fate, Rules, Stands, Why
from agentstate.engine import processes
from agentstate.engine.pacing import Pace, ids_at_a_time
from agentstate.errors import Conflict, NotFound
from agentstate.settings import Settings
from agentstate.store.pruning import Batch, Doomed
from agentstate.store.pruning_reader import Left, Pinned, Size, garbage_blobs, garbage_nodes
from agentstate.store.reader import Reader
from agentstate.store.wal import fold_aside

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

T = TypeVar("T")
log = logging.getLogger("agentstate")
BY_ITSELF = "retention"  # who prunes where the settings ask for it
MOST_ROUNDS = 6  # of one pruning by size: how much goes with a session is known only afterwards
MOST_REASON = 500
_FREE_PART = 4  # a file of which that part is free gives space back by itself


class Working(NamedTuple):
    """How far a pruning has come: ``done`` of ``total`` of what it does now."""

    what: str
    done: int
    total: int


class Report(NamedTuple):
    """What a pruning did, or would do. ``gone``: sessions, in the order in which they go; ``kept``: how many of the
    others stay, by why; ``superseded``, ``bodies``: steps of living sessions and contents that went; sizes before and
    after it."""

    dry_run: bool
    gone: tuple[Fate, ...]
    kept: dict[Why, int]
    superseded: int
    bodies: int
    before: Size
    after: Size


class Overview(NamedTuple):
    """The rules in force, and what would go by them now; ``left``: what an earlier pruning did not come to."""

    rules: Rules
    superseded_s: float | None
    every_s: float
    size: Size
    pinned: list[Pinned]
    fates: list[Fate]
    left: Left
    working: Working | None


def rules_of(settings: Settings) -> Rules:
    """What the settings ask for."""
    given = settings.retention
    return Rules(
        older_s=None if given.sessions_days is None else given.sessions_days * DAY_S,
        most=given.max_sessions,
        most_bytes=given.max_bytes,
        keep_labels=tuple(given.keep_labels),
        by_label=tuple((row.label, None if row.days is None else row.days * DAY_S) for row in settings.label_retention),
    )


class Retention:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self.rules = rules_of(parts.settings)
        days = parts.settings.retention.superseded_days
        self.superseded_s = None if days is None else days * DAY_S
        self.working: Working | None = None

    def start(self) -> None:
        """Finish what an earlier process began; and prune by itself, where the settings ask for it."""
        left = self._parts.journal.read.left()
        asked = self.rules.any or self.superseded_s is not None
        if asked or left.doomed or left.garbage:
            self._parts.followers.start("retention", self._by_itself(asked))

    async def _by_itself(self, asked: bool) -> None:
        await self._guarded(self.finish())
        while asked:
            await self._guarded(self.prune(self.rules, BY_ITSELF, superseded_s=self.superseded_s, by_itself=True))
            await asyncio.sleep(self._parts.settings.retention.every_h * 3600)

    async def _guarded(self, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception:  # it is tried again the next time: a fault here stops no call
            log.exception("pruning failed; it goes on the next time")

    # --- verbs ---

    def asked_rules(
        self, older_s: float | None, most: int | None, most_bytes: int | None, label: str, status: str
    ) -> Rules:
        """What somebody asks for: with nothing named, what the settings do. Labels that keep a session for good keep
        it here too."""
        if older_s is None and most is None and most_bytes is None:
            if not label and not status:
                return self.rules
            older_s = 0.0
        forever = tuple((pattern, seconds) for pattern, seconds in self.rules.by_label if seconds is None)
        return Rules(older_s, most, most_bytes, label, status, self.rules.keep_labels, forever)

    async def prune(
        self,
        rules: Rules,
        actor: str,
        *,
        dry_run: bool = False,
        vacuum: bool = False,
        superseded_s: float | None = None,
        by_itself: bool = False,
    ) -> Report:
        """Let go what the rules ask for and nothing keeps. ``superseded_s``: also steps that a rollback left behind so
        long ago; ``vacuum``: give the space back to the file system. Raises ``StoreError``."""
        if dry_run:
            return await self._foreseen(rules, superseded_s)
        async with self._lock:
            try:
                return await self._prune(rules, actor, vacuum, superseded_s, by_itself)
            finally:
                self.working = None

    async def _foreseen(self, rules: Rules, superseded_s: float | None) -> Report:
        fates, size = await self._fates(rules), await self._reading(Reader.size)
        gone = tuple(fate for fate in fates if fate.goes)
        steps, going = 0, {fate.session.id for fate in gone}
        if superseded_s is not None:
            before = clock.now() - superseded_s

            def work(reader: Reader) -> int:
                sessions = [key for key in reader.old_rollbacks(before) if key not in going]
                return sum(len(reader.superseded_of(session, before)) for session in sessions)

            steps = await self._reading(work)
        return Report(True, gone, _counts(fates), steps, 0, size, size)

    async def _prune(
        self, rules: Rules, actor: str, vacuum: bool, superseded_s: float | None, by_itself: bool
    ) -> Report:
        await self._finish()
        before = await self._reading(Reader.size)
        gone: list[Fate] = []
        kept: dict[Why, int] = {}
        superseded = bodies = 0
        for _ in range(MOST_ROUNDS):
            more, kept = await self._let_go(await self._fates(rules), actor)
            if superseded_s is not None:
                superseded += await self._drop_superseded(clock.now() - superseded_s)
            if (await self._reading(Reader.left)).garbage:
                bodies += await self._collect()
            gone += more
            after = await self._reading(Reader.size)
            if not more or rules.most_bytes is None or after.used <= rules.most_bytes:
                break
        if vacuum or (by_itself and (gone or superseded) and after.free * _FREE_PART > after.file):
            after = await self._give_back()
        if gone or superseded:
            log.info("pruned %d sessions and %d superseded steps (%s)", len(gone), superseded, actor)
        return Report(False, tuple(gone), kept, superseded, bodies, before, after)

    async def delete(self, key: str, actor: Person) -> Doomed:
        """A session goes, whatever the rules say. Raises ``NotFound``, and ``Conflict`` with what keeps it."""
        async with self._lock:
            try:
                row = self._parts.journal.read.session(key)
                if row is None:
                    raise NotFound(f"there is no session {key!r}; `agentstate sessions` lists those there are")
                known = Stands(row.id, row.key, row.status, row.steps, row.created_at, row.updated_at)
                found = await self._doom(known, actor.name, Why.ASKED, await self._in_use())
                if found is Why.IN_USE:  # what a person can do something about is told first
                    now = await self._reading(lambda reader: reader.stands(row.id))
                    found = (retention.kept_by(now) if now is not None else None) or found
                if isinstance(found, Why):
                    raise self._refusal(known, found)
                await self._finish()
                return found
            finally:
                self.working = None

    def _refusal(self, session: Stands, why: Why) -> Conflict | NotFound:
        if why is Why.GONE:
            return NotFound(f"session {session.key!r} is gone already")
        forks = self._parts.journal.read.forks_of(session.id) if why is Why.FORKED else []
        named = f" ({', '.join(forks[:10])})" if forks else ""
        return Conflict(f"session {session.key!r} stays: {WORDS[why]}{named}")

    async def pin(self, key: str, actor: Person, reason: str = "") -> None:
        """A session is kept, whatever the rules say. Raises ``NotFound``."""
        await self._parts.journal.pin(self._known(key), key, actor.name, reason[:MOST_REASON])

    async def unpin(self, key: str, actor: Person) -> bool:
        """The rules say again whether it is kept; false: it was not pinned. Raises ``NotFound``."""
        return await self._parts.journal.unpin(self._known(key), key, actor.name)

    def _known(self, key: str) -> int:
        row = self._parts.journal.read.session(key)
        if row is None:
            raise NotFound(f"there is no session {key!r}; `agentstate sessions` lists those there are")
        return row.id

    async def overview(self) -> Overview:
        """How things stand; nothing is changed."""
        fates = await self._fates(self.rules)
        size, pinned, left = await self._reading(lambda reader: (reader.size(), reader.pinned(), reader.left()))
        every_s = self._parts.settings.retention.every_h * 3600
        return Overview(self.rules, self.superseded_s, every_s, size, pinned, fates, left, self.working)

    async def finish(self) -> None:
        """Do what an earlier pruning did not come to."""
        async with self._lock:
            try:
                await self._finish()
                if (await self._reading(Reader.left)).garbage:
                    await self._collect()
            finally:
                self.working = None

    # --- how ---

    async def _fates(self, rules: Rules) -> list[Fate]:
        busy, talking = self._busy(), self._parts.presence.open_sessions()
        now = clock.now()

        def work(reader: Reader) -> list[Fate]:
            used = busy | _supervised(reader)
            found = [one._replace(in_use=one.in_use or one.key in talking) for one in reader.standing(used)]
            return retention.fates(rules, found, reader.forks(), now, reader.size().used)

        return await self._reading(work)

    def _busy(self) -> frozenset[int]:
        """Sessions of which a call is under way here."""
        floating = self._parts.floating
        return frozenset(live.session for live in floating.live.values()) | {key for key, _ in floating.followed}

    async def _in_use(self) -> frozenset[int]:
        """Sessions whose agents are watched by a supervisor."""
        return await self._reading(_supervised)

    async def _let_go(self, fates: Sequence[Fate], actor: str) -> tuple[list[Fate], dict[Why, int]]:
        gone: list[Fate] = []
        kept = _counts(fates)
        wanted = [fate for fate in fates if fate.goes]
        alive = await self._in_use()
        for done, fate in enumerate(wanted):
            self.working = Working("sessions", done, len(wanted))
            found = await self._doom(fate.session, actor, fate.why, alive, fate.session.used_at)
            if isinstance(found, Why):
                kept[found] = kept.get(found, 0) + 1
                continue
            gone.append(fate)
            await self._empty(found.session)
        return gone, kept

    async def _doom(
        self, session: Stands, actor: str, why: Why, alive: frozenset[int], at_most: float | None = None
    ) -> Doomed | Why:
        """The session is gone from here on, or what keeps it. From the look at what is under way until it is gone
        nobody gets hold of it: whoever asks for it waits for the next one of its id."""
        parts = self._parts
        cost = await self._reading(lambda reader: reader.cost_of(session.id))
        talking = any(parts.floating.talking(row.id) for row in parts.journal.facts.all_runs(session.id))
        open_ = session.key in parts.presence.open_sessions()
        if talking or open_ or session.id in alive or session.id in self._busy():
            return Why.IN_USE
        parts.journal.facts.doom(session.id, session.key)
        try:
            return await parts.journal.doom_session(session._replace(cost=cost), actor, why, at_most)
        finally:
            parts.journal.facts.settled(session.key)

    async def _finish(self) -> None:
        """Delete what is left of sessions that are gone."""
        left = await self._reading(Reader.left)
        for session, _ in left.doomed:
            await self._empty(session)

    async def _empty(self, session: int) -> None:
        journal = self._parts.journal
        for drop in (journal.drop_steps, journal.drop_hand_outs):
            await self._until_none(lambda most, drop=drop: drop(session, most))  # type: ignore[misc]
        await journal.forget_session(session)

    async def _drop_superseded(self, before: float) -> int:
        sessions = await self._reading(lambda reader: reader.old_rollbacks(before))
        journal, dropped = self._parts.journal, 0
        for done, session in enumerate(sessions):
            self.working = Working("superseded steps", done, len(sessions))
            dropped += await self._until_none(
                lambda most, session=session: journal.drop_superseded(session, before, most)  # type: ignore[misc]
            )
        return dropped

    async def _collect(self) -> int:
        """Delete contents and transcripts that nothing refers to; how many contents."""
        journal, busy_s = self._parts.journal, self._parts.settings.store.busy_s
        await journal.watch_references()
        clean = False
        try:
            kept: set[int] = set()
            nodes = await asyncio.to_thread(garbage_nodes, journal.path, busy_s)
            await self._sweep("transcripts", nodes, lambda ids: journal.sweep_nodes(ids, kept))
            blobs = await asyncio.to_thread(garbage_blobs, journal.path, busy_s)
            swept = await self._sweep("bodies", blobs, journal.sweep_blobs)
            clean = True
            return swept
        finally:
            await journal.end_watch(clean)

    async def _give_back(self) -> Size:
        """Free pages go back to the file system, and the write-ahead log is cut short."""
        free = (await self._reading(Reader.size)).free
        self.working = Working("space", 0, free)
        await self._until_none(self._parts.journal.give_back)
        # Most of the log is moved beside the writer: what is left for it to wait for is little.
        await asyncio.to_thread(fold_aside, self._parts.journal.path, self._parts.settings.store.busy_s)
        await self._parts.journal.fold_log()
        return await self._reading(Reader.size)

    async def _until_none(self, drop: Callable[[int], Awaitable[Batch]]) -> int:
        """Small writes until one finds nothing left; how much they did."""
        pace, done = Pace(), 0
        while (batch := await drop(pace.size)).done:
            done += batch.done
            await pace.rest(batch.seconds)
        return done

    async def _sweep(self, what: str, ids: Sequence[int], sweep: Callable[[Sequence[int]], Awaitable[Batch]]) -> int:
        pace, done, seen = Pace(), 0, 0
        for some in ids_at_a_time(ids, pace):
            self.working = Working(what, seen, len(ids))
            batch = await sweep(some)
            done, seen = done + batch.done, seen + len(some)
            await pace.rest(batch.seconds)
        return done

    async def _reading(self, work: Callable[[Reader], T]) -> T:
        """A long read, in a thread with a connection of its own."""

        def run() -> T:
            reader = Reader(self._parts.journal.path, self._parts.settings.store.busy_s)
            try:
                return work(reader)
            finally:
                reader.close()

        return await asyncio.to_thread(run)


def _supervised(reader: Reader) -> frozenset[int]:
    """Sessions of which a run has not ended and its supervisor lives on this host."""
    return frozenset(session for session, supervisor in reader.supervised_runs() if processes.identity(supervisor))


def _counts(fates: Sequence[Fate]) -> dict[Why, int]:
    found: dict[Why, int] = {}
    for fate in fates:
        if not fate.goes:
            found[fate.why] = found.get(fate.why, 0) + 1
    return found
