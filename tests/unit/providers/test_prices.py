"""Whose prices a call is charged with: the settings' own or the table's, one of the two, as of the call's day."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from agentstate import settings
from agentstate.providers.own_prices import OwnPrices
from agentstate.providers.pricing import Pricing
from agentstate.providers.provider import Provider, from_settings
from agentstate.settings import PriceSettings, ProviderSettings

AT = datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp()
USAGE = json.dumps({"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000, "total_tokens": 2_000_000})


def provider(name: str = "openai", url: str = "https://api.openai.com/v1") -> Provider:
    return from_settings(name, ProviderSettings(url=url))


def price(model: str, **given: Any) -> PriceSettings:
    return PriceSettings(**{"model": model, "input": 1.0, "output": 2.0} | given)


@pytest.fixture(scope="module")
def table() -> Pricing:
    made = Pricing()
    made.warm().result()
    return made


def test_own_price_wins_over_the_table_and_the_source_is_told(table: Pricing) -> None:
    own = Pricing([price("gpt-4o*", input=100.0, output=200.0)])
    assert own.priced(provider(), "gpt-4o-mini", USAGE, AT) == (300.0, "settings")
    cost, prices = table.priced(provider(), "gpt-4o-mini", USAGE, AT)
    assert cost is not None and 0 < cost < 3 and prices.startswith("genai-prices ")
    assert prices.removeprefix("genai-prices ")[0].isdigit()


def test_custom_price_is_counted_once_and_not_on_top_of_the_table() -> None:
    own = Pricing([price("gpt-4o-mini", input=7.0, output=0.0), price("gpt-4o-mini", input=50.0)])
    assert own.cost(provider(), "gpt-4o-mini", USAGE, AT) == 7.0


def test_an_unknown_model_costs_unknown_and_names_no_prices(table: Pricing) -> None:
    assert table.priced(provider(), "a-model-of-ours", USAGE, AT) == (None, "")
    assert table.priced(provider("local", "http://localhost:11434/v1"), "llama3.2", USAGE, AT) == (None, "")
    own = Pricing([price("llama3*", provider="local", input=0.0, output=0.0)])
    assert own.priced(provider("local", "http://localhost:11434/v1"), "llama3.2", USAGE, AT) == (0.0, "settings")
    assert own.priced(provider("other", "http://localhost:11434/v1"), "llama3.2", USAGE, AT) == (None, "")


def test_own_prices_charge_cached_tokens_apart_or_as_input() -> None:
    usage = json.dumps(
        {"input_tokens": 1_000_000, "cache_read_input_tokens": 2_000_000, "cache_creation_input_tokens": 1_000_000,
         "output_tokens": 0}
    )  # fmt: skip
    apart = Pricing([price("m", input=10.0, cache_read=1.0, cache_write=12.5)])
    assert apart.cost(provider(), "m", usage, AT) == 10.0 + 2 * 1.0 + 12.5
    assert Pricing([price("m", input=10.0)]).cost(provider(), "m", usage, AT) == 40.0
    inside = json.dumps({"prompt_tokens": 1_000_000, "completion_tokens": 0,
                         "prompt_tokens_details": {"cached_tokens": 250_000}})  # fmt: skip
    assert apart.cost(provider(), "m", inside, AT) == 0.75 * 10.0 + 0.25 * 1.0


def test_patterns_take_small_and_capital_letters_for_one() -> None:
    own = OwnPrices([price("Llama*")])
    assert own.of("any", "llama-3") is own.of("other", "LLAMA-3") is not None
    assert own.of("any", "gpt-4o") is None


@pytest.mark.parametrize("given", [{"input": -1}, {"output": float("nan")}, {"model": ""}, {"cache_read": -0.1}])
def test_a_price_that_is_none_is_refused_at_the_start(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        price(**{"model": "m"} | given)


# --- the edges of the price library ---


@pytest.mark.parametrize(
    ("name", "url", "model"),
    [
        ("groq", "https://api.groq.com/openai/v1", "llama-3.3-70b-versatile"),  # its library flavor is "default"
        ("deepseek", "https://api.deepseek.com/v1", "deepseek-chat"),
        ("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-4o-mini"),
    ],
)
def test_flavors_are_taken_as_each_provider_names_them(table: Pricing, name: str, url: str, model: str) -> None:
    cost = table.cost(provider(name, url), model, USAGE, AT)
    assert cost is not None and cost > 0


def test_a_body_without_usage_costs_unknown(table: Pricing) -> None:
    assert table.priced(provider(), "gpt-4o-mini", "", AT) == (None, "")
    assert table.priced(provider(), "gpt-4o-mini", "{}", AT) == (None, "")


def test_pricing_asks_no_network() -> None:
    work = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "from agentstate.providers.pricing import Pricing\n"
        "from agentstate.providers.provider import from_settings\n"
        "from agentstate.settings import ProviderSettings\n"
        "one = from_settings('openai', ProviderSettings(url='https://api.openai.com/v1'))\n"
        f"print(Pricing().cost(one, 'gpt-4o-mini', {USAGE!r}, {AT!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 0
    assert socket.socket.connect is not None


def test_a_replayed_day_costs_what_it_cost_then(table: Pricing) -> None:
    usage = json.dumps({"input_tokens": 1_000_000, "output_tokens": 1_000_000})
    source = provider("openai")
    before = table.cost(source, "o3", usage, datetime(2025, 5, 1, tzinfo=UTC).timestamp())
    after = table.cost(source, "o3", usage, datetime(2025, 9, 1, tzinfo=UTC).timestamp())
    assert before is not None and after is not None and before > after


def test_the_service_tier_that_was_served_is_charged(table: Pricing) -> None:
    usage = json.dumps({"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000})
    costs = {tier: table.cost(provider(), "gpt-5", usage, AT, tier) for tier in ("", "default", "flex", "priority")}
    assert costs["flex"] is not None and costs["priority"] is not None and costs["default"] == costs[""]
    assert costs["flex"] < costs[""] < costs["priority"]  # type: ignore[operator]


def test_prices_that_change_within_the_day_are_those_of_the_hour(table: Pricing) -> None:
    source = provider("deepseek", "https://api.deepseek.com/v1")
    dated = {
        hour: table.cost(source, "deepseek-chat", USAGE, datetime(2025, 6, 1, hour, tzinfo=UTC).timestamp())
        for hour in range(24)
    }
    assert None not in dated.values()
    assert len(set(dated.values())) == 2


def test_an_estimate_is_priced_like_an_answer(table: Pricing) -> None:
    exact = table.cost(provider(), "gpt-4o", json.dumps({"prompt_tokens": 900, "completion_tokens": 40}), AT)
    assert table.estimated(provider(), "gpt-4o", 900, 40, AT) == pytest.approx(exact, rel=1e-12)
    assert table.estimated(provider(), "a-model-of-ours", 900, 40, AT) is None
    own = Pricing([price("m")])
    assert own.estimated(provider(), "m", 1_000_000, 1_000_000, AT) == 3.0


def test_audio_and_searches_are_charged_apart(table: Pricing) -> None:
    def audio(tokens: int) -> str:
        details = {"audio_tokens": tokens, "cached_tokens": 0}
        return json.dumps({"prompt_tokens": 1000, "prompt_tokens_details": details, "completion_tokens": 0})

    spoken, written = (table.cost(provider(), "gpt-audio", audio(count), AT) for count in (1000, 0))
    assert spoken is not None and written is not None and spoken > 5 * written
    source = from_settings("anthropic", settings.load(environ={}).providers["anthropic"])
    usage = {"input_tokens": 10, "output_tokens": 10}
    plain, searched = (
        table.cost(source, "claude-sonnet-4-5", json.dumps(usage | more), AT)
        for more in ({}, {"server_tool_use": {"web_search_requests": 2}})
    )
    assert plain is not None and searched == pytest.approx(plain + 2 * 0.01)


# --- bugs that others had ---


def test_streamed_cached_reads_are_not_billed_at_full_price(table: Pricing) -> None:
    source = from_settings("anthropic", settings.load(environ={}).providers["anthropic"])
    cached = json.dumps({"input_tokens": 10, "cache_read_input_tokens": 100_000, "output_tokens": 1})
    full = json.dumps({"input_tokens": 100_010, "output_tokens": 1})
    costs = [table.cost(source, "claude-sonnet-4-5", usage, AT) for usage in (cached, full)]
    assert costs[0] is not None and costs[1] is not None and costs[0] < costs[1] / 7


def test_cache_writes_are_charged_once_and_by_how_long_they_last(table: Pricing) -> None:
    source = from_settings("anthropic", settings.load(environ={}).providers["anthropic"])

    def usage(five: int, hour: int) -> str:
        split = {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour}
        return json.dumps(
            {"input_tokens": 0, "cache_creation_input_tokens": five + hour, "cache_creation": split, "output_tokens": 0}
        )

    model, tokens = "claude-sonnet-4-5", 1_000_000
    plain = table.cost(source, model, json.dumps({"input_tokens": tokens, "output_tokens": 0}), AT)
    five, hour = table.cost(source, model, usage(tokens, 0), AT), table.cost(source, model, usage(0, tokens), AT)
    assert plain is not None
    # A rate of its own for long prompts applies to a million tokens, so the factors stand between equal sizes only.
    assert five == pytest.approx(1.25 * plain) and hour == pytest.approx(2 * plain)
