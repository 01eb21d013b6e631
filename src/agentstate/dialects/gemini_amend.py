"""Owns changing the function calls of a Gemini answer, in each of its framings. Must not decide on calls.

Invariant: what was shown before the commit stays at the beginning; of a call that is taken out, and of arguments that
are replaced, nothing remains. Parts have no numbers, so taking one out leaves no gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentstate.core.model import Change, Shape, ToolCall
from agentstate.dialects.gemini_answer import ArrayGate, StreamGate, judge_plain
from agentstate.dialects.gemini_shape import Elements, event_data
from agentstate.dialects.rewriting import (
    by_call,
    elements,
    encoded,
    loaded,
    member,
    pieces,
    spliced,
    with_data,
    with_elements,
    with_members,
)

CALLS = ("functionCall", "function_call")
_SIGNATURES = ("thoughtSignature", "thought_signature")
# Members of a call whose arguments come in pieces; those of an edited call stand in it as a whole.
_IN_PIECES = ("partialArgs", "partial_args", "willContinue", "will_continue")
_FINISH = ("finishReason", "finish_reason")
# The provider's words on how a candidate ended: that it called, or what it tried to call.
_TOLD = ("finishMessage", "finish_message")
# Probabilities of tokens, those of calls among them.
_TOKENS = ("logprobsResult", "logprobs_result")

_Key = tuple[int, int]  # candidate, place among its calls


def amended(shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """See ``dialects.base.Amending``. The text is a part in the place of the first call that a candidate loses.

    Where the signature of a call would be lost, the next call that stays bears it: the API refuses a turn whose first
    call has none, and only the first of several calls is given one.
    Raises ``ValueError`` for a change that is for no call of the answer.
    """
    if not changes:
        return body
    calls = _calls(shape, body)
    segments = list(_segments(shape, body))
    amending = _Amending(calls, by_call(calls, changes), said)
    for _, data in segments:
        amending.note(data)
    amending.noted()
    out = []
    for raw, data in segments:
        new = amending.chunk(data)
        out.append(raw if new == data else _with_chunk(shape, raw, data, new))
    return b"".join(out)


def _calls(shape: Shape, body: bytes) -> tuple[ToolCall, ...]:
    if not shape.stream:
        return judge_plain(body).calls
    gate = ArrayGate() if shape.array else StreamGate()
    gate.feed(body)
    return gate.finish().calls


def _segments(shape: Shape, body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(raw bytes, the chunk in them, empty where there is none); the raw bytes joined are the body."""
    if not shape.stream:
        yield body, body
    elif shape.array:
        at = 0
        for raw, element in Elements().feed(body):
            yield raw, element
            at += len(raw)
        yield body[at:], b""
    else:
        for raw in pieces(body):
            data = event_data(raw) or b""
            yield raw, data if data.lstrip().startswith(b"{") else b""


def _with_chunk(shape: Shape, raw: bytes, old: bytes, new: bytes) -> bytes:
    if shape.stream and not shape.array:
        return with_data(raw, new)
    return raw[: len(raw) - len(old)] + new


