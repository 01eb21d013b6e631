"""Owns telling the model, in Responses requests, what its agent was not shown. See ``dialects.overlay``.

Must not decide what is told. Invariant: an agent's own items keep every part that they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from agentstate.core.model import Item
from agentstate.core.policy import call_digest
from agentstate.dialects import responses_results
from agentstate.dialects.overlay import Fate, Heard, merged, results_told, woven
from agentstate.dialects.overlay_openai import text_of, with_note
from agentstate.dialects.responses_answer import calls_of
from agentstate.dialects.responses_context import sendable
from agentstate.dialects.rewriting import encoded, listed, loaded, member, with_members

_USERS = frozenset({"user", "system", "developer"})
# Outputs that are a text or a list of parts, so that a note has room in them.
_ROOMY = frozenset({"function_call_output", "custom_tool_call_output"})


class ResponsesForm:
    """Items: those that a model said, and results, each on its own."""

    field = "input"

    def said(self, plain: bytes) -> list[bytes]:
        return listed(plain, "output")

    def pieces(self, plain: bytes) -> list[bytes]:
        return [raw for raw in listed(plain, "output") if _is_call(loaded(raw))]

    def end(self, items: Sequence[Item], start: int, ids: Collection[str]) -> int:
        """Some clients put each result directly behind its call: such a run goes on to the last of the calls."""
        end = start
        while end < len(items) and _is_models(items[end]):
            end += 1
        if end == start:
            return start
        left = set(ids).difference(*(item.call_ids for item in items[start:end]))
        at = end
        while left and at < len(items) and (_is_models(items[at]) or items[at].answers is not None):
            if _is_models(items[at]) and not left.isdisjoint(items[at].call_ids):
                left.difference_update(items[at].call_ids)
                end = at + 1
            at += 1
        return end

    def named(self, plain: bytes) -> dict[str, bytes]:
        return {
            name: raw for raw in listed(plain, "output") if isinstance(name := loaded(member(raw, "id")), str) and name
        }

    def name_of(self, raw: bytes) -> str:
        item = loaded(raw)
        refers = isinstance(item, dict) and item.get("type", "item_reference") == "item_reference"
        name = item.get("id") if refers and "role" not in item else None
        return name if isinstance(name, str) else ""

    def written(self, raw: bytes) -> list[bytes]:
        return list(sendable([raw]))

    def heard(self, raws: Iterable[bytes]) -> Heard:
        text: list[str] = []
        calls: list[tuple[str, bytes]] = []
        for item in map(loaded, raws):
            if _is_result(item):
                continue
            if item.get("role") == "assistant":
                text.append(text_of(item.get("content")))
            calls += [(one.call_id, call_digest(one.name, one.arguments)) for one in calls_of([(0, _typed(item))])]
        return Heard("".join(text), tuple(calls))

    def told(self, raws: Sequence[bytes], start: int, end: int, fates: Sequence[Fate]) -> dict[int, list[bytes]]:
        given = sum(fate.refused is None for fate in fates)
        places = [at for at in range(start, end) if _is_call(loaded(raws[at]))]
        if given < len(fates) and len(places) != given:
            raise ValueError("not each of its calls is there")
        calls = woven(places, fates, lambda fate: _sendable(fate.raw)).around(lambda at: [raws[at]])
        found = []
        for at in range(start, len(raws)):
            item = loaded(raws[at])
            if _is_result(item):
                found.append((at, str(item.get("call_id") or item.get("id") or "")))
            elif at >= end:
                break
        results = results_told(raws, found, end, fates, _result, _noted)
        if (both := calls.keys() & results.keys()) and both == {end - 1}:  # no result is there yet
            results[end - 1] = [*calls.pop(end - 1), *results[end - 1][1:]]
        return merged(calls, results)


def _is_models(item: Item) -> bool:
    return item.role not in _USERS and item.answers is None and item.role != "tool"


def _is_result(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind.endswith("_output") and kind != "program_output"


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    return item if isinstance(item.get("type"), str) else {**item, "type": "message"}


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and bool(calls_of([(0, _typed(item))]))


def _sendable(raw: bytes) -> bytes:
    return with_members(raw, {"id": None, "created_by": None}) if member(raw, "call_id") else raw


def _result(fate: Fate) -> bytes:
    assert fate.refused is not None
    notes: list[bytes] = []
    answer = responses_results.answer(fate.call, loaded(fate.raw), fate.refused, notes)
    return b",".join([answer, *notes])


def _noted(raw: bytes, note: str) -> list[bytes]:
    """A result with a note in it, or, where it has no room for one, a message of the developer's behind it."""
    if loaded(member(raw, "type")) in _ROOMY:
        return [with_members(raw, {"output": with_note(member(raw, "output"), note, b"input_text")})]
    call_id = str(loaded(member(raw, "call_id")) or loaded(member(raw, "id")) or "")
    said = encoded(f"About call {call_id}: {note}")
    return [raw, b'{"type":"message","role":"developer","content":' + said + b"}"]
