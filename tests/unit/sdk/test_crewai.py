"""Keywords for CrewAI's ``LLM``; the framework itself is tried in tests/clients."""

from __future__ import annotations

import pytest

from agentstate import wrap_crewai
from agentstate.sdk import http


def test_unpacked_they_are_keywords_of_llm_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123")
    assert {**wrap_crewai("job-42", 1)} == {
        "base_url": "http://localhost:8080/v1",
        "api_key": "sk-test-0123",
        "default_headers": {
            "x-agent-session-id": "job-42",
            "x-agent-run-id": http.run_id(),
            "x-agent-step-number": "1",
        },
    }


def test_the_older_look_up_is_still_answered_but_shows_nowhere_else() -> None:
    keywords = wrap_crewai("job-42", base_url="http://h:1/v1", api_key="sk-test-0123")
    config = keywords["config"]
    assert config["base_url"] == "http://h:1/v1" and config["api_key"] == "sk-test-0123"
    assert config["extra_headers"] == keywords["default_headers"]
    assert "config" not in keywords and "config" not in dict(**keywords) and "config" not in list(keywords)
    with pytest.raises(KeyError):
        _ = keywords["model"]


def test_other_keywords_and_headers_are_kept() -> None:
    callers = {"X-Team": "blue"}
    keywords = wrap_crewai(
        "job", require_approval=True, fallback_model=["a", "b"], default_headers=callers, custom_openai=True
    )
    assert keywords["custom_openai"] is True
    assert keywords["default_headers"]["X-Team"] == "blue"
    assert keywords["default_headers"]["x-agent-require-approval"] == "true"
    assert keywords["default_headers"]["x-agent-fallback-model"] == "a,b"
    assert callers == {"X-Team": "blue"}


def test_a_missing_key_is_sent_as_a_placeholder_that_says_so() -> None:
    assert wrap_crewai("job")["api_key"] == "OPENAI_API_KEY-is-not-set"


def test_an_address_under_the_frameworks_other_name_is_refused() -> None:
    with pytest.raises(TypeError, match="base_url"):
        wrap_crewai("job", api_base="http://provider.test/v1")
