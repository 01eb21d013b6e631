"""Owns telling the model, in chat requests and those of Ollama, what its agent was not shown. See ``dialects.overlay``.

Must not decide what is told. Invariant: an agent's own messages keep every part that they have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from agentstate.core.model import Item
from agentstate.core.policy import call_digest
from agentstate.dialects.openai_answer import LEGACY_ID
from agentstate.dialects.openai_follow import taken_back
from agentstate.dialects.overlay import Fate, Heard, results_told, woven
from agentstate.dialects.rewriting import elements, encoded, listed, loaded, member, with_elements, with_members


class ChatForm:
    """Chat completions; ``ollama``: the same messages, but for results, and one message instead of choices."""

    field = "messages"

    def __init__(self, ollama: bool = False) -> None:
        self._ollama = ollama

    def _message(self, plain: bytes) -> bytes:
        if self._ollama:
            return member(plain, "message")
        return next((member(choice, "message") for choice in listed(plain, "choices")), b"")

    def said(self, plain: bytes) -> list[bytes]:
        message = self._message(plain)
        return [taken_back(message)] if message else []

    def pieces(self, plain: bytes) -> list[bytes]:
        message = self._message(plain)
        old = member(message, "function_call")
        return listed(message, "tool_calls") + ([old] if old else [])

    def end(self, items: Sequence[Item], start: int, ids: Collection[str]) -> int:
        end = start
        while end < len(items) and items[end].role == "assistant":
            end += 1
        return end

    def heard(self, raws: Iterable[bytes]) -> Heard:
        text: list[str] = []
        calls: list[tuple[str, bytes]] = []
        for message in map(loaded, raws):
            text.append(text_of(message.get("content")))
            calls += [_call(call) for call in message.get("tool_calls") or () if isinstance(call, dict)]
            if isinstance(message.get("function_call"), dict):
                calls.append(("", _call({"function": message["function_call"]})[1]))
        return Heard("".join(text), tuple(calls))

    def told(self, raws: Sequence[bytes], start: int, end: int, fates: Sequence[Fate]) -> dict[int, list[bytes]]:
        out: dict[int, list[bytes]] = {}
        given = sum(fate.refused is None for fate in fates)
        if given < len(fates):
            place = next((at for at in reversed(range(start, end)) if listed(raws[at], "tool_calls")), None)
            if place is None:
                raise ValueError("the message with the calls is not there")
            array = member(raws[place], "tool_calls")
            parts = elements(array)
            if len(parts) != given:
                raise ValueError("its calls stand in several messages")
            calls = woven(range(given), fates, lambda fate: fate.raw).around(lambda at: [parts[at]])
            out[place] = [with_members(raws[place], {"tool_calls": with_elements(array, calls)})]
        found = []
        for at in range(end, len(raws)):
            message = loaded(raws[at])
            if not isinstance(message, dict) or message.get("role") not in ("tool", "function"):
                break
            named = LEGACY_ID if message["role"] == "function" else message.get("tool_call_id")
            found.append((at, named if isinstance(named, str) else ""))
        results = results_told(raws, found, end, fates, self._result, _noted)
        if end - 1 in out and end - 1 in results:  # no result is there yet: they follow the message itself
            return {**results, **out, end - 1: [*out[end - 1], *results[end - 1][1:]]}
        return results | out

    def _result(self, fate: Fate) -> bytes:
        assert fate.refused is not None
        call_id = encoded(fate.call.call_id)
        about = b'"tool_call_id":' + call_id
        if self._ollama:
            about = b'"tool_name":' + encoded(fate.call.name) + (b"," + about if fate.call.call_id else b"")
        return b'{"role":"tool",' + about + b',"content":' + encoded(fate.refused.content) + b"}"


def text_of(content: Any) -> str:
    """The text of a content, whole or in parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _call(call: dict[str, Any]) -> tuple[str, bytes]:
    custom = call.get("custom")
    function = custom if isinstance(custom, dict) else call.get("function")
    function = function if isinstance(function, dict) else {}
    said = function.get("input" if custom is function else "arguments")
    call_id = call.get("id")
    return (
        call_id if isinstance(call_id, str) else "",
        call_digest(str(function.get("name") or ""), said if isinstance(said, str) else json.dumps(said)),
    )


def _noted(message: bytes, note: str) -> list[bytes]:
    """A result with a note at its end."""
    return [with_members(message, {"content": with_note(member(message, "content"), note, b"text")})]


def with_note(content: bytes, note: str, kind: bytes) -> bytes:
    """A content, a text or a list of parts, with a note after it; ``kind``: the type of a part that is text."""
    if content.startswith(b"["):
        return with_elements(content, {}, [b'{"type":"' + kind + b'","text":' + encoded(note) + b"}"])
    if content.startswith(b'"'):
        old = content[:-1]  # every byte of the text as it was written
        return old + encoded("\n\n" + note if len(content) > 2 else note)[1:]
    return encoded(note)
