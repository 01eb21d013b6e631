"""Every provider's usage object counts every token once, zeros are kept, and what is not sent is not made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.usage import Tokens, counted

CHAT = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
GOLDEN: list[tuple[str, dict[str, Any], Tokens]] = [
    ("openai chat", CHAT, Tokens(1000, 500)),
    (
        "openai chat, cached and reasoning",
        CHAT
        | {"prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 300}},
        Tokens(1000, 500, 400, 0, 300),
    ),
    (
        "openai chat, zeros and nulls",
        CHAT | {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": None},
        Tokens(1000, 500),
    ),
    (
        "openai responses",
        {
            "input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 100},
            "output_tokens": 500, "output_tokens_details": {"reasoning_tokens": 300}, "total_tokens": 1500,
        },
        Tokens(1000, 500, 400, 100, 300),
    ),
    (
        "anthropic, cached parts beside the input",
        {
            "input_tokens": 100, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 3000,
            "cache_creation": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 1000},
            "output_tokens": 500, "service_tier": "standard",
        },
        Tokens(5100, 500, 3000, 2000),
    ),
    (
        "gemini, thoughts and tools beside the rest",
        {
            "promptTokenCount": 1000, "cachedContentTokenCount": 200, "candidatesTokenCount": 100,
            "thoughtsTokenCount": 250, "toolUsePromptTokenCount": 30, "totalTokenCount": 1380,
        },
        Tokens(1030, 350, 200, 0, 250),
    ),
    ("ollama", {"prompt_eval_count": 26, "eval_count": 298}, Tokens(26, 298)),
    ("embeddings", {"prompt_tokens": 8, "total_tokens": 8}, Tokens(8)),
    ("voyage", {"total_tokens": 8}, Tokens(8)),
    ("deepseek", CHAT | {"prompt_cache_hit_tokens": 640, "prompt_cache_miss_tokens": 360}, Tokens(1000, 500, 640)),
    ("together", CHAT | {"cached_tokens": 12}, Tokens(1000, 500, 12)),
    (
        "reasoning beside the completion, as the total shows",
        CHAT | {"completion_tokens_details": {"reasoning_tokens": 300}, "total_tokens": 1800},
        Tokens(1000, 800, 0, 0, 300),
    ),
    (
        "openrouter, with writes",
        CHAT | {"prompt_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 50}, "cost": 0.01},
        Tokens(1000, 500, 100, 50),
    ),
    ("nothing used", {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, Tokens()),
]  # fmt: skip


@pytest.mark.parametrize(("usage", "tokens"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN])
def test_a_usage_object_of_each_provider_is_counted(usage: dict[str, Any], tokens: Tokens) -> None:
    assert counted(usage) == tokens
    assert tokens.total == tokens.input + tokens.output


@pytest.mark.parametrize("usage", [None, [], "many", 7, {}, {"seconds": 3.5, "type": "duration"}])
def test_what_counts_no_tokens_is_unknown_and_not_zero(usage: Any) -> None:
    assert counted(usage) is None


_names = st.sampled_from(
    ["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "promptTokenCount", "eval_count",
     "cache_read_input_tokens", "cached_tokens", "prompt_tokens_details", "input_tokens_details", "total_tokens",
     "completion_tokens_details", "reasoning_tokens", "thoughtsTokenCount", "cachedContentTokenCount"]
)  # fmt: skip
_figures = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**9), st.text(max_size=3), st.floats())


@given(st.dictionaries(_names, st.one_of(_figures, st.dictionaries(_names, _figures, max_size=4)), max_size=6))
def test_whatever_is_sent_the_parts_never_exceed_the_whole(usage: dict[str, Any]) -> None:
    tokens = counted(usage)
    if tokens is not None:
        assert min(tokens) >= 0
        assert max(tokens.cache_read, tokens.cache_write) <= tokens.input
        assert tokens.reasoning <= tokens.output
