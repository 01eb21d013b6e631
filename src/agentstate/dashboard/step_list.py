"""Owns the list of steps in which a person chooses a point. Must not read bodies but those of the answers in its
window, for one line each.

Invariant: the steps are those that the session shows, in order, each once; the chosen one is among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.dashboard import summaries
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow, StepRow

WINDOW = 60  # steps in the list at once
_BEFORE = 25  # of them before the chosen one


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step to choose. ``what``: the model that answered, or the tool; ``summary``: what it said or called, in short;
    ``cost``: USD, ``None``: unknown; ``latency``: seconds."""

    number: int
    kind: str
    what: str
    summary: str
    state: str
    cost: float | None
    latency: float | None
    at: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class StepList:
    """``earlier``, ``later``: the number to look from for what is before and after, ``None``: nothing is; ``total``: of
    the session."""

    lines: tuple[StepLine, ...]
    total: int
    earlier: int | None
    later: int | None


def step_list(reader: Reader, session: SessionRow, chosen: int | None, start: int | None = None,
              kind: str = "") -> StepList:  # fmt: skip
    """The steps around the chosen one, or from ``start`` on. ``kind``: only such."""
    at = min(session.steps, chosen) if chosen is not None else session.steps
    first = max(0, start if start is not None else at - _BEFORE)
    shown = dict(reader.shown(session))
    rows = [
        row for row in reader.all_steps(session.id, first, WINDOW * 4)
        if row.number < shown.get(row.branch, 0) and kind in ("", row.kind)
    ][:WINDOW]  # fmt: skip
    ids = [row.id for row in rows]
    names, tools = reader.tool_names(ids), reader.tool_steps(ids)
    lines = tuple(
        _line(row, summaries.line(reader, row, tools.get(row.id), names.get(row.id, ())).text, chosen) for row in rows
    )
    last = rows[-1].number if rows else first
    return StepList(
        lines, session.steps, max(0, first - WINDOW) if first else None, last + 1 if last + 1 < session.steps else None
    )


def _line(row: StepRow, summary: str, chosen: int | None) -> StepLine:
    ended = row.finished_at
    return StepLine(
        row.number, row.kind, row.model or row.asked_model or row.path, summary, _STATES[row.state.value], row.cost,
        None if ended is None else max(0.0, ended - row.started_at), row.created_at, row.number == chosen,
    )  # fmt: skip


_STATES = {
    "completed": "done",
    "in_flight": "in_flight",
    "failed": "failed",
    "interrupted": "interrupted",
    "held": "held",
}
