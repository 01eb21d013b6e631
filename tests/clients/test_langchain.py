"""LangChain against a real proxy; kills are in test_restart."""

from __future__ import annotations

import uuid

import pytest
from langchain_openai import ChatOpenAI

from agentstate import wrap_langchain
from tests.clients.lives import TEST_KEY, scripted
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream

pytestmark = pytest.mark.xdist_group("clients-langchain")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def session() -> str:
    return f"langchain-{uuid.uuid4().hex[:8]}"


def _model(proxy: Proxy, session: str, run: str, **more: object) -> ChatOpenAI:
    keywords = wrap_langchain(
        session, base_url=f"{proxy.url}/v1", api_key=TEST_KEY, default_headers={"x-agent-run-id": run}, **more
    )
    return ChatOpenAI(model="gpt-4o-mini", **keywords)


def test_the_next_run_is_given_equal_messages(proxy: Proxy, provider: Upstream, session: str) -> None:
    provider.reset(scripted(1))
    answers = [_model(proxy, session, run).bind_tools([WEATHER]).invoke("How is Paris?") for run in ("run-1", "run-2")]
    assert answers[0].tool_calls and answers[0].tool_calls == answers[1].tool_calls
    assert answers[0].response_metadata == answers[1].response_metadata
    assert provider.calls == 1


async def test_streams_and_async_calls_are_given_again(simulator: Proxy, session: str) -> None:
    answers = []
    for run in ("run-1", "run-2"):
        model = _model(simulator, session, run, stream_usage=True)
        parts = [part.content async for part in model.astream("How is Paris?")]
        answers.append((parts, (await model.ainvoke("How is Rome?")).content))
    assert answers[0] == answers[1] and "Paris" in "".join(answers[0][0])
    assert len(simulator.control.steps(session)) == 2


def test_structured_output_is_given_again(simulator: Proxy, session: str) -> None:
    schema = {
        "title": "report",
        "description": "A report.",
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"],
        "additionalProperties": False,
    }
    reports = [
        _model(simulator, session, run).with_structured_output(schema).invoke("How is Paris?")
        for run in ("run-1", "run-2")
    ]
    assert set(reports[0]) == {"city", "degrees"} and reports[0] == reports[1]


def test_a_cost_is_known_of_a_stream_that_asks_for_its_usage(simulator: Proxy, session: str) -> None:
    for part in _model(simulator, session, "run-1", stream_usage=True).stream("How is Paris?"):
        assert part is not None
    (step,) = simulator.control.steps(session)
    assert step["token_cost"] > 0
