"""Owns the feed of what changes: the last events, their ids, and who listens. Must not write, and holds no truth.

Invariant: every change that a transaction told of is an event, in the order of the commits, and no event comes before
its commit. A listener gets each event after its id once, in order, or is told to look at everything again
(``resync``); what is kept for listeners is bounded, however slow they are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agentstate import clock
from agentstate.errors import BadRequest
from agentstate.store.changes import ALL, AUDITED, SESSION, Change
from agentstate.store.reader import Reader

MOST = 10_000  # events that are kept: about 3 MB
BATCH = 100  # events that are spelled at once, so that a long way back does not hold up the event loop
_MOST_SPELLED = 2_000
RESYNC = "resync"
FIRST = "first"


class Event(NamedTuple):
    """``data``: what a listener is told, small and without contents. An event with the kind ``resync`` stands for all
    that was missed."""

    id: str
    kind: str
    data: dict[str, Any]


class Missed(Exception):
    """Events that the listener has not read were dropped."""


class Events:
    """One for each serving process. The ring keeps the changes as they came, and spells them when somebody listens:
    a change that nobody listens to costs a tuple and an append."""

    def __init__(self) -> None:
        self.boot = clock.alert_id()[-8:]
        self._ring: deque[tuple[float, Change]] = deque(maxlen=MOST)
        self._last = 0  # the number of the newest event
        self._spelled: dict[int, Event] = {}
        self._wakes: set[asyncio.Event] = set()

    @property
    def listening(self) -> int:
        """How many listen."""
        return len(self._wakes)

    @property
    def last(self) -> str:
        """The id of the newest event."""
        return f"{self.boot}-{self._last}"

    def publish(self, changes: Iterable[Change]) -> None:
        """What a transaction has changed, after its commit."""
        now, ring, count = clock.now(), self._ring, 0
        for change in changes:
            ring.append((now, change))
            count += 1
        self._last += count
        for wake in self._wakes:
            wake.set()

    def listen(self, reader: Reader, after: str = "", session: str = "", kinds: str = "") -> Listener:
        """``after``: the id of the last event that is known, empty: whatever comes from now on, ``first``: all that are
        kept; ``session``: only what is about that one; ``kinds``: only these, divided by commas: ``step`` means all
        that begin with ``step.``.

        Raises ``BadRequest``.
        """
        return Listener(self, reader, after, session, _kinds(kinds))

    def position(self, after: str) -> tuple[int, bool]:
        """The number of the event with that id; false: what came after it is not known any more."""
        if not after:
            return self._last, True
        if after == FIRST:
            return self._last - len(self._ring), True
        boot, dash, number = after.rpartition("-")
        if not dash or not (number.isascii() and number.isdecimal()) or len(number) > 15:
            raise BadRequest(f"{after[:80]!r} is no id of an event; give the one that came last, or none")
        at = int(number)
        if boot != self.boot or not self._last - len(self._ring) <= at <= self._last:
            return self._last, False
        return at, True

    def read(self, reader: Reader, position: int) -> list[Event]:
        """The next events after that number, ``BATCH`` at most. Raises ``Missed``."""
        oldest = self._last - len(self._ring)
        if position < oldest:
            raise Missed
        return [
            self._spelled.get(number) or self._spell(reader, number, *self._ring[number - oldest - 1])
            for number in range(position + 1, min(position + BATCH, self._last) + 1)
        ]

    def _spell(self, reader: Reader, number: int, at: float, change: Change) -> Event:
        event = Event(f"{self.boot}-{number}", change[0], spelled(reader, at, change))
        if len(self._spelled) >= _MOST_SPELLED:
            self._spelled.clear()
        self._spelled[number] = event
        return event

    def resync(self) -> Event:
        """Says that everything is to be looked at again, as of now."""
        return Event(self.last, RESYNC, {"kind": RESYNC, "at": _moment(clock.now())})

    def join(self, wake: asyncio.Event) -> None:
        self._wakes.add(wake)

    def leave(self, wake: asyncio.Event) -> None:
        self._wakes.discard(wake)


class Listener:
    """Who listens, as a context: it is woken between entering and leaving."""

    def __init__(self, events: Events, reader: Reader, after: str, session: str, kinds: frozenset[str]) -> None:
        self._events = events
        self._reader = reader
        self._session = session
        self._kinds = kinds
        self._at, self._known = events.position(after)
        self._wake = asyncio.Event()

    def __enter__(self) -> Listener:
        self._events.join(self._wake)
        return self

    def __exit__(self, *of: object) -> None:
        self._events.leave(self._wake)

    @property
    def id(self) -> str:
        """Of the last event that the listener knows."""
        return f"{self._events.boot}-{self._at}"

    @property
    def at_end(self) -> bool:
        """Whether there is nothing more to be had by now."""
        return self._known and self.id == self._events.last

    async def next(self) -> list[Event]:
        """The next events, as soon as there are any; first of all a ``resync``, where some were missed already. Raises
        ``Missed``, after which there is nothing more to be had."""
        if not self._known:
            self._known = True
            return [self._events.resync()]
        while True:
            self._wake.clear()
            found = self._events.read(self._reader, self._at)
            self._at += len(found)
            wanted = [event for event in found if self._wants(event)]
            if wanted:
                return wanted
            if found:
                await asyncio.sleep(0)  # others have their turn before the next ones are spelled
            else:
                await self._wake.wait()

    def _wants(self, event: Event) -> bool:
        if self._kinds and event.kind not in self._kinds:
            return False
        return not self._session or event.data.get("session") == self._session


def spelled(reader: Reader, at: float, change: Change) -> dict[str, Any]:
    """A change as listeners are told it, under the names by which people and agents know it."""
    kind, session, step, run, subject, state = change
    data: dict[str, Any] = {"kind": kind, "at": _moment(at)}
    approval = kind.startswith("approval.")
    if approval:
        found = reader.changed_approval(subject)
        state = found.state or state
    elif step:
        found = reader.changed_step(step, run)
    else:
        found = reader.changed_session(session, run)
    if found.session:
        data["session"] = found.session
    if found.step is not None:
        data["step"] = found.step
    if found.run:
        data["run"] = found.run
    if kind == SESSION and subject:  # it is gone: nothing else knows its name any more
        data["session"] = subject
    elif subject:
        data["approval" if approval else "subject"] = subject
    if state:
        data["action" if kind == AUDITED else "state"] = state
    return data


def _kinds(wanted: str) -> frozenset[str]:
    found: set[str] = set()
    for name in filter(None, (part.strip() for part in wanted.split(","))):
        matching = {kind for kind in ALL if kind == name or kind.startswith(f"{name}.")}
        if not matching:
            raise BadRequest(f"there are no events of the kind {name[:80]!r}; there are {', '.join(sorted(ALL))}")
        found |= matching
    return frozenset(found)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat().replace("+00:00", "Z")
