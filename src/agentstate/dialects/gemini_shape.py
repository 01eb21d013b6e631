"""Owns the framings of a Gemini stream, and turning a recorded answer into the shape asked for. Must not judge.

Invariant: a chunk object keeps its bytes between the two framings of a stream (less line ends between its tokens, which
no SSE line could hold); texts of a converted answer read as those of the recorded one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agentstate.core.model import Shape
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE

# Raw line ends stand between tokens only, never inside a JSON text; so does the indentation after them.
_LINE_END = re.compile(rb"[\r\n]+[ \t]*")
# Parts of one kind that follow each other grow into one; a signature belongs to its own part and is never moved.
_GROWING = frozenset({"text", "thought"})


def convert(recorded: Shape, asked: Shape, body: bytes) -> bytes:
    """The recorded body in the asked shape; the very bytes where the shapes are equal."""
    if recorded.stream == asked.stream and (recorded.array == asked.array or not asked.stream):
        return body
    chunks = _chunks(recorded, body)
    if not asked.stream:
        return msgspec.json.encode(merged([_value(chunk) for chunk in chunks]))
    if asked.array:
        return b"[" + b",\r\n".join(chunks) + b"]"
    return b"".join(encode(_LINE_END.sub(b"", chunk)) for chunk in chunks)


def encode(chunk: bytes) -> bytes:
    """A chunk object as an event, with the line ends that Gemini uses."""
    return b"data: " + chunk + b"\r\n\r\n"


def _chunks(recorded: Shape, body: bytes) -> list[bytes]:
    """The chunk objects of a recorded answer, as bytes; a plain answer is one chunk."""
    if not recorded.stream:
        return [body.strip()]
    if recorded.array:
        return [element for _, element in Elements().feed(body)]
    found = [event_data(event) for event in sse.events(body)]
    return [data for data in found if data is not None and data.strip() != b"[DONE]"]


def _value(chunk: bytes) -> Any:
    """A chunk that was judged good by the fields that matter, read leniently in those that do not."""
    try:
        return msgspec.json.decode(chunk)
    except UNREADABLE:
        return json.loads(chunk.decode("utf-8", "replace"))


def merged(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The chunks added up to one response object; what no rule names is taken from the last chunk that has it."""
    whole: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for key, value in chunk.items():
            if key == "candidates":
                whole.setdefault(key, None)  # keeps its place among the fields
                for part in value or ():
                    _add_candidate(candidates.setdefault(part.get("index") or 0, {}), part)
            elif value is not None or key not in whole:
                whole[key] = value
    if candidates:
        whole["candidates"] = [candidates[index] for index in sorted(candidates)]
        for candidate in whole["candidates"]:
            _close(candidate)
    elif "candidates" in whole:
        del whole["candidates"]
    return whole


