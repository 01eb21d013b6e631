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
    return None if counts is None else prices._ask(snapshot, source, model, counts, AT)


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
