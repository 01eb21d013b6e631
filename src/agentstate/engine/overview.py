"""Owns lists of sessions with what each used: what they may be filtered by, and sums that are not counted twice.

Must not render. Invariant: dashboard, API and command line list the same sessions for the same filters; a sum that is
remembered is that of the journal as it was when the session last changed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import NamedTuple

from agentstate import clock
from agentstate.core.model import SessionStatus
from agentstate.engine.core import Parts
from agentstate.errors import BadRequest
from agentstate.store.overview_reader import SESSION_STATES, Listed, Tick, Wanted
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow
from agentstate.store.stats_reader import UNTIL_EVER, Sent, Spared

RECENT_S = 60.0  # an open run that changed within that is at work, even between two calls
MOST_TICKS = 60
FILTERS = ("q", "state", "status", "model", "label", "since", "until")
_MOST_SUMS = 5000  # sessions whose sums are remembered; about 2 MB
_SPAN = re.compile(r"(\d{1,6})(min|h|d)")
_UNIT_S = {"min": 60, "h": 3600, "d": 86400}


class Used(NamedTuple):
    """What a session used, and what it did not have to."""

    sent: Sent
    spared: Spared


class Item(NamedTuple):
    """A session of a list. ``ticks``: its last steps."""

    row: SessionRow
    state: str
    held: int
    runs: int
    labels: tuple[str, ...]
    used: Used
    ticks: tuple[Tick, ...]


def wanted(
    q: str = "", state: str = "", status: str = "", model: str = "", label: str = "", since: str = "", until: str = ""
) -> Wanted:
    """What a filter asks for. ``state``: names of ``SESSION_STATES`` with commas between; ``status``: a session's
    status; ``since``, ``until``: a day (``2026-01-31``, the whole of it), a time in ISO 8601, or how long ago
    (``90min``, ``24h``, ``7d``). Raises ``BadRequest``."""
    states = tuple(name for name in (part.strip().lower() for part in state.split(",")) if name)
    for name in states:
        if name not in SESSION_STATES:
            raise BadRequest(f"state is {name[:40]!r}; use {', '.join(SESSION_STATES)}")
    if status and status.upper() not in tuple(SessionStatus):
        raise BadRequest(f"status is {status[:40]!r}; use {', '.join(SessionStatus)}")
    return Wanted(
        like=q.strip(), status=status.upper(), states=states, model=model.strip(), label=label.strip(),
        since=_time(since, "since") if since.strip() else 0.0,
        until=_time(until, "until", 1) if until.strip() else UNTIL_EVER,
    )  # fmt: skip


def _time(text: str, what: str, later: int = 0) -> float:
    """Seconds since the epoch; a day is meant up to its end where ``later`` is 1."""
    text = text.strip()
    if (ago := _SPAN.fullmatch(text)) is not None:
        return clock.now() - int(ago[1]) * _UNIT_S[ago[2]]
    try:
        at = datetime.fromisoformat(text)
        if len(text) == len("2026-01-31"):
            at += timedelta(days=later)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{what} is {text[:40]!r}; give a day as 2026-01-31, a time as 2026-01-31T14:00Z, or 90min, 24h, 7d ago"
        ) from None


def rows(
    reader: Reader, asked: Wanted, limit: int, after: SessionRow | None = None, live: tuple[int, ...] = ()
) -> list[Listed]:
    """Latest change first; ``after``: the last row of the page before; ``live``: the sessions with a call in flight."""
    return reader.overview(asked, live, clock.now() - RECENT_S, limit, after)


class Overview:
    """Lists sessions. Use it in threads with a ``Reader`` of their own."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: OrderedDict[int, tuple[object, Used]] = OrderedDict()
        self._lock = Lock()

    def live(self) -> tuple[int, ...]:
        """The sessions with a call in flight."""
        return tuple({live.session for live in tuple(self._parts.floating.live.values())})

    def rows(self, reader: Reader, asked: Wanted, limit: int, after: SessionRow | None = None) -> list[Listed]:
        """See ``rows``, with what this process knows to be in flight."""
        return rows(reader, asked, limit, after, self.live())

    def counts(self, reader: Reader) -> tuple[int, int]:
        """(sessions at work, approvals that wait)."""
        return reader.live_count(self.live(), clock.now() - RECENT_S), reader.pending_count()

    def item(self, reader: Reader, listed: Listed) -> Item:
        row = listed.row
        return Item(
            row, listed.state, listed.held, reader.session_runs(row.id), reader.labels(row.id), self.used(reader, row),
            tuple(reader.tape(row.id, MOST_TICKS)),
        )  # fmt: skip

    def used(self, reader: Reader, row: SessionRow) -> Used:
        """What a session used. It is summed up anew when its clock moved on or it was given another answer."""
        mark = (row.clock, row.updated_at, reader.session_served(row.id))
        with self._lock:
            known = self._known.get(row.id)
            if known is not None and known[0] == mark:
                self._known.move_to_end(row.id)
                return known[1]
        found = Used(*reader.session_sums(row.id))
        with self._lock:
            self._known[row.id] = (mark, found)
            while len(self._known) > _MOST_SUMS:
                self._known.popitem(last=False)
        return found
