"""Owns the questions about what happened lately: attempts of the last hours, the last answers that propose tool calls.
A part of ``Reader``. Must not run on the event loop.

Invariant: as for ``Reader``; what is asked of the last hours is found by the order of ids, never by reading all steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agentstate.core.standing import Tried
from agentstate.store.asking import Asking
from agentstate.store.sqlite import errors


class TriedRow(NamedTuple):
    """An attempt at a provider. ``candidate``: ``provider/model`` where it went elsewhere than its agent asked, else
    empty; ``asked``: the model that the agent asked for; ``prices``: whose prices its cost was computed with."""

    step: int
    n: int
    provider: str
    candidate: str
    asked: str
    tried: Tried
    prices: str

    @property
    def model(self) -> str:
        """The model as the provider was asked for it."""
        return self.candidate.partition("/")[2] or self.asked


class Proposing(NamedTuple):
    """A step whose answer proposes tool calls. ``session``: as agents know it; ``key``: its row."""

    step: int
    number: int
    session: str
    key: int
    calls: int


class StandingReader(Asking):
    """A part of ``Reader``."""

    def first_step(self, since: float) -> int:
        """The first step that was begun at that time or later: ids grow with time, so it is found by halving."""
        low, high = 1, int(self._one("last_step", ())[0]) + 1
        while low < high:
            middle = (low + high) // 2
            row = self._one("made_at", (middle,))
            if row is not None and row[0] < since:
                low = middle + 1
            else:
                high = middle
        return low

    def tried_since(self, since: float) -> Iterator[TriedRow]:
        """Attempts of the steps that were begun at that time or later, in their order, one after the other."""
        values = {"first": self.first_step(since), "since": since}
        with errors(self.path):
            for row in self._conn.execute(self.sql["attempts_since"], values):
                yield TriedRow._make((*row[:5], Tried._make(row[6:10]), row[10]))

    def attempt_head(self, step: int, n: int) -> tuple[bytes, float]:
        """(response headers as packed, when it ended) of an attempt."""
        row = self._one("attempt_head", (step, n))
        return (row[0] or b"", row[1] or 0.0) if row is not None else (b"", 0.0)

    def last_proposing(self, limit: int, below: int = 2**62) -> list[Proposing]:
        """The last steps, below one, whose answers propose tool calls, newest first."""
        return [Proposing._make(row) for row in self._all("last_proposing", {"limit": limit, "below": below})]
