"""Owns the breakers of a serving process: one for each model of a provider that has failed lately. Must not send.

The rules are in ``core.breaker``. Invariant: that a breaker opened or closed is in the journal, with the alert of it in
the same transaction, and a restart goes on with it; while none has failed there is nothing to look up.
"""

from __future__ import annotations

from typing import NamedTuple

from agentstate import clock
from agentstate.core import breaker
from agentstate.core.breaker import Breaker, Rules
from agentstate.core.model import BreakerState
from agentstate.core.routing import DOWN, Candidate, Failure
from agentstate.engine.outbox import Outbox
from agentstate.settings import BreakerSettings
from agentstate.store.detours import BreakerRow
from agentstate.store.journal import Journal
from agentstate.store.rows import Message

_MOST = 10_000  # models that are remembered; a model's name comes from agents


class Held(NamedTuple):
    """A breaker as it is shown."""

    candidate: Candidate
    breaker: Breaker


class Breakers:
    """``known``: those of what failed and has not been answered since."""

    def __init__(self, settings: BreakerSettings, journal: Journal, outbox: Outbox) -> None:
        self._rules = Rules(settings.failures, settings.window_s, settings.open_s, settings.cap_s)
        self._journal = journal
        self._outbox = outbox
        self._trying: set[Candidate] = set()
        self.known: dict[Candidate, Breaker] = {}

    def load(self) -> None:
        """Go on with what an earlier process knew."""
        for row in self._journal.read.breakers():
            if row.state is BreakerState.OPEN:
                candidate = Candidate(row.provider, row.model)
                self.known[candidate] = Breaker(row.state, 0, row.opened, row.until, 0.0, row.since, row.why)

    def shown(self) -> list[Held]:
        """All that are known, as they are now."""
        now = clock.now()
        return [Held(candidate, breaker.seen(found, now)) for candidate, found in sorted(self.known.items())]

    def shut(self, candidate: Candidate) -> tuple[float, bool]:
        """(0: a call may go there; else the seconds until it may be tried, or one second where a trial is under way;
        whether the call is the trial of one that is half-open, and ``left`` is to be called in the end)."""
        found = self.known.get(candidate)
        if found is None:
            return 0.0, False
        now = clock.now()
        found = breaker.seen(found, now)
        if found.state is BreakerState.CLOSED:
            return 0.0, False
        if found.state is BreakerState.OPEN:
            return max(found.until - now, 0.001), False
        if candidate in self._trying:
            return 1.0, False
        self._trying.add(candidate)
        return 0.0, True

    def is_open(self, candidate: Candidate) -> bool:
        """Whether it is to be left alone now."""
        found = self.known.get(candidate)
        return found is not None and breaker.seen(found, clock.now()).state is BreakerState.OPEN

    def left(self, candidate: Candidate) -> None:
        """The trial is over, however it ended: another call may try it."""
        self._trying.discard(candidate)

    async def failed(self, candidate: Candidate, failure: Failure) -> None:
        """An attempt failed. Raises ``StoreError`` where that opened the breaker and cannot be written."""
        if failure.fault not in DOWN or not self._rules.failures:
            return
        before = self.known.get(candidate, Breaker())
        if len(self.known) >= _MOST and candidate not in self.known:
            # Those that failed longest ago are forgotten first: names are cheap to make up.
            latest = sorted(self.known, key=lambda key: self.known[key].at)[_MOST // 10 :]
            self.known = {key: self.known[key] for key in latest}
        after = self.known[candidate] = breaker.after_failure(before, self._rules, clock.now(), failure.text[:300])
        if after.opened == before.opened:
            return
        told: tuple[Message, ...] = ()
        if before.state is BreakerState.CLOSED:
            facts = {"provider": candidate.provider, "model": candidate.model}
            told = self._outbox.messages("provider.down", "", str(candidate), facts)
        await self._journal.set_breaker(_row(candidate, after), told)

    async def answered(self, candidate: Candidate) -> None:
        """An attempt was answered. Raises ``StoreError`` where that closed the breaker and cannot be written."""
        before = self.known.pop(candidate, None)
        if before is not None and before.state is not BreakerState.CLOSED:
            await self._journal.set_breaker(_row(candidate, breaker.after_success(before, clock.now())))


def _row(candidate: Candidate, found: Breaker) -> BreakerRow:
    return BreakerRow(
        candidate.provider, candidate.model, found.state, found.opened, found.until, found.since, found.why
    )
