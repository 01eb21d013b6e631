"""Failed attempts: tried again, led elsewhere, or told to the agent as they are. The names are symptoms that users of
neighbouring systems met."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import Answer
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.translating_server import COMMAND
from tests.support.upstream import Fin, Gate, Hang, Rst, Step, Upstream, plain, stream

FILE = """
policies = []
[retry]
base_s = 0.02
cap_s = 2.0
hold_back_s = 5.0
[breaker]
failures = 0
[providers.other]
url = "{other}"
dialects = ["openai"]
[providers.elsewhere]
url = "http://elsewhere.invalid/v1"
dialects = ["openai"]
[providers.translated]
url = "{other}"
dialects = ["anthropic"]
[[routes]]
model = "routed*"
fallback = ["elsewhere/unreachable", "other/second"]
[[routes]]
model = "strict*"
fallback = ["translated/claude-test"]
strict = true
"""
BUSY = plain(b'{"error":{"message":"slow down"}}', 429)
DOWN = plain(b'{"error":{"message":"down"}}', 500)
GONE = plain(b'{"error":{"message":"The model does not exist","code":"model_not_found"}}', 404)
LONG = plain(b'{"error":{"message":"too long","code":"context_length_exceeded"}}', 400)
ROLE = chat.chunks("hello")[0]


def limited(**headers: str) -> list[Step]:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return plain(b'{"error":{"message":"slow down"}}', 429, headers=named)


@pytest.fixture(scope="module")
def shared_other() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def other(shared_other: Upstream) -> Upstream:
    shared_other.reset()
    return shared_other


@pytest.fixture(scope="module")
def proxy(
    shared_upstream: Upstream, shared_other: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    file = FILE.format(other=shared_other.url)
    folder = tmp_path_factory.mktemp("proxy") / "data"
    with Proxy(folder, shared_upstream.url, retries=True, file=file, command=COMMAND) as running:
        yield running


def ask(
    proxy: Proxy, session: str, text: str = "hi", *, run: str = "a", headers: dict[str, str] | None = None, **more: Any
) -> Answer:
    fields = {"content-type": "application/json"} | (headers or {})
    path = f"/s/{session}/r/{run}/v1/chat/completions" if session else "/v1/chat/completions"
    return proxy.client.send("POST", path, fields, chat.request(text, **more))


def tries(proxy: Proxy, session: str, number: int = 0) -> list[dict[str, Any]]:
    return list(proxy.control.steps(session)[number]["tries"])


FALLBACK = {"x-agent-fallback-model": "other/second"}


# --- retries ---


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_passing_error_is_tried_again_and_every_attempt_is_journaled(
    proxy: Proxy, upstream: Upstream, session: str, status: int, streamed: bool
) -> None:
    upstream.replies(plain(b'{"error":{"message":"passing"}}', status))
    answer = ask(proxy, session, stream=streamed)
    assert (answer.status, answer.outcome, upstream.calls) == (200, "live", 2)
    [first, second] = tries(proxy, session)
    assert (first["status"], second["status"]) == (status, 200)
    assert "passing" in first["error"]
    assert "tried again after" in second["why"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_an_error_that_trying_again_cannot_mend_is_given_on_at_once(
    proxy: Proxy, upstream: Upstream, session: str, status: int
) -> None:
    body = b'{"error":{"message":"no"}}'
    upstream.replies(plain(body, status))
    answer = ask(proxy, session)
    assert (answer.status, answer.body, upstream.calls) == (status, body, 1)


def test_after_the_last_attempt_the_providers_own_answer_is_given_with_its_headers(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    upstream.replies(*[limited(retry_after_ms="10", x_request_id="r")] * 3)
    answer = ask(proxy, session)
    assert (answer.status, upstream.calls) == (429, 3)
    assert answer.headers.get("retry-after-ms") == "10"
    assert len(tries(proxy, session)) == 3


@pytest.mark.parametrize("header", ["retry-after", "retry-after-ms", "date"])
def test_retry_after_is_honoured_in_every_form(proxy: Proxy, upstream: Upstream, session: str, header: str) -> None:
    import time

    value = {"retry-after": ("retry-after", "0.3"), "retry-after-ms": ("retry-after-ms", "300")}.get(header)
    if value is None:
        value = ("retry-after", formatdate(int(time.time()) + 2, usegmt=True))
    upstream.replies(plain(b"{}", 429, headers=[value]))
    began = time.monotonic()
    assert ask(proxy, session).status == 200
    assert time.monotonic() - began >= (0.3 if header != "date" else 0.5)


def test_a_wait_above_the_cap_is_left_to_the_agent_or_goes_to_the_fallback(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(limited(retry_after="60"), limited(retry_after="60"))
    alone = ask(proxy, session)
    assert (alone.status, alone.headers.get("retry-after"), upstream.calls) == (429, "60", 1)
    led = ask(proxy, session, "else", headers=FALLBACK)
    assert (led.status, upstream.calls, other.calls) == (200, 2, 1)
    assert led.headers.get("x-agentstate-fallback") == "other/second; because=rate_limit 429"


def test_a_client_that_tries_again_itself_is_not_multiplied(proxy: Proxy, upstream: Upstream, session: str) -> None:
    upstream.replies(*[DOWN] * 5)
    assert ask(proxy, session, headers={"x-stainless-retry-count": "1"}).status == 500
    assert upstream.calls == 1


def test_a_closed_connection_is_asked_for_once_more_not_again_and_again(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    """A connection closed early, tried again by each layer, had four generations paid for."""
    upstream.replies([Fin()], [Fin()], [Fin()], [Fin()])
    answer = ask(proxy, session)
    assert (answer.status, upstream.calls) == (503, 2)
    assert answer.error["code"] == "upstream_cut"
    assert [row["status"] for row in tries(proxy, session)] == [0, 0]


def test_a_lost_answer_of_a_provider_that_may_have_acted_is_not_asked_for_again(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    upstream.replies([Rst()], DOWN)
    tools = [{"type": "mcp", "server_label": "x", "server_url": "https://x.example"}]
    body = json.dumps({"model": "gpt-5", "input": "hi", "tools": tools}).encode()
    path = f"/s/{session}/r/a/v1/responses"
    for _ in range(2):
        answer = proxy.client.send("POST", path, {"content-type": "application/json", **FALLBACK}, body)
        assert answer.status in (500, 503)
    assert upstream.calls == 2


def test_the_second_wait_follows_from_the_second_answer(proxy: Proxy, upstream: Upstream, session: str) -> None:
    """A wait taken from a stale error made retries twelve times too fast."""
    import time

    upstream.replies(limited(retry_after_ms="10"), limited(retry_after_ms="400"))
    began = time.monotonic()
    assert ask(proxy, session).status == 200
    assert time.monotonic() - began >= 0.4
    assert "after 0.40 s" in tries(proxy, session)[2]["why"]


def test_an_answer_that_is_too_large_is_not_asked_for_again(upstream: Upstream, tmp_path: Path) -> None:
    large = {"server.max_answer_bytes": 2048}
    with Proxy(tmp_path, upstream.url, retries=True, settings=large) as proxy:
        upstream.script = lambda seen: plain(chat.completion("x" * 4096))
        answer = ask(proxy, "s", headers=FALLBACK)
        assert (answer.status, upstream.calls) == (503, 1)
        assert "max_answer_bytes" in answer.error["message"]


# --- streams ---


def test_a_stream_that_fails_after_its_opening_is_replaced_by_another_attempts(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    """A fallback was lost as soon as lifecycle frames had come."""
    upstream.replies(stream(ROLE, Fin(), finish=False))
    answer = ask(proxy, session, stream=True)
    assert (answer.status, answer.complete, upstream.calls) == (200, True, 2)
    assert answer.body.count(b'"role": "assistant"') == 1
    assert answer.body.endswith(chat.DONE)


def test_a_stream_that_fails_after_its_first_word_is_never_asked_for_again(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    """A retry after output had gone out doubled it."""
    upstream.replies(stream(*chat.chunks("one two")[:2], Fin(), finish=False))
    answer = ask(proxy, session, stream=True, headers=FALLBACK)
    assert upstream.calls == 1
    assert answer.body.count(b'"one"') == 1
    assert answer.stream_error["code"] == "upstream_cut"


def test_an_error_event_within_a_stream_is_no_success(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    failing = stream(ROLE, b'data: {"error":{"message":"overloaded","type":"overloaded_error"}}\n\n', chat.DONE)
    upstream.replies(failing, failing, failing)
    answer = ask(proxy, session, stream=True, headers=FALLBACK)
    assert (answer.status, upstream.calls, other.calls) == (200, 3, 1)
    assert answer.body.endswith(chat.DONE)
    assert b"overloaded" not in answer.body
    assert answer.headers.get("x-agentstate-fallback") == "other/second; because=overloaded"


def test_where_all_targets_fail_nobody_is_told_200(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    """Both targets failed, yet the client got 200 and a start event."""
    upstream.replies(*[stream(ROLE, Fin(), finish=False)] * 3)
    other.replies(*[DOWN] * 3)
    answer = ask(proxy, session, stream=True, headers=FALLBACK)
    assert answer.status == 503
    assert answer.error["code"] == "candidates_failed"
    assert "other/second" in answer.error["message"]


def test_the_opening_is_let_out_in_time_where_the_model_thinks_for_long(
    shared_upstream: Upstream, upstream: Upstream, tmp_path: Path
) -> None:
    gate = Gate()
    file = "policies = []\n[retry]\nhold_back_s = 0.1\n"
    with Proxy(tmp_path, upstream.url, retries=True, file=file) as proxy:
        upstream.replies(stream(ROLE, gate, *chat.chunks("hello")[1:]))
        with proxy.client.start("s", "hi", run="a", stream=True) as connection:
            assert connection.read_head()[0] == 200
            connection.read_until(b"assistant")
            gate.open()
            body, whole = connection.read_body()
            assert whole
            assert body.endswith(chat.DONE)
    assert upstream.calls == 1


# --- fallback ---


@pytest.mark.parametrize("reply", [GONE, LONG], ids=["gone", "long"])
@pytest.mark.parametrize("streamed", [False, True])
def test_what_no_retry_mends_goes_to_the_next_candidate_at_once(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str, reply: list[Step], streamed: bool
) -> None:
    """A fallback worked only without streaming."""
    upstream.replies(reply)
    body = chat.request("hi", stream=streamed, seed=1, x_new={"kept": 1.10})
    path = f"/s/{session}/r/a/v1/chat/completions"
    answer = proxy.client.send("POST", path, {"content-type": "application/json", **FALLBACK}, body)
    assert (answer.status, upstream.calls, other.calls) == (200, 1, 1)
    asked = other.requests[0].body.replace(b'"stream_options":{"include_usage":true},', b"")
    assert asked == body.replace(b'"gpt-4o-test"', b'"second"')
    [first, second] = tries(proxy, session)
    assert (first["provider"], second["provider"], second["candidate"]) == ("openai", "other", "other/second")
    assert first["why"] is None


def test_the_command_line_shows_the_attempts_of_a_step(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(limited(retry_after_ms="10"), GONE)
    ask(proxy, session, headers=FALLBACK)
    shown = proxy.cli("show", session, "--step", "0").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.startswith("attempt 1: openai 429 HTTP 429") for line in lines), shown
    assert any(line.startswith("attempt 2: openai 404 rate_limit 429: HTTP 429") for line in lines), shown
    assert any(line.startswith("attempt 3: other/second 200 model_gone 404") for line in lines), shown


@pytest.mark.parametrize("streamed", [False, True])
def test_a_replay_says_who_answered_as_the_live_answer_did(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str, streamed: bool
) -> None:
    upstream.replies(GONE)
    live = ask(proxy, session, stream=streamed, headers=FALLBACK)
    again = ask(proxy, session, run="b", stream=streamed, headers=FALLBACK)
    assert live.headers.get("x-agentstate-model") == chat.MODEL, "the model that the provider names"
    assert (again.outcome, again.body) == ("replay", live.body)
    for header in ("x-agentstate-fallback", "x-agentstate-model"):
        assert again.headers.get(header) == live.headers.get(header) is not None
    assert other.calls == 1


def test_a_route_goes_on_past_a_candidate_that_has_no_key(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(GONE)
    answer = ask(proxy, session, model="routed-model", headers={"authorization": "Bearer sk-test-0123456789abcdef"})
    assert answer.headers.get("x-agentstate-fallback") == "other/second; because=model_gone 404"
    assert "elsewhere.key_env" in proxy.log


def test_a_candidate_at_another_provider_is_never_sent_the_agents_key(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(GONE)
    secret = {"authorization": "Bearer sk-test-0123456789abcdef", "openai-organization": "org-test", **FALLBACK}
    assert ask(proxy, session, headers=secret).status == 200
    assert b"sk-test" not in other.requests[0].raw_head
    assert other.requests[0].headers.get("openai-organization") is None


def test_a_request_that_asks_for_no_fallback_gets_none(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    """The request's opt-out of fallback was ignored."""
    upstream.replies(GONE)
    answer = ask(proxy, session, model="routed-model", headers={"x-agent-fallback-model": "none"})
    assert (answer.status, other.calls) == (404, 0)


