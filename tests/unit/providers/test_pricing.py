"""A call costs what the price table says, to the last digit, however that was worked out; unknown is no number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate import settings
from agentstate.providers import pricing
from agentstate.providers.pricing import Pricing
from agentstate.providers.provider import Provider, Registry

AT = 1_790_000_000.0
MODELS = ("gpt-4o-mini", "gpt-4o", "gpt-5", "o3-mini", "gpt-4o-audio-preview", "gpt-3.5-turbo")


@pytest.fixture(scope="module")
def prices() -> Pricing:
    made = Pricing()
    made.warm().result()
    return made


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Registry(settings.load(environ={}).providers).for_dialect("openai")


def _exact(prices: Pricing, provider: Provider, model: str, usage: dict[str, Any]) -> float | None:
    """What the library itself says of this usage."""
    snapshot = prices.warm().result()
    source = prices._source(snapshot, provider)
    assert source is not None
    counts = pricing._counts(source, model, usage)
    return None if counts is None else prices._ask(snapshot, source, pricing._Terms(model, AT), counts)


@st.composite
def usages(draw: st.DrawFn) -> dict[str, Any]:
    prompt, completion = draw(st.integers(0, 300_000)), draw(st.integers(0, 20_000))
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if draw(st.booleans()):
        usage["total_tokens"] = prompt + completion
    if draw(st.booleans()):
        details = {"cached_tokens": draw(st.integers(0, prompt)), "audio_tokens": 0}
        usage["prompt_tokens_details"] = draw(st.sampled_from([details, None, {"cached_tokens": 0}]))
    if draw(st.booleans()):
        reasoning = draw(st.integers(0, completion))
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning, "audio_tokens": completion - reasoning}
    if draw(st.booleans()):
        usage["service_tier"] = "default"
    return usage


@given(model=st.sampled_from(MODELS), usage=usages())
def test_quick_sum_is_the_librarys_own_price(
    prices: Pricing, provider: Provider, model: str, usage: dict[str, Any]
) -> None:
    cost, exact = prices.cost(provider, model, json.dumps(usage), AT), _exact(prices, provider, model, usage)
    assert cost == pytest.approx(exact, rel=1e-12, abs=1e-15)
    assert cost is not None


def test_zero_tokens_cost_nothing_and_an_unknown_model_costs_unknown(prices: Pricing, provider: Provider) -> None:
    nothing = json.dumps({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
    assert prices.cost(provider, "gpt-4o", nothing, AT) == 0
    assert prices.cost(provider, "a-model-of-ours", nothing, AT) is None
    assert prices.cost(provider, "gpt-4o", "", AT) is None
    assert prices.cost(provider, "", nothing, AT) is None


@pytest.mark.parametrize("usage", ["null", "[]", "17", '"many"', "{}", '{"prompt_tokens": "two"}', "{", '{"a": [1]}'])
def test_usage_that_cannot_be_read_costs_unknown(prices: Pricing, provider: Provider, usage: str) -> None:
    assert prices.cost(provider, "gpt-4o", usage, AT) is None


@pytest.mark.parametrize(
    ("kind", "model", "usage"),
    [
        ("openai", "gpt-5", {"input_tokens": 900, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 50,
                             "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 950}),
        ("anthropic", "claude-sonnet-4-5", {"input_tokens": 10, "cache_creation_input_tokens": 2000,
                                            "cache_read_input_tokens": 5000, "output_tokens": 300}),
        ("gemini", "gemini-2.5-flash", {"promptTokenCount": 1000, "candidatesTokenCount": 100, "thoughtsTokenCount": 50,
                                        "totalTokenCount": 1150}),
        ("openai", "text-embedding-3-small", {"prompt_tokens": 1000, "total_tokens": 1000}),
    ],
)  # fmt: skip
def test_each_wire_format_s_counts_have_their_price(
    prices: Pricing, kind: str, model: str, usage: dict[str, Any]
) -> None:
    provider = Registry(settings.load(environ={}).providers).for_dialect(kind)
    cost = prices.cost(provider, model, json.dumps(usage), AT)
    assert cost == pytest.approx(_exact(prices, provider, model, usage), rel=1e-12)
    assert cost is not None and cost > 0
    more = {name: count * 2 if isinstance(count, int) else count for name, count in usage.items()}
    again = prices.cost(provider, model, json.dumps(more), AT)
    assert again is not None and again > cost


def test_cached_tokens_of_an_anthropic_answer_are_not_among_its_input(prices: Pricing) -> None:
    provider = Registry(settings.load(environ={}).providers).for_dialect("anthropic")
    plain, cached = {"input_tokens": 1000, "output_tokens": 0}, {"cache_read_input_tokens": 1000}
    costs = [
        prices.cost(provider, "claude-sonnet-4-5", json.dumps(usage), AT)
        for usage in (plain, plain | cached, {"input_tokens": 2000, "output_tokens": 0})
    ]
    assert None not in costs
    assert costs[0] < costs[1] < costs[2]  # type: ignore[operator]
