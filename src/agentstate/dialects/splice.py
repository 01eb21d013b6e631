"""Owns putting other values into JSON text and into events that hold it. Must not know any dialect.

Invariant: what is not named stays as it was written: numbers, escapes, unknown fields and the order of the fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentstate.dialects.base import UNREADABLE, list_of

NULL = b"null"
NOTHING = (b"", NULL, b'""', b"[]", b"{}")  # values that say nothing
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LINES = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")
_BOM = b"\xef\xbb\xbf"
# What some clients take for a line end inside a text.
_LINE_ENDS = tuple((end.encode(), rb"\u%04x" % ord(end)) for end in "\u2028\u2029\u0085")
_BLANKS = b" \t\r\n"
# Numbers stay text: only the places of values count, and some integers are too long to be read.
_lenient = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)


def members(raw: msgspec.Raw | bytes | None) -> dict[str, bytes] | None:
    """The fields of a JSON object as written; ``None``: it is none. Bytes that are no text become U+FFFD."""
    if raw is None:
        return None
    try:
        return {name: bytes(value) for name, value in _decode_members.decode(raw).items()}
    except UNREADABLE:
        text = bytes(raw).decode("utf-8", "replace").encode()
        return members(text) if text != bytes(raw) else None


def elements(raw: msgspec.Raw | bytes | None) -> list[bytes]:
    """The elements of a JSON array as written; none where it is no array."""
    return [] if raw is None else [bytes(part) for part in list_of(raw) or ()]


def of_members(fields: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items()) + b"}"


def of_elements(parts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def spelled(text: str) -> bytes:
    """A JSON string that no client takes for more than one line. Raises ``ValueError`` for a lone surrogate."""
    return one_line(msgspec.json.encode(text))


def one_line(raw: bytes) -> bytes:
    """JSON text in one line: what was a line end between its parts is a blank, one inside a text is escaped."""
    raw = raw.replace(b"\r", b" ").replace(b"\n", b" ")
    for end, escaped in _LINE_ENDS:
        raw = raw.replace(end, escaped)
    return raw


def checked_object(arguments: str) -> bytes:
    """Edited arguments as bytes. Raises ``ValueError`` unless they are the JSON text of an object."""
    try:
        text = arguments.encode()
        value = msgspec.json.decode(text)
    except (*UNREADABLE, UnicodeEncodeError) as error:
        raise ValueError(f"the edited arguments must be the JSON text of an object: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the edited arguments must be a JSON object; got {arguments[:80]!r}")
    return text


def value_of(raw: bytes | None) -> Any:
    """What a JSON text says; ``None`` where it is absent or unreadable."""
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def around(body: bytes, new: bytes) -> bytes:
    """``new`` with the blanks that stand before and after ``body``."""
    start = len(body) - len(body.lstrip(_BLANKS))
    return body[:start] + new + body[len(body.rstrip(_BLANKS)) :]


def with_data(event: bytes, data: bytes) -> bytes:
    """A server-sent event with other data in one line; its other lines and its line ends stay."""
    data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    out = []
    put = False
    for found in _LINES.finditer(event):
        line, end = found.groups()
        bare = line.removeprefix(_BOM)
        name, colon, value = bare.partition(b":")
        if name != b"data":
            out.append(line + end)
        elif not put:
            put = True
            begun = line[: len(line) - len(bare)] + name + (colon or b":")
            out.append(begun + (b" " if value.startswith(b" ") or not colon else b"") + data + end)
    return b"".join(out)


def line_end(event: bytes) -> bytes:
    """How the lines of an event end."""
    found = next((found[2] for found in _LINES.finditer(event) if found[2]), b"\n")
    return bytes(found)


def appended(body: bytes, name: str, items: Sequence[bytes]) -> bytes:
    """A JSON object with more elements at the end of its array ``name``; every other byte stays.

    Raises ``ValueError`` where it has no such array.
    """
    text = body.decode("utf-8", "surrogateescape")
    span = _span(text, name)
    if span is None or not text.startswith("[", span[0]):
        raise ValueError(f"the request has no list {name!r} that could go on")
    start, end = (len(text[:place].encode("utf-8", "surrogateescape")) for place in span)
    inside = body[start + 1 : end - 1]
    kept = inside.rstrip(_BLANKS)
    parts = ([kept] if kept else []) + list(items)
    return body[: start + 1] + b",".join(parts) + inside[len(kept) :] + body[end - 1 :]


def member(body: bytes, name: str) -> bytes | None:
    """The value of a top-level field of a JSON object as written; ``None``: it has no such field."""
    text = body.decode("utf-8", "surrogateescape")
    span = _span(text, name)
    return None if span is None else text[span[0] : span[1]].encode("utf-8", "surrogateescape")


def with_member(body: bytes, name: str, value: bytes) -> bytes:
    """A JSON object with another value of a top-level field that it has; every other byte stays. Raises ``ValueError``
    where it has none."""
    text = body.decode("utf-8", "surrogateescape")
    span = _span(text, name)
    if span is None:
        raise ValueError(f"the request has no field {name!r}")
    start, end = (
        text[: span[0]].encode("utf-8", "surrogateescape"),
        text[span[1] :].encode("utf-8", "surrogateescape"),
    )
    return start + value + end


def _span(text: str, name: str) -> tuple[int, int] | None:
    """(start, end) of the value of a top-level field, of the last one where several have that name."""
    found = None
    at = _skipped(text, 0)
    if not text.startswith("{", at):
        return None
    at = _skipped(text, at + 1)
    while text.startswith('"', at):
        key, at = _lenient.raw_decode(text, at)
        start = _skipped(text, _skipped(text, at) + 1)
        _, at = _lenient.raw_decode(text, start)
        if key == name:
            found = start, at
        at = _skipped(text, _skipped(text, at) + 1)
    return found


def _skipped(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at
