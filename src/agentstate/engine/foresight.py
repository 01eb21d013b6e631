"""Owns seeing what a fallback would lose of the calls that agents make, before a provider fails. Must not send
anything, nor hold a call up.

Invariant: each kind of call is looked at once, beside the call; what is found is said once in the log, and stands among
the warnings for as long as the process lives.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentstate.core.routing import Candidate
from agentstate.engine import candidates
from agentstate.engine.candidates import Asking, Unfit

if TYPE_CHECKING:
    from agentstate.engine.core import Parts
    from agentstate.engine.recorder import Job

log = logging.getLogger("agentstate")
_MOST_KINDS = 2000  # of calls: by model, and by all that can change an answer but its messages
_MOST_WARNINGS = 100
_LONGEST = 1024 * 1024  # bytes of a body that is looked at


class Foresight:
    """One for each serving process. ``look`` is asked with each call that has somewhere else to go."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._seen: set[tuple[str, str, bytes, str]] = set()
        self._found: dict[tuple[str, str, str], str] = {}

    def look(self, job: Job) -> None:
        """Look at a call like none before it, once it is on its way. Nothing, where it has nowhere else to go."""
        if not self._parts.routes.any and not job.request.fallback:
            return
        call = job.call
        kind = (call.dialect, call.model, call.frame, job.request.fallback)
        if kind in self._seen or call.pure or call.background or len(call.body) > _LONGEST:
            return
        if len(self._seen) >= _MOST_KINDS:
            self._seen.clear()
        self._seen.add(kind)
        self._parts.followers.start(f"look where {call.model[:60]} may go", self._looked(job))

    async def _looked(self, job: Job) -> None:
        asked = Candidate(job.provider.name, job.call.model)
        planned = self._parts.routes.planned(asked, job.request.fallback)
        asking = Asking(self._parts, job.dialect, job.call, None)
        for candidate in planned.candidates:
            try:
                switch = candidates.switch_to(asking, candidate, job.provider, job.question, planned.strict)
            except Unfit as unfit:
                if not job.call.previous:  # which only the call itself can be told whole for
                    self._say(asked, candidate, str(unfit), f"cannot go to {candidate}: {unfit}")
                continue
            if candidates.warned(switch.losses):
                lost = ", ".join(switch.losses)
                self._say(asked, candidate, lost, f"would lose tools or structure at {candidate}: {lost}")

    def _say(self, asked: Candidate, candidate: Candidate, why: str, text: str) -> None:
        key = (str(asked), str(candidate), why)
        if key in self._found or len(self._found) >= _MOST_WARNINGS:
            return
        self._found[key] = f"calls of {asked} {text}"
        log.warning("%s", self._found[key])

    def warnings(self) -> list[str]:
        """What was found, in the order in which it was."""
        return list(self._found.values())
