"""Owns what the page of all sessions shows. Must not decide or write.

Invariant: its rows are those of ``GET /api/sessions`` for the same filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentstate.dashboard.frame import ROOT
from agentstate.dashboard.rendering import query
from agentstate.engine.overview import FILTERS, Item, Overview, wanted
from agentstate.engine.sessions import found
from agentstate.errors import NotFound
from agentstate.store.overview_reader import SESSION_STATES, Tick, Wanted
from agentstate.store.reader import Reader

PAGE = 50
_MOST_LABELS = 50


@dataclass(frozen=True, slots=True)
class SessionItem:
    """A row. ``ticks``: its last steps, for the tape; ``before``: how many stand before those; money is USD, times are
    seconds since the epoch; ``unpriced``, ``saved_unknown``: calls and replays whose price is unknown."""

    id: str
    state: str
    status: str
    held: int
    labels: tuple[str, ...]
    model: str
    steps: int
    ticks: tuple[str, ...]
    before: int
    runs: int
    tokens: int
    paid: float
    unpriced: int
    saved: float
    saved_unknown: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class SessionsPage:
    """``filters``: as they were given, by name; ``next``: the address of the next page, empty: there is none;
    ``any``: whether the journal holds a session at all; ``states``: that can be filtered by."""

    sessions: tuple[SessionItem, ...]
    filters: Mapping[str, str]
    next: str
    first: bool
    any: bool
    states: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def filtered(self) -> bool:
        return any_of(self.filters)

    def without(self, name: str) -> str:
        """The address of this list without one filter."""
        return ROOT + query(**{key: value for key, value in self.filters.items() if key != name})

    def toggled(self, state: str) -> str:
        """The address of this list with a state put into its filter, or taken out."""
        chosen = [name for name in self.filters.get("state", "").split(",") if name]
        chosen = [name for name in chosen if name != state] if state in chosen else [*chosen, state]
        return ROOT + query(**{**self.filters, "state": ",".join(chosen)})


def any_of(filters: Mapping[str, str]) -> bool:
    return any(filters.values())


def sessions_page(reader: Reader, overview: Overview, given: Mapping[str, str]) -> SessionsPage:
    """The page for a query: ``FILTERS`` and ``after``, the last session of the page before.

    Raises ``BadRequest``, ``NotFound``.
    """
    filters = {name: given.get(name, "").strip() for name in FILTERS}
    asked = wanted(**filters)
    after = found(reader, given["after"]) if given.get("after") else None
    rows = overview.rows(reader, asked, PAGE + 1, after)
    shown = tuple(_item(overview.item(reader, row)) for row in rows[:PAGE])
    more = ROOT + query(**filters, after=shown[-1].id) if len(rows) > PAGE else ""
    return SessionsPage(
        shown, filters, more, after is None, bool(rows) or bool(reader.sessions(1)), SESSION_STATES,
        tuple(reader.label_names(_MOST_LABELS)),
    )  # fmt: skip


def session_row(reader: Reader, overview: Overview, key: str) -> SessionItem:
    """One row of it. Raises ``NotFound``."""
    rows = overview.rows(reader, Wanted(key=key), 1)
    if not rows:
        raise NotFound(f"there is no session {key!r}")
    return _item(overview.item(reader, rows[0]))


def _item(item: Item) -> SessionItem:
    row, sent, spared = item.row, item.used.sent, item.used.spared
    return SessionItem(
        row.key, item.state, row.status.value, item.held, item.labels,
        next((tick.model for tick in reversed(item.ticks) if tick.model), ""), row.steps,
        tuple(tick_name(tick) for tick in item.ticks), row.steps - len(item.ticks), item.runs, sent.tokens.total,
        sent.cost, sent.unpriced, spared.saved, spared.unpriced, row.created_at, row.updated_at,
    )  # fmt: skip


def tick_name(tick: Tick) -> str:
    """What a tick of a tape says of its step; what needs a person first."""
    if tick.held:
        return "held"
    if tick.state in ("failed", "interrupted"):
        return "failed"
    if tick.state == "in_flight":
        return "live"
    return "replayed" if tick.replayed else "paid"


@dataclass(frozen=True, slots=True)
class Bulk:
    """Sessions that are to be deleted, once somebody has said so twice. ``back``: the list that they were ticked on."""

    sessions: tuple[str, ...]
    back: str
