"""Owns the rules of breakers: when a provider's model is left alone, for how long, and when it is tried again.

Must not keep or read any state. Invariant: a breaker opens only after failures in a row, closes at the first success,
and no check of its own is ever paid for: calls of agents are all that tells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentstate.core.lifecycle import move_breaker
from agentstate.core.model import BreakerState

_MOST_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class Rules:
    """``failures``: so many in a row open it, 0: none do; ``window_s``: a pause so long ends a row; ``open_s``: how
    long it stays open at first, doubled each time that the trial fails, up to ``cap_s``."""

    failures: int
    window_s: float
    open_s: float
    cap_s: float


@dataclass(frozen=True, slots=True)
class Breaker:
    """``failures``: in a row; ``opened``: how often in a row it opened; ``until``: when it is tried again; ``at``: of
    the last failure; ``since``: of the last change. Times are seconds since the epoch."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    opened: int = 0
    until: float = 0.0
    at: float = 0.0
    since: float = 0.0
    why: str = ""


def seen(breaker: Breaker, now: float) -> Breaker:
    """The breaker as it is now: an open one becomes half-open when its time is over."""
    if breaker.state is BreakerState.OPEN and now >= breaker.until:
        return replace(breaker, state=move_breaker(breaker.state, BreakerState.HALF_OPEN))
    return breaker


def after_failure(breaker: Breaker, rules: Rules, now: float, why: str) -> Breaker:
    """After one more failed attempt."""
    breaker = seen(breaker, now)
    in_a_row = breaker.state is not BreakerState.CLOSED or now - breaker.at <= rules.window_s
    failures = breaker.failures + 1 if in_a_row else 1
    failed = replace(breaker, failures=failures, at=now, why=why)
    if breaker.state is BreakerState.OPEN:
        return failed  # somebody who had no other way has tried it; that does not make it wait longer
    if breaker.state is BreakerState.CLOSED and (not rules.failures or failures < rules.failures):
        return failed
    length = min(rules.cap_s, rules.open_s * 2.0 ** min(breaker.opened, _MOST_DOUBLINGS))
    return replace(
        failed,
        state=move_breaker(breaker.state, BreakerState.OPEN),
        opened=breaker.opened + 1,
        until=now + length,
        since=now,
    )


def after_success(breaker: Breaker, now: float) -> Breaker:
    """After an attempt that was answered."""
    breaker = seen(breaker, now)
    if breaker.state is BreakerState.CLOSED:
        return Breaker(since=breaker.since)
    return Breaker(move_breaker(breaker.state, BreakerState.CLOSED), since=now)
