"""Owns what is counted while a process serves. Must not know how it is shown: ``server.metrics`` reads it.

Invariant: to count is a few steps on plain numbers, without a lock or an object of a library; and nothing that a client
makes up can make more than a bounded number of rows.
"""

from __future__ import annotations

import asyncio

from agentstate import clock
from agentstate.core.durations import OF_MODELS, Durations
from agentstate.dialects.usage import tokens

OTHER = "other"  # every model beyond the first _MOST_MODELS, and those that no provider has answered as
NO_ANSWER = 0  # place of attempts that ended without a status
_MOST_MODELS = 200
_MOST_USAGES = 512  # put aside for each model: to read them takes longer than all the rest of counting
_MOST_NAME = 100  # characters of a model's name
_BEAT_S = 1.0  # between two measurements of the event loop


class Model:
    """A provider's model. ``statuses[i]``: attempts that were answered with ``i``xx, at ``NO_ANSWER`` the others;
    ``read``, ``written``, ``stored``: tokens of input, of output, and of input that the provider had kept;
    ``unpriced``: answers with usage of unknown price, which are not in ``usd``; ``usages``: what is not added to the
    tokens yet, see ``fold``."""

    __slots__ = ("first", "read", "statuses", "stored", "unpriced", "usages", "usd", "whole", "written")

    def __init__(self) -> None:
        self.statuses = [0] * 6
        self.whole = Durations(OF_MODELS)
        self.first = Durations(OF_MODELS)
        self.read = self.written = self.stored = self.unpriced = 0
        self.usd = 0.0
        self.usages: list[str] = []

    def fold(self) -> None:
        """Read the usages that were put aside."""
        for usage in self.usages:
            found = tokens(usage)
            self.read += found.input
            self.written += found.output
            self.stored += found.cache_read
        self.usages.clear()


class Metrics:
    """One for each serving process. ``requests``: by (dialect, outcome); ``errors``: by code; durations in seconds:
    ``added`` is what a live answer took beyond the provider's part, ``replays`` what a recorded one took, ``lag`` how
    late the event loop is; money in USD: ``saved`` by replays, less the ``unpriced`` ones."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], int] = {}
        self.errors: dict[str, int] = {}
        self.models: dict[tuple[str, str], Model] = {}
        self.added = Durations()
        self.replays = Durations()
        self.lag = Durations()
        self.saved = 0.0
        self.unpriced = 0

    def attempt(
        self, provider: str, model: str, status: int, first_s: float, whole_s: float, usage: str, usd: float | None
    ) -> None:
        """An attempt is over. ``status``: 0 for none, and then ``first_s`` counts for nothing."""
        row = self.models.get((provider, model))
        if row is None:
            row = self._row(provider, model, status)
        place = status // 100
        row.statuses[place if place <= 5 else NO_ANSWER] += 1
        row.whole.add(whole_s)
        if status:
            row.first.add(first_s)
        if usage:
            if usd is None:
                row.unpriced += 1
            else:
                row.usd += usd
            row.usages.append(usage)
            if len(row.usages) >= _MOST_USAGES:
                row.fold()

    def _row(self, provider: str, model: str, status: int) -> Model:
        """A row of its own once a provider has answered under the name: names come from clients, who may say any."""
        known = 200 <= status < 300 and len(self.models) < _MOST_MODELS and len(model) <= _MOST_NAME
        name = model if known and (model.isprintable() or not model) else OTHER
        return self.models.setdefault((provider, name), Model())

    def fold(self) -> None:
        """Bring the tokens up to date. In the event loop, before somebody looks."""
        for row in self.models.values():
            row.fold()

    def error(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    async def beat(self) -> None:
        """Measure, as long as the process serves, how late the event loop wakes who asked for a moment."""
        while True:
            due = clock.monotonic() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.lag.add(max(0.0, clock.monotonic() - due))
