"""Owns what becomes of a finished Responses answer when calls in it are edited or taken out. Must not decide which.

Invariant: what the gate shows before the commit is the beginning of what comes out, byte for byte; items and events
that concern no changed call keep their bytes, but for the numbers of places and events that moved; of what was replaced
or taken out nothing is left.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core.model import Call, Change, Shape
from agentstate.dialects.base import UNREADABLE, list_of
from agentstate.dialects.responses_answer import (
    ARGUED,
    ENDED,
    SAID_IN,
    is_for_agent,
    items_of,
    loaded,
)
from agentstate.dialects.responses_context import edited
from agentstate.dialects.responses_items import identity, merged
from agentstate.dialects.responses_shape import events_of
from agentstate.dialects.responses_stream import Told, framed, read_stream, with_data

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")
# Where calls that have none would have their arguments.
_UNSAID_IN = {
    "custom_tool_call": "input", "local_shell_call": "action", "shell_call": "action", "computer_call": "action",
    "apply_patch_call": "operation",
}  # fmt: skip
# What an event of a call may hold besides its arguments.
_BARE = frozenset({"type", "sequence_number", "output_index", "item_id", "obfuscation"})


def amended(call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """See ``dialects.base.Amending``. Raises ``ValueError`` for a change of a call that is not there, for arguments
    that do not fit where they are to stand, and for an edit of what its provider runs as proposed, edited or not."""
    if not changes:
        return body
    if shape.stream:
        return _Stream(call, body, changes, said).amended()
    output = _decode_fields.decode(body).get("output", _NULL)
    return Plan(merged(items_of(output), ()), changes, said).response(body, True)


class Plan:
    """Which items of an answer become what, wherever they are told of.

    ``items``: those of the verdict, with their places. Equal items (calls without ids) are told apart by their order.
    ``message``: the item that is said in the place of the first call that is taken out; empty: none.
    """

    def __init__(self, items: Sequence[tuple[int, dict[str, Any]]], changes: Sequence[Change], said: str) -> None:
        wanted = {(change.choice, change.index): change for change in changes}
        if len(wanted) != len(changes):
            raise ValueError("two changes of the same call")
        self._changes: dict[tuple[Any, int], Change] = {}
        self._most = Counter(identity(item) for _, item in items)
        self.message = b""
        found = set()
        for (place, item), key in zip(items, self.keys(item for _, item in items), strict=True):
            change = wanted.get((0, place)) if is_for_agent(item) else None
            if change is None:
                continue
            found.add((0, place))
            if change.arguments is None:
                if said and not self.message:
                    self.message = _message(item, said)
            else:
                change = Change(change.choice, change.index, _spelled(item, change.arguments))
                _check(item, change.arguments or "")
            self._changes[key] = change
        if missing := wanted.keys() - found:
            raise ValueError(f"no call of the answer is at {min(missing)}; name it as the verdict does")

    def keys(self, items: Iterable[dict[str, Any]]) -> list[tuple[Any, int]]:
        """Names of items, given in their order, by which ``change`` knows them."""
        seen: Counter[Any] = Counter()
        keys = []
        for item in items:
            name = identity(item)
            # More of them than the verdict knows are the last one again.
            keys.append((name, min(seen[name], self._most[name] - 1)))
            seen[name] += 1
        return keys

    def change(self, key: tuple[Any, int]) -> Change | None:
        return self._changes.get(key)

    def response(self, body: bytes, ended: bool) -> bytes:
        """A response object, its output changed. ``ended``: it is the answer's last word, so that it holds all."""
        fields = _decode_fields.decode(body)
        array = bytes(fields.get("output", _NULL))
        output = self._output(array, ended)
        if output == array:
            return body
        new: dict[str, bytes | None] = {"output": output}
        if self.message and bytes(fields.get("output_text", _NULL))[:1] == b'"':
            new["output_text"] = quoted(_text(output))
        return edited(body, new)

    def _output(self, array: bytes, ended: bool) -> bytes:
        raws = [bytes(raw) for raw in list_of(array) or ()]
        values = [loaded(raw) for raw in raws]
        items = [value for value in values if isinstance(value, dict)]
        keys = iter(self.keys(items))
        new: list[bytes | None] = []
        message = self.message if ended else b""
        for raw, value in zip(raws, values, strict=True):
            change = self.change(next(keys)) if isinstance(value, dict) else None
            if change is None:
                new.append(raw)
            elif change.arguments is not None:
                new.append(edited_item(raw, value, change.arguments))
            else:
                new.append(message or None)
                message = b""
        if raws and message:
            new.append(message)
        return rebuilt(array, raws, new) if new != raws else array


