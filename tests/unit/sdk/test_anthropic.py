"""The Anthropic clients: the vendor's own, with our address and headers on the wire."""

from __future__ import annotations

import inspect
import json

import anthropic
import pytest

from agentstate import AgentStateAnthropic, AsyncAgentStateAnthropic
from agentstate.sdk import http
from tests.support.upstream import Reply, Seen, Upstream, plain, stream

KEY = "sk-test-0123"
ASK = {"model": "claude-sonnet-5-5", "max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}  # fmt: skip


def _event(kind: str, **more: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | more)}\n\n".encode()


def model(seen: Seen) -> Reply:
    """Answers each call with a sample of its own, in the shape that it asks for."""
    text = f"sample {seen.number}"
    if not seen.json().get("stream"):
        content = [{"type": "text", "text": text}]
        return plain(json.dumps(MESSAGE | {"content": content, "stop_reason": "end_turn"}).encode())
    return stream(
        _event("message_start", message=MESSAGE | {"content": [], "stop_reason": None}),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        _event("content_block_stop", index=0),
        _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
        _event("message_stop"),
    )


@pytest.fixture
def messages(server: Upstream) -> Upstream:
    """The recording server, answering in Anthropic's format."""
    server.reset(model)
    return server


def _sent(client: anthropic.Anthropic, server: Upstream, **more: object) -> Seen:
    client.messages.create(**ASK, **more)  # type: ignore[call-overload]
    return server.requests[-1]


def test_the_clients_are_the_vendors() -> None:
    assert issubclass(AgentStateAnthropic, anthropic.Anthropic)
    assert issubclass(AsyncAgentStateAnthropic, anthropic.AsyncAnthropic)
    assert AgentStateAnthropic.__name__ == "AgentStateAnthropic"
    assert AgentStateAnthropic.__module__ == "agentstate.sdk.anthropic"
    assert AgentStateAnthropic is __import__("agentstate").AgentStateAnthropic


def test_the_documented_arguments_come_first_and_in_the_order_of_the_other_wrappers() -> None:
    names = list(inspect.signature(AgentStateAnthropic).parameters)
    documented = ["session_id", "step_number", "base_url", "api_key", "require_approval", "fallback_model"]
    assert names[:6] == documented


@pytest.mark.parametrize("version", ["", "/v1", "/v1/"])
def test_session_run_and_step_reach_the_wire(messages: Upstream, version: str) -> None:
    address = messages.url.removesuffix("/v1") + version
    seen = _sent(AgentStateAnthropic("job-42", 2, address, KEY), messages)
    assert seen.target == "/v1/messages"
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()
    assert seen.headers.get("x-agent-step-number") == "2"
    assert seen.headers.get("x-agent-require-approval") is None
    assert seen.headers.get("x-agent-fallback-model") is None
    assert seen.headers.get("authorization") == f"Bearer {KEY}"


def test_approval_and_fallback_reach_the_wire_when_asked_for(messages: Upstream) -> None:
    client = AgentStateAnthropic(
        "job-42", base_url=messages.url, api_key=KEY, require_approval=True, fallback_model=["a", "openai/b"]
    )
    seen = _sent(client, messages)
    assert seen.headers.get("x-agent-require-approval") == "true"
    assert seen.headers.get("x-agent-fallback-model") == "a,openai/b"


def test_streams_are_the_vendors(messages: Upstream) -> None:
    client = AgentStateAnthropic("job-42", base_url=messages.url, api_key=KEY)
    with client.messages.stream(**ASK) as answer:  # type: ignore[arg-type]
        assert "".join(answer.text_stream) == "sample 0"
    assert messages.requests[-1].headers.get("x-agent-session-id") == "job-42"


async def test_the_async_client_sends_the_same(messages: Upstream) -> None:
    async with AsyncAgentStateAnthropic("job-42", base_url=messages.url, api_key=KEY) as client:
        await client.messages.create(**ASK)  # type: ignore[call-overload]
    seen = messages.requests[-1]
    assert seen.target == "/v1/messages"
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()


def test_a_session_in_another_script_reaches_the_wire_in_the_path(messages: Upstream) -> None:
    seen = _sent(AgentStateAnthropic("проект/1", base_url=messages.url, api_key=KEY), messages)
    assert seen.target == "/s/%D0%BF%D1%80%D0%BE%D0%B5%D0%BA%D1%82%2F1/v1/messages"
    assert seen.headers.get("x-agent-session-id") is None


def test_the_callers_headers_are_sent_and_left_alone(messages: Upstream) -> None:
    callers = {"X-Team": "blue"}
    seen = _sent(AgentStateAnthropic("job", base_url=messages.url, api_key=KEY, default_headers=callers), messages)
    assert seen.headers.get("x-team") == "blue" and seen.headers.get("x-agent-session-id") == "job"
    assert callers == {"X-Team": "blue"}


def test_other_options_are_the_vendors(messages: Upstream) -> None:
    client = AgentStateAnthropic("job", base_url=messages.url, api_key=KEY, timeout=7.5, max_retries=0)
    assert client.timeout == 7.5 and client.max_retries == 0
    with pytest.raises(TypeError, match="time_out"):
        AgentStateAnthropic("job", api_key=KEY, time_out=1)


