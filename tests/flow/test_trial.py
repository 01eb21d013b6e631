"""A recorded step is tried with another model: asked the same, kept before it is sent, and given to no agent."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat, wires
from tests.support.client import chat_headers, status_of
from tests.support.mailing import TO_BOB, TOOLS
from tests.support.people import Asking
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Upstream, plain, stream

FILE = """
[providers.other]
url = "{other}"
dialects = ["openai"]
key_env = "OTHER_KEY"
[providers.claude]
url = "{other}"
dialects = ["anthropic"]
[providers.far]
url = "https://models.example.com/v1"
dialects = ["openai"]
[[alerts]]
kind = "webhook"
name = "ops"
url = "{other}/hook"
on = ["approval.required", "budget.reached", "session.failed"]
[[prices]]
model = "*"
input = 1.0
output = 2.0
"""
KEY = "sk-test-for-this-call-alone-0123456789"
CLAUDE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-b", "stop_reason": "end_turn",
    "stop_sequence": None, "content": [{"type": "text", "text": "bonjour"}],
    "usage": {"input_tokens": 3, "output_tokens": 2},
}  # fmt: skip


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(lambda seen: plain(chat.completion("hello", name=f"u{seen.number}"))) as running:
        yield running


@pytest.fixture
def other() -> Iterator[Upstream]:
    with Upstream(lambda seen: plain(chat.completion("good day", name=f"o{seen.number}"))) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream, other: Upstream) -> Iterator[Proxy]:
    environment = {"OTHER_KEY": "sk-test-of-the-proxy-0123"}
    with Proxy(tmp_path, upstream.url, file=FILE.format(other=other.url), environment=environment) as running:
        yield running
        assert "Traceback" not in running.log


def attempt(proxy: Proxy, model: str, session: str = "s", step: int = 0, key: str = "") -> Any:
    headers = {"Authorization": f"Bearer {proxy.admin_token}", "Content-Type": "application/json"}
    if key:
        headers["x-provider-key"] = key
    url = f"{proxy.url}/api/sessions/{session}/steps/{step}/try"
    request = urllib.request.Request(url, json.dumps({"model": model}).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


def asked(proxy: Proxy, **more: Any) -> None:
    assert proxy.client.ask("s", "hi", run="r1", model="gpt-4o", **more).status == 200


@pytest.mark.parametrize("streamed", [False, True])
def test_another_provider_is_asked_the_same_with_its_own_key_and_both_answers_are_compared(
    proxy: Proxy, upstream: Upstream, other: Upstream, streamed: bool
) -> None:
    if streamed:
        upstream.script = lambda seen: stream(*chat.chunks("hello"))
    asked(proxy, stream=streamed, temperature=0.5, stream_options={"include_usage": True} if streamed else None)
    found = attempt(proxy, "other/gpt-better")
    [sent] = other.requests
    assert sent.headers.get("authorization") == "Bearer sk-test-of-the-proxy-0123"
    body = sent.json()
    assert (body["model"], body["temperature"], body["messages"]) == (
        "gpt-better", 0.5, [{"role": "user", "content": "hi"}]
    )  # fmt: skip
    assert not body.get("stream")
    assert found["trial"] | {"lost": []} == {
        "session": "s/try-0", "step_number": 0, "provider": "other", "model": "gpt-better", "lost": [], "error": None
    }  # fmt: skip
    texts = [field for field in found["answer"]["fields"] if field["path"] == "text"]
    assert [(field["left"], field["right"]) for field in texts] == [("hello", "good day")]
    assert "model" in [field["path"] for field in found["request"]["fields"]]
    assert found["right"]["cost"] > 0 and found["right"]["latency"] > 0
    [step] = proxy.control.session("s/try-0")["steps"]
    assert (step["state"], step["provider"], step["token_cost"]) == ("completed", "other", found["right"]["cost"])
    assert len(proxy.control.session("s")["steps"]) == 1


def test_a_model_of_another_wire_format_is_asked_in_that_and_its_answer_is_carried_back(
    proxy: Proxy, other: Upstream
) -> None:
    asked(proxy)
    other.script = lambda seen: plain(json.dumps(CLAUDE).encode())
    found = attempt(proxy, "claude/claude-b")
    [sent] = other.requests
    assert sent.target.endswith("/v1/messages") and sent.json()["model"] == "claude-b"
    assert (found["left_text"], found["right_text"]) == ("hello", "bonjour")
    assert found["right"]["model"] == "claude-b"


def test_it_is_in_the_journal_before_a_byte_of_it_leaves_and_a_kill_does_not_lose_that(
    proxy: Proxy, other: Upstream
) -> None:
    asked(proxy)
    gate = Gate()
    other.script = lambda seen: [gate, *plain(chat.completion("late"))]
    Asking(lambda: attempt(proxy, "other/gpt-better"))
    gate.wait_reached()
    [step] = proxy.control.session("s/try-0")["steps"]
    assert step["state"] == "in_flight"
    proxy.restart()
    [step] = proxy.control.session("s/try-0")["steps"]
    assert step["state"] == "interrupted"
    gate.open()


def test_nobody_is_asked_or_told_about_its_tool_calls(proxy: Proxy, upstream: Upstream, other: Upstream) -> None:
    asked(proxy, tools=TOOLS)
    call = chat.tool_call("send_email", TO_BOB)
    other.script = lambda seen: plain(chat.completion("I will.", tool_calls=[call]))
    found = attempt(proxy, "other/gpt-better")
    calls = [field for field in found["answer"]["fields"] if field["path"].startswith("calls")]
    assert [field["right"] for field in calls] == [{"name": "send_email", "arguments": json.loads(TO_BOB)}]
    assert proxy.control.get("/api/approvals/pending") == []
    assert proxy.control.get("/api/alerts") == []
    assert other.calls == 1


def test_a_provider_without_a_key_is_not_asked_and_it_is_said_what_to_do(proxy: Proxy) -> None:
    asked(proxy)
    status, body = status_of(attempt, proxy, "far/gpt-5")
    assert status == 422
    message = json.loads(body)["error"]["message"]
    assert "providers.far.key_env" in message and "x-provider-key" in message
    assert status_of(proxy.control.session, "s/try-0")[0] == 404


def test_a_key_for_one_call_is_sent_and_neither_kept_nor_logged(proxy: Proxy, other: Upstream) -> None:
    asked(proxy)
    other.script = lambda seen: plain(chat.completion(f"you sent {seen.headers.get('authorization')}"))
    found = attempt(proxy, "other/gpt-better", key=KEY)
    assert other.requests[0].headers.get("authorization") == f"Bearer {KEY}"
    assert found["trial"]["error"] is None
    other.script = lambda seen: plain(f'{{"error":{{"message":"bad key {KEY}"}}}}'.encode(), 401)
    assert "bad key" in attempt(proxy, "other/gpt-better", key=KEY)["trial"]["error"]
    proxy.stop()
    assert KEY.encode() not in proxy.stored_bytes() and KEY not in proxy.log


def test_the_provider_that_the_agent_asked_is_not_asked_with_the_agents_key(proxy: Proxy, upstream: Upstream) -> None:
    asked(proxy)
    assert attempt(proxy, "gpt-4o-mini")["trial"]["provider"] == "openai"
    assert "authorization" not in upstream.requests[-1].headers
    assert upstream.requests[-1].json()["model"] == "gpt-4o-mini"


@pytest.mark.parametrize("fault", ["status", "unreadable"])
def test_an_answer_that_is_none_is_kept_as_a_failed_step_and_told(proxy: Proxy, other: Upstream, fault: str) -> None:
    asked(proxy)
    other.script = lambda seen: plain(b'{"error":{"message":"slow down"}}', 429) if fault == "status" else plain(b"{}")
    found = attempt(proxy, "other/gpt-better")
    assert found["trial"]["error"] and found["right"]["state"] == "failed"
    assert other.calls == 1
    [step] = proxy.control.session("s/try-0")["steps"]
    assert step["state"] == "failed" and step["error"] == found["trial"]["error"]


def test_budgets_count_and_where_they_have_no_room_nobody_is_asked(
    tmp_path: Path, upstream: Upstream, other: Upstream
) -> None:
    file = FILE.format(other=other.url) + "[budget]\nday_steps = 2\n"
    with Proxy(tmp_path, upstream.url, file=file, environment={"OTHER_KEY": "sk-test-of-the-proxy-0123"}) as proxy:
        asked(proxy)
        assert attempt(proxy, "other/gpt-better")["trial"]["error"] is None
        status, body = status_of(attempt, proxy, "other/gpt-better")
        assert (status, json.loads(body)["error"]["code"]) == (400, "budget_exceeded")
        assert other.calls == 1
        assert proxy.control.get("/api/approvals/pending") == [] and proxy.control.get("/api/alerts") == []


def test_no_agent_is_given_its_answer_whatever_it_calls_itself(proxy: Proxy, upstream: Upstream) -> None:
    asked(proxy)
    attempt(proxy, "other/gpt-better")
    assert proxy.control.session("s/try-0")["session"]["status"] == "COMPLETED"
    assert "try" in proxy.control.get("/api/sessions/s%2Ftry-0/labels")["labels"]
    answer = proxy.client.ask("s/try-0".replace("/", "%2F"), "hi", run="r1", model="gpt-better")
    assert (answer.outcome, json.loads(answer.body)["choices"][0]["message"]["content"]) == ("live", "hello")


def test_it_is_in_the_audit_log_who_tried_it(proxy: Proxy) -> None:
    asked(proxy)
    attempt(proxy, "other/gpt-better")
    [entry] = [entry for entry in proxy.control.get("/api/audit") if entry["subject"] == "s/try-0"]
    assert entry["actor"] == "admin"


@pytest.mark.parametrize(
    ("model", "step", "status"),
    [("", 0, 400), ("gpt-4o", 9, 404), ("claude/claude-b\n", 0, 200), ("nowhere/x", 0, 200)],
)
def test_what_cannot_be_asked_says_why(
    proxy: Proxy, upstream: Upstream, other: Upstream, model: str, step: int, status: int
) -> None:
    asked(proxy)
    other.script = lambda seen: plain(json.dumps(CLAUDE).encode())
    if status == 200:  # the name of no provider is the name of a model
        assert attempt(proxy, model, step=step)["trial"]["error"] is None
    else:
        assert status_of(attempt, proxy, model, "s", step)[0] == status


def responses(proxy: Proxy, **body: Any) -> None:
    sent = json.dumps({"model": "m", **body}).encode()
    assert proxy.client.send("POST", "/s/s/r/r1/v1/responses", chat_headers(), sent).status == 200


def test_a_request_that_only_points_to_its_conversation_is_sent_whole(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    wire = wires.Responses()
    upstream.script = lambda seen: plain(wire.answer("first said", name=f"resp_{seen.number}"))
    responses(proxy, input="first asked")
    responses(proxy, input="second asked", previous_response_id="resp_0")
    other.script = lambda seen: plain(wire.answer("tried", name="resp_9"))
    assert attempt(proxy, "other/better", step=1)["right_text"] == "tried"
    sent = other.requests[0].json()
    assert "previous_response_id" not in sent
    spelled = json.dumps(sent["input"])
    assert [text in spelled for text in ("first asked", "first said", "second asked")] == [True] * 3


def test_a_request_whose_credentials_are_not_kept_is_not_sent_without_them(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    upstream.script = lambda seen: plain(wires.Responses().answer("ok"))
    tool = {"type": "mcp", "server_label": "m", "server_url": "https://m.example.com", "authorization": KEY}
    responses(proxy, input="x", tools=[tool])
    status, body = status_of(attempt, proxy, "other/better")
    assert status == 422 and "credentials" in json.loads(body)["error"]["message"]
    assert other.calls == 0


def test_the_command_shows_both_answers(proxy: Proxy, other: Upstream) -> None:
    asked(proxy)
    shown = proxy.cli("try", "s", "0", "--model", "other/gpt-better", "--url", proxy.url)
    assert "- hello" in shown.stdout and "+ good day" in shown.stdout
    assert "No agent is given this answer" in " ".join(shown.stdout.split())


def test_a_trial_is_no_example_to_train_on_unless_it_is_asked_for(proxy: Proxy) -> None:
    asked(proxy)
    attempt(proxy, "other/gpt-better")
    told = proxy.control.get("/api/export/report")
    assert (told["lines"], told["left_out"]) == (1, {"step tried with another model, which no agent was given": 1})
    assert proxy.control.get("/api/export/report?session=s%2Ftry-0")["lines"] == 1
    assert proxy.control.get("/api/export/report?label=try")["lines"] == 1


def test_a_trial_stays_out_of_a_session_that_an_agent_has_under_the_name_of_trials(proxy: Proxy) -> None:
    asked(proxy)
    mine = {"x-agent-session-id": "s/try-0"}
    assert proxy.client.ask(None, "mine", headers=mine, model="gpt-4o").status == 200
    assert attempt(proxy, "other/gpt-better")["trial"]["session"] == "s/try-0-2"
    assert attempt(proxy, "other/gpt-better")["trial"]["session"] == "s/try-0-2"
    assert len(proxy.control.session("s/try-0")["steps"]) == 1
