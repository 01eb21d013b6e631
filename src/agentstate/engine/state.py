"""Owns what a serving process knows beyond the journal: recordings that grow, and facts on their way to disk.

Must not hold truth: after a restart it is empty, and the journal alone decides.
Invariant: a fact is here from the moment it is decided until its transaction is committed, so that no two requests
that are decided between those moments are given the same thing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from agentstate import clock
from agentstate.core.branching import NO_LIMIT
from agentstate.core.model import Entry, State
from agentstate.engine.recording import Recording

# For how long a completed step may be the one that a proven retry repeats, seconds: above the longest wait between
# retries that most SDKs keep to (60), below the time after which an idle connection is closed here (75).
FRESH_S = 65.0
_MOST_SENDINGS = 20_000
_UNKNOWN = 2**30  # sendings before this process began: no retry is known to be the next one


@dataclass(slots=True)
class Live:
    """A step whose recording grows here. ``step`` is negative until the step is in the journal."""

    session: int
    branch: int
    run: int
    fingerprint: bytes
    recording: Recording
    step: int
    number: int = -1
    attempt: int = 1
    hint: int | None = None
    retry_key: bytes = b""
    tries: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # the step has its id, or its begin failed
    left: list[Callable[[], None]] = field(default_factory=list)  # by readers who left before that: called with it


@dataclass(slots=True)
class _Reading:
    count: int = 0
    delivered: bool = False


class Floating:
    """Recordings in flight, claims and cuts not committed yet, and who is reading what."""

    def __init__(self) -> None:
        self.live: dict[int, Live] = {}
        self.holding: dict[int, Recording] = {}  # of steps that wait for a decision, by those who wait with them
        self.followed: set[tuple[int, str]] = set()  # jobs at providers, by session and name
        # Set when something is decided about a step; kept by those who wait for it.
        self._undecided: WeakValueDictionary[int, asyncio.Event] = WeakValueDictionary()
        self._new: dict[tuple[int, bytes], list[Live]] = {}
        self._claims: Counter[tuple[int, int]] = Counter()
        self._cuts: dict[tuple[int, int], float] = {}
        # When steps ended: those of the last FRESH_S, and of the as many seconds before.
        self._ended: dict[int, float] = {}
        self._ended_before: dict[int, float] = {}
        self._turned = clock.monotonic()
        self._sendings: dict[tuple[int, int], int] = {}
        self.delivered: set[tuple[int, int]] = set()  # not committed yet
        self._reading: dict[tuple[int, int], _Reading] = {}
        self._talking: Counter[int] = Counter()
        self._moved: dict[int, asyncio.Event] = {}
        self._next = 0

    # --- recordings ---

    def temporary(self) -> int:
        """An id for a step that is not in the journal yet."""
        self._next -= 1
        return self._next

    def add(self, live: Live) -> None:
        self.live[live.step] = live
        if live.step < 0:
            self._new.setdefault((live.branch, live.fingerprint), []).append(live)

    def begun(self, live: Live, step: int, number: int, attempt: int) -> None:
        """The step is in the journal now."""
        self._forget_new(live)
        self.live.pop(live.step, None)
        live.step, live.number, live.attempt = step, number, attempt
        self.live[step] = live
        # Before anybody else can be given the step: a cut must not be noted of one that was taken up since.
        for note in live.left:
            note()
        live.left.clear()
        live.ready.set()

    def drop(self, live: Live) -> None:
        self._forget_new(live)
        if self.live.get(live.step) is live:
            del self.live[live.step]
        if live.step >= 0:
            now = clock.monotonic()
            if now - self._turned > FRESH_S:
                self._ended_before, self._ended, self._turned = self._ended, {}, now
            self._ended[live.step] = now
        live.ready.set()

    def _forget_new(self, live: Live) -> None:
        key = (live.branch, live.fingerprint)
        known = self._new.get(key, [])
        if live in known:
            known.remove(live)
            if not known:
                del self._new[key]

    def alone(self) -> bool:
        """Whether at most one answer is being made or read."""
        return len(self.live) <= 1 and len(self._reading) <= 1

    # --- what the decision sees ---

    def seen(self, entries: Iterable[Entry], run: int, branch: int, fingerprint: bytes) -> list[Entry]:
        """The journal's entries with what is on its way to it."""
        known = [self._overlaid(entry, run) for entry in entries]
        new = self._new.get((branch, fingerprint), ())
        if not new:
            return known
        # A beginning may be committed before its task is told: then the journal shows as abandoned what is under way.
        settled = [entry for entry in known if entry.state is not State.IN_FLIGHT or entry.live]
        return settled + [_not_begun(live, run) for live in new]

    def _overlaid(self, entry: Entry, run: int) -> Entry:
        live = self.live.get(entry.step)
        key = (run, entry.step)
        claimed, cut = key in self._claims, key in self._cuts
        ended = self._ended.get(entry.step) or self._ended_before.get(entry.step, -FRESH_S)
        fresh = clock.monotonic() - ended < FRESH_S
        lost = entry.lost and key not in self._reading and key not in self.delivered
        if entry.unreleased:
            waiting = self.holding.get(entry.step)
            # Who is being given it from the journal reads it too, though not (yet) with those who wait.
            watched = key in self._reading or (waiting is not None and waiting.readers > 0)
            return replace(entry, mine=entry.mine or claimed, watched=watched, fresh=fresh, lost=lost)
        if live is None and not (claimed or cut or entry.mine or entry.lost) and key not in self._reading:
            return entry  # how fresh it is matters for the run's own steps alone
        return replace(
            entry,
            mine=entry.mine or claimed,
            cut=(entry.cut or cut) and not claimed and key not in self._reading,
            live=live is not None,
            # An answer that is committed, but not on disk, is replayed while it still counts as growing.
            watched=live is not None and (key in self._reading or live.recording.readers > 0),
            tries=self._sendings.get(key, live.tries if live is not None and live.run == run else _UNKNOWN),
            fresh=fresh,
            lost=lost,
        )

    # --- decisions of people ---

    def undecided(self, step: int) -> asyncio.Event:
        """Set as soon as anything more is decided about a step."""
        event = self._undecided.get(step)
        if event is None:
            event = self._undecided[step] = asyncio.Event()
        return event

    def decided(self, step: int) -> None:
        if event := self._undecided.pop(step, None):
            event.set()

    def decided_any(self) -> None:
        """Whoever waits for a decision looks again."""
        for step in list(self._undecided):
            self.decided(step)

    # --- claims and cuts ---

    def claim(self, run: int, step: int, commit: asyncio.Future[object]) -> None:
        """``step`` is given to ``run``, as soon as ``commit`` is done."""
        key = (run, step)
        self._claims[key] += 1
        self._cuts.pop(key, None)

        def done(_: asyncio.Future[object]) -> None:
            self._claims[key] -= 1
            if self._claims[key] <= 0:
                del self._claims[key]

        commit.add_done_callback(done)

    def claimed(self, run: int, step: int) -> bool:
        """Whether a step is on its way to a run, its claim not committed yet."""
        return (run, step) in self._claims

    def cut(self, run: int, step: int, at: float, commit: asyncio.Future[object]) -> None:
        """The run's reader of the step left early, ``at`` that time, as soon as ``commit`` is done."""
        key = (run, step)
        self._cuts[key] = at
        commit.add_done_callback(lambda _: self._cuts.pop(key, None))

    def loose_cut(self, run: int) -> float:
        """The latest time at which a reader of the run left early, of those not committed yet; 0: none."""
        return max((at for key, at in self._cuts.items() if key[0] == run), default=0.0)

    def claim_cuts(self, run: int) -> None:
        self._cuts = {key: at for key, at in self._cuts.items() if key[0] != run}

    # --- readers ---

    def reads(self, run: int, step: int, retry: int = 0) -> None:
        """The step is on its way to the run; ``retry``: how often the client said that it had sent its request."""
        if len(self._sendings) > _MOST_SENDINGS:
            self._sendings.clear()
        before = self._sendings.get((run, step))
        self._sendings[(run, step)] = retry if before is None else before + 1
        self._reading.setdefault((run, step), _Reading()).count += 1
        self._talking[run] += 1

    def read(self, run: int, step: int, delivered: bool) -> bool:
        """A reader is through, or gone. True: it was the last one, and none of them got the last byte."""
        self._talking[run] -= 1
        if self._talking[run] <= 0:
            del self._talking[run]
        reading = self._reading.get((run, step))
        if reading is None:
            return not delivered
        reading.delivered = reading.delivered or delivered
        reading.count -= 1
        if not reading.count:
            del self._reading[(run, step)]
            if reading.delivered:
                self.delivered.add((run, step))
        self._out(run)
        return not reading.count and not reading.delivered

    def talking(self, run: int) -> bool:
        """Whether a reader of the run is waiting for an answer."""
        return run in self._talking

    # --- completion order ---

    def _out(self, run: int) -> None:
        if event := self._moved.pop(run, None):
            event.set()

    def being_read(self, run: int, steps: Iterable[int]) -> set[int]:
        """Those of ``steps`` that are on their way to the run, but not out yet."""
        return {step for step in steps if (run, step) in self._reading}

    def moves(self, run: int) -> asyncio.Event:
        """Set as soon as the next answer of the run is out."""
        return self._moved.setdefault(run, asyncio.Event())


def _not_begun(live: Live, run: int) -> Entry:
    """A step whose beginning is not committed yet."""
    return Entry(
        live.step,
        NO_LIMIT,
        live.run,
        State.IN_FLIGHT,
        0,
        mine=live.run == run,
        live=True,
        watched=live.recording.readers > 0,
        hint=live.hint,
        retry_key=live.retry_key,
        tries=live.tries,
    )
