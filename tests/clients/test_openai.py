"""The OpenAI package against a real proxy: what it is given live and what it is given again are equal objects."""

from __future__ import annotations

import os
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from agentstate import AgentStateOpenAI, AsyncAgentStateOpenAI
from tests.clients.lives import TEST_KEY, scripted
from tests.support import chat
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain
from tests.support.upstream import model as sampled

pytestmark = pytest.mark.xdist_group("clients-openai")

ASK: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
MODEL = "gpt-4o-mini"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AGENTSTATE_", "OPENAI_")) or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def session() -> str:
    return f"client-{uuid.uuid4().hex[:8]}"


def _run(proxy: Proxy, session: str, run: str, **options: Any) -> AgentStateOpenAI:
    """The client of another life of the agent."""
    headers = {"x-agent-run-id": run}
    return AgentStateOpenAI(session, base_url=f"{proxy.url}/v1", api_key=TEST_KEY, default_headers=headers, **options)


def _async_run(proxy: Proxy, session: str, run: str) -> AsyncAgentStateOpenAI:
    headers = {"x-agent-run-id": run}
    return AsyncAgentStateOpenAI(session, base_url=f"{proxy.url}/v1", api_key=TEST_KEY, default_headers=headers)


def test_the_next_run_is_given_the_same_answer_and_told_so(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset()
    answers = []
    for run in ("run-1", "run-2"):
        raw = _run(proxy, session, run).chat.completions.with_raw_response.create(model=MODEL, messages=ASK)
        assert raw.headers["x-agentstate-run"] == run and raw.headers["x-agentstate-step"] == "0"
        answers.append((raw.headers["x-agentstate-outcome"], raw.headers["x-agentstate-cache-hit"], raw.content))
    assert [answer[:2] for answer in answers] == [("live", "false"), ("replay", "true")]
    assert answers[0][2] == answers[1][2]
    assert provider.calls == 1


def test_a_question_asked_twice_within_a_run_gets_two_samples(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset()
    samples = []
    for run in ("run-1", "run-2"):
        client = _run(proxy, session, run)
        samples.append([client.chat.completions.create(model=MODEL, messages=ASK).id for _ in range(2)])
    assert samples[0][0] != samples[0][1]
    assert samples[1] == samples[0]
    assert provider.calls == 2


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["text", "tools"])
def test_a_stream_is_given_again_chunk_for_chunk(
    proxy: Proxy, provider: Upstream, session: str, tools: list[Any]
) -> None:
    provider.reset(scripted(1) if tools else sampled)
    more = {"tools": tools} if tools else {}
    seen = []
    for run in ("run-1", "run-2"):
        with _run(proxy, session, run).chat.completions.create(
            model=MODEL, messages=ASK, stream=True, **more
        ) as chunks:
            seen.append([chunk.model_dump() for chunk in chunks])
    assert seen[0] == seen[1] and seen[0][-1]["choices"][0]["finish_reason"] == ("tool_calls" if tools else "stop")
    assert provider.calls == 1


def test_a_stream_is_given_again_as_a_plain_answer_where_that_is_asked(simulator: Proxy, session: str) -> None:
    with _run(simulator, session, "run-1").chat.completions.stream(model=MODEL, messages=ASK, tools=TOOLS) as stream:
        for _ in stream:
            pass
        live = stream.get_final_completion().choices[0].message
    again = _run(simulator, session, "run-2").chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS)
    given = again.choices[0].message
    assert given.tool_calls and live.tool_calls
    assert [call.function.arguments for call in given.tool_calls] == [
        call.function.arguments for call in live.tool_calls
    ]
    assert [call.id for call in given.tool_calls] == [call.id for call in live.tool_calls]
    assert [step["state"] for step in simulator.control.steps(session)] == ["completed"]


def test_a_tool_call_is_given_again_with_its_id(simulator: Proxy, session: str) -> None:
    calls = []
    for run in ("run-1", "run-2"):
        answer = _run(simulator, session, run).chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS)
        calls.append(answer.choices[0].message.tool_calls)
    assert calls[0] and calls[0] == calls[1]


def test_a_parsed_answer_is_given_again_as_an_equal_object(simulator: Proxy, session: str) -> None:
    class Report(BaseModel):
        city: str
        degrees: int

    reports = []
    for run in ("run-1", "run-2"):
        client = _run(simulator, session, run)
        answer = client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Report)
        reports.append(answer.choices[0].message.parsed)
    assert isinstance(reports[0], Report) and reports[0] == reports[1]


