"""Spans are asked for with an address, and need the extra: what is missing is said before anything is served."""

from __future__ import annotations

import sys

import pytest

from agentstate.engine.insight import Fact, Insight
from agentstate.engine.telemetry import _named
from agentstate.errors import SettingsError
from agentstate.settings import Settings, TelemetrySettings


def insight(url: str) -> Insight:
    return Insight(Settings(telemetry=TelemetrySettings(otlp_url=url)))  # type: ignore[call-arg]


def test_without_an_address_there_is_nothing() -> None:
    assert insight("").telemetry is None


@pytest.mark.parametrize("url", ["localhost:4318", "file:///x", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"telemetry\.otlp_url"):
        insight(url)


def test_where_the_extra_is_missing_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SettingsError, match=r"agentstate-proxy\[otel\]"):
        insight("http://127.0.0.1:4318/v1/traces")


@pytest.mark.parametrize(
    ("dialect", "path", "name", "vendor"),
    [
        ("openai_chat", "chat/completions", "chat m", "openai"),
        ("openai_responses", "responses", "chat m", "openai"),
        ("openai_completions", "completions", "text_completion m", "openai"),
        ("anthropic_messages", "messages", "chat m", "anthropic"),
        ("gemini", "models/m:generateContent", "generate_content m", "gcp.gemini"),
        ("ollama_chat", "api/chat", "chat m", "ollama"),
        ("pure", "embeddings?tenant=a", "embeddings m", "openai"),
        ("pure", "moderations", "moderations m", "openai"),
        ("pure_gemini", "models/m:embedContent", "embeddings m", "gcp.gemini"),
        ("pure_anthropic", "messages/count_tokens", "count_tokens m", "anthropic"),
    ],
)
def test_a_span_is_named_after_what_was_asked(dialect: str, path: str, name: str, vendor: str) -> None:
    found, attributes = _named(Fact("s", "r", 0, dialect, path, "m", "replay", 0.0, 1.0))
    assert found == name and attributes["gen_ai.provider.name"] == vendor
    assert attributes["gen_ai.operation.name"] == name.partition(" ")[0]
    _, live = _named(Fact("s", "r", 0, dialect, path, "m", "live", 0.0, 1.0, provider="mine"))
    assert live["gen_ai.provider.name"] == "mine"
