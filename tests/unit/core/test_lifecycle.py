"""The tables of legal moves: every other move raises."""

from __future__ import annotations

import itertools

import pytest

from agentstate.core import lifecycle
from agentstate.core.model import ApprovalState, RunState, SessionStatus, State
from agentstate.errors import IllegalTransition

STEP_MOVES = {
    (State.IN_FLIGHT, State.COMPLETED), (State.IN_FLIGHT, State.FAILED), (State.IN_FLIGHT, State.INTERRUPTED),
    (State.FAILED, State.IN_FLIGHT), (State.FAILED, State.COMPLETED),
    (State.INTERRUPTED, State.IN_FLIGHT), (State.INTERRUPTED, State.COMPLETED),
    (State.HELD, State.IN_FLIGHT), (State.HELD, State.COMPLETED),
}  # fmt: skip
RUN_MOVES = {
    (RunState.OPEN, RunState.ENDED), (RunState.OPEN, RunState.FENCED), (RunState.ENDED, RunState.OPEN),
    (RunState.ENDED, RunState.FENCED), *((state, state) for state in RunState),
}  # fmt: skip


@pytest.mark.parametrize(("now", "to"), list(itertools.product(State, State)))
def test_step_moves_as_its_table_says_and_no_other_way(now: State, to: State) -> None:
    if (now, to) in STEP_MOVES:
        assert lifecycle.move_step(now, to) is to
    else:
        with pytest.raises(IllegalTransition, match=f"from {now} to {to}"):
            lifecycle.move_step(now, to)


@pytest.mark.parametrize(("now", "to"), list(itertools.product(RunState, RunState)))
def test_run_moves_as_its_table_says_and_no_other_way(now: RunState, to: RunState) -> None:
    if (now, to) in RUN_MOVES:
        assert lifecycle.move_run(now, to) is to
    else:
        with pytest.raises(IllegalTransition, match=f"from {now} to {to}"):
            lifecycle.move_run(now, to)


def test_completed_step_and_fenced_run_are_final() -> None:
    assert lifecycle.STEP[State.COMPLETED] == frozenset()
    assert lifecycle.RUN[RunState.FENCED] == frozenset()


def test_every_state_has_a_row() -> None:
    assert set(lifecycle.STEP) == set(State)
    assert set(lifecycle.RUN) == set(RunState)
    assert set(lifecycle.SESSION) == set(SessionStatus)


def test_session_may_go_from_any_status_to_any_other() -> None:
    for now, moves in lifecycle.SESSION.items():
        assert moves == set(SessionStatus) - {now}


@pytest.mark.parametrize(("now", "to"), list(itertools.product(ApprovalState, ApprovalState)))
def test_approval_is_decided_once_and_reopened_only_where_it_was_let_through(
    now: ApprovalState, to: ApprovalState
) -> None:
    decided = now is ApprovalState.PENDING and to is not ApprovalState.PENDING
    reopened = now in (ApprovalState.APPROVED, ApprovalState.EDITED) and to is ApprovalState.PENDING
    if decided or reopened:
        assert lifecycle.move_approval(now, to) is to
    else:
        with pytest.raises(IllegalTransition, match=f"from {now} to {to}"):
            lifecycle.move_approval(now, to)
