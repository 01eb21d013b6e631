"""Owns what an attempt cost: the usage that was heard of it, priced. Must not count what nobody said.

Invariant: what is not known costs ``None``, never 0.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core.model import Verdict
from agentstate.providers.provider import Provider

if TYPE_CHECKING:
    from agentstate.engine.core import Parts
    from agentstate.engine.recorder import Job


async def priced(parts: Parts, provider: Provider, model: str, verdict: Verdict) -> tuple[float | None, str]:
    """(USD, whose prices) of an answer that says its usage; ``model``: that was asked, where the answer names none."""
    if not parts.pricing.ready:
        await asyncio.wrap_future(parts.pricing.warm())
    return parts.pricing.priced(provider, verdict.model or model, verdict.usage, clock.now(), verdict.tier)


def heard(job: Job) -> Verdict:
    """Of an attempt that failed, what it says of its cost: the usage that had come by then."""
    found = job.heard or (job.gate.finish() if job.gate is not None else Verdict())
    return Verdict(model=found.model, usage=found.usage, tier=found.tier)