class _Amending:
    """What becomes of the calls, and of what stands around them. ``note`` each chunk first, then ask for each."""

    def __init__(self, calls: Sequence[ToolCall], changes: Mapping[_Key, Change], said: str) -> None:
        self._changes = changes
        self._said = said
        out = {key for key, change in changes.items() if change.arguments is None}
        self._first_out = {candidate: min(key for key in out if key[0] == candidate) for candidate, _ in out}
        left = {call.choice for call in calls if (call.choice, call.index) not in out}
        self._ends = {candidate for candidate, _ in out} - left
        self._order = sorted((call.choice, call.index) for call in calls)
        self._signatures: dict[_Key, tuple[str, bytes]] = {}
        self._moved: dict[_Key, tuple[str, bytes]] = {}
        self._open: dict[int, bool] = {}
        self._count: dict[int, int] = {}

    def note(self, chunk: bytes) -> None:
        """See which call has which signature."""
        for candidate in _candidates(chunk):
            index = _index(candidate)
            for part in _parts(candidate):
                for key, _ in self._pieces(index, part).values():
                    signature = next(((name, found) for name in _SIGNATURES if (found := member(part, name))), None)
                    if signature is not None:
                        self._signatures.setdefault(key, signature)

    def noted(self) -> None:
        """Decide which call bears the signature of one that is taken out."""
        lost: dict[int, tuple[str, bytes]] = {}
        for key in self._order:
            change = self._changes.get(key)
            signature = self._signatures.get(key)
            if change is not None and change.arguments is None:
                if signature is not None:
                    lost.setdefault(key[0], signature)
                continue
            if signature is None and key[0] in lost:
                self._moved[key] = lost[key[0]]
            elif signature is not None and change is not None:
                self._moved[key] = signature  # it may have stood beside a later piece
            lost.pop(key[0], None)
        self._open.clear()
        self._count.clear()

    def chunk(self, chunk: bytes) -> bytes:
        """A chunk, amended; the very bytes where nothing changes."""
        array = member(chunk, "candidates")
        if not array.startswith(b"["):
            return chunk
        changed: dict[int, Sequence[bytes]] = {}
        for place, candidate in enumerate(elements(array)):
            if candidate.startswith(b"{") and (new := self._candidate(candidate)) != candidate:
                changed[place] = [new]
        return with_members(chunk, {"candidates": with_elements(array, changed)}) if changed else chunk

    def _candidate(self, candidate: bytes) -> bytes:
        index = _index(candidate)
        changes: dict[str, bytes | None] = {}
        content = member(candidate, "content")
        array = member(content, "parts")
        if array.startswith(b"["):
            parts: dict[int, Sequence[bytes]] = {}
            for place, part in enumerate(elements(array)):
                new = self._part(index, part)
                if new != [part]:
                    parts[place] = new
            if parts:
                changes["content"] = with_members(content, {"parts": with_elements(array, parts)})
                changes |= dict.fromkeys(_TOKENS)
        if any(key[0] == index for key in self._changes):
            ending = _ending(candidate)
            if ending or index in self._ends:
                changes |= dict.fromkeys(_TOLD)
            if index in self._ends:
                changes |= ending
        return with_members(candidate, changes) if any(member(candidate, name) for name in changes) else candidate

    def _part(self, candidate: int, part: bytes) -> list[bytes]:
        """What stands in the place of a part."""
        found = self._pieces(candidate, part) if part.startswith(b"{") else {}
        before: list[bytes] = []
        changes: dict[str, bytes | None] = {}
        for name, (key, first) in found.items():
            change = self._changes.get(key)
            if change is not None and (change.arguments is None or not first):
                changes[name] = None
            elif change is not None and change.arguments is not None:
                changes[name] = _edited(member(part, name), change.arguments)
            if first and self._said and key == self._first_out.get(candidate):
                before = [b'{"text":' + encoded(self._said) + b"}"]
            if first and key in self._moved and changes.get(name, b"") is not None:
                signature, value = self._moved[key]
                if member(part, signature) != value:
                    changes[signature] = value
        if found and all(changes.get(name, b"") is None for name in found):
            return before
        return [*before, with_members(part, changes) if changes else part]

    def _pieces(self, candidate: int, part: bytes) -> dict[str, tuple[_Key, bool]]:
        """The calls that a part holds, or holds a piece of: (which one, whether it begins here), by member."""
        found: dict[str, tuple[_Key, bool]] = {}
        for name in CALLS:
            call = member(part, name)
            if not call:
                continue
            first = not self._open.get(candidate, False)
            if first:
                self._count[candidate] = self._count.get(candidate, 0) + 1
            continues = member(call, "willContinue") or member(call, "will_continue")
            self._open[candidate] = continues == b"true"
            found[name] = (candidate, self._count[candidate] - 1), first
        return found


def _candidates(chunk: bytes) -> list[bytes]:
    array = member(chunk, "candidates")
    return [found for found in elements(array) if found.startswith(b"{")] if array.startswith(b"[") else []


def _index(candidate: bytes) -> int:
    index: Any = loaded(member(candidate, "index"))
    return index if isinstance(index, int) else 0


def _parts(candidate: bytes) -> list[bytes]:
    array = member(member(candidate, "content"), "parts")
    return [part for part in elements(array) if part.startswith(b"{")] if array.startswith(b"[") else []


def _ending(candidate: bytes) -> dict[str, bytes | None]:
    """The ordinary finish reason, where a candidate has one that tells of calls: of an unexpected one, say."""
    reasons = {name: str(loaded(member(candidate, name))) for name in _FINISH}
    return {name: b'"STOP"' for name, reason in reasons.items() if "TOOL_CALL" in reason or "FUNCTION" in reason}


def _edited(call: bytes, arguments: str) -> bytes:
    """A call, or the first piece of one, with other arguments."""
    if not call.startswith(b"{"):
        return b'{"args":' + spliced(arguments) + b"}"
    return with_members(call, dict.fromkeys(_IN_PIECES) | {"args": spliced(arguments)})
