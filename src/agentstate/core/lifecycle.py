"""Owns the tables of legal state changes. Must not store them.

Invariant: a move that is not in a table raises ``IllegalTransition``; there is no other way to change a state.
"""

from __future__ import annotations

from agentstate.core.model import ApprovalState, BreakerState, RunState, SessionStatus, State
from agentstate.errors import IllegalTransition

STEP: dict[State, frozenset[State]] = {
    State.IN_FLIGHT: frozenset({State.COMPLETED, State.FAILED, State.INTERRUPTED}),
    # A failed or interrupted step may be tried again: the new attempt belongs to the same step.
    # A tool call that may not be made any more is refused; of an interrupted one it may turn out what became of it.
    State.FAILED: frozenset({State.IN_FLIGHT, State.COMPLETED}),
    State.INTERRUPTED: frozenset({State.IN_FLIGHT, State.COMPLETED}),
    State.COMPLETED: frozenset(),
    # A question that waits for a person before it is sent; where it is refused, the refusal is its answer.
    State.HELD: frozenset({State.IN_FLIGHT, State.COMPLETED}),
}

RUN: dict[RunState, frozenset[RunState]] = {
    RunState.OPEN: frozenset({RunState.ENDED, RunState.FENCED}),
    # A run that was thought ended may still speak (a child that outlived it), and may be fenced later.
    RunState.ENDED: frozenset({RunState.OPEN, RunState.FENCED}),
    RunState.FENCED: frozenset(),
}

SESSION: dict[SessionStatus, frozenset[SessionStatus]] = {
    status: frozenset(other for other in SessionStatus if other is not status) for status in SessionStatus
}

# The first decision is the only one, unless what governs the call becomes stricter before it is used.
_DECIDED = frozenset(set(ApprovalState) - {ApprovalState.PENDING})
APPROVAL: dict[ApprovalState, frozenset[ApprovalState]] = {
    ApprovalState.PENDING: _DECIDED,
    ApprovalState.APPROVED: frozenset({ApprovalState.PENDING}),
    ApprovalState.EDITED: frozenset({ApprovalState.PENDING}),
    ApprovalState.REUSED: frozenset(),
    ApprovalState.REJECTED: frozenset(),
    ApprovalState.EXPIRED: frozenset(),
}

BREAKER: dict[BreakerState, frozenset[BreakerState]] = {
    BreakerState.CLOSED: frozenset({BreakerState.OPEN}),
    # A call that had no other way may find the provider back before anybody was to try.
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN, BreakerState.CLOSED}),
    BreakerState.HALF_OPEN: frozenset({BreakerState.OPEN, BreakerState.CLOSED}),
}


def move_step(now: State, to: State) -> State:
    """``to``, or ``IllegalTransition``."""
    if to not in STEP[now]:
        raise IllegalTransition(f"a step cannot go from {now} to {to}")
    return to


def move_run(now: RunState, to: RunState) -> RunState:
    """``to``, or ``IllegalTransition``."""
    if to is not now and to not in RUN[now]:
        raise IllegalTransition(f"a run cannot go from {now} to {to}")
    return to


def move_approval(now: ApprovalState, to: ApprovalState) -> ApprovalState:
    """``to``, or ``IllegalTransition``."""
    if to not in APPROVAL[now]:
        raise IllegalTransition(f"an approval cannot go from {now} to {to}")
    return to


def move_breaker(now: BreakerState, to: BreakerState) -> BreakerState:
    """``to``, or ``IllegalTransition``."""
    if to not in BREAKER[now]:
        raise IllegalTransition(f"a breaker cannot go from {now} to {to}")
    return to