def _spelled(item: dict[str, Any], text: str) -> str:
    """New arguments as the call has them: the input of a custom tool is the text that its arguments name, and a list of
    actions is the one that they name."""
    with contextlib.suppress(*UNREADABLE):
        value = _decode_fields.decode(text)
        if len(value) == 1:
            [(name, raw)] = value.items()
            if item.get("type") == "custom_tool_call" and name == "input" and bytes(raw)[:1] == b'"':
                return str(msgspec.json.decode(raw))
            if isinstance(item.get(name), list) and bytes(raw)[:1] == b"[":
                return bytes(raw).decode()
    return text


class _Stream:
    """A stream being changed."""

    def __init__(self, call: Call, body: bytes, changes: Sequence[Change], said: str) -> None:
        stream = read_stream(call, body)
        self._events, self._rest = stream.events, stream.rest
        self._plan = Plan(merged(stream.output, stream.finished), changes, said)
        self._items = stream.placed(self._plan.keys)
        places = sorted(self._items)
        by_place = zip(places, self._plan.keys(self._items[place] for place in places), strict=True)
        self._changes = {place: change for place, key in by_place if (change := self._plan.change(key)) is not None}
        gone = [place for place in places if place in self._changes and self._changes[place].arguments is None]
        held = {told.place for told in self._events if not told.shown}
        # Where what is said takes the place of a call, its events come where those of the call began.
        self._said_at = next((place for place in gone if place in held), None) if self._plan.message else None
        shown = {told.place for told in self._events if told.shown}
        self._moved = _moved(places, set(gone) - {self._said_at}, shown)
        self._grown = {told.place for told in self._events if "delta" in told.fields}
        self._written: set[int] = set()
        self._said = not self._plan.message
        self._floor = -1  # the highest number of an event that was given anew

    def amended(self) -> bytes:
        out = []
        for told in self._events:
            if told.shown or told.data is None:
                out.append(told.raw)
                continue
            change = self._changes.get(told.place)
            ended = told.kind in ENDED
            if not self._said and (ended or (change is not None and told.place == self._said_at)):
                out += self._message(told)
            if ended or change is None or change.arguments is not None:
                new = self._response(told) if told.holds_response else self._of_call(told, change)
                if new is not None:
                    out.append(self._renewed(told, new))
        return b"".join(out) + self._rest

    def _response(self, told: Told) -> dict[str, bytes]:
        old = bytes(told.fields["response"])
        new = self._plan.response(old, told.kind in ENDED)
        return {} if new == old else {"response": new}

    def _of_call(self, told: Told, change: Change | None) -> dict[str, bytes] | None:
        """The members of an event that change with its call; ``None``: the event is left out."""
        if change is None or change.arguments is None:
            return {}
        text = change.arguments
        if told.item is not None:
            raw = bytes(told.fields["item"])
            # What is begun empty, or grows by pieces, is whole only where it ends.
            begun = told.kind == "response.output_item.added"
            if begun and not _said_by(told.item)[1]:
                return {}
            return {"item": edited_item(raw, told.item, text, begun and told.place in self._grown)}
        whole = isinstance(_said_by(self._items[told.place])[1], str)
        if whole and "delta" in told.fields:
            first = told.place not in self._written
            self._written.add(told.place)
            return {"delta": quoted(text)} if first else None
        if whole and (found := [name for name in ("arguments", "input") if name in told.fields]):
            return {name: quoted(text) for name in found}
        # Pieces of an object, or what is not known: the item's end tells the whole.
        return {} if told.fields.keys() <= _BARE else None

    def _message(self, told: Told) -> list[bytes]:
        """The events of what is said, in the place of ``told``, the first of the call's or the answer's last."""
        self._said = True
        if self._said_at is not None:
            place = self._moved[self._said_at]
        else:
            place = 1 + max([*self._moved.values(), *(other.index for other in self._events)])
        first = None if told.number is None else max(told.number, self._floor + 1)
        events = events_of(self._plan.message, place, first)
        if first is not None:
            self._floor = first + len(events) - 1
        return [framed(event, told.raw) for event in events]

    def _renewed(self, told: Told, new: dict[str, bytes]) -> bytes:
        place = self._moved.get(told.index, told.index)
        if place != told.index:
            new["output_index"] = b"%d" % place
        if told.number is not None and told.number <= self._floor:
            self._floor += 1
            new["sequence_number"] = b"%d" % self._floor
        if not new:
            return told.raw
        assert told.data is not None
        return with_data(told.raw, edited(told.data, dict(new)))


