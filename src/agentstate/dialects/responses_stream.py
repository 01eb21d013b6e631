"""Owns reading a finished Responses stream as the events of its items, and writing single events anew. Must not change
what they say.

Invariant: the raw bytes of all events and the rest, joined, are the stream; an event that belongs to an item is found
to, whether it names the item by its place, by its id, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentstate.core.model import Call
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.responses_answer import ENDED, Response, ResponsesGate, items_of, loaded, of_a_call, text_in
from agentstate.dialects.responses_shape import read_event

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode_response = msgspec.json.Decoder(Response)
_NOTHING = msgspec.Raw(b"")
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|$)")
_BOM = b"\xef\xbb\xbf"
_ITEM = ("response.output_item.added", "response.output_item.done")


@dataclass(slots=True)
class Told:
    """An event. ``data``: ``None`` where it tells nothing (comments, the end marker); ``index``: the place it names, or
    -1; ``place``: that of the item it belongs to, or -1; ``item``: the item of an event that begins or ends one;
    ``shown``: the gate shows it before the commit."""

    raw: bytes
    shown: bool
    data: bytes | None = None
    kind: str = ""
    fields: dict[str, msgspec.Raw] = field(default_factory=dict)
    item: dict[str, Any] | None = None
    index: int = -1
    number: int | None = None
    place: int = -1

    @property
    def holds_response(self) -> bool:
        return bytes(self.fields.get("response", _NOTHING))[:1] == b"{"


@dataclass(slots=True)
class Stream:
    """A stream that was read. ``finished``: the items that were done, with their places; ``output``: those that its
    last event repeats; ``rest``: blanks after the last event."""

    events: list[Told] = field(default_factory=list)
    rest: bytes = b""
    finished: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    output: list[dict[str, Any]] = field(default_factory=list)
    _begun: dict[int, dict[str, Any]] = field(default_factory=dict)
    _ids: dict[str, set[int]] = field(default_factory=dict)

    def add(self, raw: bytes, shown: bool) -> None:
        """Read the next event."""
        told = Told(raw, shown)
        self.events.append(told)
        data = sse.data_of(raw)
        read = None if data is None else read_event(raw, data)
        if data is None or read is None:
            return
        told.data, told.kind, told.index = data, read.type, max(read.output_index, -1)
        told.fields = _decode_fields.decode(data)
        number = loaded(read.sequence_number)
        told.number = number if type(number) is int else None
        told.place = told.index
        if told.kind in _ITEM:
            self._item(told)
        elif told.kind in ENDED:
            self.output = _output(told.fields.get("response", _NOTHING))
        elif told.index < 0 and of_a_call(told.kind):
            told.place = len(self.finished)

    def _item(self, told: Told) -> None:
        item = loaded(told.fields.get("item", _NOTHING))
        if not isinstance(item, dict):
            return
        told.item = item
        if told.place < 0:
            told.place = len(self.finished)
        if told.kind == _ITEM[0]:
            self._begun.setdefault(told.place, item)
        else:
            self.finished.append((told.place, item))
        if isinstance(item.get("id"), str):
            self._ids.setdefault(item["id"], set()).add(told.place)

    def settle(self) -> None:
        """An event that names an item by an id that only one has belongs to that: places may be wrong or missing."""
        for told in self.events:
            found = self._ids.get(text_in(told.fields.get("item_id", _NOTHING)), set())
            if told.item is None and len(found) == 1:
                told.place = min(found)

    def placed(self, keys: Callable[[Iterable[dict[str, Any]]], list[Any]]) -> dict[int, dict[str, Any]]:
        """The items by their places in the stream. ``keys``: names of items, equal for an item and its repetition.

        One that never ended, or was never told of as a whole, is what the last event says.
        """
        items = self._begun | dict(self.finished)
        ended = {place for place, _ in self.finished}
        for place, item in self._begun.items():
            if place not in ended and place < len(self.output) and self.output[place].get("type") == item.get("type"):
                items[place] = self.output[place]
        known = set(keys(items[place] for place in sorted(items)))
        for place, key in enumerate(keys(self.output)):
            if key not in known and place not in items:
                items[place] = self.output[place]
        return items


def read_stream(call: Call, body: bytes) -> Stream:
    """A finished stream, as its gate takes it."""
    shown = len(ResponsesGate(call).feed(body))
    parser = sse.Parser()
    stream = Stream()
    at = 0
    for event in parser.feed(body):
        at += len(event)
        stream.add(event, at <= shown)
    stream.rest = parser.rest()
    if stream.rest.strip():
        stream.add(stream.rest, False)
        stream.rest = b""
    stream.settle()
    return stream


def _output(response: msgspec.Raw) -> list[dict[str, Any]]:
    try:
        return items_of(_decode_response.decode(response).output)
    except UNREADABLE:
        return []


# --- writing ----------------------------------------------------------------------------------------------------------


def with_data(event: bytes, data: bytes) -> bytes:
    """An event with other data; its other lines and its line ends stay."""
    start = _BOM if event.startswith(_BOM) else b""
    out, written = [start], False
    for line, end in _LINE.findall(event[len(start) :]):
        if line.partition(b":")[0] != b"data":
            out.append(line + end)
        elif not written:
            written = True
            name = b"data: " if line[5:6] == b" " else b"data:"
            parts = [name + part for part in data.split(b"\n")]
            out.append((end or b"\n").join(parts) + end)
    return b"".join(out)


def framed(event: bytes, like: bytes) -> bytes:
    """An event of ours as the provider writes its own: with its line ends, and with its name only where ``like`` is."""
    if not sse.name_of(like):
        event = event[event.index(b"\n") + 1 :]
    found = re.search(rb"\r\n|\n|\r", like)
    return event if found is None else event.replace(b"\n", found[0])
