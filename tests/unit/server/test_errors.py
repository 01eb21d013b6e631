"""Errors of ours become answers that clients understand: what it was, what next, and whether to ask again."""

from __future__ import annotations

import json

import pytest

from agentstate import errors
from agentstate.errors import AgentStateError, BadRequest, BodyTooLarge, NotFound, RunDiverged, ShuttingDown, StoreFull
from agentstate.server.errors import rendered


def along(error: AgentStateError) -> dict[str, str]:
    """The headers of an error's answer."""
    return dict(rendered(error)[1])


def test_an_error_looks_like_one_of_openai() -> None:
    status, headers, body = rendered(BadRequest("send a JSON object"))
    assert status == 400
    assert ("content-type", "application/json") in headers
    assert json.loads(body) == {
        "error": {
            "message": "send a JSON object",
            "type": "invalid_request_error",
            "param": None,
            "code": "bad_request",
        }
    }


def test_details_stand_beside_what_openai_has() -> None:
    body = json.loads(rendered(RunDiverged("it left the journal", detail={"unread_count": 3}))[2])
    assert body["error"]["agentstate"] == {"unread_count": 3}


@pytest.mark.parametrize("error", [BadRequest("x"), BodyTooLarge("x"), errors.Unauthorized("x"), RunDiverged("x")])
def test_a_decision_tells_sdks_not_to_ask_again(error: AgentStateError) -> None:
    assert along(error)["x-should-retry"] == "false"
    assert "retry-after" not in along(error)


@pytest.mark.parametrize("error", [StoreFull("x"), ShuttingDown("x"), errors.UpstreamCut("x"), AgentStateError("x")])
def test_a_passing_fault_says_when_to_ask_again(error: AgentStateError) -> None:
    assert rendered(error)[0] == 503
    assert 1 <= int(along(error)["retry-after"]) <= 60
    assert "x-should-retry" not in along(error)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.1, "2"), (60.0, "60"), (3600.0, "60")]
)
def test_the_wait_is_a_whole_number_of_seconds_that_clients_heed(seconds: float, said: str) -> None:
    error = AgentStateError("x")
    error.retry_after = seconds
    assert along(error)["retry-after"] == said


def test_what_is_not_there_is_not_asked_for_again() -> None:
    assert along(NotFound("no such session"))["x-should-retry"] == "false"


def test_a_message_of_any_script_survives() -> None:
    text = 'сессия «a"b\\c\n» стоит 🙂'
    assert json.loads(rendered(BadRequest(text))[2])["error"]["message"] == text
