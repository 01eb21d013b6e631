"""Owns reading recorded exchanges of every wire format as the one form in which they are exported. Pure. Must not
choose what is exported.

Invariant: nothing is made up: what the form cannot hold is refused by ``Untranslatable`` or is one of the ``losses``;
results stand right behind the calls that they answer, under ids that no two calls share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from agentstate.core.transcript import Called, Dialogue, Document, Offered, Picture, Piece, Reply, Spoken
from agentstate.dialects import (
    transcripts_gemini,
    transcripts_ollama,
    translate_anthropic,
    translate_anthropic_answer,
    translate_chat,
    translate_chat_answer,
    translate_responses,
    translate_responses_answer,
)
from agentstate.dialects.translate_form import (
    Asked,
    File,
    Image,
    Losses,
    Message,
    Refusal,
    Result,
    Said,
    Text,
    Tool,
    ToolUse,
    settled,
    wire_name,
)
from agentstate.dialects.translate_json import Fields, fields_in, loaded, objects, text_in
from agentstate.errors import Untranslatable

LOST_TOOLS = "tools that only their own provider runs"
# What a custom tool of free text is told to take where tools take objects.
_FREE = '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'


class _Reading(NamedTuple):
    """``kept``: the fields of a request that tell what was said; ``own``: the kinds of tools that the agent runs."""

    kept: frozenset[str]
    own: frozenset[str | None]
    read: Callable[[Fields, Losses], Asked]
    answers: Callable[[Fields, Losses], list[Said]]


def _chat_answers(body: Fields, losses: Losses) -> list[Said]:
    choices = sorted(objects(body.get("choices"), "choices"), key=lambda choice: int(choice.get("index") or 0))
    return [translate_chat_answer.read({**body, "choices": [choice]}, losses) for choice in choices]


def _one(read: Callable[[Fields, Losses], Said]) -> Callable[[Fields, Losses], list[Said]]:
    return lambda body, losses: [read(body, losses)]


_TOOLS_OF_CHAT: frozenset[str | None] = frozenset({"function", "custom", None})
_READINGS = {
    "openai_chat": _Reading(
        frozenset({"messages", "tools", "functions", "parallel_tool_calls"}),
        _TOOLS_OF_CHAT,
        translate_chat.read,
        _chat_answers,
    ),
    "openai_responses": _Reading(
        frozenset({"instructions", "input", "tools", "parallel_tool_calls"}),
        frozenset({"function", "custom", "namespace"}),
        translate_responses.read,
        _one(translate_responses_answer.read),
    ),
    "anthropic_messages": _Reading(
        frozenset({"system", "messages", "tools"}),
        frozenset({"custom", None}),
        translate_anthropic.read,
        _one(translate_anthropic_answer.read),
    ),
    "ollama_chat": _Reading(
        transcripts_ollama.KEPT, _TOOLS_OF_CHAT, transcripts_ollama.read, _one(transcripts_ollama.read_answer)
    ),
    "gemini": _Reading(transcripts_gemini.KEPT, frozenset(), transcripts_gemini.read, transcripts_gemini.read_answers),
}
DIALECTS = frozenset(_READINGS)


def dialogue(dialect: str, body: bytes) -> tuple[Dialogue, tuple[str, ...]]:
    """(what a request of a dialect in ``DIALECTS`` gave the model, what of it was lost).

    A pointer to what the provider holds must have been replaced before. Raises ``Untranslatable``.
    """
    reading, losses = _READINGS[dialect], Losses()
    whole = loaded(body)
    fields = {name: said for name, said in whole.items() if name in reading.kept}
    if reading.own and isinstance(fields.get("tools"), list):
        own = [tool for tool in fields["tools"] if fields_in(tool).get("type") in reading.own]
        if len(own) < len(fields["tools"]):
            losses.add(LOST_TOOLS)
        fields["tools"] = own
    try:
        asked = reading.read(fields, losses)
    except (RecursionError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise Untranslatable(f"the request is not as its dialect has it ({type(error).__name__})") from None
    free = {wire_name(tool.name, tool.space) for tool in asked.tools if not tool.schema}
    serial = fields_in(whole.get("tool_choice")).get("disable_parallel_tool_use")
    parallel = not serial if isinstance(serial, bool) else asked.parallel
    return Dialogue(tuple(_spoken(settled(asked.messages), free)), _offered(asked.tools), parallel), losses.told()


def replies(dialect: str, asked: Dialogue, body: bytes) -> list[Reply]:
    """The choices of a plain, finished answer, first one first. Raises ``Untranslatable``."""
    losses = Losses()
    try:
        found = _READINGS[dialect].answers(loaded(body, "answer"), losses)
        return [_reply(asked, said) for said in found]
    except (RecursionError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise Untranslatable(f"the answer is not as its dialect has it ({type(error).__name__})") from None


def job_of(body: bytes) -> str:
    """The name of the job under way that an answer is; empty: it is none."""
    try:
        said = loaded(body, "answer")
    except Untranslatable:
        return ""
    return text_in(said.get("id")) if said.get("status") in ("queued", "in_progress") else ""


def _reply(asked: Dialogue, said: Said) -> Reply:
    """An answer behind its conversation: its calls have ids that no earlier call has."""
    taken = {call.id for message in asked.messages for call in message.calls}
    [message] = _spoken(settled([Message("assistant", said.parts)]), frozenset()) or [Spoken("assistant")]
    calls = []
    for call in message.calls:
        name = call.id
        place = 2
        while name in taken:
            name = f"{call.id[:32]}_{place}"
            place += 1
        taken.add(name)
        calls.append(call._replace(id=name))
    end = said.end if said.end in ("length", "refusal") else "tools" if calls else "stop"
    return Reply(message._replace(calls=tuple(calls), reasoning=said.reasoning), end)


def _offered(tools: Iterable[Tool]) -> tuple[Offered, ...]:
    found: dict[str, Offered] = {}
    for tool in tools:
        name = wire_name(tool.name, tool.space)
        found.setdefault(name, Offered(name, tool.description, tool.schema.decode() or _FREE, tool.strict))
    return tuple(found.values())


def _spoken(messages: Iterable[Message], free: Iterable[str]) -> list[Spoken]:
    out: list[Spoken] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, Result)]
        out += [Spoken("tool", _pieces(part.parts), answers=part.id, failed=part.failed) for part in results]
        calls = tuple(_called(part, free) for part in message.parts if isinstance(part, ToolUse))
        refusal = "".join(part.text for part in message.parts if isinstance(part, Refusal))
        pieces = _pieces(message.parts, "" if message.role == "assistant" else "\n")
        if pieces or calls or refusal or not results:
            out.append(Spoken(message.role, pieces, calls, refusal=refusal))
    return out


def _called(call: ToolUse, free: Iterable[str]) -> Called:
    name = wire_name(call.name, call.space)
    if call.custom or name in free:
        return Called(call.id, name, msgspec.json.encode({"input": call.arguments}).decode())
    return Called(call.id, name, call.arguments)


def _pieces(parts: Iterable[object], between: str = "\n") -> tuple[Piece, ...]:
    """Texts that follow each other are one, with ``between`` between them."""
    out: list[Piece] = []
    for part in parts:
        if isinstance(part, Text) and part.text:
            last = out[-1] if out else None
            if isinstance(last, str):
                out[-1] = last + ("" if last.endswith("\n") else between) + part.text
            else:
                out.append(part.text)
        elif isinstance(part, Image):
            out.append(Picture(part.url or f"data:{part.media};base64,{part.data}"))
        elif isinstance(part, File):
            out.append(Document(part.name, part.url or f"data:{part.media};base64,{part.data}"))
    return tuple(out)
