"""The error tree: codes are unique and stable, statuses are those that clients can live with."""

from __future__ import annotations

import pytest

from agentstate import errors
from agentstate.errors import AgentStateError

# Code → (status, seconds after which a retry is worth it). A code that is here may not change or go away.
STABLE: dict[str, tuple[int, float | None]] = {
    "internal_error": (503, 5.0),
    "bad_request": (400, None),
    "body_too_large": (413, None),
    "unauthorized": (401, None),
    "not_found": (404, None),
    "method_not_allowed": (405, None),
    "session_gone": (503, 1.0),
    "conflict": (409, None),
    "refused": (400, None),
    "session_paused": (400, None),
    "budget_exceeded": (400, None),
    "run_diverged": (400, None),
    "run_fenced": (400, None),
    "approval_unavailable": (400, None),
    "human_rejection": (403, None),
    "forbidden": (403, None),
    "too_many_requests": (429, 60.0),
    "unprocessable": (422, None),
    "tool_rejected": (403, None),
    "tool_failed": (502, None),
    "untranslatable": (400, None),
    "upstream_fault": (503, 1.0),
    "upstream_unreachable": (503, 1.0),
    "upstream_timeout": (503, 1.0),
    "upstream_cut": (503, 1.0),
    "upstream_invalid_answer": (503, 1.0),
    "provider_busy": (503, 5.0),
    "breaker_open": (503, 1.0),
    "candidates_failed": (503, 1.0),
    "step_taken": (503, 1.0),
    "journal_unavailable": (503, 5.0),
    "journal_locked": (503, 5.0),
    "journal_full": (503, 5.0),
    "journal_read_only": (503, 5.0),
    "journal_corrupt": (503, 5.0),
    "journal_newer": (503, 5.0),
    "settings_invalid": (503, None),
    "shutting_down": (503, 1.0),
    "illegal_transition": (503, 5.0),
}


def _tree(kind: type[AgentStateError] = AgentStateError) -> list[type[AgentStateError]]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in _tree(below))]


TREE = [kind for kind in _tree() if kind.__module__ == errors.__name__]


def test_no_two_errors_share_a_code() -> None:
    assert len({kind.code for kind in TREE}) == len(TREE)


def test_codes_statuses_and_retries_are_the_stable_ones() -> None:
    assert {kind.code: (kind.status, kind.retry_after) for kind in TREE} == STABLE


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.code)
def test_a_temporary_fault_is_a_503_and_only_that(kind: type[AgentStateError]) -> None:
    if kind.retry_after is not None:
        assert kind.status == (429 if kind.code == "too_many_requests" else 503)  # wrong tokens are the caller's own
        assert 0 < kind.retry_after <= 60
    assert kind.exit_code in (1, 2, 3)


def test_the_journals_errors_end_a_command_with_their_own_code() -> None:
    assert {kind.exit_code for kind in _tree(errors.StoreError)} == {3}
    assert errors.SettingsError.exit_code == 2


def test_an_error_carries_its_message_and_detail() -> None:
    error = errors.RunDiverged("say this", detail={"step": 3})
    assert (str(error), error.message, error.detail) == ("say this", "say this", {"step": 3})
    assert errors.NotFound("x").detail == {}
