"""Where a path of the agent goes, for each way of writing a provider's address."""

from __future__ import annotations

import pytest

from agentstate.errors import SettingsError
from agentstate.providers.provider import Provider, from_settings
from agentstate.settings import ProviderSettings

H = "http://host:1"


def provider(url: str, *dialects: str) -> Provider:
    return from_settings("p", ProviderSettings(url=url, dialects=list(dialects or ["openai"])))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "dialects", "path", "asked"),
    [
        (H, (), "/v1/chat/completions", f"{H}/v1/chat/completions"),
        (f"{H}/v1", (), "/chat/completions", f"{H}/v1/chat/completions"),
        (f"{H}/v1/", (), "/v1/v1/chat/completions", f"{H}/v1/chat/completions"),
        (f"{H}/openai/v1", (), "/v1/chat/completions", f"{H}/openai/v1/chat/completions"),
        (f"{H}/api/v1", (), "/v1/models?x=1", f"{H}/api/v1/models?x=1"),
        (f"{H}/v1beta/openai", (), "/v1/chat/completions", f"{H}/v1beta/openai/chat/completions"),
        (H, ("anthropic",), "/v1/messages", f"{H}/v1/messages"),
        (H, ("anthropic",), "/messages", f"{H}/v1/messages"),
        (f"{H}/v1", ("anthropic",), "/v1/messages", f"{H}/v1/messages"),
        (f"{H}/anthropic", ("anthropic",), "/v1/messages", f"{H}/anthropic/v1/messages"),
        (f"{H}/anthropic/v1", ("anthropic",), "/messages", f"{H}/anthropic/v1/messages"),
        (H, ("gemini",), "/v1beta/models/m:countTokens", f"{H}/v1beta/models/m:countTokens"),
        (H, ("gemini",), "/v1/models/m:generateContent", f"{H}/v1/models/m:generateContent"),
        (H, ("gemini",), "/models/m:generateContent", f"{H}/v1beta/models/m:generateContent"),
        (H, ("gemini",), "/v1/v1beta/models/m:countTokens", f"{H}/v1beta/models/m:countTokens"),
        (f"{H}/gemini", ("gemini",), "/v1beta/models/m:countTokens", f"{H}/gemini/v1beta/models/m:countTokens"),
        (f"{H}/v1", ("ollama", "openai"), "/api/chat", f"{H}/api/chat"),
        (f"{H}/v1", ("ollama", "openai"), "/v1/chat/completions", f"{H}/v1/chat/completions"),
    ],
)
def test_address_of_a_call(url: str, dialects: tuple[str, ...], path: str, asked: str) -> None:
    bare, _, query = path.partition("?")
    assert provider(url, *dialects).url(bare, query) == asked


@pytest.mark.parametrize("url", ["host", "ftp://host", "http://", "http://host/v1?x=1", "http://host/#v1"])
def test_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"providers\.p\.url must look like"):
        provider(url)


def test_what_is_said_of_an_address_tells_nothing_of_it() -> None:
    with pytest.raises(SettingsError) as told:
        provider("http://user:hunter2@host/v1?key=s3cret")
    assert "hunter2" not in told.value.message and "s3cret" not in told.value.message


@pytest.mark.parametrize(
    ("dialects", "header"),
    [(["openai"], "authorization"), (["anthropic"], "x-api-key"), (["gemini"], "x-goog-api-key"),
     (["ollama", "openai"], "authorization")],
)  # fmt: skip
def test_own_key_stands_in_the_header_of_its_kind(dialects: list[str], header: str) -> None:
    settings = ProviderSettings(url=H, dialects=dialects, key_env="K")  # type: ignore[arg-type]
    made = from_settings("p", settings).credentials({"K": "sk-test-1"})
    assert [name for name, _ in made] == [header]
    with pytest.raises(SettingsError, match="K"):
        from_settings("p", settings).credentials({})
