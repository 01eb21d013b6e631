"""Owns changing one part of a JSON text or of an event. Must not know any dialect, nor decide what is changed.

Invariant: every byte that belongs to no changed part stays as it was: spelling of numbers and texts, blanks, order of
members, members that nobody knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from agentstate.core.model import Change, ToolCall
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE, list_of

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BLANKS = re.compile(rb"[ \t\r\n]*")
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NESTED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_ATOM = re.compile(rb"[^\s,:\]}\[{\"]+")
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|$)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Member(NamedTuple):
    """A member of an object: where its name begins, where its value begins and ends."""

    name: str
    start: int
    value: int
    end: int


def members(text: bytes) -> list[Member]:
    """The members of a JSON object, doubled names too; ``ValueError``: it is none."""
    found = []
    for start in _parts(text, b"{"):
        name = _end(text, start)
        colon = _blanks(text, name)
        if text[colon : colon + 1] != b":":
            raise ValueError("not a JSON object")
        value = _blanks(text, colon + 1)
        found.append(Member(str(loaded(text[start:name])), start, value, _end(text, value)))
    return found


def elements(text: bytes) -> list[bytes]:
    """The elements of a JSON array; ``ValueError``: it is none."""
    strict = list_of(text)
    if strict is not None:
        return [bytes(one) for one in strict]
    return [text[start : _end(text, start)] for start in _parts(text, b"[")]


def member(text: bytes, name: str) -> bytes:
    """The value of a member, of the last one of its name; empty: there is none, or it is null, or this is no object."""
    if not text.lstrip().startswith(b"{"):
        return b""
    try:
        found = bytes(_decode_fields.decode(text).get(name, b""))
        return b"" if found == b"null" else found
    except UNREADABLE:
        found = b""  # only a lenient reader takes it
    for one in members(text):
        if one.name == name:
            found = text[one.value : one.end]
    return b"" if found == b"null" else found


def listed(text: bytes, name: str) -> list[bytes]:
    """The elements of the array that a member is; none where it is no array."""
    found = member(text, name)
    return elements(found) if found.startswith(b"[") else []


def with_members(text: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """The object with other values of members; ``None``: without the member. What is not there yet comes last."""
    known = members(text)
    last = {one.name: place for place, one in enumerate(known)}
    new: list[Sequence[bytes]] = []
    for place, one in enumerate(known):
        value = changes.get(one.name, b"") if one.name in changes else text[one.value : one.end]
        kept = value is not None and (one.name not in changes or last[one.name] == place)
        new.append([text[one.start : one.value] + (value or b"")] if kept else [])
    added = [encoded(name) + b":" + value for name, value in changes.items() if value is not None and name not in last]
    return _joined(text, [(one.start, one.end) for one in known], new, added)


def with_elements(text: bytes, changes: Mapping[int, Sequence[bytes]], added: Sequence[bytes] = ()) -> bytes:
    """The array with other elements in the places of some, any number of them, and more at its end."""
    spans = [(start, _end(text, start)) for start in _parts(text, b"[")]
    new = [changes[place] if place in changes else [text[start:end]] for place, (start, end) in enumerate(spans)]
    return _joined(text, spans, new, added)


def appended(body: bytes, name: str, added: Sequence[bytes]) -> bytes:
    """The object with more elements at the end of the array that a member is; ``ValueError``: it is no array."""
    place = max((one.value for one in members(body) if one.name == name), default=-1)
    if place < 0 or body[place : place + 1] != b"[":
        raise ValueError(f"the request has no list of {name}")
    end = _end(body, place)
    return body[:place] + with_elements(body[place:end], {}, added) + body[end:]


def _joined(
    text: bytes, spans: Sequence[tuple[int, int]], new: Sequence[Sequence[bytes]], added: Sequence[bytes]
) -> bytes:
    """``text`` with other parts; what stands between two of them stays between what remains."""
    opening = _blanks(text, 0) + 1
    head, tail = (text[: spans[0][0]], text[spans[-1][1] :]) if spans else (text[:opening], text[opening:])
    out: list[bytes] = []
    for place, found in enumerate(new):
        for count, part in enumerate(found):
            if out:
                out.append(b"," if count or not place else text[spans[place - 1][1] : spans[place][0]])
            out.append(part)
    between = text[spans[-2][1] : spans[-1][0]] if len(spans) > 1 else b","
    for part in added:
        if out:
            out.append(between)
        out.append(part)
    return head + b"".join(out) + tail


def _parts(text: bytes, opening: bytes) -> Iterator[int]:
    """Where the elements of an array begin, or the names of an object's members."""
    at = _blanks(text, 0)
    if text[at : at + 1] != opening:
        raise ValueError("not a JSON " + ("object" if opening == b"{" else "array"))
    closing = b"}" if opening == b"{" else b"]"
    at = _blanks(text, at + 1)
    while text[at : at + 1] != closing:
        yield at
        at = _end(text, at)
        if opening == b"{":
            at = _end(text, _blanks(text, _blanks(text, at) + 1))
        at = _blanks(text, at)
        if text[at : at + 1] == b",":
            at = _blanks(text, at + 1)
        elif text[at : at + 1] != closing:
            raise ValueError("not JSON")


