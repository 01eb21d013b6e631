"""A job in the background waits for people like any other answer: whoever looks at it sees it still under way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flow.test_gate_paths import CALL, HARMLESS, LOOKS, QUESTION, SECRET, body_of, look, send
from tests.support import mailing
from tests.support.client import Answer
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain

JOB = "/v1/responses/resp_1"


class Worker:
    """A provider that ends a job as soon as somebody looks at it."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.ended = body_of("completed", *items)

    def __call__(self, seen: Seen) -> Reply:
        begins = seen.method == "POST" and not seen.target.endswith("/cancel")
        return plain(body_of("queued") if begins else self.ended)


@pytest.fixture
def upstream() -> Any:
    with Upstream(Worker(CALL, HARMLESS)) as running:
        yield running


proxy = mailing.proxy


def begin(proxy: Proxy, **more: Any) -> Answer:
    return send(proxy, "/v1/responses", QUESTION | {"background": True}, **more)


def works(answer: Answer) -> bool:
    """Whether the answer says that the job is under way, and nothing of what it came to."""
    said = answer.json()
    assert answer.status == 200 and SECRET not in answer.body and b'"send_email","arg' not in answer.body
    return (said["status"], said["output"], said["id"]) == ("in_progress", [], "resp_1")


@pytest.mark.parametrize("how", LOOKS)
def test_job_whose_call_is_held_is_under_way_until_it_is_approved_however_it_is_looked_at(
    proxy: Proxy, upstream: Upstream, how: str
) -> None:
    begin(proxy)
    assert works(look(proxy, f"{JOB}{how}"))
    [approval] = pending(proxy)
    assert (approval["tool_name"], approval["step_number"]) == ("send_email", 0)
    for other in LOOKS:
        assert works(look(proxy, f"{JOB}{other}"))
        assert works(look(proxy, f"{JOB}{other}", session="another"))
    assert look(proxy, JOB).outcome == "held"
    assert pending(proxy)[0]["id"] == approval["id"]
    decide(proxy, approval, "APPROVED")
    for other in LOOKS:
        assert look(proxy, f"{JOB}{other}").body == body_of("completed", CALL, HARMLESS)
        assert look(proxy, f"{JOB}{other}", session="another").body == body_of("completed", CALL, HARMLESS)
    assert look(proxy, JOB).outcome == "replay"
    assert pending(proxy, 0) == []


@pytest.mark.parametrize("action", ["EDITED", "REJECTED"])
def test_job_is_given_with_what_was_decided_and_never_as_its_provider_keeps_it(
    proxy: Proxy, upstream: Upstream, action: str
) -> None:
    begin(proxy)
    look(proxy, JOB)
    more = {"arguments": {"to": "kim"}} if action == "EDITED" else {"reason": "not to Bob"}
    decide(proxy, pending(proxy)[0], action, **more)
    given = look(proxy, JOB)
    assert given.json()["status"] == "completed" and b"bees" in given.body and SECRET not in given.body
    assert (b"kim" if action == "EDITED" else b"was refused by admin: not to Bob") in given.body
    for how in LOOKS:
        for session in ("s", "another"):
            assert look(proxy, f"{JOB}{how}", session=session).body == given.body
    for path in (f"{JOB}/input_items", "/v1/conversations/conv_7/items"):
        assert look(proxy, path).error["code"] == "approval_unavailable"
    assert look(proxy, "/v1/conversations/conv_7/items", session="another").status == 404


def test_job_that_is_held_is_streamed_to_nobody_and_no_request_goes_on_from_it(
    proxy: Proxy, upstream: Upstream
) -> None:
    begin(proxy)
    look(proxy, JOB)
    [approval] = pending(proxy)
    calls = upstream.calls
    for session in ("s", "another"):
        assert look(proxy, f"{JOB}?stream=true", session=session).error["code"] == "approval_unavailable"
        assert send(proxy, JOB, session=session).error["code"] == "approval_unavailable"
    onward = {"model": "m", "input": "and then?", "previous_response_id": "resp_1"}
    assert send(proxy, "/v1/responses", onward).error["code"] == "approval_unavailable"
    assert upstream.calls == calls
    decide(proxy, approval, "REJECTED")
    assert b"was refused" in look(proxy, JOB).body
    send(proxy, "/v1/responses", onward)
    sent = upstream.requests[-1].json()
    assert "previous_response_id" not in sent and "was refused" in json.dumps(sent["input"])
    assert "bob@example.com" not in json.dumps(sent)


