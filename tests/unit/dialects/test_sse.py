"""Framing of server-sent events: however a stream is cut, the events are the same and no byte is lost."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects import sse
from tests.unit.core.profile import examples


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """The stream in pieces."""
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


def parsed(pieces: Iterable[bytes]) -> tuple[list[bytes], bytes]:
    """(events, rest)."""
    parser = sse.Parser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events, parser.rest()


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a stream by the standard: CRLF, LF or CR ends one."""
    return re.split(rb"\r\n|\n|\r", text)


def data_by_the_standard(stream: bytes) -> list[bytes]:
    """What a browser would dispatch: written from the standard, one line at a time."""
    found: list[bytes] = []
    data: list[bytes] = []
    *whole, _unfinished = lines_of(stream)
    for line in whole:
        if not line:
            if data:
                found.append(b"\n".join(data))
            data = []
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
    return found


STREAMS = {
    "LF": b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n',
    "CRLF": b'data: {"a":1}\r\n\r\ndata: {"b":2}\r\n\r\ndata: [DONE]\r\n\r\n',
    "CR": b'data: {"a":1}\r\rdata: {"b":2}\r\rdata: [DONE]\r\r',
    "mixed": b'data: {"a":1}\n\r\ndata: {"b":2}\r\n\ndata: [DONE]\r\n\r',
    "LF then CR": b"data: 1\n\rdata: 2\n\rdata: 3\n\n",
    "comments": b': hello\n\n: again\ndata: {"a":1}\n\n:\n\n',
    "fields": b'event: message\nid: 7\nretry: 10\ndata: {"a":1}\n\n',
    "lines of data": b'data: {"a":\ndata: 1}\n\ndata\n\ndata:\n\ndata:x\n\n',
    "line separators in text": 'data: {"a":"x\u2028y\u2029z\u0085\u000b\u000c"}\n\n'.encode(),
    "blank lines between": b"\n\ndata: 1\n\n\n\n\ndata: 2\n\n\n",
    "no blank line at the end": b"data: 1\n\ndata: 2\n",
    "no line end at the end": b"data: 1\n\ndata: 2",
    "nothing": b"",
    "only blanks": b"\n\r\n\r",
}


@pytest.mark.parametrize("name", STREAMS)
def test_stream_cut_in_two_anywhere_gives_the_same_events(name: str) -> None:
    stream = STREAMS[name]
    whole = parsed([stream])
    for place in range(len(stream) + 1):
        assert parsed([stream[:place], stream[place:]]) == whole, place
    assert parsed(stream[place : place + 1] for place in range(len(stream))) == whole


@pytest.mark.parametrize("name", STREAMS)
def test_events_and_rest_joined_are_the_stream(name: str) -> None:
    events, rest = parsed([STREAMS[name]])
    assert b"".join(events) + rest == STREAMS[name]


@pytest.mark.parametrize("name", STREAMS)
def test_events_have_the_data_that_the_standard_gives_them(name: str) -> None:
    # A last line end makes the last event whole, for us and for the standard.
    stream = STREAMS[name] + b"\n\n"
    found = [data for event in sse.events(stream) if (data := sse.data_of(event)) is not None]
    assert found == data_by_the_standard(stream)


_PIECE = st.sampled_from((b"data: ", b"data", b":", b" ", b"x", b"{", b"}", b"\n", b"\n", b"\r", b"\r\n", b"\n\n",
                          b"event: e", "\u2028".encode(), "\u0085".encode(), b"[DONE]", b"\xef\xbb\xbf"))  # fmt: skip


@given(st.lists(_PIECE, max_size=30).map(b"".join), st.lists(st.integers(0, 2**16), max_size=8))
@examples(600)
def test_any_stream_cut_anyhow_gives_the_same_events_and_bytes(stream: bytes, places: list[int]) -> None:
    whole = parsed([stream])
    assert parsed(cut(stream, places)) == whole
    events, rest = whole
    assert b"".join(events) + rest == stream
    assert all(event.strip() == b"" or lines_of(event)[-2:] == [b"", b""] for event in events)


@given(st.lists(_PIECE, max_size=30).map(b"".join))
@examples(600)
def test_any_stream_has_the_data_that_the_standard_gives_it(stream: bytes) -> None:
    if stream.endswith(b"\r"):
        stream += b"x"  # a last CR may be the beginning of a CRLF: it ends no line yet
    parser = sse.Parser()
    found = [data for event in parser.feed(stream) if (data := sse.data_of(event)) is not None]
    assert found == data_by_the_standard(stream)


def test_whole_streams_end_with_their_unfinished_event() -> None:
    assert list(sse.events(b"data: 1\n\ndata: 2")) == [b"data: 1\n\n", b"data: 2"]
    assert list(sse.events(b"data: 1\n\n \n")) == [b"data: 1\n\n"]


def test_name_of_an_event_is_found() -> None:
    assert sse.name_of(b"event: error\r\ndata: {}\r\n\r\n") == b"error"
    assert sse.name_of(b"data: {}\n\n") == b""


def test_encoded_data_is_read_back() -> None:
    assert sse.data_of(sse.encode(b'{"a": 1}')) == b'{"a": 1}'
    assert sse.data_of(sse.KEEP_ALIVE) is None
