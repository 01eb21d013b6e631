"""Owns the questions behind lists of sessions: which there are, what state each is in, what it used. A part of
``Reader``; must not run on the event loop.

Invariant: the state that a list shows is the state that its filter goes by; sums are what ``StatsReader`` sums, by
session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from agentstate.core.model import SessionStatus
from agentstate.core.usage import Tokens
from agentstate.store.asking import Asking
from agentstate.store.rows import SessionRow
from agentstate.store.stats_reader import UNTIL_EVER, Sent, Spared, teach

SESSION_STATES = ("live", "held", "failed", "paused", "done", "idle")


class Wanted(NamedTuple):
    """Which sessions: empty, of any kind. ``like``: a part of the id, of a label or of a model's name; ``states``: of
    ``SESSION_STATES``; times are those of the last change, seconds since the epoch."""

    key: str = ""
    like: str = ""
    status: str = ""
    states: tuple[str, ...] = ()
    model: str = ""
    label: str = ""
    since: float = 0.0
    until: float = UNTIL_EVER


class Listed(NamedTuple):
    """A session as lists show it. ``held``: approvals that wait."""

    row: SessionRow
    state: str
    held: int


class Tick(NamedTuple):
    """A step on a session's tape."""

    number: int
    state: str
    model: str
    replayed: bool
    held: bool


class OverviewReader(Asking):
    """A part of ``Reader``."""

    def overview(
        self, wanted: Wanted, live: Iterable[int], recent: float, limit: int, after: SessionRow | None = None
    ) -> list[Listed]:
        """Latest change first. ``live``: sessions with a call in flight; those with an open run that changed since
        ``recent`` are live too. ``after``: the last row of the page before."""
        like = wanted.like.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        values = {
            **wanted._asdict(), "like": f"%{like}%" if like else "", "live": json.dumps(list(live)), "recent": recent,
            "state": json.dumps(wanted.states) if wanted.states else "", "limit": limit,
            "updated": after.updated_at if after else None, "id": after.id if after else 0,
        }  # fmt: skip
        del values["states"]
        rows = self._all("overview", values)
        return [Listed(SessionRow(row[0], row[1], SessionStatus(row[2]), *row[3:9]), row[9], row[10]) for row in rows]

    def session_sums(self, session: int) -> tuple[Sent, Spared]:
        """What a session asked of providers (its ``failed`` is not counted here), and what it was spared."""
        teach(self._conn)
        calls, cost, added, unpriced = self._one("session_sums", {"session": session})
        *sums, uncounted = json.loads(added) if added else (*Tokens(), 0)
        given = self._one("session_spared", {"session": session})
        return (
            Sent(calls, 0, Tokens(*sums), uncounted, cost or 0.0, unpriced or 0),
            Spared(given[0] or 0, given[1] or 0.0, given[2] or 0),
        )

    def session_served(self, session: int) -> tuple[int, int]:
        """(hand-outs, hand-outs once more): changes with every answer that a session is given."""
        row = self._one("session_served", (session,))
        return int(row[0]), int(row[1] or 0)

    def session_runs(self, session: int) -> int:
        return int(self._one("session_runs", (session,))[0])

    def tape(self, session: int, limit: int) -> list[Tick]:
        """The last steps, oldest first."""
        rows = self._all("tape", {"session": session, "limit": limit})
        return [Tick(row[0], row[1], row[2], bool(row[3]), bool(row[4])) for row in reversed(rows)]

    def pending_count(self) -> int:
        """Approvals that wait."""
        return int(self._one("pending_count", ())[0])

    def live_count(self, live: Iterable[int], recent: float) -> int:
        """Sessions that are at work; parameters as for ``overview``."""
        return int(self._one("live_count", {"live": json.dumps(list(live)), "recent": recent})[0])

    def label_names(self, limit: int) -> list[str]:
        """The labels in use, the most used first."""
        return [row[0] for row in self._all("label_names", {"limit": limit})]
