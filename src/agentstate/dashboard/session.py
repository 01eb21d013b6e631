"""Owns what the page of one session shows around its journal: what it used, its runs, what needs a person. Must not
decide or write.

Invariant: banners stand in order of weight, and each says what to do next.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

from agentstate import clock
from agentstate.core import pausing
from agentstate.core.model import SessionStatus
from agentstate.dashboard.frame import ROOT, session_path
from agentstate.dashboard.journal import NOTHING, Filters, JournalPage, journal_page
from agentstate.dashboard.step import StepPanel, step_panel
from agentstate.engine.core import Parts
from agentstate.engine.overview import Overview
from agentstate.engine.rematch import sentence
from agentstate.errors import NotFound
from agentstate.store.overview_reader import Wanted
from agentstate.store.reader import Reader
from agentstate.store.rows import RunRow, SessionRow

_MOST_MODELS = 12
_RETIRES_S = 90 * 86400.0


@dataclass(frozen=True, slots=True)
class Banner:
    """Something that a person should know. ``state``: a key of ``rendering.STATES``; ``path``, ``label``: what to
    do."""

    state: str
    text: str
    path: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class SessionHead:
    """What is known of a session in short. ``lasted``: from its first request to its last change, seconds;
    ``forked_from``, ``forked_at``: whose steps below which number it shares; ``paused``: it can be resumed; ``over``:
    it is completed or failed; money is USD, times are seconds since the epoch."""

    id: str
    state: str
    status: str
    held: int
    labels: tuple[str, ...]
    models: tuple[str, ...]
    runs: int
    steps: int
    lasted: float
    tokens: int
    paid: float
    unpriced: int
    saved: float
    saved_unknown: int
    paused: bool
    over: bool
    rating: str
    forked_from: str
    forked_at: int | None
    created_at: float
    updated_at: float
    banners: tuple[Banner, ...]


@dataclass(frozen=True, slots=True)
class SessionPage:
    """``find``, ``failed``, ``tools``, ``timeline``: the filters of its journal; ``step``: the one that is open."""

    head: SessionHead
    journal: JournalPage
    filters: Filters
    start: int | None
    step: StepPanel | None

    def json(self, **change: str | int | bool | None) -> str:
        """The address of this page's context as JSON."""
        path, _, query = self.at(**change).partition("?")
        return f"{path}.json" + (f"?{query}" if query else "")

    def at(self, **change: str | int | bool | None) -> str:
        """The address of this page with something else chosen: a step, a tab, a filter, where it begins."""
        asked: dict[str, str | int | bool | None] = {
            "failed": self.filters.failed, "tools": self.filters.tools, "timeline": self.filters.timeline,
            "find": self.filters.find, "from": self.start, "step": self.step.number if self.step else None,
            "tab": self.step.tab if self.step and self.step.tab != "conversation" else None,
        }  # fmt: skip
        kept = {}
        for name, value in {**asked, **change}.items():
            if value is True:
                kept[name] = "1"
            elif value is not None and value is not False and value != "":
                kept[name] = str(value)
        return session_path(self.head.id) + (f"?{urlencode(kept)}" if kept else "")


def session_page(
    reader: Reader,
    parts: Parts,
    overview: Overview,
    key: str,
    filters: Filters,
    start: int | None,
    step: tuple[int, str, bool] | None,
    listed: bool = True,
) -> SessionPage:
    """The page of a session. ``start``: the number of the first step that is shown, none: the newest are; ``step``:
    (number, tab, whether bodies are shown whole) of the step that is open; ``listed``: the journal is wanted too.
    Raises ``NotFound``."""
    row, head = session_head(reader, parts, overview, key)
    panel = step_panel(reader, parts, row, *step) if step is not None else None
    if start is None and panel is not None and not filters.any and panel.number < row.steps - 200:
        start = max(0, panel.number - 20)
    journal = journal_page(reader, row, filters, start) if listed else NOTHING
    return SessionPage(head, journal, filters, start, panel)


