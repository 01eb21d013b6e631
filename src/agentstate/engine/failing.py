"""Owns how failures of attempts are spelled: as the rules know them, and as agents and people are told. Must not decide
what follows (``core.routing`` does), nor send.

Invariant: what agents are told of an answer from elsewhere is the same live and replayed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from agentstate import clock
from agentstate.core import routing
from agentstate.core.routing import Candidate, Failure, Fault, Limits
from agentstate.dialects import faults
from agentstate.engine.request import Request
from agentstate.errors import (
    BreakerOpen,
    CandidatesFailed,
    UpstreamBusy,
    UpstreamCut,
    UpstreamFault,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from agentstate.settings import RetrySettings
from agentstate.store.detours import Detour

log = logging.getLogger("agentstate")
_MOST_WAIT = 60.0  # a longer Retry-After of ours is ignored by several SDKs
_PATIENCE = 15.0  # of clients that do not tell a short read timeout: see ``server.address``
_OF_TIMEOUT = 2.4  # a client's read timeout is three times its patience; the last attempt needs a part of it


def failure_of(fault: UpstreamFault) -> Failure:
    """What a fault of ours says of the attempt."""
    kind = (
        Fault.BUSY
        if isinstance(fault, UpstreamBusy)
        else Fault.UNREACHABLE
        if isinstance(fault, UpstreamUnreachable)
        else Fault.TIMEOUT
        if isinstance(fault, UpstreamTimeout)
        else Fault.CUT
        if isinstance(fault, UpstreamCut)
        else Fault.INVALID
    )
    text = f"{fault.code}: {fault.message}"
    if kind in (Fault.CUT, Fault.INVALID) and faults.is_told(fault.message):
        return faults.of_words(fault.message, clock.now())._replace(text=text)
    return Failure(kind, text=text)


def limits(settings: RetrySettings, request: Request) -> Limits:
    """What may be tried for a request."""
    # A client that tries again by itself multiplies what is done here.
    attempts = 1 if request.retry else settings.attempts
    patience = request.patience * _OF_TIMEOUT if request.patience < _PATIENCE else math.inf
    return Limits(
        attempts, settings.base_s, settings.cap_s, frozenset(settings.statuses), settings.total_s,
        settings.lost_answers, patience,
    )  # fmt: skip


def short(failure: Failure) -> str:
    """A failure in a word and a number."""
    return failure.fault + (f" {failure.status}" if failure.status else "")


def told_detour(detour: Detour | None) -> str:
    """What agents are told of an answer that comes from elsewhere, live and replayed; empty: it does not."""
    if detour is None or not detour.candidate:
        return ""
    return routing.told(detour.candidate, detour.why.partition(":")[0], detour.lost)


def all_failed(story: Sequence[str]) -> CandidatesFailed:
    """``story``: what became of each attempt, in words."""
    return CandidatesFailed(f"nobody answered: {'; '.join(part[:300] for part in story)}"[:2000])


def left_alone(asked: Candidate, seconds: float) -> BreakerOpen:
    """``seconds``: until it may be tried."""
    return BreakerOpen(
        f"provider {asked.provider} failed again and again for {asked.model} and is left alone; ask again in "
        f"{seconds:.0f} s, or give it a route to another model ([[routes]])",
        min(seconds, _MOST_WAIT),
    )
