"""Where fallback meets what else a proxy does: keys, usage asked for quietly, budgets, breakers, pauses, stops."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import Answer
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Fin, Gate, Reply, Seen, Upstream, plain, stream
from tests.support.waiting import until

FILE = """
policies = []
[retry]
base_s = 0.02
cap_s = 30.0
[breaker]
failures = 0
[providers.other]
url = "{other}"
dialects = ["openai", "gemini"]
[providers.translated]
url = "{other}"
dialects = ["anthropic"]
[[prices]]
model = "gpt-4o-test"
input = 1.0
output = 2.0
[[prices]]
model = "second"
input = 100.0
output = 200.0
"""
DOWN = plain(b'{"error":{"message":"down"}}', 500)
GONE = plain(b'{"error":{"message":"The model does not exist","code":"model_not_found"}}', 404)
USAGE = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
FALLBACK = {"x-agent-fallback-model": "other/second"}
EVENTS = chat.chunks("hello there")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def proxy(upstream: Upstream, other: Upstream, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(tmp_path, upstream.url, retries=True, file=FILE.format(other=other.url)) as running:
        yield running
        assert "Traceback" not in running.log


def ask(proxy: Proxy, session: str = "s", text: str = "hi", *, run: str = "a", headers: dict[str, str] | None = None,
        **more: Any) -> Answer:  # fmt: skip
    fields = {"content-type": "application/json"} | (FALLBACK if headers is None else headers)
    path = f"/s/{session}/r/{run}/v1/chat/completions" if session else "/v1/chat/completions"
    return proxy.client.send("POST", path, fields, chat.request(text, **more))


def step_of(proxy: Proxy, number: int = 0) -> dict[str, Any]:
    return dict(proxy.control.steps("s")[number])


def counting(seen: Seen) -> Reply:
    """A model that tells its usage where it is asked to."""
    asked = seen.json()
    if not asked.get("stream"):
        return plain(json.dumps(json.loads(chat.completion("hello there")) | {"usage": USAGE}).encode())
    options: Any = asked.get("stream_options") or {}
    told = b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [], "usage": USAGE}).encode() + b"\n\n"
    return stream(*EVENTS[:-1], *([told] if options.get("include_usage") else []), EVENTS[-1])


# --- keys ---


@pytest.mark.parametrize("session", ["s", ""])
def test_a_key_in_the_address_is_sent_to_no_other_provider(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(GONE)
    other.replies(GONE)
    path = f"/s/{session}" if session else ""
    path += "/v1beta/models/gemini-test:generateContent?key=AIza-test-0123456789&alt=json"
    body = b'{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}'
    proxy.client.send("POST", path, {"content-type": "application/json", **FALLBACK}, body)
    [seen] = other.requests
    assert "models/second:generateContent" in seen.target
    assert "AIza-test" not in seen.target
    assert "alt=json" in seen.target


def test_without_a_session_an_agent_is_told_what_its_own_provider_said_where_all_fail(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    """It was given the error of a provider that it had not asked, in that one's wire format."""
    upstream.replies(GONE)
    other.replies(plain(b'{"type":"error","error":{"type":"authentication_error","message":"bad key sk-other"}}', 401))
    answer = ask(proxy, "", headers={"x-agent-fallback-model": "translated/claude-test"})
    assert (answer.status, other.calls) == (404, 1)
    assert answer.json() == {"error": {"message": "The model does not exist", "code": "model_not_found"}}
    assert answer.headers.get("x-agentstate-fallback") is None


# --- usage that was asked for quietly ---


