"""Owns how many tokens a provider's usage object tells of, in every wire format. Must not price them.

Invariant: what a provider does not tell counts as nothing, and a usage that cannot be read is no error.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec


class Tokens(NamedTuple):
    """``read``: all that was read, from a provider's store of prompts or not; ``stored``: how many of those were from
    there; ``written``: all that was written, thoughts included."""

    read: int = 0
    written: int = 0
    stored: int = 0


NONE = Tokens()
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None
_Count = int | float | None  # where somebody writes 12.0


class _ChatDetails(msgspec.Struct, gc=False):
    cached_tokens: _Whole = 0


class _Details(msgspec.Struct):
    cached_tokens: _Count = 0


class _Chat(msgspec.Struct, gc=False):
    """OpenAI's chat and what imitates it, as nearly all write it: apart, since it is the most frequent, and the quicker
    to read the less is looked for."""

    prompt_tokens: _Whole = 0
    completion_tokens: _Whole = 0
    prompt_tokens_details: _ChatDetails | None = None


class _Usage(msgspec.Struct):
    """The names of all formats; those that a provider does not use are missing."""

    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _Details | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Count = 0
    cache_creation_input_tokens: _Count = 0
    prompt_token_count: _Count = msgspec.field(default=0, name="promptTokenCount")
    tool_use_prompt_token_count: _Count = msgspec.field(default=0, name="toolUsePromptTokenCount")
    candidates_token_count: _Count = msgspec.field(default=0, name="candidatesTokenCount")
    thoughts_token_count: _Count = msgspec.field(default=0, name="thoughtsTokenCount")
    cached_content_token_count: _Count = msgspec.field(default=0, name="cachedContentTokenCount")
    prompt_eval_count: _Count = 0
    eval_count: _Count = 0


_chat = msgspec.json.Decoder(_Chat)
_decoder = msgspec.json.Decoder(_Usage)


def tokens(usage: str) -> Tokens:
    """The tokens of a usage object (JSON text); none where it is empty or not to be understood."""
    try:
        chat = _chat.decode(usage)
    except (msgspec.DecodeError, RecursionError):
        return _of_any(usage)
    read, written, details = chat.prompt_tokens, chat.completion_tokens, chat.prompt_tokens_details
    if read or written:
        return Tokens(read or 0, written or 0, (details.cached_tokens or 0) if details is not None else 0)
    return _of_any(usage)


def _of_any(usage: str) -> Tokens:
    try:
        found = _decoder.decode(usage)
    except (msgspec.DecodeError, RecursionError):
        return NONE
    if found.prompt_tokens or found.completion_tokens:
        of_prompt = found.prompt_tokens_details
        stored = _whole(of_prompt.cached_tokens) if of_prompt is not None else 0
        return Tokens(_whole(found.prompt_tokens), _whole(found.completion_tokens), stored)
    if found.input_tokens or found.output_tokens:
        of_input = found.input_tokens_details
        if of_input is not None:  # OpenAI's Responses: all that was read
            return Tokens(_whole(found.input_tokens), _whole(found.output_tokens), _whole(of_input.cached_tokens))
        stored = _whole(found.cache_read_input_tokens)  # Anthropic: what came from the store is told apart
        read = _whole(found.input_tokens) + stored + _whole(found.cache_creation_input_tokens)
        return Tokens(read, _whole(found.output_tokens), stored)
    if found.prompt_token_count:
        read = _whole(found.prompt_token_count) + _whole(found.tool_use_prompt_token_count)
        written = _whole(found.candidates_token_count) + _whole(found.thoughts_token_count)
        return Tokens(read, written, _whole(found.cached_content_token_count))
    return Tokens(_whole(found.prompt_eval_count), _whole(found.eval_count))


def _whole(count: _Count) -> int:
    return int(count) if count is not None and 0 <= count < 2**53 else 0