def _add_candidate(candidate: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if key == "content" and isinstance(value, dict):
            content = candidate.setdefault("content", {})
            content.update((name, found) for name, found in value.items() if name != "parts")
            for piece in value.get("parts") or ():
                _add_part(content.setdefault("parts", []), piece)
        elif key == "logprobsResult" and isinstance(value, dict):
            result = candidate.setdefault(key, {})
            for name, found in value.items():
                old = result.get(name)
                result[name] = old + found if isinstance(old, list) and isinstance(found, list) else found
        elif value is not None or key not in candidate:
            candidate[key] = value


def _add_part(parts: list[Any], part: Any) -> None:
    last = parts[-1] if parts else None
    if not isinstance(part, dict) or not isinstance(last, dict):
        parts.append(dict(part) if isinstance(part, dict) else part)
        return
    call, begun = part.get("functionCall"), last.get("functionCall")
    if isinstance(call, dict) and isinstance(begun, dict) and begun.get("willContinue") is True:
        last["functionCall"] = {**begun, "willContinue": None, **call}
        last["functionCall"]["partialArgs"] = (begun.get("partialArgs") or []) + (call.get("partialArgs") or [])
        last.update((name, value) for name, value in part.items() if name != "functionCall")
    elif _text_only(part) and _text_only(last) and bool(part.get("thought")) == bool(last.get("thought")):
        last["text"] += part["text"]
    else:
        parts.append(dict(part))


def _text_only(part: dict[str, Any]) -> bool:
    return isinstance(part.get("text"), str) and part.keys() <= _GROWING


def _close(candidate: dict[str, Any]) -> None:
    """Put function calls that came in pieces into the form in which they come whole."""
    content = candidate.get("content")
    for part in (content.get("parts") if isinstance(content, dict) else None) or ():
        call = part.get("functionCall") if isinstance(part, dict) else None
        if not isinstance(call, dict) or not (call.get("partialArgs") or call.get("willContinue") is not None):
            continue
        arguments: dict[str, Any] = dict(call.get("args") or {})
        for piece in call.get("partialArgs") or ():
            grow(arguments, piece)
        kept = {name: value for name, value in call.items() if name not in ("partialArgs", "willContinue", "args")}
        part["functionCall"] = {**kept, "args": arguments}


# --- arguments that come in pieces ------------------------------------------------------------------------------------

# One step of a path into the arguments: .name, ['name'] or [7].
_STEP = re.compile(r"\.([^.\[\]]+)|\[['\"](.*?)['\"]\]|\[(\d{1,4})\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


def grow(arguments: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece of streamed arguments, ``{"jsonPath": "$.a[0].b", "stringValue": "…"}``; a text grows.

    A piece whose path does not fit what is there is left out.
    """
    path = piece.get("jsonPath")
    kind = next((name for name in _VALUES if name in piece), None)
    steps: list[str | int] = [
        int(place) if place else name or quoted
        for name, quoted, place in _STEP.findall(path if isinstance(path, str) else "")
    ]
    if not steps or kind is None:
        return
    holder: Any = arguments
    for step, following in itertools.pairwise(steps):
        if not _made(holder, step):
            return
        if holder[step] is None:
            holder[step] = [] if isinstance(following, int) else {}
        holder = holder[step]
    if _made(holder, steps[-1]):
        old, value = holder[steps[-1]], None if kind == "nullValue" else piece[kind]
        holder[steps[-1]] = old + value if isinstance(old, str) and isinstance(value, str) else value


def _made(holder: Any, step: str | int) -> bool:
    """Whether a step fits what it leads into; then there is a place for it, ``None`` where it is new."""
    if isinstance(holder, list) and isinstance(step, int):
        holder.extend([None] * (step + 1 - len(holder)))
        return True
    if isinstance(holder, dict) and isinstance(step, str):
        holder.setdefault(step, None)
        return True
    return False


# --- framing ----------------------------------------------------------------------------------------------------------


def event_data(event: bytes) -> bytes | None:
    """The JSON of an event; ``None``: it has none. An error may come as bare lines of JSON, which is data here."""
    if event.startswith(b"data: ") and event.endswith(b"}\r\n\r\n") and event.count(b"\n") == 2:
        return event[6:-4]
    data = sse.data_of(event)
    if data is not None:
        return data
    bare = event.strip()
    return bare if bare[:1] in (b"{", b"[", b"<") and bare else None


# Inside and outside of a text: what may change where one is. A text without escapes is passed over as a whole.
_IN_TEXT = re.compile(rb'["\\]')
_AROUND = re.compile(rb'"[^"\\]*"|["{}\[\]]')


class Elements:
    """Cuts a JSON array into its elements as it grows; the pieces and the rest, joined, are the bytes that were fed.

    ``fault``: what is wrong between the elements; ``closed``: the array's own ``]`` has come.
    """

    __slots__ = ("_at", "_buffer", "_count", "_depth", "_start", "_text", "closed", "fault")

    def __init__(self) -> None:
        self.fault = ""
        self.closed = False
        self._buffer = bytearray()
        self._at = self._start = self._depth = self._count = 0
        self._text = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(raw bytes from the end of the element before to the end of this one, this element), each that is whole."""
        self._buffer += data
        while (found := (_IN_TEXT if self._text else _AROUND).search(self._buffer, self._at)) is not None:
            end = found.end()
            mark = self._buffer[end - 1 : end]
            if end - found.start() > 1:
                self._at = end
                continue
            if mark == b"\\":
                if end == len(self._buffer):
                    self._at = end - 1  # what it escapes is still to come
                    return
                self._at = end + 1
                continue
            self._at = end
            if mark == b'"':
                self._text = not self._text
            elif mark in b"{[":
                self._depth += 1
                if self._depth == 2:
                    self._start = end - 1
            else:
                self._depth -= 1
                if self._depth == 1:
                    yield self._cut(end)
                elif self._depth == 0:
                    self.closed = True
        self._at = len(self._buffer)

    def unclosed(self) -> str:
        """Why the bytes so far are no array; empty: they are one. Call after the last byte."""
        if not self.closed:
            return "the stream ended before its array was closed"
        return "" if bytes(self._buffer).strip() in (b"]", b"[]") else "the stream is not an array of JSON objects"

    def _cut(self, end: int) -> tuple[bytes, bytes]:
        piece = bytes(self._buffer[:end])
        element = piece[self._start :]
        if piece[: self._start].strip() != (b"," if self._count else b"["):
            self.fault = self.fault or "the stream is not an array of JSON objects"
        self._count += 1
        del self._buffer[:end]
        self._at = self._start = 0
        return piece, element
