"""The OpenAI clients: the vendor's own, with our address and headers on the wire."""

from __future__ import annotations

import inspect

import openai
import pytest

from agentstate import AgentStateOpenAI, AsyncAgentStateOpenAI
from agentstate.sdk import http
from tests.support.upstream import Seen, Upstream

KEY = "sk-test-0123"
ASK = [{"role": "user", "content": "hello"}]


def _sent(client: openai.OpenAI, server: Upstream, **more: object) -> Seen:
    client.chat.completions.create(model="gpt-4o", messages=ASK, **more)  # type: ignore[call-overload]
    return server.requests[-1]


def test_the_clients_are_the_vendors() -> None:
    assert issubclass(AgentStateOpenAI, openai.OpenAI) and issubclass(AsyncAgentStateOpenAI, openai.AsyncOpenAI)
    assert AgentStateOpenAI.__name__ == "AgentStateOpenAI" and AgentStateOpenAI.__module__ == "agentstate.sdk.openai"
    assert AgentStateOpenAI is __import__("agentstate").AgentStateOpenAI


def test_the_documented_arguments_come_first_and_in_order() -> None:
    names = list(inspect.signature(AgentStateOpenAI).parameters)
    documented = ["session_id", "step_number", "base_url", "api_key", "require_approval", "fallback_model"]
    assert names[:6] == documented


def test_session_run_and_step_reach_the_wire(server: Upstream) -> None:
    seen = _sent(AgentStateOpenAI("job-42", 2, server.url, KEY), server)
    assert seen.target == "/v1/chat/completions"
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()
    assert seen.headers.get("x-agent-step-number") == "2"
    assert seen.headers.get("x-agent-require-approval") is None
    assert seen.headers.get("x-agent-fallback-model") is None
    assert seen.headers.get("authorization") == f"Bearer {KEY}"


def test_approval_and_fallback_reach_the_wire_when_asked_for(server: Upstream) -> None:
    client = AgentStateOpenAI(
        "job-42", base_url=server.url, api_key=KEY, require_approval=True, fallback_model=["gpt-4o-mini", "ollama/x"]
    )
    seen = _sent(client, server)
    assert seen.headers.get("x-agent-require-approval") == "true"
    assert seen.headers.get("x-agent-fallback-model") == "gpt-4o-mini,ollama/x"


async def test_the_async_client_sends_the_same(server: Upstream) -> None:
    async with AsyncAgentStateOpenAI("job-42", base_url=server.url, api_key=KEY) as client:
        await client.chat.completions.create(model="gpt-4o", messages=ASK)  # type: ignore[call-overload]
    seen = server.requests[-1]
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()


def test_a_session_in_another_script_reaches_the_wire_in_the_path(server: Upstream) -> None:
    seen = _sent(AgentStateOpenAI("проект/1", base_url=server.url, api_key=KEY), server)
    assert seen.target == "/s/%D0%BF%D1%80%D0%BE%D0%B5%D0%BA%D1%82%2F1/v1/chat/completions"
    assert seen.headers.get("x-agent-session-id") is None


def test_the_callers_headers_are_sent_and_left_alone(server: Upstream) -> None:
    callers = {"X-Team": "blue"}
    seen = _sent(AgentStateOpenAI("job", base_url=server.url, api_key=KEY, default_headers=callers), server)
    assert seen.headers.get("x-team") == "blue" and seen.headers.get("x-agent-session-id") == "job"
    assert callers == {"X-Team": "blue"}


def test_other_options_are_the_vendors(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, api_key=KEY, timeout=7.5, max_retries=0, organization="org-1")
    assert client.timeout == 7.5 and client.max_retries == 0
    assert _sent(client, server).headers.get("openai-organization") == "org-1"
    with pytest.raises(TypeError, match="time_out"):
        AgentStateOpenAI("job", api_key=KEY, time_out=1)


