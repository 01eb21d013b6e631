"""Owns keeping back the opening of a stream, so that another attempt can take the place of one that fails after it, and
the model's next answer that of one that is refused before it said anything.

Must not judge an answer. Invariant: bytes are shown in the order in which they came; the opening is kept back until the
model says something, or for a bounded time, and as soon as a byte is shown nothing can take its place any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentstate.dialects import opening
from agentstate.dialects.preamble import says

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job


class Opening:
    """``over``: it was let out, or there is nothing to keep back; ``shown``: how many bytes of it were."""

    __slots__ = ("_job", "_kept", "_lines", "_seconds", "_tells", "_timer", "over", "shown")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._kept: list[bytes] = []
        self._lines = job.dialect.name == "ollama_chat"
        retry, request = job.parts.settings.retry, job.request
        replaceable = retry.attempts > 1 or job.parts.routes.any or request.fallback
        self._seconds = retry.hold_back_s if replaceable else 0.0
        # Until something is said, a refusal of which the model is told can take the place of all that was.
        self._tells = job.parts.gate.policies.tells
        self._timer: asyncio.TimerHandle | None = None
        self.over = False
        self.shown = 0

    def add(self, free: bytes) -> None:
        """Events that may be shown."""
        self._kept.append(free)
        if self._tells:
            if not says(self._job.dialect.name, free):
                return
            self._tells, free = False, b"".join(self._kept)
        silent, model = opening.read(free, self._lines)
        if model:
            self._job.live.recording.model = model
        if not self._seconds or not silent:
            self.let_out()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.let_out)

    def hold(self) -> None:
        """The answer waits for a person: heartbeats go on from its opening, unless a refusal may take its place."""
        if not self._tells:
            self.let_out()

    def let_out(self) -> None:
        """Show what was kept back."""
        self.close()
        self.over = True
        kept, self._kept = b"".join(self._kept), []
        if kept:
            self.shown += len(kept)
            self._job.live.recording.begin(self._job.status, self._job.headers, self._job.call.shape)
            self._job.live.recording.append(kept)

    def close(self) -> None:
        """The stream is over: what is still kept back is shown by nobody here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
