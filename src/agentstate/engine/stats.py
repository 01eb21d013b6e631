"""Owns the figures of the whole journal: what was asked, what it cost, what replay saved. Must not render them.

Invariant: command line and API show these same figures; what is unknown stands beside them, never in them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from agentstate.core.usage import Tokens
from agentstate.engine.sessions import found
from agentstate.errors import BadRequest
from agentstate.store.reader import Reader
from agentstate.store.stats_reader import UNTIL_EVER, Sent, Span, Spared

BY = ("day", "model", "provider", "session", "label")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class Row(NamedTuple):
    """``name``: the day, model, provider, session or label that the figures are of; empty: of all, or of what has no
    label."""

    name: str
    sent: Sent
    spared: Spared


class Stats(NamedTuple):
    by: str
    total: Row
    rows: tuple[Row, ...]


def stats(reader: Reader, by: str = "day", since: str = "", until: str = "", session: str = "") -> Stats:
    """The figures, summed up and ``by`` day, model, provider, session or label, by name. Under labels a session counts
    once for each that it has.

    ``since``, ``until``: the first and the last day (UTC) that counts, as ``2026-01-31``; empty: no bound. Raises
    ``BadRequest``, and ``NotFound`` for a session that is none.
    """
    if by not in BY:
        raise BadRequest(f"by is {by[:40]!r}; use one of {', '.join(BY)}")
    if session:
        found(reader, session)
    span = Span(_day(since, "since"), _day(until, "until", 1) if until else UNTIL_EVER, session)
    rows = _rows(reader.sent(by, span), reader.spared(by, span))
    if by != "label":
        return Stats(by, _sum(rows), rows)
    [total] = _rows(reader.sent("", span), reader.spared("", span)) or (Row("", Sent(), Spared()),)
    return Stats(by, total, rows)


def _sum(rows: Sequence[Row]) -> Row:
    """Of rows that have nothing in common: to ask the journal once more would take as long as all of them."""
    sent, spared = [row.sent for row in rows], [row.spared for row in rows]
    tokens = Tokens(*(sum(counts) for counts in zip(*(one.tokens for one in sent), strict=True))) if rows else Tokens()
    return Row(
        "",
        Sent(
            sum(one.calls for one in sent), sum(one.failed for one in sent), tokens, sum(one.uncounted for one in sent),
            sum((one.cost for one in sent), 0.0), sum(one.unpriced for one in sent),
        ),
        Spared(
            sum(one.replays for one in spared), sum((one.saved for one in spared), 0.0),
            sum(one.unpriced for one in spared),
        ),
    )  # fmt: skip


def _rows(sent: Mapping[str, Sent], spared: Mapping[str, Spared]) -> tuple[Row, ...]:
    names = sorted(sent.keys() | spared.keys())
    return tuple(Row(name, sent.get(name, Sent()), spared.get(name, Spared())) for name in names)


def _day(text: str, what: str, later: int = 0) -> float:
    """When a day begins, so many days later; no text: the beginning of time."""
    if not text:
        return 0.0
    try:
        if not _DAY.fullmatch(text):
            raise ValueError(text)
        return (datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=later)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(f"{what} is {text[:40]!r}; give a day as 2026-01-31") from None


COLUMNS = (
    "calls", "failed", "replays", "input_tokens", "cached_tokens", "output_tokens", "uncounted", "cost_usd",
    "cost_unknown", "saved_usd", "saved_unknown",
)  # fmt: skip


def as_csv(found: Stats) -> str:
    """The rows as a table for spreadsheets (RFC 4180), without the total. A name that such a program would take for a
    formula has an apostrophe before it."""
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow((found.by, *COLUMNS))
    for row in found.rows:
        sent, spared = row.sent, row.spared
        table.writerow(
            (_named(row.name), sent.calls, sent.failed, spared.replays, sent.tokens.input, sent.tokens.cache_read,
             sent.tokens.output, sent.uncounted, repr(sent.cost), sent.unpriced, repr(spared.saved), spared.unpriced)
        )  # fmt: skip
    return out.getvalue()


def _named(name: str) -> str:
    """Names come from agents, and a spreadsheet calculates what begins like that."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") else name
