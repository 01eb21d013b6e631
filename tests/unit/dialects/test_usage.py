"""Tokens are read from the usage object of every wire format; what is none costs no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.usage import NONE, Tokens, tokens


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}, Tokens(9, 12, 0)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, Tokens(9, 2, 4)),
        ({"prompt_tokens": 9, "completion_tokens": None, "prompt_tokens_details": None}, Tokens(9, 0, 0)),
        ({"prompt_tokens": 9.0, "completion_tokens": 2.0, "prompt_tokens_details": {}}, Tokens(9, 2, 0)),
        ({"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}, Tokens(5, 2, 3)),
        (
            {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 10},
            Tokens(115, 2, 100, 10),
        ),
        ({"promptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 6}, Tokens(3, 10, 0, 0, 6)),
        ({"promptTokenCount": 3, "toolUsePromptTokenCount": 2, "cachedContentTokenCount": 1}, Tokens(5, 0, 1)),
        ({"prompt_eval_count": 3, "eval_count": 7}, Tokens(3, 7, 0)),
        ({"prompt_tokens": -9}, NONE),
        ({"prompt_tokens": "nine"}, NONE),
        ([1], NONE),
        ({}, NONE),
    ],
)
def test_tokens_of_every_format(usage: Any, found: Tokens) -> None:
    assert tokens(json.dumps(usage)) == found


@pytest.mark.parametrize("text", ["", "x", '{"prompt_tokens": 1e400}', "[" * 100_000])
def test_what_is_no_usage_counts_as_nothing(text: str) -> None:
    assert tokens(text) == NONE