def test_a_candidate_that_does_not_take_the_usage_option_is_asked_without_it(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    refusal = json.dumps({"error": {"message": "Unrecognized request argument supplied: stream_options"}}).encode()
    upstream.replies(GONE, GONE)
    other.script = lambda seen: plain(refusal, 400) if "stream_options" in seen.json() else counting(seen)
    assert ask(proxy, stream=True).body == b"".join(EVENTS)
    assert ask(proxy, text="more", stream=True).body == b"".join(EVENTS)
    assert ["stream_options" in seen.json() for seen in other.requests] == [True, False, False]
    assert upstream.requests[1].json()["stream_options"] == {"include_usage": True}, "its own provider takes it"


def test_a_provider_that_refuses_the_usage_option_after_another_failure_is_asked_without_it(
    proxy: Proxy, upstream: Upstream
) -> None:
    refusal = json.dumps({"error": {"message": "Unrecognized request argument supplied: stream_options"}}).encode()

    def script(seen: Seen) -> Reply:
        if seen.number == 0:
            return DOWN
        return plain(refusal, 400) if "stream_options" in seen.json() else counting(seen)

    upstream.script = script
    assert ask(proxy, stream=True, headers={}).body == b"".join(EVENTS)


def test_a_candidate_that_tells_usage_unasked_gives_the_same_bytes_live_and_replayed(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    upstream.replies(GONE)
    other.script = counting
    live = ask(proxy, stream=True)
    assert live.body == b"".join(EVENTS)
    step = step_of(proxy)
    assert step["usage"] == USAGE
    again = ask(proxy, run="b", stream=True)
    assert (again.outcome, again.body) == ("replay", live.body)
    for name in ("x-agentstate-fallback", "x-agentstate-model"):
        assert again.headers.get(name) == live.headers.get(name)


# --- what is told and what it cost ---


def test_an_answer_that_names_no_model_is_priced_by_the_one_that_was_asked(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    upstream.replies(GONE)
    nameless = {key: value for key, value in json.loads(chat.completion("hi")).items() if key != "model"}
    other.replies(plain(json.dumps(nameless | {"usage": USAGE}).encode()))
    live = ask(proxy)
    assert live.headers.get("x-agentstate-model") == "second"
    assert step_of(proxy)["token_cost"] == pytest.approx((1000 * 100.0 + 500 * 200.0) / 1e6)
    again = ask(proxy, run="b")
    assert again.outcome == "replay"
    assert again.headers.get("x-agentstate-model") == "second"


def test_where_its_own_provider_has_the_last_word_nobody_else_is_said_to_have_answered(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    upstream.replies(GONE)
    other.replies(GONE)
    answer = ask(proxy)
    assert answer.status == 404
    assert answer.headers.get("x-agentstate-fallback") is None
    assert answer.headers.get("x-agentstate-model") == "gpt-4o-test"


def test_every_attempt_that_told_a_cost_is_counted_where_a_stream_is_cut_and_goes_elsewhere(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    usage = b'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-test","choices":[],"usage":%s}\n\n'
    upstream.script = lambda seen: stream(EVENTS[0], usage % json.dumps(USAGE).encode(), Fin(), finish=False)
    other.script = counting
    assert ask(proxy, stream=True).status == 200
    one = (1000 * 1.0 + 500 * 2.0) / 1e6
    tries = step_of(proxy)["tries"]
    assert [row["cost"] for row in tries[:-1]] == [pytest.approx(one)] * (len(tries) - 1)
    total = sum(row["cost"] for row in tries)
    assert proxy.control.session("s")["session"]["cost"] == pytest.approx(total)


# --- breakers and calls without a session ---


BREAKING = (
    FILE.replace("failures = 0", "failures = 2\nopen_s = 30")
    + """
[[routes]]
model = "routed"
fallback = ["other/second"]
"""
)


def test_calls_without_a_session_open_breakers_and_go_round_what_is_down(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    upstream.script = lambda seen: plain(b'{"error":{"message":"down"}}', 503)
    with Proxy(tmp_path, upstream.url, file=BREAKING.format(other=other.url)) as proxy:
        for text in ("one", "two", "three"):
            assert ask(proxy, "", text, headers={}, model="routed").status == 200
        assert (upstream.calls, other.calls) == (2, 3)
        [shown] = proxy.control.get("/api/stats")["breakers"]
        assert (shown["model"], shown["state"]) == ("routed", "open")
        assert ask(proxy, "s", "four", headers={}, model="routed").status == 200
        assert (upstream.calls, other.calls) == (2, 4), "one breaker for all calls"
        assert ask(proxy, "", headers={}, model="lonely").status == 503
        assert ask(proxy, "", headers={}, model="lonely").status == 503
        assert ask(proxy, "", headers={}, model="lonely").status == 503
        assert upstream.calls == 5, "who has no other way is still sent"
        upstream.replies()
        assert ask(proxy, "", headers={}, model="lonely").status == 200
        assert [row["model"] for row in proxy.control.get("/api/stats")["breakers"]] == ["routed"]


def test_a_stream_without_a_session_that_breaks_off_counts_against_its_model(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    upstream.script = lambda seen: stream(*EVENTS[:3], Fin(), finish=False)
    with Proxy(tmp_path, upstream.url, file=BREAKING.format(other=other.url)) as proxy:
        for _ in range(2):
            connection = proxy.client.connect()
            with connection:
                connection.request("POST", "/v1/chat/completions", {"content-type": "application/json"},
                                   chat.request("hi", model="routed", stream=True))  # fmt: skip
                connection.read_head()
                assert connection.read_body()[1] is False
        until(lambda: [row["state"] for row in proxy.control.get("/api/stats")["breakers"]] == ["open"])


# --- what people do between two attempts ---


def limited(seconds: float) -> list[Any]:
    return plain(b'{"error":{"message":"slow down"}}', 429, headers=[("retry-after", str(seconds))])


def between_attempts(proxy: Proxy) -> None:
    """Until the second attempt has ended, and its wait begun."""
    until(lambda: [row["status"] for row in step_of(proxy)["tries"]] == [429, 429])


def status(proxy: Proxy, wanted: str) -> None:
    proxy.control.post("/api/sessions/s/status", {"status": wanted})


def test_a_session_that_is_paused_between_two_attempts_sends_no_more(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(limited(0.01), limited(1.5))
    waiting = Asking(lambda: ask(proxy, headers={}))
    upstream.wait_calls(2)
    between_attempts(proxy)
    status(proxy, "PAUSED")
    answer = waiting.answer()
    assert (answer.status, answer.error["code"], upstream.calls) == (400, "session_paused", 2)
    status(proxy, "RUNNING")
    again = ask(proxy, headers={})
    assert (again.status, again.step, upstream.calls) == (200, 0, 3), "the same step is tried again"


def test_a_step_that_is_rolled_back_between_two_attempts_is_not_sent_again(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(limited(0.01), limited(1.5))
    waiting = Asking(lambda: ask(proxy, headers={}))
    upstream.wait_calls(2)
    between_attempts(proxy)
    proxy.control.post("/api/sessions/s/reset", {"step_number": 0})
    answer = waiting.answer()
    assert (answer.status, upstream.calls) == (409, 2)
    assert "rolled back" in answer.error["message"]


def test_a_stop_does_not_wait_for_the_next_attempt(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(limited(0.01), limited(25))
    waiting = Asking(lambda: ask(proxy, headers={}))
    upstream.wait_calls(2)
    between_attempts(proxy)
    began = time.monotonic()
    proxy.stop()
    assert time.monotonic() - began < 8
    answer = waiting.answer()
    assert (answer.status, answer.error["code"]) == (503, "shutting_down")
    proxy.start()
    again = ask(proxy, headers={})
    assert (again.status, again.step, upstream.calls) == (200, 0, 3)


def test_a_stop_does_not_wait_for_turns_that_calls_wait_for(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    gate = Gate()
    upstream.script = lambda seen: [gate, *plain(chat.completion("hi"))]
    file = FILE.format(other=other.url) + "[providers.openai]\nmax_concurrent = 1\n"
    with Proxy(tmp_path, upstream.url, retries=True, file=file) as proxy:
        first = Asking(lambda: ask(proxy, "s", "one", headers={}))
        upstream.wait_calls(1)
        second, third = (Asking(lambda name=name: ask(proxy, name, "two", headers={})) for name in ("t", ""))
        until(lambda: proxy.control.get("/api/stats")["queues"][0]["waiting"] == 2)
        os.kill(proxy.pid, signal.SIGTERM)
        assert {second.answer().status, third.answer().status} == {503}
        gate.open()
        assert first.answer().status == 200, "what was under way comes to its end"
        assert upstream.calls == 1


# --- thinking that another provider cannot check ---


def test_thinking_that_another_provider_signed_is_not_sent_to_a_candidate_and_stays_in_the_journal(
    proxy: Proxy, upstream: Upstream, other: Upstream
) -> None:
    """A fallback was refused with 400 for the signature of thinking that it had not written."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "hello"}]}
    body = json.dumps({"model": "claude-test", "max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"}, said, {"role": "user", "content": "go on"}]}).encode()  # fmt: skip
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-b",
              "content": [{"type": "text", "text": "bonjour"}], "stop_reason": "end_turn", "stop_sequence": None,
              "usage": {"input_tokens": 3, "output_tokens": 2}}  # fmt: skip
    upstream.replies(plain(b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', 529,
                           headers=[("x-should-retry", "false")]))  # fmt: skip
    other.replies(plain(json.dumps(answer).encode()))
    headers = {"content-type": "application/json", "x-agent-fallback-model": "translated/claude-b"}
    live = proxy.client.send("POST", "/s/s/r/a/v1/messages", headers, body)
    assert live.status == 200
    assert b'"signature"' in upstream.requests[0].body
    assert other.requests[0].json()["messages"][1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "hello"}],
    }
    told = live.headers.get("x-agentstate-fallback") or ""
    assert told.endswith("; lost=thinking (foreign signature)")
    again = proxy.client.send("POST", "/s/s/r/b/v1/messages", headers, body)
    assert (again.outcome, again.body, again.headers.get("x-agentstate-fallback")) == ("replay", live.body, told)
    assert "c2ln" in step_of(proxy)["prompt"]


# --- heartbeats ---

CLAUDE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-b",
          "content": [{"type": "text", "text": "bonjour"}], "stop_reason": "end_turn", "stop_sequence": None,
          "usage": {"input_tokens": 3, "output_tokens": 2}}  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_a_streaming_client_gets_heartbeats_while_a_translated_answer_is_awaited(
    proxy: Proxy, upstream: Upstream, other: Upstream, fails: bool
) -> None:
    gate = Gate()
    late = plain(b'{"error":{"message":"no"}}', 400) if fails else plain(json.dumps(CLAUDE).encode())
    upstream.replies(GONE)
    other.replies([gate, *late])
    headers = {"content-type": "application/json", "x-agent-fallback-model": "translated/claude-b",
               "x-stainless-read-timeout": "3"}  # fmt: skip
    with proxy.client.connect() as connection:
        path = "/s/s/r/a/v1/chat/completions"
        connection.request("POST", path, headers, chat.request("hi", stream=True))
        status, head = connection.read_head()
        assert status == 200
        assert dict((name.lower(), value) for name, value in head)["x-agentstate-outcome"] == "live"
        connection.read_until(b": ")
        gate.open()
        body, whole = connection.read_body()
    assert whole
    assert body.endswith(chat.DONE) is not fails
    if fails:
        assert b'"error"' in body
        return
    assert b"bonjour" in body
    again = ask(proxy, headers=headers, run="b", stream=True)
    assert (again.outcome, again.body) == ("replay", body[body.index(b"data: ") :])


# --- budgets ---


def test_a_candidate_that_costs_more_than_the_budget_has_left_is_not_asked(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    """What was reserved for the model that was asked is no room for one that costs a hundred times as much."""
    upstream.script = lambda seen: GONE
    other.script = counting
    file = FILE.format(other=other.url) + '[budget]\nsession_usd = 0.01\nat_limit = "deny"\n'
    with Proxy(tmp_path, upstream.url, retries=True, file=file) as proxy:
        answer = ask(proxy, max_tokens=500)
        assert (answer.status, answer.error["code"], other.calls) == (400, "budget_exceeded", 0)
        assert ask(proxy, text="cheaper", max_tokens=5).status == 200
        assert other.calls == 1


def test_a_call_that_a_person_let_through_goes_to_its_fallback_too(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    upstream.script = lambda seen: GONE
    other.script = counting
    file = FILE.format(other=other.url) + '[budget]\nsession_usd = 0.001\nat_limit = "hold"\n'
    with Proxy(tmp_path, upstream.url, retries=True, file=file) as proxy:
        waiting = Asking(lambda: ask(proxy, max_tokens=5000))
        decide(proxy, pending(proxy)[0], "APPROVED")
        answer = waiting.answer()
        assert (answer.status, other.calls) == (200, 1)
        assert (answer.headers.get("x-agentstate-fallback") or "").startswith("other/second")
        again = ask(proxy, run="b", max_tokens=5000)
        assert (again.outcome, again.body) == ("replay", answer.body.lstrip())
        for name in ("x-agentstate-fallback", "x-agentstate-model"):
            assert again.headers.get(name) == answer.headers.get(name)


def test_what_a_lost_answer_cost_is_counted_before_it_is_asked_for_once_more(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    usage = b'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-test","choices":[],"usage":%s}\n\n'
    upstream.script = lambda seen: stream(EVENTS[0], usage % json.dumps(USAGE).encode(), Fin(), finish=False)
    file = FILE.format(other=other.url) + '[budget]\nsession_usd = 0.003\nat_limit = "deny"\n'
    with Proxy(tmp_path, upstream.url, retries=True, file=file) as proxy:
        answer = ask(proxy, headers={}, stream=True, max_tokens=1000)
        assert (answer.status, answer.error["code"], upstream.calls) == (400, "budget_exceeded", 1)
        assert proxy.control.session("s")["session"]["cost"] == pytest.approx(0.002)


# --- what a stop cuts ---


def test_a_stream_that_a_stop_cuts_carries_the_cost_that_had_come(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    usage = b'data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-test","choices":[],"usage":%s}\n\n'
    upstream.replies(stream(*EVENTS[:2], usage % json.dumps(USAGE).encode(), Gate(), finish=False))
    file = FILE.format(other=other.url) + "[server]\nshutdown_grace_s = 0.2\n"
    with Proxy(tmp_path, upstream.url, file=file) as proxy:
        with proxy.client.start("s", "hi", run="a", stream=True) as connection:
            connection.read_head()
            connection.read_until(b"hello")
            until(lambda: proxy.control.steps("s") != [])
            proxy.stop()
        proxy.start()
        step = step_of(proxy)
        assert (step["state"], step["token_cost"]) == ("interrupted", pytest.approx(0.002))


# --- the gate ---


@pytest.mark.parametrize("streamed", [False, True])
def test_a_translated_answer_that_is_held_survives_a_restart_is_edited_and_replayed_as_it_was_given(
    upstream: Upstream, other: Upstream, tmp_path: Path, streamed: bool
) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "send_email", "input": {"to": "a@example.com"}}
    upstream.replies(GONE)
    other.replies(plain(json.dumps(CLAUDE | {"content": [call], "stop_reason": "tool_use"}).encode()))
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "send_email", "parameters": schema}}]
    headers = {"x-agent-fallback-model": "translated/claude-b"}
    file = FILE.format(other=other.url).replace("policies = []\n", "")
    with Proxy(tmp_path, upstream.url, file=file) as proxy:
        Asking(lambda: ask(proxy, headers=headers, tools=tools, stream=streamed))
        [held] = pending(proxy)
        proxy.kill()
        proxy.start()
        decide(proxy, held, "EDITED", arguments={"to": "b@example.com"})
        live = ask(proxy, headers=headers, tools=tools, stream=streamed)
        assert b"b@example.com" in live.body
        assert b"a@example.com" not in live.body
        assert (live.headers.get("x-agentstate-fallback") or "").startswith("translated/claude-b")
        again = ask(proxy, run="b", headers=headers, tools=tools, stream=streamed)
        assert again.body == live.body.lstrip()
        for name in ("x-agentstate-fallback", "x-agentstate-model"):
            assert again.headers.get(name) == live.headers.get(name)
    assert (upstream.calls, other.calls) == (1, 1), "nothing was paid twice"


def test_an_edit_is_told_once_where_a_request_that_only_points_back_goes_elsewhere(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    def answered(number: int, *output: dict[str, Any]) -> list[Any]:
        return plain(json.dumps({"id": f"resp_{number}", "object": "response", "status": "completed",
                                 "model": "gpt-4o-test", "output": list(output)}).encode())  # fmt: skip

    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "send_email", "status": "completed",
            "arguments": '{"to":"a@example.com"}'}  # fmt: skip
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "sent", "annotations": []}]}  # fmt: skip
    upstream.replies(answered(1, call), GONE)
    other.replies(answered(2, said))
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    tools = [{"type": "function", "name": "send_email", "parameters": schema}]
    headers = {"content-type": "application/json", **FALLBACK}
    file = FILE.format(other=other.url).replace("policies = []\n", "")

    def post(body: dict[str, Any]) -> Answer:
        raw = json.dumps({"model": "gpt-4o-test", "tools": tools, **body}).encode()
        return proxy.client.send("POST", "/s/s/r/a/v1/responses", headers, raw)

    with Proxy(tmp_path, upstream.url, file=file) as proxy:
        first = Asking(lambda: post({"input": "write"}))
        decide(proxy, pending(proxy)[0], "EDITED", arguments={"to": "b@example.com"})
        assert b"b@example.com" in first.answer().body
        result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
        assert post({"previous_response_id": "resp_1", "input": [result]}).status == 200
    sent = [json.loads(seen.body) for seen in (upstream.requests[1], other.requests[0])]
    assert sent[1] == sent[0] | {"model": "second"}
    assert "previous_response_id" not in sent[1]
    text = json.dumps(sent[1]["input"])
    assert (text.count("b@example.com"), text.count("Note: "), text.count("done")) == (1, 1, 1)
