"""Owns filling in the ids of tool calls that a provider left out. Must not change anything else.

Some clients loop for ever over a call without an id, others refuse it, others make one up that is another in the next
life. Invariant: all bytes but those of the ids are as they came; where that cannot be, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE, list_of, place_of

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MISSING = (b"", b"null", b'""')


def filled_plain(body: bytes, make: Callable[[], str]) -> bytes:
    """A completion object in which each tool call has an id."""
    return _filled(body, "message", lambda choice, call: make())


def filled_stream(body: bytes, make: Callable[[], str]) -> bytes:
    """A stream in which the first piece of each tool call has an id."""
    begun: set[tuple[int, int]] = set()

    def name(choice: int, call: dict[str, msgspec.Raw]) -> str | None:
        index = _number(call.get("index"))
        names = b'"name"' in bytes(call.get("function", b""))
        first = names if index is None else (choice, index) not in begun
        if index is not None:
            begun.add((choice, index))
        return make() if first else None

    out = []
    for event in sse.events(body):
        data = sse.data_of(event)
        if data is None or b'"tool_calls"' not in data or data not in event:
            out.append(event)
        else:
            out.append(event.replace(data, _filled(data, "delta", name), 1))
    return b"".join(out)


def _filled(body: bytes, part: str, name: Callable[[int, dict[str, msgspec.Raw]], str | None]) -> bytes:
    """``part``: where a choice has its calls. ``name``: an id for a call that has none; ``None``: it needs none."""
    try:
        whole = _fields.decode(body)
        choices = list_of(whole.get("choices", msgspec.Raw(b"[]"))) or ()
        changed = body
        for place, raw in enumerate(choices):
            choice = _fields.decode(raw)
            index = _number(choice.get("index"))
            message = _fields.decode(choice.get(part, msgspec.Raw(b"{}")))
            array = bytes(message.get("tool_calls", b""))
            calls = [bytes(call) for call in list_of(array) or ()] if array[:1] == b"[" else []
            named = [_with_id(call, place if index is None else index, name) for call in calls]
            if named != calls:
                changed = _replaced(changed, bytes(raw), array, _joined(array, calls, named))
        return changed if _alike(body, changed) else body
    except UNREADABLE:
        return body


def _with_id(call: bytes, choice: int, name: Callable[[int, dict[str, msgspec.Raw]], str | None]) -> bytes:
    fields = _fields.decode(call)
    made = name(choice, fields)  # asked in any case: it takes note of what has begun
    if made is None or bytes(fields.get("id", b"")) not in _MISSING:
        return call
    members = [(key, bytes(value)) for key, value in fields.items() if key != "id"]
    shown = [msgspec.json.encode(key) + b":" + value for key, value in members]
    return b"{" + b",".join([b'"id":' + msgspec.json.encode(made), *shown]) + b"}"


def _joined(array: bytes, old: list[bytes], new: list[bytes]) -> bytes:
    """The list with other elements; what is between them stays."""
    out, at = [], 0
    for was, is_ in zip(old, new, strict=True):
        start = array.index(was, at)
        out += [array[at:start], is_]
        at = start + len(was)
    return b"".join(out) + array[at:]


def _replaced(body: bytes, choice: bytes, old: bytes, new: bytes) -> bytes:
    start = place_of(choice, body)
    at = body.find(old, start)
    return body if start < 0 or at < 0 else body[:at] + new + body[at + len(old) :]


def _alike(one: bytes, other: bytes) -> bool:
    """Whether two bodies differ in the ids of tool calls only."""
    return bool(_without_ids(msgspec.json.decode(one)) == _without_ids(msgspec.json.decode(other)))


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_ids(part) for part in value]
    if isinstance(value, dict):
        shown = {key: _without_ids(part) for key, part in value.items()}
        for call in shown.get("tool_calls") or () if isinstance(shown.get("tool_calls"), list) else ():
            if isinstance(call, dict):
                call.pop("id", None)
        return shown
    return value


def _number(raw: msgspec.Raw | None) -> int | None:
    text = b"" if raw is None else bytes(raw)
    return int(text) if text.isdigit() else None
