"""Owns what is done to a whole answer before it is judged for good: ids that its provider left out, and calls that
cannot wait for people taken out. Must not write.

Invariant: what was shown already stays as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentstate.core.model import Shape, Verdict
from agentstate.errors import ApprovalUnavailable, UpstreamCut

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job


def without_held(job: Job, body: bytes, verdict: Verdict, shape: Shape, shown: int) -> bytes:
    """An answer that failed, less the calls that policies do not let pass. Raises ``UpstreamCut`` where they cannot be
    taken out."""
    try:
        amended = job.parts.gate.passed(job.place, job.dialect, job.call, verdict, body, shape)
        if amended[:shown] != body[:shown]:
            raise ApprovalUnavailable("what was shown already would change")
    except ApprovalUnavailable as error:
        raise UpstreamCut(f"provider {job.provider.name}: {verdict.failed}; the rest is not given: {error}") from error
    return amended


def filled(job: Job, filled: bytes, body: bytes, verdict: Verdict, shape: Shape) -> tuple[bytes, Verdict]:
    """The answer with the ids that its provider left out, if it is as good as the one that came."""
    if shape.stream:
        gate = job.dialect.gate(job.call)
        gate.feed(filled)
        again = gate.finish()
    else:
        again = job.dialect.judge(job.call, filled)
    return (body, verdict) if again.fault else (filled, again._replace(usage=verdict.usage))
