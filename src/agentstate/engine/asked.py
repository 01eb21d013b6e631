"""Owns one request on its way: what was found out about it, and what its agent is told. Must not act.

Invariant: what is told of a recording is told once it is known who answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.core.model import Call, Fingerprint, Match, Outcome
from agentstate.dialects.base import Dialect
from agentstate.engine.request import Request, Told
from agentstate.engine.state import Live
from agentstate.store.rows import RunRow, SessionRow


@dataclass(slots=True)
class Asked:
    """One request on its way, with what was found out about it."""

    request: Request
    dialect: Dialect
    call: Call
    print: Fingerprint
    session: SessionRow
    run: RunRow
    outcome: Outcome = Outcome.LIVE
    carried: tuple[int, ...] = ()

    def told(self, outcome: Outcome, step: int | None, model: str, replayed: bool, match: Match = Match.STRICT) -> Told:
        return Told(outcome, step, self.run.name, model, match, replayed, bool(self.run.siblings), self.run.evidence)

    def told_of(self, live: Live, outcome: Outcome) -> Told:
        """What is told of a recording, now that it is known who answers."""
        recording = live.recording
        told = self.told(outcome, live.number, recording.model or self.call.model, outcome is Outcome.JOINED)
        return told._replace(detour=recording.detour) if recording.detour else told