@pytest.mark.parametrize("session", ["job-42", "задача"])
def test_a_copy_belongs_to_the_same_session(messages: Upstream, session: str) -> None:
    client = AgentStateAnthropic(session, 5, messages.url, KEY, True, "haiku", default_headers={"X-Team": "blue"})
    first = _sent(client, messages)
    for copy in (
        client.copy(),
        client.with_options(timeout=3),
        client.with_options(max_retries=0).with_options(default_query={}),
        client.with_middleware(),
    ):
        assert isinstance(copy, AgentStateAnthropic)
        assert (copy.session_id, copy.run_id, copy.step_number) == (session, http.run_id(), 5)
        seen = _sent(copy, messages)
        assert seen.target == first.target
        ours = [field for field in seen.headers if field[0].lower().startswith(("x-agent-", "x-team"))]
        assert sorted(ours) == sorted(f for f in first.headers if f[0].lower().startswith(("x-agent-", "x-team")))


def test_a_copy_changes_what_it_is_asked_to_change(messages: Upstream) -> None:
    client = AgentStateAnthropic("job", base_url="http://nowhere.test/v1", api_key=KEY)
    copy = client.with_options(
        base_url=messages.url, api_key="sk-test-other", timeout=3, default_headers={"x-agent-step-number": "8"}
    )
    seen = _sent(copy, messages)
    assert seen.headers.get("authorization") == "Bearer sk-test-other"
    assert seen.headers.get("x-agent-step-number") == "8"
    assert seen.headers.get("x-agent-session-id") == "job"
    assert copy.timeout == 3
    bare = client.copy(base_url=messages.url, set_default_headers={"X-Only": "1"})
    seen = _sent(bare, messages)
    assert seen.headers.get("x-only") == "1" and seen.headers.get("x-agent-session-id") == "job"


def test_a_copy_with_another_credential_keeps_the_address(messages: Upstream) -> None:
    client = AgentStateAnthropic("job", base_url=messages.url, api_key=KEY)
    seen = _sent(client.with_options(auth_token="sk-test-token"), messages)
    assert (seen.target, seen.headers.get("authorization")) == ("/v1/messages", "Bearer sk-test-token")


def test_a_copy_keeps_several_fallback_models_given_as_an_iterator(messages: Upstream) -> None:
    client = AgentStateAnthropic("job", base_url=messages.url, api_key=KEY, fallback_model=iter(["a", "b"]))
    assert _sent(client.copy().copy(), messages).headers.get("x-agent-fallback-model") == "a,b"


async def test_an_async_copy_belongs_to_the_same_session(messages: Upstream) -> None:
    async with AsyncAgentStateAnthropic("задача", base_url=messages.url, api_key=KEY) as client:
        copy = client.with_options(timeout=3)
        assert isinstance(copy, AsyncAgentStateAnthropic) and copy.session_id == "задача"
        assert copy.base_url == client.base_url


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_the_environments_credentials_are_used(
    messages: Upstream, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "sk-test-environment")
    client = AgentStateAnthropic("job", base_url=messages.url)
    assert _sent(client, messages).headers.get("authorization") == "Bearer sk-test-environment"


@pytest.mark.parametrize("variable", [None, ""])
def test_a_missing_key_is_sent_as_a_placeholder_that_says_so(
    messages: Upstream, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    if variable is not None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", variable)
    client = AgentStateAnthropic("job", base_url=messages.url)
    for asking in (client, client.copy()):
        assert _sent(asking, messages).headers.get("authorization") == "Bearer ANTHROPIC_API_KEY-is-not-set"


def test_another_credential_is_not_joined_by_the_placeholder(messages: Upstream) -> None:
    seen = _sent(AgentStateAnthropic("job", base_url=messages.url, auth_token="sk-test-token"), messages)
    assert seen.headers.get("authorization") == "Bearer sk-test-token"
    own = AgentStateAnthropic("job", base_url=messages.url, default_headers={"X-Api-Key": "sk-test-header"})
    seen = _sent(own, messages)
    assert (seen.headers.get("x-api-key"), seen.headers.get("authorization")) == ("sk-test-header", None)


def test_the_vendors_base_url_variable_does_not_lead_past_the_proxy(
    messages: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://provider.test")
    monkeypatch.setenv("AGENTSTATE_URL", messages.url)
    assert _sent(AgentStateAnthropic("job", api_key=KEY), messages).headers.get("x-agent-session-id") == "job"


def test_the_session_given_wins_over_one_in_the_vendors_header_variable(
    messages: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Agent-Session-Id: outer\nx-team: blue")
    seen = _sent(AgentStateAnthropic("job", base_url=messages.url, api_key=KEY), messages)
    assert seen.headers.all("x-agent-session-id") == ["job"] and seen.headers.get("x-team") == "blue"


def test_a_session_that_cannot_be_sent_is_refused_before_any_call() -> None:
    with pytest.raises(ValueError, match="session_id is empty"):
        AgentStateAnthropic("", api_key=KEY)


def test_the_key_shows_in_no_representation_of_ours() -> None:
    client = AgentStateAnthropic("job", api_key=KEY)
    assert KEY not in repr(client) and KEY not in str(client._session_options)
