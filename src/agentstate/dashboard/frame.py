"""Owns what all pages share: who looks, where they are, how they like it, and the safety strip.

Must not know a page. Invariant: the strip's figures are those of the API; what may be done is asked of the same role
that the server checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from agentstate import clock
from agentstate.core.approval import Person, Role, reaches
from agentstate.engine.core import Parts
from agentstate.engine.overview import Overview
from agentstate.store.reader import Reader
from agentstate.store.stats_reader import Span, Spared

ROOT = "/dashboard"
THEMES = ("auto", "light", "dark")
DENSITIES = ("compact", "comfortable")
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the rail. ``key``: the letter that leads there after ``g``."""

    name: str
    path: str
    icon: str
    key: str


NAV = (
    Entry("Sessions", ROOT, "sessions", "s"),
    Entry("Approvals", ROOT + "/approvals", "approvals", "a"),
    Entry("Providers", ROOT + "/providers", "providers", "p"),
    Entry("Spend", ROOT + "/spend", "spend", "$"),
    Entry("Datasets", ROOT + "/datasets", "datasets", "d"),
    Entry("Settings", ROOT + "/settings", "settings", ","),
)


@dataclass(frozen=True, slots=True)
class Strip:
    """Whether anything needs a person. ``live``: sessions with a call in flight; ``held``: approvals that wait;
    ``saved``: USD that replays of today (UTC) did not cost, as recorded; ``saved_unknown``: replays of answers whose
    price is unknown; ``breakers``: open ones."""

    live: int = 0
    held: int = 0
    saved: float = 0.0
    saved_unknown: int = 0
    breakers: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """How a person likes the pages; kept in a cookie of theirs. ``letters``: single letters are shortcuts."""

    theme: str = "auto"
    density: str = "compact"
    letters: bool = True
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Crumb:
    """A step of the way here; without ``path``: here."""

    name: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What ``base.html`` shows around a page. ``path``: of this very page, with its query; ``given``: the fields of a
    form that was refused, for ``error``; ``said``: what was just done; ``csrf``: for forms; ``after``: the last event
    that the page can know of, empty: unknown."""

    title: str
    active: str
    crumbs: tuple[Crumb, ...]
    person: Person
    csrf: str
    path: str
    strip: Strip
    look: Look
    version: str
    assets: str
    address: str
    said: str = ""
    error: str = ""
    after: str = ""
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def nav(self) -> tuple[Entry, ...]:
        return NAV

    def may(self, role: str) -> bool:
        """Whether who looks may do what asks for ``role``: ``viewer``, ``approver`` or ``admin``."""
        return reaches(self.person.role, Role(role))


class Strips:
    """The strip, counted anew when anything happened, or after ``FRESH_S`` seconds: who is at work changes with time
    alone. Sums over the day are made at most once in ``SUMS_S``."""

    FRESH_S = 2.0
    SUMS_S = 20.0

    def __init__(self, parts: Parts, overview: Overview) -> None:
        self._parts = parts
        self._overview = overview
        self._strip = Strip()
        self._newest = ""
        self._counted = self._summed = float("-inf")
        self._saved: tuple[float, int] = (0.0, 0)

    def now(self, reader: Reader) -> Strip:
        """For a thread with a ``Reader`` of its own."""
        at, newest = clock.monotonic(), self._parts.events.last
        if newest == self._newest and at - self._counted < self.FRESH_S:
            return self._strip
        if at - self._summed >= self.SUMS_S:
            spared = reader.spared("", Span(clock.now() // _DAY_S * _DAY_S)).get("", Spared())
            self._saved, self._summed = (spared.saved, spared.unpriced), at
        live, held = self._overview.counts(reader)
        opened = sum(1 for one in self._parts.breakers.shown() if one.breaker.state.value != "closed")
        self._strip, self._counted, self._newest = Strip(live, held, *self._saved, opened), at, newest
        return self._strip


def session_path(key: str, *more: str) -> str:
    """The address of a session's page, or of one below it. An id may hold any character."""
    part = quote(key, safe="")
    if part.endswith(".json"):  # else it would ask for another session's JSON
        part = part.removesuffix(".json") + "%2Ejson"
    return "/".join((ROOT + "/sessions", part, *more))
