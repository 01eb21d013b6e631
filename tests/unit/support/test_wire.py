"""The wire helpers decode any chunking alike and never take a cut message for a whole one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import Framing, Headers, parse_head

CHUNKED = b"5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\nTrailer: 1\r\n\r\n"


def fed(framing: Framing, data: bytes, cuts: list[int]) -> Framing:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        framing.feed(data[start:end])
    return framing


@given(st.lists(st.integers(0, 200)))
def test_chunked_body_decodes_alike_however_it_is_cut(cuts: list[int]) -> None:
    framing = fed(Framing(chunked=True), CHUNKED + b"NEXT", cuts)
    assert (bytes(framing.body), framing.done, framing.rest) == (b"hello, world", True, b"NEXT")
    assert bytes(framing.raw) == CHUNKED


@pytest.mark.parametrize("size", range(len(CHUNKED)))
def test_cut_chunked_body_is_never_done(size: int) -> None:
    framing = Framing(chunked=True)
    framing.feed(CHUNKED[:size])
    framing.end()
    assert not framing.done


@given(st.lists(st.integers(0, 50)))
def test_counted_body_ends_at_its_length_and_keeps_what_follows(cuts: list[int]) -> None:
    framing = fed(Framing(length=5), b"helloNEXT", cuts)
    assert (bytes(framing.body), framing.done, framing.rest) == (b"hello", True, b"NEXT")


def test_counted_body_that_is_short_is_not_done() -> None:
    framing = Framing(length=5)
    framing.feed(b"hell")
    framing.end()
    assert not framing.done


def test_body_without_framing_ends_with_the_connection_in_an_answer_only() -> None:
    answer = Framing.of(Headers(), request=False)
    answer.feed(b"hi")
    assert not answer.done
    answer.end()
    assert answer.done
    assert Framing.of(Headers(), request=True).done


def test_chunk_longer_than_it_said_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer"):
        Framing(chunked=True).feed(b"2\r\nabcd\r\n")


def test_head_keeps_order_case_and_repeats() -> None:
    first, fields = parse_head(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-b:  two \r\nX-a: 3\r\n\r\n")
    assert first == "HTTP/1.1 200 OK"
    assert fields == [("X-A", "1"), ("x-b", "two"), ("X-a", "3")]
    assert fields.all("x-A") == ["1", "3"]
    assert "X-B" in fields
    assert "x-c" not in fields
