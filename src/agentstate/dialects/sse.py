"""Owns the framing of server-sent events, and keeping events back. Must not interpret their data.

Invariant: the raw bytes of all events and the rest, joined, are the bytes that were fed, however they were cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Two line ends in a row, each LF, CRLF or CR; never U+2028 or U+0085, which may stand inside JSON.
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"\r\n|\n|\r")


class Parser:
    """Cuts a stream into events. ``feed`` yields each complete event's raw bytes, its blank line included."""

    __slots__ = ("_rest", "_seen")

    def __init__(self) -> None:
        self._rest = b""
        self._seen = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        rest = self._rest + data if self._rest else data
        if b"\r" not in rest:
            yield from self._feed_lf(rest)
            return
        start = 0
        # A blank line may straddle the cut by at most three bytes.
        look = max(0, self._seen - 3)
        while (found := _BLANK.search(rest, look)) is not None:
            if found.end() == len(rest) and rest.endswith(b"\r"):
                break  # its LF may be still to come
            yield rest[start : found.end()]
            start = look = found.end()
        self._rest = rest[start:]
        self._seen = len(self._rest)

    def _feed_lf(self, rest: bytes) -> Iterator[bytes]:
        """The common case, three times as fast: all line ends are LF."""
        start, look = 0, max(0, self._seen - 1)
        while (found := rest.find(b"\n\n", look)) >= 0:
            yield rest[start : found + 2]
            start = look = found + 2
        self._rest = rest[start:]
        self._seen = len(self._rest)

    def rest(self) -> bytes:
        """What came after the last complete event."""
        return self._rest


class Holding:
    """What gates of streams of events share: an event that may not be shown yet keeps back all that follows it."""

    __slots__ = ("_held", "_parser")

    def __init__(self) -> None:
        self._parser = Parser()
        self._held = False

    def feed(self, data: bytes) -> bytes:
        free = []
        for event in self._parser.feed(data):
            visible = self._read(event)
            if self._held or not visible:
                self._held = True
            else:
                free.append(event)
        return b"".join(free)

    def _read(self, event: bytes) -> bool:
        """Take note of an event; whether it may be shown before the commit."""
        raise NotImplementedError

    def _read_rest(self) -> None:
        """An end without its blank line: browsers' rule is to drop it, providers mean it."""
        tail = self._parser.rest()
        if tail.strip():
            self._read(tail)


def data_of(event: bytes) -> bytes | None:
    """The event's data, lines joined by LF; ``None`` for a comment or an empty event."""
    event = event.removeprefix(_BOM)
    if event.startswith(b"data: ") and event.endswith(b"}\n\n") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]
    if event.startswith(b"event: ") and event.endswith(b"}\n\n") and event.count(b"\n") == 3 and b"\r" not in event:
        start = event.find(b"\n") + 1
        if event.startswith(b"data: ", start):
            return event[start + 6 : -2]
    lines = [line for line in _LINE.split(event) if line.startswith(b"data")]
    parts = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            parts.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(parts) if parts else None


def name_of(event: bytes) -> bytes:
    """The event's type, empty when it has none."""
    for line in _LINE.split(event):
        if line.startswith(b"event:"):
            return line[6:].strip()
    return b""


def events(stream: bytes) -> Iterator[bytes]:
    """All events of a whole stream, an unfinished last one included."""
    parser = Parser()
    yield from parser.feed(stream)
    if parser.rest().strip():
        yield parser.rest()


KEEP_ALIVE = b": keep-alive\n\n"


def encode(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
