"""The error tree: every error has a stable code of its own, a status that clients understand, and a message."""

from __future__ import annotations

import inspect

import pytest

from agentstate import errors
from agentstate.errors import AgentStateError

# Codes are public: agents and scripts match them. A change here is a change of the interface.
CODES = {
    "AgentStateError": ("internal_error", 503),
    "BadRequest": ("bad_request", 400),
    "BodyTooLarge": ("body_too_large", 413),
    "Unauthorized": ("unauthorized", 401),
    "NotFound": ("not_found", 404),
    "Conflict": ("conflict", 409),
    "Refused": ("refused", 400),
    "SessionPaused": ("session_paused", 400),
    "RunDiverged": ("run_diverged", 400),
    "RunFenced": ("run_fenced", 400),
    "ApprovalUnavailable": ("approval_unavailable", 400),
    "UpstreamFault": ("upstream_fault", 503),
    "UpstreamUnreachable": ("upstream_unreachable", 503),
    "UpstreamTimeout": ("upstream_timeout", 503),
    "UpstreamCut": ("upstream_cut", 503),
    "UpstreamInvalid": ("upstream_invalid_answer", 503),
    "StoreError": ("journal_unavailable", 503),
    "StoreLocked": ("journal_locked", 503),
    "StoreFull": ("journal_full", 503),
    "StoreReadOnly": ("journal_read_only", 503),
    "StoreCorrupt": ("journal_corrupt", 503),
    "StoreNewer": ("journal_newer", 503),
    "SettingsError": ("settings_invalid", 503),
    "ShuttingDown": ("shutting_down", 503),
    "IllegalTransition": ("illegal_transition", 503),
}

ALL = [value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, AgentStateError)]


def test_codes_and_statuses_are_what_they_were() -> None:
    found = {kind.__name__: (kind.code, kind.status) for kind in ALL}
    assert {name: found.get(name) for name in CODES} == CODES


def test_every_error_has_a_code_of_its_own() -> None:
    assert len({kind.code for kind in ALL}) == len(ALL)
    assert all("code" in vars(kind) for kind in ALL), "a code that is inherited is not its own"


@pytest.mark.parametrize("kind", ALL)
def test_only_temporary_faults_ask_to_be_tried_again(kind: type[AgentStateError]) -> None:
    if kind.status < 500:
        assert kind.retry_after is None
        assert kind.kind in ("invalid_request_error", "authentication_error")
    if kind.retry_after is not None:
        assert 0 < kind.retry_after <= 60, "some clients ignore more than a minute"
        assert kind.status == 503


@pytest.mark.parametrize("kind", ALL)
def test_error_carries_its_message_and_its_detail(kind: type[AgentStateError]) -> None:
    error = kind("what to do next", detail={"step_number": 3})
    assert (str(error), error.message, error.detail) == ("what to do next", "what to do next", {"step_number": 3})
    assert kind("x").detail == {}
    assert error.exit_code > 0


def test_tree_is_shallow() -> None:
    assert all(len(kind.__mro__) <= len(AgentStateError.__mro__) + 2 for kind in ALL)


@pytest.mark.parametrize("kind", [errors.SessionPaused, errors.RunDiverged, errors.RunFenced])
def test_own_refusals_are_refused_requests(kind: type[AgentStateError]) -> None:
    assert issubclass(kind, errors.Refused)
    assert kind.retry_after is None