@pytest.mark.parametrize("decided", ["before", "after"])
def test_approval_of_a_job_outlives_agent_and_proxy(proxy: Proxy, upstream: Upstream, decided: str) -> None:
    begun = begin(proxy)
    assert works(look(proxy, JOB))
    [approval] = pending(proxy)
    proxy.kill()
    proxy.restart()
    if decided == "before":
        decide(proxy, approval, "APPROVED")
        proxy.kill()
        proxy.restart()
    calls = upstream.calls
    again = proxy.client.send(
        "POST", "/s/s/r/r2/v1/responses", {"content-type": "application/json"},
        json.dumps(QUESTION | {"background": True}).encode(),
    )  # fmt: skip
    assert (again.outcome, again.body) == ("replay", begun.body)
    if decided == "after":
        assert works(look(proxy, JOB))
        assert pending(proxy)[0]["id"] == approval["id"]
        decide(proxy, approval, "APPROVED")
    assert look(proxy, JOB).body == body_of("completed", CALL, HARMLESS)
    assert upstream.calls == calls
    proxy.doctor()


def test_job_that_nobody_looks_at_is_followed_and_asked_about(proxy: Proxy, upstream: Upstream) -> None:
    begin(proxy)
    [approval] = pending(proxy)
    assert works(look(proxy, JOB))
    decide(proxy, approval, "APPROVED")
    assert look(proxy, JOB).body == body_of("completed", CALL, HARMLESS)


def test_job_of_a_session_that_is_paused_stays_under_way(proxy: Proxy, upstream: Upstream) -> None:
    begin(proxy)
    look(proxy, JOB)
    decide(proxy, pending(proxy)[0], "APPROVED")
    proxy.control.post("/api/sessions/s/status", {"status": "PAUSED"})
    assert works(look(proxy, JOB))
    proxy.control.post("/api/sessions/s/status", {"status": "RUNNING"})
    assert look(proxy, JOB).body == body_of("completed", CALL, HARMLESS)


@pytest.mark.parametrize("mode", ["error", "continue", "deny", "expired"])
def test_refused_job_says_so_as_its_policy_wants(tmp_path: Path, upstream: Upstream, mode: str) -> None:
    rule = {"deny": 'action = "deny"', "expired": "expires_s = 0.3"}.get(mode, f'on_reject = "{mode}"')
    with Proxy(tmp_path, upstream.url, file=f'[[policies]]\ntools = ["send_email"]\n{rule}') as proxy:
        begin(proxy)
        answer = look(proxy, JOB)
        if mode == "deny":
            assert pending(proxy, 0) == []
        elif mode == "expired":
            while works(answer):  # bounded: the time of the approval is over in a moment
                answer = look(proxy, JOB)
        else:
            assert works(answer)
            decide(proxy, pending(proxy)[0], "REJECTED", reason="never")
            answer = look(proxy, JOB)
        assert SECRET not in answer.body
        if mode == "error":
            assert (answer.status, answer.error["code"]) == (403, "human_rejection")
            assert look(proxy, JOB).status == 403
        else:
            assert b"was refused" in answer.body or b"nobody approved" in answer.body
            assert answer.json()["status"] == "completed"


def test_alert_of_a_held_job_is_in_the_outbox_once(tmp_path: Path, upstream: Upstream) -> None:
    target = f'[[alerts]]\nkind = "slack"\nurl = "{upstream.url}/hook"\n'
    with Proxy(tmp_path, upstream.url, file=f'{target}[[policies]]\ntools = ["send_email"]\n') as proxy:
        begin(proxy)
        for _ in range(3):
            assert works(look(proxy, JOB))
        [approval] = pending(proxy)
        [told] = proxy.control.get("/api/alerts")
        assert (told["event"], told["subject"]) == ("approval.required", approval["id"])
