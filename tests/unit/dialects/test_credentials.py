"""Which credentials a provider is sent: those of its own kind, and none that another kind was meant to have."""

from __future__ import annotations

import itertools

import pytest

from agentstate.dialects import registry
from agentstate.dialects.credentials import HEADERS, NEVER_SENT, OWN, sent

ALL = [(name, f"sk-test-{name}") for name in sorted(HEADERS)]
OTHER = [("content-type", "application/json"), ("anthropic-version", "2023-06-01"), ("x-request-id", "key-1")]


def names(kind: str, *given: str, query: str = "", **more: str) -> list[str]:
    headers = [(name, f"sk-test-{name}") for name in given] + [*more.items()]
    found, _ = sent(kind, headers, query)
    return [name for name, _ in found]


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("openai", ["authorization", "x-api-key", "x-goog-api-key"], ["authorization"]),
        ("openai", ["authorization", "api-key"], ["authorization", "api-key"]),
        ("openai", ["x-api-key"], ["x-api-key"]),
        ("openai", ["x-goog-api-key"], ["x-goog-api-key"]),
        ("openai", ["x-api-key", "x-goog-api-key"], []),
        ("ollama", ["authorization", "x-api-key"], ["authorization"]),
        ("anthropic", ["authorization", "x-api-key", "api-key"], ["x-api-key"]),
        ("anthropic", ["authorization", "x-goog-api-key"], ["authorization"]),
        ("anthropic", ["x-goog-api-key"], []),
        ("anthropic", ["api-key"], ["api-key"]),
        ("gemini", ["authorization", "x-goog-api-key"], ["x-goog-api-key"]),
        ("gemini", ["authorization", "x-api-key"], ["authorization"]),
        ("gemini", ["x-api-key"], []),
        ("gemini", ["api-key", "x-api-key"], []),
    ],
)
def test_provider_is_sent_its_own_credentials_only(kind: str, given: list[str], kept: list[str]) -> None:
    for order in itertools.permutations(given):
        assert sorted(names(kind, *order)) == sorted(kept)


def test_key_in_the_query_of_a_gemini_call_stands_for_its_header() -> None:
    assert names("gemini", "authorization", query="alt=sse&key=sk-test-1") == []
    assert names("gemini", "authorization", query="%6bey=sk-test-1") == []
    assert names("gemini", "authorization", query="key=") == ["authorization"]
    assert names("openai", "authorization", query="key=sk-test-1") == ["authorization"]


@pytest.mark.parametrize(
    "agent", ["claude-cli/2.1.332 (external, sdk-cli)", "Anthropic/JS 1.14.0", "AsyncAnthropic/Python 0.125.0"]
)
def test_clients_of_anthropic_may_send_it_a_key_and_a_bearer(agent: str) -> None:
    both = ["authorization", "x-api-key"]
    assert names("anthropic", *both, "x-goog-api-key", **{"User-Agent": agent}) == [*both, "User-Agent"]
    assert names("anthropic", *both, **{"user-agent": f"my {agent}"}) == ["x-api-key", "user-agent"]
    assert names("openai", *both, **{"user-agent": agent}) == ["authorization", "user-agent"]


@pytest.mark.parametrize("blank", ["", " ", "Bearer", "bearer "])
def test_blank_credential_is_none(blank: str) -> None:
    for kind, first in (("anthropic", "x-api-key"), ("gemini", "x-goog-api-key")):
        found, _ = sent(kind, [(first, blank), ("Authorization", "Bearer sk-test-1")])
        assert ("Authorization", "Bearer sk-test-1") in found


@pytest.mark.parametrize("kind", OWN)
def test_cookie_is_sent_to_nobody_and_other_headers_go_to_everybody_in_order(kind: str) -> None:
    found, query = sent(kind, [*OTHER, *ALL], "token=sk-test-1&x=%2f")
    assert [pair for pair in found if pair[0] not in HEADERS] == OTHER
    assert not NEVER_SENT & {name for name, _ in found}
    assert query == "token=sk-test-1&x=%2f"


@pytest.mark.parametrize("kind", OWN)
def test_key_of_our_own_takes_the_place_of_every_credential(kind: str) -> None:
    ours = [("authorization", "Bearer sk-test-ours")]
    found, query = sent(kind, [(name.title(), value) for name, value in ALL] + OTHER, "x=1&key=sk-test-1&Token=2", ours)
    assert (found, query) == ([*OTHER, *ours], "x=1")


def test_there_is_a_rule_for_every_kind_of_provider() -> None:
    assert set(OWN) == {dialect.provider for dialect in registry.BY_NAME.values()}
