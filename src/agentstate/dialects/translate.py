"""Owns the translation of questions and answers between the dialects of OpenAI and Anthropic, for a fallback to a
provider that speaks another one. Must not stream, send or keep anything.

JSON bodies only, one whole body to one whole body: questions are asked plainly, and an answer becomes a stream, where
one was asked for, by ``Dialect.convert``. Invariant: what is not said in the result is said in ``losses``, and what
would change what a question means is refused; equal bodies give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentstate.dialects import (
    translate_anthropic,
    translate_anthropic_answer,
    translate_anthropic_write,
    translate_chat,
    translate_chat_answer,
    translate_chat_write,
    translate_responses,
    translate_responses_answer,
    translate_responses_write,
)
from agentstate.dialects.translate_form import Asked, Losses, Part, Said, Tool, ToolUse, restored, short
from agentstate.dialects.translate_json import Fields, dumped, loaded
from agentstate.errors import Untranslatable


@dataclass(frozen=True, slots=True)
class Translated:
    """``path``: normalised, as in ``Call``, without a query: of the target for a question, of the asker for an answer.
    ``losses``: what could not be carried over, sorted; empty: nothing."""

    path: str
    body: bytes
    losses: tuple[str, ...]


class _Dialect(NamedTuple):
    path: str
    read: Callable[[Fields, Losses], Asked]
    write: Callable[[Asked, str, Losses], Fields]
    tools: Callable[[Fields, Losses], tuple[Tool, ...]]
    read_answer: Callable[[Fields, Losses], Said]
    write_answer: Callable[[Said, Fields, str, int, Losses], Fields]


# By the names that the dialects have in ``dialects.registry``.
_DIALECTS = {
    "openai_chat": _Dialect(
        translate_chat.PATH,
        translate_chat.read,
        translate_chat_write.write,
        translate_chat.tools,
        translate_chat_answer.read,
        translate_chat_answer.write,
    ),
    "openai_responses": _Dialect(
        translate_responses.PATH,
        translate_responses.read,
        translate_responses_write.write,
        translate_responses.tools,
        translate_responses_answer.read,
        translate_responses_answer.write,
    ),
    "anthropic_messages": _Dialect(
        translate_anthropic.PATH,
        translate_anthropic.read,
        translate_anthropic_write.write,
        translate_anthropic.tools,
        translate_anthropic_answer.read,
        translate_anthropic_answer.write,
    ),
}
# Beginnings of the losses by which an agent misses a tool, or the shape that it relies on.
_GRAVE = ("tools (", "tool_choice (forced)", "response_format (", "response_format.s", "tools.strict")


def translatable(source: str, target: str) -> bool:
    """Whether there is a translation from one dialect to another one, by their names."""
    return source != target and source in _DIALECTS and target in _DIALECTS


def question(source: str, target: str, body: bytes, model: str) -> Translated:
    """A question in the target's dialect, asked plainly of ``model``.

    Where the target demands a limit of tokens and the agent names none, it is ``translate_models.DEFAULT_MAX_TOKENS``
    or what the model can write at most. Raises ``Untranslatable`` where the question would not mean the same.
    """
    asker, other = _pair(source, target)
    losses = Losses()
    asked = asker.read(loaded(body), losses)
    if not asked.messages:
        raise Untranslatable("the request says nothing: it has no messages")
    written = other.write(asked, model, losses)
    return Translated(other.path, _encoded(written), losses.told())


def answer(source: str, target: str, asked: bytes, body: bytes, *, created: int = 0) -> Translated:
    """The target's plain, finished answer in the dialect of the agent, which asked ``asked`` in ``source``.

    ``created``: seconds since the epoch, for dialects that tell when an answer was made where the target's does not.
    Raises ``Untranslatable`` where the answer cannot be told in the agent's dialect.
    """
    asker, other = _pair(source, target)
    losses = Losses()
    request = loaded(asked)
    said = other.read_answer(loaded(body, "answer"), losses)
    calls = iter(restored(said.calls(), asker.tools(request, Losses())))
    parts: tuple[Part, ...] = tuple(next(calls) if isinstance(part, ToolUse) else part for part in said.parts)
    key = short(said.id or body.decode("utf-8", "replace"))
    written = asker.write_answer(replace(said, parts=parts), request, key, created, losses)
    return Translated(asker.path, _encoded(written), losses.told())


def loses_tools_or_structure(losses: Iterable[str]) -> bool:
    """Whether a translation with these losses takes tools from the agent, or the shape that it relies on: a forced
    call, an answer or arguments by a schema."""
    return any(loss.startswith(_GRAVE) for loss in losses)


def _pair(source: str, target: str) -> tuple[_Dialect, _Dialect]:
    if not translatable(source, target):
        raise Untranslatable(f"there is no translation from {source} to {target}")
    return _DIALECTS[source], _DIALECTS[target]


def _encoded(written: Fields) -> bytes:
    try:
        return dumped(written)
    except (UnicodeEncodeError, RecursionError):
        raise Untranslatable("the body holds text that is not Unicode, or is nested too deeply") from None
