"""Owns telling the model, in requests of Anthropic and Gemini, what its agent was not shown: in both, calls and results
are parts of messages. See ``dialects.overlay``.

Must not decide what is told. Invariant: an agent's own messages keep every part that they have, signatures too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from agentstate.core.model import Item
from agentstate.core.policy import call_digest
from agentstate.dialects import anthropic_amend, gemini_results
from agentstate.dialects.anthropic_answer import is_agents
from agentstate.dialects.gemini_amend import CALLS
from agentstate.dialects.overlay import Fate, Heard, located, merged, woven
from agentstate.dialects.overlay_openai import text_of, with_note
from agentstate.dialects.rewriting import elements, encoded, listed, loaded, member, with_elements, with_members


class AnthropicForm:
    """Messages of content blocks."""

    field = "messages"

    def said(self, plain: bytes) -> list[bytes]:
        return [b'{"role":"assistant","content":[' + b",".join(listed(plain, "content")) + b"]}"]

    def pieces(self, plain: bytes) -> list[bytes]:
        return [block for block in listed(plain, "content") if _calls(block)]

    def end(self, items: Sequence[Item], start: int, ids: Collection[str]) -> int:
        return _end(items, start, "assistant")

    def heard(self, raws: Iterable[bytes]) -> Heard:
        text: list[str] = []
        calls: list[tuple[str, bytes]] = []
        for message in map(loaded, raws):
            content = message.get("content")
            text.append(text_of(content))
            for block in content if isinstance(content, list) else ():
                if isinstance(block, dict) and is_agents(str(block.get("type"))):
                    digest = call_digest(str(block.get("name") or ""), json.dumps(block.get("input")))
                    calls.append((str(block.get("id") or ""), digest))
        return Heard("".join(text), tuple(calls))

    def told(self, raws: Sequence[bytes], start: int, end: int, fates: Sequence[Fate]) -> dict[int, list[bytes]]:
        return _told(raws, start, end, fates, "content", _calls, _answered, _result, _noted, b'"user"')


class GeminiForm:
    """Contents of parts."""

    field = "contents"

    def _content(self, plain: bytes) -> bytes:
        return next((member(one, "content") for one in listed(plain, "candidates")), b"")

    def said(self, plain: bytes) -> list[bytes]:
        content = self._content(plain)
        return [content] if content else []

    def pieces(self, plain: bytes) -> list[bytes]:
        return [part for part in listed(self._content(plain), "parts") if _calls_of(part)]

    def end(self, items: Sequence[Item], start: int, ids: Collection[str]) -> int:
        return _end(items, start, "model")

    def heard(self, raws: Iterable[bytes]) -> Heard:
        text: list[str] = []
        calls: list[tuple[str, bytes]] = []
        for content in raws:
            for part in listed(content, "parts"):
                value = loaded(part)
                if isinstance(value.get("text"), str) and value.get("thought") is not True:
                    text.append(value["text"])
                for call in (loaded(raw) for name in CALLS if (raw := member(part, name))):
                    digest = call_digest(str(call.get("name") or ""), json.dumps(call.get("args")))
                    calls.append((str(call.get("id") or ""), digest))
        return Heard("".join(text), tuple(calls))

    def told(self, raws: Sequence[bytes], start: int, end: int, fates: Sequence[Fate]) -> dict[int, list[bytes]]:
        return _told(raws, start, end, fates, "parts", _calls_of, _answer_of, _response, _noted_part, b'"user"')


def _end(items: Sequence[Item], start: int, role: str) -> int:
    end = start
    while end < len(items) and items[end].role == role:
        end += 1
    return end


def _told(
    raws: Sequence[bytes], start: int, end: int, fates: Sequence[Fate], field: str, calls: Callable[[bytes], bool],
    answers: Callable[[bytes], str | None], made: Callable[[Fate], bytes], noted: Callable[[bytes, str], bytes],
    role: bytes,
) -> dict[int, list[bytes]]:  # fmt: skip
    """``Form.told``. ``field``: the list of a message's parts; ``calls``: whether a part is a call; ``answers``: the id
    of the call whose result a part is, ``None``: it is none."""
    out: dict[int, list[bytes]] = {}
    given = [fate for fate in fates if fate.refused is None]
    if len(given) < len(fates):
        place, parts = _with_calls(raws, start, end, field, calls)
        places = [at for at, part in enumerate(parts) if calls(part)]
        if len(places) != len(given):
            raise ValueError("its calls stand in several messages")
        changes = woven(places, fates, lambda fate: fate.raw).around(lambda at: [parts[at]])
        out[place] = [_with_parts(raws[place], field, changes)]
    # Results may be spread over several messages: each place is (message, part).
    found: list[tuple[int, str]] = []
    spots: list[tuple[int, int]] = []
    for at in range(end, len(raws)):
        named = [(place, answers(part)) for place, part in enumerate(_parts(raws[at], field))]
        if not any(call_id is not None for _, call_id in named):
            break
        for place, call_id in named:
            if call_id is not None:
                found.append((len(spots), call_id))
                spots.append((at, place))
    places_of = located(found, fates)
    notes = {
        spots[place]: fate.note for fate, place in zip(given, places_of, strict=True) if fate.note and place is not None
    }
    new = woven(places_of, fates, made)
    if new.rest and new.last is None:
        message = b'{"role":' + role + b',"' + field.encode() + b'":[' + b",".join(new.rest) + b"]}"
        return merged({end - 1: [*out.pop(end - 1, [raws[end - 1]]), message]}, out)
    for at in sorted({at for at, _ in spots}):
        parts = _parts(raws[at], field)
        mine = {spot: place for spot, (where, place) in enumerate(spots) if where == at}
        changes = {}
        for spot, place in mine.items():
            own = noted(parts[place], notes[at, place]) if (at, place) in notes else parts[place]
            change = [*new.before.get(spot, ()), own, *(new.rest if spot == new.last else ())]
            if change != [parts[place]]:
                changes[place] = change
        if changes:
            out[at] = [_with_parts(raws[at], field, changes)]
    return out


def _with_calls(
    raws: Sequence[bytes], start: int, end: int, field: str, calls: Callable[[bytes], bool]
) -> tuple[int, list[bytes]]:
    for at in reversed(range(start, end)):
        parts = _parts(raws[at], field)
        if any(calls(part) for part in parts):
            return at, parts
    raise ValueError("the message with the calls is not there")


def _parts(message: bytes, field: str) -> list[bytes]:
    array = member(message, field)
    return elements(array) if array.startswith(b"[") else []


def _with_parts(message: bytes, field: str, changes: dict[int, list[bytes]]) -> bytes:
    return with_members(message, {field: with_elements(member(message, field), changes)})


# --- Anthropic --------------------------------------------------------------------------------------------------------


def _calls(block: bytes) -> bool:
    return is_agents(str(loaded(member(block, "type"))))


def _answered(block: bytes) -> str | None:
    return str(loaded(member(block, "tool_use_id")) or "") if loaded(member(block, "type")) == "tool_result" else None


def _result(fate: Fate) -> bytes:
    assert fate.refused is not None
    return anthropic_amend.told(fate.refused)


def _noted(block: bytes, note: str) -> bytes:
    return with_members(block, {"content": with_note(member(block, "content"), note, b"text")})


# --- Gemini -----------------------------------------------------------------------------------------------------------


def _calls_of(part: bytes) -> bool:
    return any(member(part, name) for name in CALLS)


def _answer_of(part: bytes) -> str | None:
    raw = next((found for name in gemini_results.ANSWERED if (found := member(part, name))), b"")
    return str(loaded(member(raw, "id")) or "") if raw else None


def _response(fate: Fate) -> bytes:
    assert fate.refused is not None
    return gemini_results.told(fate.call, fate.refused)


def _noted_part(part: bytes, note: str) -> bytes:
    """The note is a member of the response: beside one, a text part would be one more than there are calls."""
    name = next(name for name in gemini_results.ANSWERED if member(part, name))
    result = member(part, name)
    response = member(result, "response")
    if not response.startswith(b"{"):
        response = b"{" + (b'"output":' + response if response else b"") + b"}"
    known: Any = loaded(response)
    field = next(one for one in ("note", "note_on_call", "agentstate_note") if one not in known)
    noted = with_members(response, {field: encoded(note)})
    return with_members(part, {name: with_members(result, {"response": noted})})
