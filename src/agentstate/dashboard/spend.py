"""Owns what the page of money shows: paid against saved by day, by what else is asked, the budgets in force.

Must not count: the figures are those of ``engine.stats``, as the API and the command line give them. Invariant: what is
unknown stands beside each figure, a day without a call is a bar of nothing, and what is left out of a list is said.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from agentstate.core.budget import Limit
from agentstate.engine.allowances import Use, uses
from agentstate.engine.stats import BY, Row, Stats, stats
from agentstate.errors import BadRequest
from agentstate.store.reader import Reader

RANGES = {"7d": 7, "30d": 30, "90d": 90, "all": 0}
_DEFAULT = "30d"
GROUPS = tuple(by for by in BY if by != "day")
_MOST_ROWS = 100
_MOST_BARS = 120  # of single days; more are drawn as weeks


@dataclass(frozen=True, slots=True)
class Figures:
    """``paid``, ``saved``: USD that is known; ``…_unknown``: calls and replays whose price is not."""

    calls: int
    failed: int
    replays: int
    input: int
    cached: int
    output: int
    uncounted: int
    paid: float
    paid_unknown: int
    saved: float
    saved_unknown: int


@dataclass(frozen=True, slots=True)
class DayFigures:
    """Of one day, or of the ``days`` that begin with it (UTC)."""

    label: str
    first: str
    days: int
    calls: int
    replays: int
    paid: float
    paid_unknown: int
    saved: float
    saved_unknown: int


@dataclass(frozen=True, slots=True)
class Line:
    """``share``: of what the costliest line paid and saved, from 0 to 1."""

    name: str
    figures: Figures
    share: float


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """``used``: settled and ``reserved`` by calls in flight; ``most``: with what people ``raised`` it by; all in
    ``unit``: usd, steps or tokens. ``share``: of all, 1 and more: there is no room. ``session``: whose, empty: the
    day's."""

    limit: str
    unit: str
    session: str
    used: float
    most: float
    raised: float
    reserved: float
    share: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What the page is asked for. ``since``, ``until``: first and last day as ``2026-01-31``, empty: no bound;
    ``range``: one of ``RANGES`` or ``own``."""

    range: str
    since: str
    until: str
    by: str
    session: str


@dataclass(frozen=True, slots=True)
class SpendPage:
    """``days``: oldest first, without a gap; ``lines``: the costliest first; ``left_out``: lines that are not shown;
    ``at_limit``: ``hold`` or ``deny``; ``repeats``: the limit on asking the same again, 0: none."""

    asked: Asked
    total: Figures
    days: tuple[DayFigures, ...]
    lines: tuple[Line, ...]
    left_out: int
    budgets: tuple[BudgetFigures, ...]
    at_limit: str
    repeats: int
    command: str
    csv: str


def asked_of(given: str, since: str, until: str, by: str, session: str, now: float) -> Asked:
    """What a query asks for. Raises ``BadRequest``."""
    by = by or "model"
    if by not in GROUPS:
        raise BadRequest(f"by is {by[:40]!r}; use one of {', '.join(GROUPS)}")
    if given == "own" or (not given and (since or until)):
        return Asked("own", since, until, by, session)
    given = given or _DEFAULT
    if given not in RANGES:
        raise BadRequest(f"range is {given[:40]!r}; use one of {', '.join(RANGES)}, or own with since and until")
    today = datetime.fromtimestamp(now, tz=UTC).date()
    first = (today - timedelta(days=RANGES[given] - 1)).isoformat() if RANGES[given] else ""
    return Asked(given, first, "", by, session)


def spend_page(
    reader: Reader, asked: Asked, limits: Sequence[Limit], at_limit: str, repeats: int, now: float
) -> SpendPage:  # fmt: skip
    """In a thread. Raises ``BadRequest``, ``NotFound``."""
    by_day = stats(reader, "day", asked.since, asked.until, asked.session)
    grouped = stats(reader, asked.by, asked.since, asked.until, asked.session)
    rows = sorted(grouped.rows, key=lambda row: (-row.sent.cost - row.spared.saved, -row.sent.calls, row.name))
    highest = max((row.sent.cost + row.spared.saved for row in rows), default=0.0)
    lines = tuple(
        Line(row.name, figures(row), (row.sent.cost + row.spared.saved) / highest if highest else 0.0)
        for row in rows[:_MOST_ROWS]
    )
    return SpendPage(
        asked, figures(grouped.total), days_of(by_day, asked, now), lines, max(0, len(rows) - _MOST_ROWS),
        tuple(budget_figures(use) for use in uses(reader, limits, now)), at_limit, repeats, command(asked),
        csv_path(asked),
    )  # fmt: skip


def figures(row: Row) -> Figures:
    tokens = row.sent.tokens
    return Figures(
        row.sent.calls, row.sent.failed, row.spared.replays, tokens.input, tokens.cache_read, tokens.output,
        row.sent.uncounted, row.sent.cost, row.sent.unpriced, row.spared.saved, row.spared.unpriced,
    )  # fmt: skip


def days_of(found: Stats, asked: Asked, now: float) -> tuple[DayFigures, ...]:
    """Every day of the span, those on which nothing happened too; by weeks where they are many."""
    rows = {date.fromisoformat(row.name): row for row in found.rows}
    today = datetime.fromtimestamp(now, tz=UTC).date()
    first = date.fromisoformat(asked.since) if asked.since else min(rows, default=today)
    last = date.fromisoformat(asked.until) if asked.until else max(today, *rows) if rows else today
    if not rows and not asked.since:
        return ()
    # A span that somebody typed may begin with the calendar: nothing is drawn of the years before the first call.
    first = max(first, min((*rows, today)) - timedelta(days=_MOST_BARS))
    last = min(last, max((*rows, today)))
    count = (last - first).days + 1
    width = 1 if count <= _MOST_BARS else 7
    starts = [first + timedelta(days=at) for at in range(0, max(count, 0), width)]
    return tuple(_several(rows, start, min(width, (last - start).days + 1)) for start in starts)


def _several(rows: dict[date, Row], start: date, width: int) -> DayFigures:
    inside = [row for at in range(width) if (row := rows.get(start + timedelta(days=at))) is not None]
    label = f"{start.day} {start:%b}" if width == 1 else f"week of {start.day} {start:%b %Y}"
    return DayFigures(
        label, start.isoformat(), width, sum(row.sent.calls for row in inside),
        sum(row.spared.replays for row in inside), sum(row.sent.cost for row in inside),
        sum(row.sent.unpriced for row in inside), sum(row.spared.saved for row in inside),
        sum(row.spared.unpriced for row in inside),
    )  # fmt: skip


def budget_figures(use: Use) -> BudgetFigures:
    return BudgetFigures(
        use.limit.name, use.limit.unit.value, use.session, use.used + use.reserved, use.most, use.raised, use.reserved,
        use.share,
    )  # fmt: skip


def command(asked: Asked) -> str:
    """The same figures on the command line."""
    words = ["agentstate", "stats", "--by", asked.by]
    for name in ("since", "until", "session"):
        if value := getattr(asked, name):
            words += [f"--{name}", value]
    return shlex.join(words)


def csv_path(asked: Asked) -> str:
    """Where the same figures are as a table for spreadsheets."""
    from urllib.parse import urlencode

    given = {"by": asked.by, "since": asked.since, "until": asked.until, "session": asked.session, "format": "csv"}
    return "/api/stats?" + urlencode({name: value for name, value in given.items() if value})
