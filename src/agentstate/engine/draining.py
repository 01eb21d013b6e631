"""Owns how long an answer is read on that nobody reads any more, and how large one may be. Must not read it.

Invariant: an agent's death does not end its answer, but for the bounds that the settings set.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentstate.errors import UpstreamCut, UpstreamInvalid, final

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job


def deserted(job: Job, task: asyncio.Task[None] | None) -> None:
    """The last reader left: go on for a while, or stop at once."""
    settings = job.parts.settings.replay
    job.deserted_size = job.size

    def check() -> None:
        if job.live.recording.readers == 0 and not job.live.recording.done and task is not None:
            job.gave_up = "nobody was reading the answer any more"
            task.cancel()

    if not job.drain or settings.drain_s <= 0:
        check()
    else:
        asyncio.get_running_loop().call_later(settings.drain_s, check)


def take(job: Job, chunk: bytes) -> None:
    """Keep a piece of the answer. Raises ``UpstreamInvalid`` and ``UpstreamCut`` where it has become too much."""
    job.received.append(chunk)
    job.size += len(chunk)
    most = job.parts.settings.server.max_answer_bytes
    if job.size > most:
        raise final(UpstreamInvalid(f"the provider's answer is larger than {most} bytes (server.max_answer_bytes)"))
    unread = job.size - job.deserted_size if job.deserted_size is not None else 0
    if job.live.recording.readers == 0 and unread > job.parts.settings.replay.drain_bytes:
        raise final(UpstreamCut("nobody was reading the answer, and it grew beyond replay.drain_bytes"))
