"""Owns reading Gemini's ``generateContent`` for exports. Must not know the other dialects.

Invariant: calls without ids, which this API does not need, get them by their place; a result answers the first open
call of its id or, without one, of its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentstate.dialects.gemini_results import json_schema
from agentstate.dialects.translate_form import (
    Asked,
    End,
    File,
    Image,
    Losses,
    Message,
    Part,
    Result,
    Said,
    Text,
    Tool,
    ToolUse,
)
from agentstate.dialects.translate_json import Fields, dumped, fields_in, objects, text_in
from agentstate.errors import Untranslatable

KEPT = frozenset({"contents", "systemInstruction", "system_instruction", "tools"})
_ENDS: dict[str, End] = {"STOP": "stop", "": "stop", "MAX_TOKENS": "length"}
_SAY_NOTHING = frozenset(
    {"thoughtSignature", "thought_signature", "thought", "videoMetadata", "video_metadata", "partMetadata"}
)


def read(body: Fields, losses: Losses) -> Asked:
    """The question. Raises ``Untranslatable``."""
    told = body.get("systemInstruction") or body.get("system_instruction")
    system = told if isinstance(told, str) else "\n".join(text_in(part.get("text")) for part in _parts(fields_in(told)))
    calls = _Calls()
    messages = [Message("system", (Text(system),))] if system.strip() else []
    for content in _contents(body.get("contents")):
        parts = tuple(_read(part, calls, losses) for part in _parts(content))
        kept = tuple(part for part in parts if part is not None)
        messages.append(Message("assistant" if content.get("role") == "model" else "user", kept))
    return Asked(tuple(messages), tuple(_tools(body.get("tools"), losses)))


def read_answers(body: Fields, losses: Losses) -> list[Said]:
    """The candidates of an answer, first one first."""
    found = []
    for candidate in sorted(objects(body.get("candidates"), "candidates"), key=lambda one: int(one.get("index") or 0)):
        calls = _Calls()
        parts = _parts(fields_in(candidate.get("content")))
        thought = "".join(text_in(part.get("text")) for part in parts if part.get("thought"))
        kept = tuple(said for part in parts if (said := _read(part, calls, losses)) is not None)
        end = _ENDS.get(text_in(candidate.get("finishReason")), "refusal")
        found.append(Said("", text_in(body.get("modelVersion")), kept, end, reasoning=thought))
    return [replace(said, end="tools") if said.calls() and said.end == "stop" else said for said in found]


class _Calls:
    """The calls so far, which need ids."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str, str]] = []  # (the id that it has now, the one that it came with, its name)
        self._count = 0

    def add(self, given: str, name: str) -> str:
        made = given or f"call_{self._count}"
        self._count += 1
        self._open.append((made, given, name))
        return made

    def answered(self, given: str, name: str) -> str:
        for place, (made, own, called) in enumerate(self._open):
            if (given and given == own) or (not given and called == name):
                del self._open[place]
                return made
        return given


def _contents(said: Any) -> list[Fields]:
    if isinstance(said, str):
        return [{"role": "user", "parts": [{"text": said}]}]
    return [said] if isinstance(said, dict) else objects(said, "contents")


def _parts(content: Fields) -> list[Fields]:
    said = content.get("parts")
    return [said] if isinstance(said, dict) else objects(said, "parts")


def _member(part: Fields, camel: str, snake: str) -> Fields:
    return fields_in(part.get(camel) or part.get(snake))


def _read(part: Fields, calls: _Calls, losses: Losses) -> Part | None:
    if part.get("thought"):
        losses.add("thinking")
        return None
    if isinstance(part.get("text"), str):
        return Text(part["text"])
    call = _member(part, "functionCall", "function_call")
    if call:
        name = text_in(call.get("name"))
        return ToolUse(calls.add(text_in(call.get("id")), name), name, dumped(fields_in(call.get("args"))).decode())
    result = _member(part, "functionResponse", "function_response")
    if result:
        return _result(result, calls)
    inline, held = _member(part, "inlineData", "inline_data"), _member(part, "fileData", "file_data")
    media = text_in((inline or held).get("mimeType") or (inline or held).get("mime_type"))
    if inline and media.startswith("image/"):
        return Image(media, text_in(inline.get("data")))
    if inline:
        return File("", media, text_in(inline.get("data")))
    if held:
        return File("", media, url=text_in(held.get("fileUri") or held.get("file_uri")))
    if not part.keys() - _SAY_NOTHING:
        return None
    raise Untranslatable(f"a content holds a part with {sorted(part)[:3]}, which a chat has no place for")


def _result(result: Fields, calls: _Calls) -> Result:
    said = result.get("response")
    only = said.get("output") if isinstance(said, dict) and said.keys() == {"output"} else None
    failed = isinstance(said, dict) and said.keys() == {"error"}
    text = only if isinstance(only, str) else dumped(said if said is not None else {}).decode()
    return Result(calls.answered(text_in(result.get("id")), text_in(result.get("name"))), (Text(text),), failed)


def _tools(said: Any, losses: Losses) -> Iterator[Tool]:
    for tool in [said] if isinstance(said, dict) else objects(said, "tools"):
        declared = tool.get("functionDeclarations") or tool.get("function_declarations")
        if tool.keys() - {"functionDeclarations", "function_declarations"}:
            losses.add("tools that only their own provider runs")
        for one in objects(declared, "functionDeclarations"):
            schema = one.get("parametersJsonSchema") or one.get("parameters_json_schema")
            schema = schema or json_schema(one.get("parameters")) or {"type": "object", "properties": {}}
            yield Tool(text_in(one.get("name")), text_in(one.get("description")), dumped(schema))