async def test_the_async_client_is_given_the_same_plain_and_streamed(simulator: Proxy, session: str) -> None:
    texts = []
    for run in ("run-1", "run-2"):
        async with _async_run(simulator, session, run) as client:
            whole = await client.chat.completions.create(model=MODEL, messages=ASK)
            chunks = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True, n=2)
            parts = [chunk.model_dump() async for chunk in chunks]
            texts.append((whole.model_dump(), parts))
    assert texts[0] == texts[1]
    assert len(simulator.control.steps(session)) == 2


def test_embeddings_are_remembered_and_models_are_no_steps(simulator: Proxy, session: str) -> None:
    client = _run(simulator, session, "run-1")
    outcomes, vectors = [], []
    for _ in range(2):
        raw = client.embeddings.with_raw_response.create(model="text-embedding-3-small", input="hello")
        outcomes.append(raw.headers["x-agentstate-outcome"])
        vectors.append(raw.parse().data[0].embedding)
    assert outcomes == ["live", "memo"] and vectors[0] == vectors[1]
    before = len(simulator.control.steps(session))
    assert MODEL in [model.id for model in client.models.list()]
    assert len(simulator.control.steps(session)) == before


@pytest.mark.parametrize("shape", ["проект/{}", "order {}/a?b#c", "{}%2F", " {} "])
def test_a_session_of_any_characters_is_journaled_under_its_own_name(
    proxy: Proxy, provider: Upstream, session: str, shape: str
) -> None:
    provider.reset()
    name = shape.format(session)
    for run in ("run-1", "run-2"):
        _run(proxy, name, run).chat.completions.create(model=MODEL, messages=ASK)
    assert provider.calls == 1
    assert name in [row["id"] for row in proxy.control.get("/api/sessions?limit=1000")]
    assert len(proxy.control.steps(urllib.parse.quote(name, safe=""))) == 1


def test_a_session_in_the_path_wins_over_one_from_outside(
    proxy: Proxy, provider: Upstream, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.reset()
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-agent-session-id: from-outside")
    name = f"задача-{session}"
    _run(proxy, name, "run-1").chat.completions.create(model=MODEL, messages=ASK)
    ids = [row["id"] for row in proxy.control.get("/api/sessions?limit=1000")]
    assert name in ids and "from-outside" not in ids


def test_the_provider_gets_the_key_and_none_of_our_headers(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset()
    _run(proxy, session, "run-1", fallback_model="gpt-4o").chat.completions.create(model=MODEL, messages=ASK)
    seen = provider.requests[-1].headers
    assert seen.get("authorization") == f"Bearer {TEST_KEY}"
    assert [name for name, _ in seen if name.lower().startswith(("x-agent-", "x-agentstate-"))] == []


def test_a_missing_key_brings_back_the_providers_own_refusal(proxy: Proxy, provider: Upstream, session: str) -> None:
    refusal = (
        b'{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}'
    )
    provider.reset(lambda seen: plain(refusal, 401))
    client = AgentStateOpenAI(session, base_url=f"{proxy.url}/v1")
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key provided"):
        client.chat.completions.create(model=MODEL, messages=ASK)
    assert provider.requests[-1].headers.get("authorization") == "Bearer OPENAI_API_KEY-is-not-set"


def test_a_paused_session_stops_the_client_at_once(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset()
    client = _run(proxy, session, "run-1")
    client.chat.completions.create(model=MODEL, messages=ASK)
    proxy.control.post(f"/api/sessions/{session}/status", {"status": "PAUSED"})
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=[*ASK, chat.user("and tomorrow?")])
    assert refused.value.code == "session_paused"
    assert provider.calls == 1
    proxy.control.post(f"/api/sessions/{session}/status", {"status": "RUNNING"})
    client.chat.completions.create(model=MODEL, messages=[*ASK, chat.user("and tomorrow?")])
    assert provider.calls == 2


def test_a_call_that_must_be_approved_is_not_sent_unapproved(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset()
    client = _run(proxy, session, "run-1", require_approval=True)
    with ThreadPoolExecutor(1) as agent:
        asking = agent.submit(client.chat.completions.create, model=MODEL, messages=ASK)
        [approval] = pending(proxy, 1, session)
        assert provider.calls == 0
        decide(proxy, approval, "REJECTED", reason="no")
        with pytest.raises(openai.PermissionDeniedError) as refused:
            asking.result(30)
    assert refused.value.code == "human_rejection"
    assert provider.calls == 0


def test_a_copy_works_on_in_the_same_run(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset()
    client = _run(proxy, session, "run-1")
    for asking in (client, client.with_options(timeout=30), client.copy(max_retries=0)):
        raw = asking.chat.completions.with_raw_response.create(model=MODEL, messages=ASK)
        assert raw.headers["x-agentstate-run"] == "run-1"
    assert provider.calls == 3
