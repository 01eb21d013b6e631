"""Keywords for LangChain, taken by its real classes."""

from __future__ import annotations

import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from agentstate import wrap_langchain
from agentstate.sdk import http
from tests.support.upstream import Seen, Upstream, plain

KEY = "sk-test-0123"


def test_the_keys_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    keywords = wrap_langchain("job-42", 1)
    assert keywords == {
        "openai_api_base": "http://localhost:8080/v1",
        "openai_api_key": KEY,
        "default_headers": {
            "x-agent-session-id": "job-42",
            "x-agent-run-id": http.run_id(),
            "x-agent-step-number": "1",
        },
    }


def test_the_chat_model_takes_them_and_sends_the_headers(server: Upstream) -> None:
    model = ChatOpenAI(model="gpt-4o", **wrap_langchain("job-42", 1, server.url, api_key=KEY))
    assert model.invoke("hello").content == "sample 0"
    seen = server.requests[-1]
    assert seen.target == "/v1/chat/completions"
    assert seen.headers.get("x-agent-session-id") == "job-42"
    assert seen.headers.get("x-agent-run-id") == http.run_id()
    assert seen.headers.get("x-agent-step-number") == "1"
    assert seen.headers.get("authorization") == f"Bearer {KEY}"


async def test_the_chat_model_sends_them_in_its_async_and_streamed_calls_too(server: Upstream) -> None:
    model = ChatOpenAI(model="gpt-4o", **wrap_langchain("job-42", base_url=server.url, api_key=KEY))
    await model.ainvoke("hello")
    assert "".join(str(part.content) for part in model.stream("hello")) == "sample 1"
    assert [seen.headers.get("x-agent-session-id") for seen in server.requests] == ["job-42", "job-42"]


def test_a_session_in_another_script_travels_in_the_path(server: Upstream) -> None:
    ChatOpenAI(model="gpt-4o", **wrap_langchain("задача", base_url=server.url, api_key=KEY)).invoke("hello")
    assert server.requests[-1].target.startswith("/s/%D0%B7")


def test_the_embeddings_model_takes_them_too(server: Upstream) -> None:
    body = b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5]}]}'

    def script(seen: Seen) -> list[object]:
        return list(plain(body))

    server.script = script  # type: ignore[assignment]
    model = OpenAIEmbeddings(
        model="text-embedding-3-small",
        check_embedding_ctx_length=False,
        **wrap_langchain("job-42", base_url=server.url, api_key=KEY),
    )
    assert model.embed_query("hello") == [0.5]
    assert server.requests[-1].headers.get("x-agent-session-id") == "job-42"


def test_other_keywords_and_headers_are_kept(server: Upstream) -> None:
    callers = {"X-Team": "blue"}
    keywords = wrap_langchain(
        "job",
        base_url=server.url,
        api_key=KEY,
        require_approval=True,
        fallback_model="gpt-4o-mini",
        default_headers=callers,
        model="gpt-4o",
        temperature=0.5,
        max_retries=0,
    )
    ChatOpenAI(**keywords).invoke("hello")
    seen = server.requests[-1]
    assert seen.json()["temperature"] == 0.5 and seen.json()["model"] == "gpt-4o"
    assert seen.headers.get("x-team") == "blue"
    assert seen.headers.get("x-agent-require-approval") == "true"
    assert seen.headers.get("x-agent-fallback-model") == "gpt-4o-mini"
    assert callers == {"X-Team": "blue"}


def test_a_missing_key_is_sent_as_a_placeholder_that_says_so() -> None:
    assert wrap_langchain("job")["openai_api_key"] == "OPENAI_API_KEY-is-not-set"


def test_an_address_under_the_frameworks_own_name_is_refused() -> None:
    with pytest.raises(TypeError, match="base_url"):
        wrap_langchain("job", openai_api_base="http://provider.test/v1")
