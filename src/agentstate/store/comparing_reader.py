"""Owns what is asked of the journal to compare runs and branches: their steps, without a body. A part of ``Reader``;
must not compare.

Invariant: two bodies with one number here are equal, as contents are kept once; none of them is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentstate.core.model import Shape, State
from agentstate.store.asking import Asking
from agentstate.store.rows import shape_of

EDITED = "edited"  # the mode of an answer that a person edited, on the branches that show the edit


class ComparedRow(NamedTuple):
    """A step as it is laid beside another. ``path``: of its request; ``model``: that answered; ``cost``: of all
    attempts, USD; ``latency``: of the last one, seconds; ``body``: the content that was received; ``mode``: how it was
    released where a person was asked, ``given``: then, the content if it is another."""

    id: int
    number: int
    kind: str
    state: State
    dialect: str
    path: str
    fingerprint: bytes
    shape: Shape
    asked_model: str
    model: str
    status: int
    usage: str
    cost: float | None
    latency: float | None
    error: str
    body: int | None
    mode: str
    given: int | None


class ComparingReader(Asking):
    """A part of ``Reader``."""

    def compared(self, shown: Sequence[tuple[int, int]]) -> list[ComparedRow]:
        """The steps that these branches show, by number."""
        rows: list[Any] = []
        for branch, upto in shown:
            rows += self._all("compared_steps", {"branch": branch, "upto": upto})
        return [_row(row) for row in sorted(rows, key=lambda row: row[1])]

    def compared_step(self, step: int) -> ComparedRow | None:
        rows = self._all("compared_step", {"step": step})
        return _row(rows[0]) if rows else None

    def compared_of_run(self, run: int) -> list[ComparedRow]:
        """The steps that a run was given, by number."""
        return [_row(row) for row in self._all("compared_of_run", {"run": run})]


def _row(row: Any) -> ComparedRow:
    latency = None if row[14] is None else round(row[14] - row[13], 6)
    fields: tuple[Any, ...] = (
        *row[:3], State(row[3]), *row[4:7], shape_of(row[7]), row[8], row[9] or "", row[10] or 0, row[11] or "",
        row[12], latency, row[15] or "", row[16], row[17] or "", row[18],
    )  # fmt: skip
    return ComparedRow(*fields)