def _moved(places: Sequence[int], gone: set[int], shown: set[int]) -> dict[int, int]:
    """New places for old ones, none where ``gone`` were; what was ``shown`` already stays where it is."""
    moved: dict[int, int] = {}
    shift = 0
    for place in places:
        if place in gone:
            shift += 1
            continue
        if place in shown:
            shift = 0
        moved[place] = place - shift
    return moved


# --- items ------------------------------------------------------------------------------------------------------------


def _message(item: dict[str, Any], said: str) -> bytes:
    """A message of the assistant; its id is the same whenever the same is said in the place of the same call."""
    name = sha256("\0".join([*identity(item), said]).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return (
        b'{"id":"msg_agentstate_%b","type":"message","status":"completed","role":"assistant",'
        b'"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":%b}]}'
        % (name.encode(), quoted(said.encode("utf-8", "replace").decode()))
    )  # fmt: skip


def _said_by(item: dict[str, Any]) -> tuple[str, Any]:
    """Where a call has its arguments, and what stands there."""
    for name in SAID_IN:
        if item.get(name) is not None:
            return name, item[name]
    name = _UNSAID_IN.get(str(item.get("type")), "arguments")
    return name, {} if name in ("action", "operation") else ""


def _check(item: dict[str, Any], text: str) -> None:
    kind = str(item.get("type"))
    if kind == "mcp_approval_request":
        raise ValueError("a call that its provider makes cannot be edited: it would be made as proposed; refuse it")
    if isinstance(_said_by(item)[1], str) and kind not in ARGUED:
        return
    try:
        msgspec.json.decode(text)
    except (UnicodeEncodeError, *UNREADABLE) as error:
        raise ValueError(f"the new arguments of the call are not JSON: {error}") from None


def edited_item(raw: bytes, item: dict[str, Any], text: str, begun: bool = False) -> bytes:
    """A call with other arguments. ``begun``: they are still to come, where they are a text."""
    first, value = _said_by(item)
    if isinstance(value, str):
        return _put(raw, item, first, b'""' if begun else quoted(text))
    whole = text.encode()
    if b"\n" in whole or b"\r" in whole:
        whole = msgspec.json.format(whole, indent=-1)
    for name in [name for name in SAID_IN if item.get(name) is not None] or [first]:
        listed = name != first and isinstance(item[name], list)
        raw = _put(raw, item, name, b"[" + whole + b"]" if listed else whole)
    return raw


def _put(raw: bytes, item: dict[str, Any], name: str, value: bytes) -> bytes:
    if name in item:
        return edited(raw, {name: value})
    end = raw.rindex(b"}")
    return raw[:end] + b',"' + name.encode() + b'":' + value + raw[end:]


def quoted(text: str) -> bytes:
    """A text as JSON."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def rebuilt(array: bytes, old: Sequence[bytes], new: Sequence[bytes | None]) -> bytes:
    """A JSON array of the elements ``old``, in whose places those of ``new`` stand; ``None``: nothing. Where ``new`` is
    longer, they come last. What stands between those that stay, blanks too, is as it was."""
    spans: list[tuple[int, int]] = []
    at = 0
    for element in old:
        start = array.index(element, at)
        at = start + len(element)
        spans.append((start, at))
    out: list[bytes] = []
    for place, replaced in enumerate(new):
        if replaced is None:
            continue
        if out:
            out.append(array[spans[place - 1][1] : spans[place][0]] if 0 < place < len(spans) else b",")
        out.append(replaced)
    return array[: spans[0][0]] + b"".join(out) + array[spans[-1][1] :]


def _text(output: bytes) -> str:
    """What a response says in all, as SDKs add it up."""
    messages = [item for item in items_of(msgspec.Raw(output)) if item.get("type") == "message"]
    parts = [part for item in messages for part in item.get("content") or () if isinstance(part, dict)]
    return "".join(str(part.get("text")) for part in parts if part.get("type") == "output_text")
