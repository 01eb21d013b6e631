"""Owns the rows of attempts that follow failed ones and of breakers, and the questions about them. A part of
``Reader``; must not write.

Invariant: as for ``Reader``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentstate.core.model import BreakerState
from agentstate.store.asking import Asking


class Failed(NamedTuple):
    """An attempt that failed and is followed by another one of the same step. ``status``: 0 where no answer came;
    ``head``, ``body``: what was received; ``model``, ``usage``, ``cost`` (USD), ``prices``: what it said that it used,
    and what that cost, see ``rows.Ending``; ``session``: whose step it is."""

    step: int
    attempt: int
    status: int
    head: bytes
    body: bytes
    error: str
    session: int = 0
    model: str = ""
    usage: str = ""
    cost: float | None = None
    prices: str = ""


class Detour(NamedTuple):
    """Why an attempt was made that is not a step's first, and where it went. ``candidate``: ``provider/model``, empty
    where it is the agent's own; ``lost``: what of request or answer was lost in translation."""

    why: str
    candidate: str = ""
    lost: tuple[str, ...] = ()


class AttemptRow(NamedTuple):
    """One try at a provider. ``detour``: of a first attempt it says nothing."""

    n: int
    provider: str
    status: int
    model: str
    error: str
    cost: float | None
    started_at: float
    finished_at: float | None
    detour: Detour


class BreakerRow(NamedTuple):
    """A breaker as it was last changed."""

    provider: str
    model: str
    state: BreakerState
    opened: int
    until: float
    since: float
    why: str


class DetourReader(Asking):
    """A part of ``Reader``."""

    def attempts(self, step: int) -> list[AttemptRow]:
        """All that were made for a step, in order."""
        return [AttemptRow._make((*row[:8], _detour(row[8:]))) for row in self._all("attempts_of", (step,))]

    def detour(self, step: int, attempt: int) -> Detour | None:
        """Where an attempt went; ``None``: it was a first one, as its agent asked."""
        row = self._one("detour", (step, attempt))
        return None if row is None else _detour(row)

    def breakers(self) -> list[BreakerRow]:
        """Of all providers' models that ever were left alone."""
        return [BreakerRow._make((*row[:2], BreakerState(row[2]), *row[3:])) for row in self._all("breakers", ())]


def _detour(row: Sequence[Any]) -> Detour:
    return Detour(row[0], row[1], tuple(json.loads(row[2])))
