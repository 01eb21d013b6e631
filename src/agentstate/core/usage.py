"""Owns what a provider's usage object says in tokens. Must not price them, nor know who sent it.

Providers name and nest the same counts in their own ways, and count cached tokens inside the input or beside it.
Invariant: what is given back counts every token once; a figure that was not sent counts nothing and is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = {}
_MOST = 2**53  # of one count: more is no number of tokens


class Tokens(NamedTuple):
    """``input``: all that the model was given; ``cache_read`` and ``cache_write`` are parts of it. ``output``: all that
    it made; ``reasoning`` is a part of it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


def counted(usage: Any) -> Tokens | None:
    """The tokens of a usage object as its provider sent it; ``None``: it counts none, or is no such object."""
    if usage.__class__ is not dict and not isinstance(usage, Mapping):
        return None
    if "prompt_tokens" in usage or "completion_tokens" in usage:
        return _chat(usage)
    if "input_tokens" in usage or "output_tokens" in usage:
        return _messages(usage)
    if "promptTokenCount" in usage or "candidatesTokenCount" in usage:
        return _gemini(usage)
    if "prompt_eval_count" in usage or "eval_count" in usage:
        return Tokens(_count(usage, "prompt_eval_count"), _count(usage, "eval_count"))
    if isinstance(usage.get("total_tokens"), int):  # of embeddings, which make none
        return Tokens(_count(usage, "total_tokens"))
    return None


def _chat(usage: Mapping[str, Any]) -> Tokens:
    """Chat and legacy completions: cached tokens are among the prompt's."""
    prompt, made = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    details = _part(usage, "prompt_tokens_details")
    read = _first(
        (details, "cached_tokens"), (usage, "cached_tokens"), (usage, "prompt_cache_hit_tokens"),
        (usage, "cache_read_input_tokens"),
    )  # fmt: skip
    written = _first((details, "cache_write_tokens"), (usage, "cache_creation_input_tokens"))
    reasoning = _first(
        (_part(usage, "completion_tokens_details"), "reasoning_tokens"), (usage, "reasoning_tokens"),
    )  # fmt: skip
    if reasoning and _count(usage, "total_tokens") == prompt + made + reasoning:  # some count it beside the rest
        made += reasoning
    return Tokens(prompt, made, min(read, prompt), min(written, prompt), min(reasoning, made))


def _messages(usage: Mapping[str, Any]) -> Tokens:
    """Responses, whose details are parts of the input, and Anthropic's, whose cached tokens stand beside it."""
    details = _part(usage, "input_tokens_details")
    inside = _count(details, "cached_tokens")
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    given, made = _count(usage, "input_tokens") + read + written, _count(usage, "output_tokens")
    reasoning = _first(
        (_part(usage, "output_tokens_details"), "reasoning_tokens"),
        (_part(usage, "output_tokens_details"), "thinking_tokens"),
    )
    return Tokens(
        given, made, min(read + inside, given), min(written + _count(details, "cache_write_tokens"), given),
        min(reasoning, made),
    )  # fmt: skip


def _gemini(usage: Mapping[str, Any]) -> Tokens:
    """Thoughts stand beside the candidates, what tools put into the prompt beside the prompt."""
    given = _count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount")
    thoughts = _count(usage, "thoughtsTokenCount")
    made = _count(usage, "candidatesTokenCount") + thoughts
    return Tokens(given, made, min(_count(usage, "cachedContentTokenCount"), given), 0, thoughts)


def _part(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = usage.get(name)
    return found if found is not None and isinstance(found, Mapping) else _NOTHING


def _count(usage: Mapping[str, Any], name: str) -> int:
    found = usage.get(name)
    if found is None:
        return 0
    if found.__class__ is int:  # nearly always
        return found if 0 < found < _MOST else 0
    if isinstance(found, bool) or not isinstance(found, int | float):
        return 0
    return int(found) if 0 < found < _MOST else 0


def _first(*places: tuple[Mapping[str, Any], str]) -> int:
    """The first of these counts that is not zero."""
    for part, name in places:
        if name in part and (count := _count(part, name)):
            return count
    return 0