def session_head(reader: Reader, parts: Parts, overview: Overview, key: str) -> tuple[SessionRow, SessionHead]:
    """Raises ``NotFound``."""
    listed = overview.rows(reader, Wanted(key=key), 1)
    if not listed:
        raise NotFound(f"there is no session {key!r}; the list of sessions has those there are")
    [one] = listed
    row, used = one.row, overview.used(reader, one.row)
    models = tuple(reader.models_in(row.id, _MOST_MODELS))
    rating = reader.ratings(row.id).get(0)
    return row, SessionHead(
        row.key, one.state, row.status.value, one.held, reader.labels(row.id), models, reader.session_runs(row.id),
        row.steps, row.updated_at - row.created_at, used.sent.tokens.total, used.sent.cost, used.sent.unpriced,
        used.spared.saved, used.spared.unpriced, row.status is SessionStatus.PAUSED,
        row.status in (SessionStatus.COMPLETED, SessionStatus.FAILED), rating.verdict if rating is not None else "",
        *_origin(reader, row),
        row.created_at, row.updated_at, tuple(_banners(reader, parts, row, models)),
    )  # fmt: skip


def _origin(reader: Reader, row: SessionRow) -> tuple[str, int | None]:
    """The session that it was forked from, and the number below which it shares its steps."""
    fork = reader.fork_of(row.id)
    if fork is None or fork.branch.parent is None:
        return "", None
    source = reader.session_of(reader.session_of_branch(fork.branch.parent))
    return (source.key if source is not None else "a session that is gone"), fork.branch.upto


def _banners(reader: Reader, parts: Parts, row: SessionRow, models: tuple[str, ...]) -> list[Banner]:
    found = []
    pending = reader.pending_in(row.id)
    if pending:
        tools = ", ".join(dict.fromkeys(tool or "a request" for _, _, tool in pending))
        count = len(pending)
        found.append(
            Banner(
                "held", f"{count} {'call waits' if count == 1 else 'calls wait'} for you: {tools}",
                f"{ROOT}/approvals/{pending[0][0]}", "Review",
            )
        )  # fmt: skip
    runs = reader.runs(row.id, 50)
    diverged = next((run for run in runs if run.divergence), None)
    if diverged is not None:
        found.append(_divergence(row, diverged, runs))
    if row.status is SessionStatus.PAUSED:
        found.append(_paused(row))
    elif row.status is SessionStatus.FAILED and row.note:
        found.append(Banner("failed", pausing.read(row.note).text or "The session failed."))
    return found + [banner for model in models if (banner := _retired(parts, model)) is not None]


def _divergence(row: SessionRow, run: RunRow, runs: list[RunRow]) -> Banner:
    try:
        text = sentence(json.loads(run.divergence or "{}"))
    except (ValueError, KeyError, TypeError, IndexError):
        text = f"run {run.name} asks what the journal does not hold"
    before = next((other.name for other in runs if other.id < run.id), "")
    path = ""
    if before:
        path = f"{ROOT}/compare?" + urlencode({"a": f"{row.key}#{before}", "b": f"{row.key}#{run.name}"})
    return Banner("diverged", f"Divergence: {text}.", path, "See both" if path else "")


def _paused(row: SessionRow) -> Banner:
    pause = pausing.read(row.note)
    who = f"Paused by {pause.by}" if pause.by else "Paused by the proxy" if row.note else "Paused"
    return Banner("paused", who + (f": {pause.text}" if pause.text else ""))


def _retired(parts: Parts, model: str) -> Banner | None:
    ends = parts.routes.shutdown(model)
    if ends is None:
        return None
    left = (ends.toordinal() - 719163) * 86400.0 - clock.now()  # 719163: the day on which the epoch began
    if left > _RETIRES_S:
        return None
    said = f"was shut down on {ends}" if left <= 0 else f"is shut down on {ends}"
    return Banner(
        "failed" if left <= 0 else "diverged", f"{model} {said} by its vendor.", ROOT + "/providers", "Routes"
    )
