"""Owns the conversion of a recorded Responses answer into the shape that is asked for now. Must not be used live.

Invariant: an SDK that reads the converted answer ends with an object equal to the one it makes of the original.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.core.model import Shape
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE, list_of
from agentstate.dialects.responses_answer import BEGUN, ENDED, Event, loaded, odd_event
from agentstate.dialects.responses_event import encoded

_decode_event = msgspec.json.Decoder(Event)
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")
_EMPTY = msgspec.Raw(b"[]")
# Text that an item of a kind grows by deltas: its field, and the name of the events.
_GROWS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "mcp_call": ("arguments", "response.mcp_call_arguments"),
    "code_interpreter_call": ("code", "response.code_interpreter_call_code"),
}
# Parts of content that grow by deltas: the same.
_PARTS = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "reasoning_text": ("text", "response.reasoning_text"),
}


def convert(recorded: Shape, asked: Shape, body: bytes) -> bytes:
    """The recorded body in the asked shape; the very bytes where the shapes are equal."""
    if recorded.stream == asked.stream:
        return body
    return to_stream(body) if asked.stream else to_plain(body)


def to_plain(stream: bytes) -> bytes:
    """The response object of the stream's last event, its very bytes.

    Where that event leaves the output out, as one provider's does, it is filled in from the events before.
    """
    response = b""
    done: dict[int, bytes] = {}
    for event in sse.events(stream):
        data = sse.data_of(event)
        if data is None:
            continue
        read = read_event(event, data)
        if read is None:
            continue  # the end marker
        kind = read.type
        if kind == "response.output_item.done" and bytes(read.item)[:1] == b"{":
            done[read.output_index if read.output_index >= 0 else len(done)] = bytes(read.item)
        elif (kind in ENDED or kind in BEGUN) and bytes(read.response)[:1] == b"{":
            response = bytes(read.response)
    if not done or not response:
        return response or b'{"object":"response","output":[]}'
    fields = _decode_fields.decode(response)
    if list_of(fields.get("output", _NULL)):
        return response
    fields["output"] = msgspec.Raw(b"[" + b",".join(done[place] for place in sorted(done)) + b"]")
    return msgspec.json.encode(fields)


def read_event(event: bytes, data: bytes) -> Event | None:
    """An event that holds ``data``, its kind filled in. ``None``: it is no JSON object, as the end marker is none."""
    try:
        read: Event | None = _decode_event.decode(data)
    except UNREADABLE:
        read = odd_event(data)
    if read is not None:
        read.type = read.type or sse.name_of(event).decode("utf-8", "replace")
    return read


def to_stream(body: bytes) -> bytes:
    """A response object as the events that lead to it; its bytes, less line ends, are in the last of them.

    A response that is only queued makes a stream without an end, as the provider's would be at that moment.
    """
    fields = _decode_fields.decode(body)
    if loaded(fields.get("object", _NULL)) == "response.compaction":
        return body  # it is never streamed
    status = loaded(fields.get("status", _NULL))
    begun = {**fields, "output": _EMPTY, "status": msgspec.Raw(b'"in_progress"')}
    for name in ("usage", "completed_at", "error", "incomplete_details"):
        if name in begun:
            begun[name] = _NULL
    out = _Events()
    if status in ("queued", "in_progress"):
        out.add("response.created", response=fields)
        out.add(f"response.{status}", response=fields)
        return bytes(out)
    out.add("response.created", response=begun)
    out.add("response.in_progress", response=begun)
    taken: set[str] = set()
    for place, item in enumerate(list_of(fields.get("output", _NULL)) or ()):
        _item(out, place, item, taken)
    last = status if isinstance(status, str) else "completed"
    out.add(f"response.{last}", response=msgspec.Raw(body.strip()))
    return bytes(out)


def events_of(item: bytes, place: int, first: int | None) -> list[bytes]:
    """The events of an output item from its beginning to its end, numbered from ``first`` on; ``None``: not at all."""
    out = _Events(first)
    _item(out, place, msgspec.Raw(item), set())
    return out.parts


class _Events:
    """Events being written, numbered from ``first`` on; ``None``: not at all."""

    def __init__(self, first: int | None = 0) -> None:
        self._first = first
        self.parts: list[bytes] = []

    def add(self, kind: str, **fields: Any) -> None:
        number = {} if self._first is None else {"sequence_number": self._first + len(self.parts)}
        self.parts.append(encoded(kind, msgspec.json.encode({"type": kind, **fields, **number})))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


def _item(out: _Events, place: int, raw: msgspec.Raw, taken: set[str]) -> None:
    """An output item: begun, grown to what it is, done. ``taken``: the ids of the items before it.

    One provider gives two items of a response the same id; the official SDK refuses a stream that does.
    """
    item = loaded(raw)
    if not isinstance(item, dict):
        return
    done: Any = raw
    if item.get("id") and str(item["id"]) in taken:
        done = item = {**item, "id": f"{item['id']}_{place}"}
    taken.add(str(item.get("id")))
    own = {"item_id": str(item.get("id") or ""), "output_index": place}
    begun = dict(item)
    if "status" in begun:
        begun["status"] = "in_progress"
    for name in ("content", "summary"):
        if isinstance(begun.get(name), list):
            begun[name] = []
    field, event = _GROWS.get(str(item.get("type")), ("", ""))
    grows = isinstance(item.get(field), str)
    if grows:
        begun[field] = ""
    out.add("response.output_item.added", output_index=place, item=begun)
    if grows:
        out.add(f"{event}.delta", **own, delta=item[field])
        out.add(f"{event}.done", **own, **{field: item[field]})
    _summary(out, own, item.get("summary"))
    _content(out, own, item.get("content"))
    out.add("response.output_item.done", output_index=place, item=done)


def _summary(out: _Events, own: dict[str, Any], summary: Any) -> None:
    for index, part in enumerate(summary if isinstance(summary, list) else ()):
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            continue
        mine = {**own, "summary_index": index}
        out.add("response.reasoning_summary_part.added", **mine, part={**part, "text": ""})
        out.add("response.reasoning_summary_text.delta", **mine, delta=text)
        out.add("response.reasoning_summary_text.done", **mine, text=text)
        out.add("response.reasoning_summary_part.done", **mine, part=part)


def _content(out: _Events, own: dict[str, Any], content: Any) -> None:
    for index, part in enumerate(content if isinstance(content, list) else ()):
        mine = {**own, "content_index": index}
        field, event = _PARTS.get(str(part.get("type")) if isinstance(part, dict) else "", ("", ""))
        if not field or not isinstance(part.get(field), str):
            out.add("response.content_part.added", **mine, part=part)
            out.add("response.content_part.done", **mine, part=part)
            continue
        annotations = part.get("annotations")
        begun = {**part, field: ""} | ({"annotations": []} if isinstance(annotations, list) else {})
        more = {"logprobs": part.get("logprobs") or []} if field == "text" and event == "response.output_text" else {}
        out.add("response.content_part.added", **mine, part=begun)
        out.add(f"{event}.delta", **mine, delta=part[field], **more)
        for at, annotation in enumerate(annotations if isinstance(annotations, list) else ()):
            out.add("response.output_text.annotation.added", **mine, annotation_index=at, annotation=annotation)
        out.add(f"{event}.done", **mine, **{field: part[field]}, **more)
        out.add("response.content_part.done", **mine, part=part)
