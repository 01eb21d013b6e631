"""Owns amending a finished chat answer: calls edited or taken out, and what is said in their place. Must not judge.

Invariant: whatever concerns no changed call stays byte for byte; of a call that was taken out nothing is left, of one
that was edited none of its old arguments; the result is a finished answer with exactly the calls that remain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentstate.core.model import Change, ToolCall
from agentstate.dialects import sse
from agentstate.dialects.openai_answer import LEGACY_INDEX, GrowingCalls, StreamGate, judge_plain, legacy_call
from agentstate.dialects.openai_signs import trim_logprobs, unsigned
from agentstate.dialects.splice import (
    NOTHING,
    NULL,
    around,
    checked_object,
    elements,
    line_end,
    members,
    of_elements,
    of_members,
    one_line,
    spelled,
    value_of,
    with_data,
)

Place = tuple[int, int]  # (choice, index)
_ENDED = b'"stop"'
# How a provider behind another one says that calls follow, and how that they do not.
_NATIVE_ENDS = {b'"tool_calls"': _ENDED, b'"function_call"': _ENDED, b'"tool_use"': b'"end_turn"'}
# What every chunk of a stream repeats; one that holds no more than this, and nothing that was said, may go.
_COMMON = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "provider")
_DISPENSABLE = frozenset({*_COMMON, "choices", "obfuscation", "p"})


class Plan(NamedTuple):
    """What becomes of the calls of an answer.

    ``texts``: the new arguments of each changed call, ``None``: it is taken out; ``places``: the new index of each call
    that stays in a choice which loses one; ``lost``: the choices that lose a call, ``ended``: those that keep none.
    ``gone``: ids of the calls that are taken out.
    """

    texts: dict[Place, bytes | None]
    places: dict[Place, int]
    lost: frozenset[int]
    ended: frozenset[int]
    gone: frozenset[str]


def plan(calls: Sequence[ToolCall], changes: Sequence[Change]) -> Plan:
    """Raises ``ValueError`` for a change of a call that is not there, and for arguments that are no JSON object."""
    known = {(call.choice, call.index) for call in calls}
    texts: dict[Place, bytes | None] = {}
    for change in changes:
        place = change.choice, change.index
        if place not in known or place in texts:
            why = "is changed twice" if place in texts else "is not in the answer"
            raise ValueError(f"call {change.index} of choice {change.choice} {why}")
        texts[place] = None if change.arguments is None else checked_object(change.arguments)
    gone = {place for place, text in texts.items() if text is None}
    lost = frozenset(choice for choice, _ in gone)
    places: dict[Place, int] = {}
    for choice in lost:
        first = min((index for at, index in known if at == choice and index != LEGACY_INDEX), default=0)
        left = sorted(place for place in known - gone if place[0] == choice and place[1] != LEGACY_INDEX)
        places |= {place: first + at for at, place in enumerate(left)}
    ids = {call.call_id for call in calls if (call.choice, call.index) not in gone}
    ended = lost - {choice for choice, _ in known - gone}
    return Plan(texts, places, lost, ended, frozenset({call.call_id for call in calls} - ids - {""}))


def amended(stream: bool, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """See ``dialects.base.Amending``. Raises ``ValueError`` as ``plan`` does, and where the result would not hold
    exactly the calls that it should."""
    if not changes:
        return body
    calls = _calls_of(stream, body)
    planned = plan(calls, changes)
    made = _streamed(body, planned, said) if stream else _plain(body, planned, said)
    wanted = [call for call in calls if planned.texts.get((call.choice, call.index), b"") is not None]
    left = _calls_of(stream, made)
    if [(call.choice, call.call_id, call.name) for call in left] != [
        (call.choice, call.call_id, call.name) for call in wanted
    ] or not all(_says(now, planned.texts.get((was.choice, was.index))) for now, was in zip(left, wanted, strict=True)):
        raise ValueError("the calls of this answer cannot be told apart well enough to change some of them")
    return made


def _says(call: ToolCall, text: bytes | None) -> bool:
    """Whether an edited call has its new arguments; ``text`` ``None``: it was not edited."""
    return text is None or json.loads(call.arguments) in (json.loads(text), {"input": text.decode()})


def _calls_of(stream: bool, body: bytes) -> tuple[ToolCall, ...]:
    if not stream:
        return judge_plain(body).calls
    gate = StreamGate()
    gate.feed(body)
    return gate.finish().calls


# --- a stream ---------------------------------------------------------------------------------------------------------


def _streamed(body: bytes, planned: Plan, said: str) -> bytes:
    amending = _Stream(planned, said)
    parser = sse.Parser()
    out = [amending.event(event) for event in parser.feed(body)]
    rest = parser.rest()
    out.append(amending.event(rest) if rest.strip() else rest)
    return b"".join(out)


class _Stream:
    """Amends a stream event by event."""

    def __init__(self, planned: Plan, said: str) -> None:
        self._plan = planned
        self._said = said
        self._growing = GrowingCalls()
        self._written: set[Place] = set()  # edited calls whose new arguments are out
        self._spoken: dict[int, bytes] = {}  # the last content of each choice that said something
        self._roles: set[int] = set()
        self._told: set[int] = set()  # choices in which it was said
        self._before: list[bytes] = []  # choices of events that go before this one

    def event(self, event: bytes) -> bytes:
        data = sse.data_of(event)
        whole = members(data)
        choices = elements(whole.get("choices")) if whole is not None else []
        if data is None or whole is None or not choices:
            return event
        self._before = []
        amended_ = [self._choice(choice) for choice in choices]
        inserted = b"".join(self._inserted(whole, choice, event) for choice in self._before)
        if amended_ == choices:
            return inserted + event
        kept = [choice for choice in amended_ if choice is not None]
        if not kept:
            if all(name in _DISPENSABLE or value == NULL for name, value in whole.items()):
                return inserted
            kept = [of_members({**(members(choices[0]) or {}), "delta": b"{}"})]
        return inserted + with_data(event, of_members({**whole, "choices": of_elements(kept)}))

    def _inserted(self, whole: dict[str, bytes], choice: bytes, event: bytes) -> bytes:
        """An event of ours with one choice, like the one before which it goes."""
        shown = {name: whole[name] for name in _COMMON if name in whole}
        shown["choices"] = of_elements([choice])
        if "usage" in whole:
            shown["usage"] = NULL
        end = line_end(event)
        name = sse.name_of(event)
        begun = b"event: " + name + end if name else b""
        return begun + b"data: " + one_line(of_members(shown)) + end + end

    def _choice(self, raw: bytes) -> bytes | None:
        """A choice of an event; ``None``: nothing of it is left."""
        fields = members(raw)
        if fields is None:
            return raw
        number = value_of(fields.get("index"))
        index = number if isinstance(number, int) else 0
        delta = members(fields.get("delta"))
        began = index not in self._roles
        changed = False
        if delta is not None:
            changed = self._calls(index, delta)
            if changed:
                trim_logprobs(fields, delta.get("content"))
            changed = unsigned(delta, self._plan.gone) or changed
            if delta.get("content", NULL) not in NOTHING:
                self._spoken[index] = delta["content"]
            if delta.get("role", NULL) not in NOTHING:
                self._roles.add(index)
        if index in self._plan.lost and fields.get("finish_reason", NULL) != NULL:
            changed = self._end(index, fields, delta, began) or changed
        elif (
            changed
            and not delta
            and not any(value not in NOTHING for name, value in fields.items() if name not in ("index", "delta"))
        ):
            return None
        if not changed:
            return raw
        return of_members(fields if delta is None else {**fields, "delta": of_members(delta)})

    def _calls(self, choice: int, delta: dict[str, bytes]) -> bool:
        """Amend the pieces of calls in a delta; whether there was anything to amend."""
        pieces = elements(delta.get("tool_calls"))
        amended_ = [self._piece(choice, piece) for piece in pieces]
        changed = amended_ != pieces
        if changed:
            kept = [piece for piece in amended_ if piece is not None]
            _set(delta, "tool_calls", of_elements(kept) if kept else None)
        function = members(delta.get("function_call"))
        if function:
            place = self._growing.add(choice, legacy_call(msgspec.json.decode(delta["function_call"])))
            if place in self._plan.texts:
                text = self._plan.texts[place]
                kept_ = text is not None and self._write(place, function, "arguments", text)
                _set(delta, "function_call", of_members(function) if kept_ else None)
                changed = True
        return changed

    def _piece(self, choice: int, raw: bytes) -> bytes | None:
        """A piece of a call; ``None``: nothing of it is left."""
        piece = members(raw)
        if piece is None:
            return raw
        place = self._growing.add(choice, msgspec.json.decode(raw))
        if place in self._plan.texts:
            text = self._plan.texts[place]
            if text is None or not self._edit(place, piece, text):
                return None
        elif not _moved(piece, self._plan.places.get(place)):
            return raw
        _move(piece, self._plan.places.get(place))
        return of_members(piece)

    def _edit(self, place: Place, piece: dict[str, bytes], text: bytes) -> bool:
        """Put new arguments into a piece of a call; whether anything is left of it."""
        for name, field in (("function", "arguments"), ("custom", "input")):
            part = members(piece.get(name))
            if part is not None:
                kept = self._write(place, part, field, text)
                _set(piece, name, of_members(part) if kept else None)
        return any(value not in NOTHING for name, value in piece.items() if name not in ("index", "type"))

    def _write(self, place: Place, part: dict[str, bytes], field: str, text: bytes) -> bool:
        """Put new arguments where the old ones began, or take the old ones out; whether anything is left."""
        old = part.pop(field, b'""')
        if place not in self._written:
            self._written.add(place)
            part[field] = spelled_like(old, field, text)
        return any(value not in NOTHING for value in part.values())

    def _end(self, index: int, fields: dict[str, bytes], delta: dict[str, bytes] | None, began: bool) -> bool:
        """Amend the end of a choice that lost a call, and say what is to be said; whether it was changed."""
        changed = index in self._plan.ended and _end(fields)
        if not self._said or index in self._told:
            return changed
        self._told.add(index)
        last = self._spoken.get(index, b'""')
        own = delta is not None and (
            delta.get("content", NULL) not in NOTHING or (began and delta.get("role", NULL) not in NOTHING)
        )
        if own and delta is not None:
            here = delta.get("content", NULL)
            delta["content"] = said_after(here, last if here in NOTHING else here, self._said)
            return True
        said = {"role": b'"assistant"'} if index not in self._roles else {}
        said["content"] = said_after(b"[]" if last.startswith(b"[") else NULL, last, self._said)
        choice = {"index": b"%d" % index, "delta": of_members(said), "finish_reason": NULL}
        self._before.append(of_members(choice | ({"logprobs": NULL} if "logprobs" in fields else {})))
        return changed


# --- a plain answer ---------------------------------------------------------------------------------------------------


def _plain(body: bytes, planned: Plan, said: str) -> bytes:
    whole = members(body) or {}
    choices = elements(whole.get("choices"))
    for place in {place for place, _ in planned.texts}:
        choices[place] = _plain_choice(choices[place], place, planned, said)
    return around(body, of_members({**whole, "choices": of_elements(choices)}))


def _plain_choice(raw: bytes, place: int, planned: Plan, said: str) -> bytes:
    fields = members(raw) or {}
    message = members(fields.get("message")) or {}
    calls = elements(message.get("tool_calls"))
    kept = _plain_calls(calls, place, planned)
    if kept != calls:
        _set(message, "tool_calls", of_elements(kept) if kept else None)
    if (place, LEGACY_INDEX) in planned.texts:
        text = planned.texts[place, LEGACY_INDEX]
        function = members(message["function_call"]) or {}
        if text is not None:
            function["arguments"] = spelled_like(function.get("arguments", b'""'), "arguments", text)
        _set(message, "function_call", None if text is None else of_members(function))
    trim_logprobs(fields, message.get("content"))
    unsigned(message, planned.gone)
    if place in planned.ended:
        _end(fields)
    if said and place in planned.lost:
        content = message.get("content", NULL)
        message["content"] = said_after(content, content, said)
    return of_members({**fields, "message": of_members(message)})


def _plain_calls(calls: Sequence[bytes], choice: int, planned: Plan) -> list[bytes]:
    """The calls that stay; where they are numbered, without a gap."""
    numbers = [value_of((members(call) or {}).get("index")) for call in calls]
    texts = [planned.texts.get((choice, at), b"") for at in range(len(calls))]
    gone = [number for number, text in zip(numbers, texts, strict=True) if text is None and isinstance(number, int)]
    kept = []
    for call, number, text in zip(calls, numbers, texts, strict=True):
        piece = members(call)
        if text is None:
            continue
        before = sum(other < number for other in gone) if isinstance(number, int) else 0
        if piece is not None and (text or before):
            if text:
                _edit_whole(piece, text)
            _move(piece, number - before if before else None)
            call = of_members(piece)
        kept.append(call)
    return kept


def _edit_whole(piece: dict[str, bytes], text: bytes) -> None:
    for name, field in (("function", "arguments"), ("custom", "input")):
        part = members(piece.get(name))
        if part is not None:
            part[field] = spelled_like(part.get(field, b'""'), field, text)
            piece[name] = of_members(part)
            return


# --- what both need ---------------------------------------------------------------------------------------------------


def _set(fields: dict[str, bytes], name: str, value: bytes | None) -> None:
    """Another value in the place of the old one; ``None``: the field goes."""
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value


def _end(fields: dict[str, bytes]) -> bool:
    """Let a choice end as one that has no calls does; whether it was changed."""
    before = dict(fields)
    fields["finish_reason"] = _ENDED
    if fields.get("native_finish_reason") in _NATIVE_ENDS:
        fields["native_finish_reason"] = _NATIVE_ENDS[fields["native_finish_reason"]]
    return fields != before


def _moved(piece: dict[str, bytes], index: int | None) -> bool:
    old = value_of(piece.get("index"))
    return index is not None and isinstance(old, int) and old != index


def _move(piece: dict[str, bytes], index: int | None) -> None:
    if index is not None and _moved(piece, index):
        piece["index"] = b"%d" % index


def spelled_like(old: bytes, field: str, text: bytes) -> bytes:
    """New arguments in the form of the old: text, or an object where a provider sends one. The input of a custom tool
    is the text that its arguments name."""
    if field == "input":
        value = msgspec.json.decode(text)
        if value.keys() == {"input"} and isinstance(value["input"], str):
            return spelled(value["input"])
    return text if old.startswith((b"{", b"[")) else spelled(text.decode())


def said_after(content: bytes, last: bytes, said: str) -> bytes:
    """``content`` with ``said`` at its end: a part of a list, or text. ``last``: what was said before it."""
    if content.startswith(b"["):
        return of_elements([*elements(content), of_members({"type": b'"text"', "text": spelled(said)})])
    text, before = value_of(content), value_of(last)
    apart = "\n\n" if isinstance(before, str) and before and not before.endswith("\n") else ""
    return spelled((text if isinstance(text, str) else "") + apart + said)