@pytest.mark.parametrize("session", ["job-42", "задача"])
def test_a_copy_belongs_to_the_same_session(server: Upstream, session: str) -> None:
    client = AgentStateOpenAI(session, 5, server.url, KEY, True, "gpt-4o-mini", default_headers={"X-Team": "blue"})
    first = _sent(client, server)
    for copy in (
        client.copy(),
        client.with_options(timeout=3),
        client.with_options(max_retries=0).with_options(default_query={}),
    ):
        assert isinstance(copy, AgentStateOpenAI)
        assert (copy.session_id, copy.run_id, copy.step_number) == (session, http.run_id(), 5)
        seen = _sent(copy, server)
        assert seen.target == first.target
        ours = [field for field in seen.headers if field[0].startswith(("x-agent-", "x-team"))]
        assert ours == [field for field in first.headers if field[0].startswith(("x-agent-", "x-team"))]


def test_a_copy_changes_what_it_is_asked_to_change(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url="http://nowhere.test/v1", api_key=KEY)
    copy = client.with_options(
        base_url=server.url, api_key="sk-test-other", timeout=3, default_headers={"x-agent-step-number": "8"}
    )
    seen = _sent(copy, server)
    assert seen.headers.get("authorization") == "Bearer sk-test-other"
    assert seen.headers.get("x-agent-step-number") == "8"
    assert seen.headers.get("x-agent-session-id") == "job"
    assert copy.timeout == 3
    bare = client.copy(base_url=server.url, set_default_headers={"X-Only": "1"})
    seen = _sent(bare, server)
    assert seen.headers.get("x-only") == "1" and seen.headers.get("x-agent-session-id") == "job"


def test_a_copy_keeps_several_fallback_models_given_as_an_iterator(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, api_key=KEY, fallback_model=iter(["a", "b"]))
    assert _sent(client.copy().copy(), server).headers.get("x-agent-fallback-model") == "a,b"


async def test_an_async_copy_belongs_to_the_same_session(server: Upstream) -> None:
    async with AsyncAgentStateOpenAI("задача", base_url=server.url, api_key=KEY) as client:
        copy = client.with_options(timeout=3)
        assert isinstance(copy, AsyncAgentStateOpenAI) and copy.session_id == "задача"
        assert copy.base_url == client.base_url


def test_the_environments_key_is_used(server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-environment")
    client = AgentStateOpenAI("job", base_url=server.url)
    assert _sent(client, server).headers.get("authorization") == "Bearer sk-test-environment"


@pytest.mark.parametrize("variable", [None, ""])
def test_a_missing_key_is_sent_as_a_placeholder_that_says_so(
    server: Upstream, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    if variable is not None:
        monkeypatch.setenv("OPENAI_API_KEY", variable)
    client = AgentStateOpenAI("job", base_url=server.url)
    assert _sent(client, server).headers.get("authorization") == "Bearer OPENAI_API_KEY-is-not-set"
    assert _sent(client.copy(), server).headers.get("authorization") == "Bearer OPENAI_API_KEY-is-not-set"


def test_another_credential_is_not_replaced_by_the_placeholder(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, admin_api_key="sk-test-admin")
    assert client.api_key != http.MISSING_KEY


def test_a_key_that_is_made_on_demand_is_asked_for(server: Upstream) -> None:
    client = AgentStateOpenAI("job", base_url=server.url, api_key=lambda: "sk-test-fresh")
    assert _sent(client.copy(), server).headers.get("authorization") == "Bearer sk-test-fresh"


def test_the_vendors_base_url_variable_does_not_lead_past_the_proxy(
    server: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://provider.test/v1")
    monkeypatch.setenv("AGENTSTATE_URL", server.url)
    assert _sent(AgentStateOpenAI("job", api_key=KEY), server).headers.get("x-agent-session-id") == "job"


def test_a_session_that_cannot_be_sent_is_refused_before_any_call() -> None:
    with pytest.raises(ValueError, match="session_id is empty"):
        AgentStateOpenAI("", api_key=KEY)


def test_the_key_shows_in_no_representation_of_ours() -> None:
    client = AgentStateOpenAI("job", api_key=KEY)
    assert KEY not in repr(client) and KEY not in str(client._session_options)