def _blanks(text: bytes, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found is not None else at


def _end(text: bytes, at: int) -> int:
    """Where the value ends that begins here."""
    if text[at : at + 1] not in (b"{", b"["):
        one = _TEXT.match(text, at) or _ATOM.match(text, at)
        if one is None:
            raise ValueError("not JSON")
        return one.end()
    depth = 0
    for found in _NESTED.finditer(text, at):
        mark = found[0][:1]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return found.end()
    raise ValueError("not JSON")


# --- values -----------------------------------------------------------------------------------------------------------


def loaded(raw: bytes) -> Any:
    """A JSON value, read leniently where it must be; empty bytes are null."""
    try:
        return msgspec.json.decode(raw) if raw else None
    except UNREADABLE:
        return json.loads(raw.decode("utf-8", "replace"))


def encoded(text: str) -> bytes:
    """A text as JSON."""
    try:
        return json.dumps(text, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which has no bytes of its own
        return json.dumps(text).encode()


def spliced(arguments: str) -> bytes:
    """A JSON text as bytes, just as it was written; half a pair of surrogates becomes its escape."""
    return arguments.encode("utf-8", "backslashreplace")


# --- calls and events -------------------------------------------------------------------------------------------------


def by_call(calls: Sequence[ToolCall], changes: Sequence[Change]) -> dict[tuple[int, int], Change]:
    """The changes by (choice, index). ``ValueError``: one is for a call that is not there, or two are for one call."""
    there = {(call.choice, call.index) for call in calls}
    found: dict[tuple[int, int], Change] = {}
    for change in changes:
        place = change.choice, change.index
        if place not in there:
            raise ValueError(f"the answer has no call {change.index} in choice {change.choice}")
        if place in found:
            raise ValueError(f"two changes are for call {change.index} in choice {change.choice}")
        found[place] = change
    return found


def pieces(stream: bytes) -> Iterator[bytes]:
    """The events of a whole stream, and whatever follows the last; joined, they are the stream."""
    parser = sse.Parser()
    yield from parser.feed(stream)
    if parser.rest():
        yield parser.rest()


def with_data(event: bytes, data: bytes) -> bytes:
    """The event with other data, on one line: line ends in JSON are blanks between its tokens."""
    data = _LINE_END.sub(b" ", data)
    out: list[bytes] = []
    written = False
    for line, end in _LINE.findall(event):
        name, colon, value = line.removeprefix(_BOM).partition(b":")
        if name != b"data":
            out += (line, end)
        elif not written:
            begun = line[: len(line) - len(value)] if colon else line + b":"
            out += (begun, b" " if value.startswith(b" ") else b"", data, end)
            written = True
    if written:
        return b"".join(out)
    bare = event.strip()  # an event that is nothing but JSON
    start = event.index(bare)
    return event[:start] + data + event[start + len(bare) :]


def line_ends_of(event: bytes, model: bytes) -> bytes:
    """An event of ours with the line ends of another."""
    found = _LINE_END.search(model)
    return event if found is None else event.replace(b"\n", found[0])
