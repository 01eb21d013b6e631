"""What only the Anthropic clients do; what all clients do is in ``test_clients``."""

from __future__ import annotations

import json

import anthropic
import pytest

from agentstate import AgentStateAnthropic
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


def test_streams_are_the_vendors(messages: Upstream) -> None:
    client = AgentStateAnthropic("job-42", base_url=messages.url, api_key=KEY)
    with client.messages.stream(**ASK) as answer:  # type: ignore[arg-type]
        assert "".join(answer.text_stream) == "sample 0"
    assert messages.requests[-1].headers.get("x-agent-session-id") == "job-42"


def test_a_copy_with_another_credential_keeps_the_address(messages: Upstream) -> None:
    client = AgentStateAnthropic("job", base_url=messages.url, api_key=KEY)
    seen = _sent(client.with_options(auth_token="sk-test-token"), messages)
    assert (seen.target, seen.headers.get("authorization")) == ("/v1/messages", "Bearer sk-test-token")


def test_the_token_of_the_environment_is_used(messages: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "sk-test-environment")
    client = AgentStateAnthropic("job", base_url=messages.url)
    assert _sent(client, messages).headers.get("authorization") == "Bearer sk-test-environment"


def test_another_credential_is_not_joined_by_the_placeholder(messages: Upstream) -> None:
    seen = _sent(AgentStateAnthropic("job", base_url=messages.url, auth_token="sk-test-token"), messages)
    assert seen.headers.get("authorization") == "Bearer sk-test-token"
    own = AgentStateAnthropic("job", base_url=messages.url, default_headers={"X-Api-Key": "sk-test-header"})
    seen = _sent(own, messages)
    assert (seen.headers.get("x-api-key"), seen.headers.get("authorization")) == ("sk-test-header", None)


def test_the_session_given_wins_over_one_in_the_vendors_header_variable(
    messages: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Agent-Session-Id: outer\nx-team: blue")
    seen = _sent(AgentStateAnthropic("job", base_url=messages.url, api_key=KEY), messages)
    assert seen.headers.all("x-agent-session-id") == ["job"] and seen.headers.get("x-team") == "blue"


def test_a_copy_with_middleware_belongs_to_the_same_session(messages: Upstream) -> None:
    copy = AgentStateAnthropic("job", 5, messages.url, KEY).with_middleware()
    assert isinstance(copy, AgentStateAnthropic)
    assert (copy.session_id, copy.step_number) == ("job", 5)
    assert _sent(copy, messages).headers.get("x-agent-session-id") == "job"
