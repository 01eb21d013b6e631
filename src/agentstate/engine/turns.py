"""Owns the limits within which an attempt is made: its turn at the provider, its time. Must not make it.

Invariant: who waits for a turn holds none; who has one is sending, or gives it back, also where its session was paused,
or its step rolled back, while it waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from agentstate.engine import waiting
from agentstate.errors import UpstreamTimeout

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job


async def bounded(job: Job, attempt: Callable[[Job], Awaitable[None]]) -> None:
    """An attempt within the limits of the settings: in its turn, and in time."""
    limit = job.parts.settings.retry.attempt_timeout_s
    queue = job.parts.queues.get(job.provider.name)
    if queue is None:
        await _timed(job, attempt, limit)
    else:
        while True:
            async with queue.turn(job.live.session):
                if not waiting.is_stopped(job):
                    return await _timed(job, attempt, limit)
            await waiting.goes_on(job)  # people stopped it while the call waited, and it takes no turn from others


async def _timed(job: Job, attempt: Callable[[Job], Awaitable[None]], limit: float | None) -> None:
    try:
        async with asyncio.timeout(limit) as job.limit:
            await attempt(job)
    except TimeoutError as error:
        raise UpstreamTimeout(
            f"provider {job.provider.name} took longer than {limit:g} s for its answer (retry.attempt_timeout_s)"
        ) from error
    finally:
        job.limit = None