def test_where_the_fallback_fails_too_the_agent_is_told_what_its_own_provider_said(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(LONG)
    other.replies(plain(b'{"error":{"message":"Incorrect API key"}}', 401))
    answer = ask(proxy, session, headers=FALLBACK)
    assert (answer.status, answer.body) == (400, LONG[1])
    again = ask(proxy, session, headers=FALLBACK)
    assert again.status in (200, 400)
    assert "401" in tries(proxy, session)[1]["error"]


def test_where_nobody_said_anything_of_use_the_agent_is_told_what_each_did(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies([Fin()], [Fin()])
    other.replies(plain(b'{"error":{"message":"Incorrect API key"}}', 401))
    answer = ask(proxy, session, headers=FALLBACK)
    assert (answer.status, answer.error["code"]) == (503, "candidates_failed")
    assert "closed the connection" in answer.error["message"]
    assert "401" in answer.error["message"]
    assert (upstream.calls, other.calls) == (2, 1)


def test_a_candidate_that_refuses_is_asked_once_where_the_asked_one_cannot_be_reached(
    upstream: Upstream, other: Upstream, tmp_path: Path
) -> None:
    other.replies(plain(b'{"error":{"message":"Incorrect API key"}}', 401))
    file = FILE.format(other=other.url)
    with Proxy(tmp_path, "http://127.0.0.1:1/v1", retries=True, file=file) as proxy:
        answer = ask(proxy, "s", headers=FALLBACK)
        assert (answer.status, answer.error["code"], other.calls) == (503, "candidates_failed", 1)
        assert [row["provider"] for row in tries(proxy, "s")] == ["openai"] * 3 + ["other"]


@pytest.mark.parametrize("limited_turns", [False, True])
def test_an_attempt_that_takes_too_long_is_a_lost_answer(
    upstream: Upstream, tmp_path: Path, limited_turns: bool
) -> None:
    limits = {"retry.attempt_timeout_s": 0.3, "retry.base_s": 0.01}
    turns = {"providers.openai.max_concurrent": 1} if limited_turns else {}
    with Proxy(tmp_path, upstream.url, retries=True, settings=limits | turns) as proxy:
        upstream.replies(stream(ROLE, Hang(), finish=False), [Hang()])
        answer = ask(proxy, "s", stream=True)
        assert (answer.status, answer.error["code"], upstream.calls) == (503, "upstream_timeout", 2)
        assert proxy.control.steps("s")[0]["state"] == "failed"
        upstream.replies([Hang()])
        assert ask(proxy, "s", "else").status == 200
        assert "Traceback" not in proxy.log


def test_vectors_are_never_taken_from_another_model(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    upstream.replies(GONE)
    body = json.dumps({"model": "routed-model", "input": "hi"}).encode()
    path = f"/s/{session}/r/a/v1/embeddings"
    answer = proxy.client.send("POST", path, {"content-type": "application/json", **FALLBACK}, body)
    assert (answer.status, other.calls) == (404, 0)


# --- translation ---


def claude(text: str = "bonjour") -> list[Step]:
    body = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-2",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    return plain(json.dumps(body).encode())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_candidate_that_speaks_another_wire_format_answers_in_the_agents_own(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str, streamed: bool
) -> None:
    upstream.replies(GONE)
    other.replies(claude())
    headers = {"x-agent-fallback-model": "translated/claude-test", "authorization": "Bearer sk-test-0123456789abcdef"}
    live = ask(proxy, session, stream=streamed, headers=headers, logit_bias={"1": 1})
    assert live.status == 200
    assert b"bonjour" in live.body
    assert live.body.endswith(chat.DONE) is streamed
    told = live.headers.get("x-agentstate-fallback") or ""
    assert told.startswith("translated/claude-test; because=model_gone 404; lost=")
    assert "logit_bias" in told
    assert live.headers.get("x-agentstate-model") == "claude-test-2"
    [seen] = other.requests
    assert seen.target == "/v1/messages"
    assert seen.json()["model"] == "claude-test"
    assert "stream" not in seen.json() or seen.json()["stream"] is False
    assert seen.headers.get("anthropic-version")
    assert b"sk-test" not in seen.raw_head
    again = ask(proxy, session, run="b", stream=streamed, headers=headers, logit_bias={"1": 1})
    assert (again.outcome, again.body) == ("replay", live.body)
    for header in ("x-agentstate-fallback", "x-agentstate-model"):
        assert again.headers.get(header) == live.headers.get(header)
    [_, second] = tries(proxy, session)
    assert "logit_bias" in second["lost"]


def test_a_route_that_is_strict_leaves_out_who_would_lose_something(
    proxy: Proxy, upstream: Upstream, other: Upstream, session: str
) -> None:
    """Unsupported parameters were dropped silently on fallback."""
    upstream.replies(GONE, GONE)
    assert ask(proxy, session, model="strict-model", logit_bias={"1": 1}).status == 404
    assert other.calls == 0
    other.replies(claude())
    assert ask(proxy, session, "again", model="strict-model").status == 200


def test_what_cannot_be_translated_is_not_sent(proxy: Proxy, upstream: Upstream, other: Upstream, session: str) -> None:
    upstream.replies(GONE)
    assert ask(proxy, session, model="strict-model", n=2).status == 404
    assert other.calls == 0


@pytest.mark.parametrize("streamed", [False, True])
def test_a_dangerous_call_of_a_translated_answer_is_held_like_any_other(
    shared_upstream: Upstream, upstream: Upstream, other: Upstream, tmp_path: Path, streamed: bool
) -> None:
    file = FILE.format(other=other.url).replace("policies = []\n", "")
    body = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-2",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "send_email", "input": {"to": "a@example.com"}}],
        "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    upstream.replies(GONE)
    other.replies(plain(json.dumps(body).encode()))
    tools = [{"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}]
    headers = {"x-agent-fallback-model": "translated/claude-test"}
    with Proxy(tmp_path, upstream.url, retries=True, file=file, command=COMMAND) as proxy:
        waiting = Asking(lambda: ask(proxy, "s", stream=streamed, headers=headers, tools=tools))
        held = pending(proxy)
        assert [row["tool_name"] for row in held] == ["send_email"]
        assert waiting.waits
        decide(proxy, held[0], "APPROVED")
        answer = waiting.answer()
        assert b"a@example.com" in answer.body
        assert answer.body.endswith(chat.DONE) is streamed
        assert (answer.headers.get("x-agentstate-fallback") or "").startswith("translated/claude-test")
        again = ask(proxy, "s", run="b", stream=streamed, headers=headers, tools=tools)
        assert again.hit is True
        assert (again.body, again.headers.get("x-agentstate-fallback")) == (
            answer.body.lstrip(),
            answer.headers.get("x-agentstate-fallback"),
        )


# --- without a session ---


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_without_a_session_is_tried_again_and_led_elsewhere_too(
    proxy: Proxy, upstream: Upstream, other: Upstream, streamed: bool
) -> None:
    upstream.replies(limited(retry_after_ms="10"), GONE)
    answer = ask(proxy, "", stream=streamed, headers=FALLBACK)
    assert (answer.status, upstream.calls, other.calls) == (200, 2, 1)
    assert answer.headers.get("x-agentstate-fallback") == "other/second; because=model_gone 404"
    upstream.reset()
    upstream.replies(GONE)
    other.replies(claude())
    answer = ask(proxy, "", stream=streamed, headers={"x-agent-fallback-model": "translated/claude-test"})
    assert b"bonjour" in answer.body
    assert answer.body.endswith(chat.DONE) is streamed


def test_an_error_without_a_session_is_given_on_byte_for_byte(proxy: Proxy, upstream: Upstream) -> None:
    body = b'{"error": {"message": "no", "padding": "' + b"x" * 200_000 + b'"}}'
    upstream.replies(plain(body, 400))
    answer = ask(proxy, "")
    assert (answer.status, answer.body, upstream.calls) == (400, body, 1)


def test_what_no_dialect_knows_is_sent_again_only_where_it_cannot_have_acted(proxy: Proxy, upstream: Upstream) -> None:
    upstream.replies(DOWN)
    answer = proxy.client.send("POST", "/v1/batches", {"content-type": "application/json"}, b"{}")
    assert (answer.status, upstream.calls) == (500, 1)
    upstream.reset()
    upstream.replies(DOWN)
    answer = proxy.client.send("GET", "/v1/models", {})
    assert (answer.status, upstream.calls) == (200, 2)
