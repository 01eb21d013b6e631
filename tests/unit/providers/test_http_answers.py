"""What a provider may send, and what becomes of it: whole answers, odd framings, and what is no answer at all."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from agentstate.errors import UpstreamCut, UpstreamFault, UpstreamInvalid
from tests.unit.providers.peer import OK, Peer, Talk, answers, ask, client_of, question, steady

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def fault_of(*pieces: bytes, close: bool = True) -> UpstreamFault:
    """What an answer of these pieces is called."""
    async with Peer(answers(*pieces, close=close)) as peer, client_of() as client:
        with pytest.raises(UpstreamFault) as caught:
            await ask(client, peer)
        return caught.value
    raise AssertionError("a peer swallows nothing")


WHOLE = {
    "length": (HEAD + b"content-length: 5\r\n\r\nhello", b"hello"),
    "no body": (HEAD + b"content-length: 0\r\n\r\n", b""),
    "chunked": (CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", b"hello"),
    "chunk extensions": (CHUNKED + b'2;a=1;b="x"\r\nhe\r\n3;c\r\nllo\r\n0;d\r\n\r\n', b"hello"),
    "spaces after a chunk's size": (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", b"hello"),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nx-trailer: 1\r\nx-other:\r\n\r\n", b"hello"),
    "until the end": (HEAD + b"content-type: text/plain\r\n\r\nhello", b"hello"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
    "HTTP/1.0 with a length": (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    "no reason phrase": (b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    "bare line feeds": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", b"hello"),
    "blank lines before": (b"\r\n\r\n" + HEAD + b"content-length: 5\r\n\r\nhello", b"hello"),
    "an offer to upgrade": (HEAD + b"upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
    "interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\ncontent-length: 0\r\n\r\n"
        b"HTTP/1.1 199 Odd\r\nconnection: close\r\n\r\n" + HEAD + b"content-length: 5\r\n\r\nhello",
        b"hello",
    ),
}


@pytest.mark.parametrize("sizes", ["whole", "bytes"])
@pytest.mark.parametrize("kind", WHOLE)
async def test_whole_answer_is_read_however_it_is_framed_and_cut_up(kind: str, sizes: str) -> None:
    wire, body = WHOLE[kind]
    pieces = [wire] if sizes == "whole" else [wire[at : at + 1] for at in range(len(wire))]
    async with Peer(answers(*pieces)) as peer, client_of() as client:
        status, headers, got = await ask(client, peer)
    assert (status, got) == (200, body)
    assert {name.lower() for name, _ in headers} <= {"content-length", "content-type"}, "only the final head's fields"


@pytest.mark.parametrize("kind", ["chunked", "chunk extensions", "trailers", "length", "interim answers"])
async def test_connection_carries_the_next_answer_with_nothing_of_the_last(kind: str) -> None:
    async with Peer(answers(WHOLE[kind][0], times=2)) as peer, client_of() as client:
        first, second = await ask(client, peer), await ask(client, peer)
    assert first == second
    assert peer.connections == 1


@pytest.mark.parametrize("method, status", [("HEAD", 200), ("HEAD", 404), ("POST", 204), ("POST", 304)])
@pytest.mark.parametrize("framing", [b"content-length: 5", b"transfer-encoding: chunked", b"content-encoding: gzip"])
async def test_answer_that_cannot_have_a_body_is_not_waited_for(method: str, status: int, framing: bytes) -> None:
    head = b"HTTP/1.1 %d X\r\nx-a: 1\r\n%s\r\n\r\n" % (status, framing)
    async with Peer(answers(head, close=False), steady) as peer, client_of() as client:
        got = await ask(client, peer, method=method, body=b"", raw=False)
        assert (got[0], got[2]) == (status, b"")
    assert ("x-a", "1") in got[1]


async def test_connection_is_reused_after_an_answer_to_head() -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(HEAD + b"content-length: 5\r\n\r\n")
        await steady(talk)

    async with Peer(script) as peer, client_of() as client:
        assert (await ask(client, peer, method="HEAD", body=b""))[2] == b""
        assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 1


async def test_fields_arrive_in_order_with_doubles_and_without_values() -> None:
    fields = (
        b"X-One: 1\r\nset-cookie: a=1\r\nEmpty:\r\nset-cookie: b=2  \r\nblank:   \r\nlatin: \xe9\r\nX-Last: l:l\r\n"
    )
    async with Peer(answers(HEAD + fields + b"content-length: 0\r\n\r\n")) as peer, client_of() as client:
        headers = (await ask(client, peer))[1]
    assert headers == [
        ("X-One", "1"), ("set-cookie", "a=1"), ("Empty", ""), ("set-cookie", "b=2"), ("blank", ""), ("latin", "é"),
        ("X-Last", "l:l"), ("content-length", "0"),
    ]  # fmt: skip


async def test_fields_of_the_connection_are_not_handed_on() -> None:
    fields = b"Connection: X-Hop, keep-alive\r\nx-hop: 1\r\nKeep-Alive: timeout=5\r\nx-kept: 1\r\ncontent-length: 0\r\n"
    async with Peer(answers(HEAD + fields + b"\r\n")) as peer, client_of() as client:
        assert (await ask(client, peer))[1] == [("x-kept", "1"), ("content-length", "0")]


CUT = {
    "in the head": HEAD + b"content-",
    "after the head": HEAD + b"content-length: 5\r\n\r\n",
    "before the announced length": HEAD + b"content-length: 5\r\n\r\nhell",
    "within a chunk": CHUNKED + b"5\r\nhel",
    "before the last chunk": CHUNKED + b"5\r\nhello\r\n",
    "within the trailers": CHUNKED + b"5\r\nhello\r\n0\r\nx: 1\r\n",
    "before anything": b"",
    "after an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("place", CUT)
async def test_answer_that_ends_early_is_called_cut(place: str) -> None:
    fault = await fault_of(CUT[place])
    assert type(fault) is UpstreamCut
    begun = b"\r\n\r\n" in CUT[place] and place != "after an interim answer"
    where = "in the middle of" if begun else "before"
    assert str(fault) == f"provider scripted closed the connection {where} its answer"


async def test_body_that_ends_with_a_reset_is_called_cut() -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(HEAD + b"\r\nhello")
        await asked.wait()
        talk.reset()

    asked = asyncio.Event()
    async with Peer(script) as peer, client_of() as client, client.attempt(peer.provider(), question()) as reply:
        assert await anext(reply.chunks) == b"hello"
        asked.set()
        with pytest.raises(UpstreamCut):
            await anext(reply.chunks)


async def test_what_came_before_a_cut_is_handed_on_before_the_fault() -> None:
    async with Peer(answers(CUT["before the last chunk"])) as peer, client_of() as client:
        got = []
        with pytest.raises(UpstreamCut):
            async with client.attempt(peer.provider(), question()) as reply:
                async for chunk in reply.chunks:
                    got += [chunk]
    assert got == [b"hello"]


NO_HTTP = {
    "a page": b"<html>no</html>",
    "a binary protocol": b"\x15\x03\x01\x00\x02\x02\x46",
    "a folded field": HEAD + b"a: 1\r\n  folded\r\ncontent-length: 0\r\n\r\n",
    "a field without a colon": HEAD + b"nonsense\r\ncontent-length: 0\r\n\r\n",
    "a space before the colon": HEAD + b"a : 1\r\ncontent-length: 0\r\n\r\n",
    "a control character": HEAD + b"a: \x00\r\ncontent-length: 0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "a negative length": HEAD + b"content-length: -5\r\n\r\nhello",
    "a length and chunks": HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunks and a length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "another transfer-encoding": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a chunk size that is none": CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
    "an interim answer with a body": b"HTTP/1.1 104 X\r\ncontent-length: 2\r\n\r\nhi" + OK,
    "a future version": b"HTTP/3 200\r\n\r\n",
    "a field of more than 64 KiB": HEAD + b"a: " + b"x" * 65536 + b"\r\ncontent-length: 0\r\n\r\n",
    "many fields of more than 64 KiB": HEAD + b"a: 123456\r\n" * 7000 + b"content-length: 0\r\n\r\n",
    "a head without end": HEAD + b"a: " + b"x" * 200_000,
    "a chunk extension without end": CHUNKED + b"5;" + b"x" * 400_000,
    "trailers without end": CHUNKED + b"5\r\nhello\r\n0\r\n" + b"a: 123456\r\n" * 70_000,
}


@pytest.mark.parametrize("sizes", [2**20, 1000])
@pytest.mark.parametrize("kind", NO_HTTP)
async def test_what_is_not_http_is_called_so(kind: str, sizes: int) -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        try:
            await talk.send(*(wire[at : at + sizes] for at in range(0, len(wire), sizes)))
        except ConnectionError:
            return  # it has read enough
        await talk.gone()

    wire = NO_HTTP[kind]
    async with Peer(script) as peer, client_of() as client:
        with pytest.raises(UpstreamInvalid, match=r"^provider scripted sent what is not HTTP: .+"):
            await ask(client, peer)


@pytest.mark.parametrize("status", [b"101", b"099", b"600", b"999"])
async def test_status_of_no_answer_is_refused(status: bytes) -> None:
    fault = await fault_of(b"HTTP/1.1 " + status + b" X\r\ncontent-length: 0\r\n\r\n", close=False)
    assert type(fault) is UpstreamInvalid
    assert str(fault) == f"provider scripted answered with status {int(status)}"


async def test_large_head_is_read_with_a_body_in_the_same_piece() -> None:
    fields = b"a: " + b"x" * 60_000 + b"\r\ncontent-length: 100000\r\n\r\n"
    async with Peer(answers(HEAD + fields + b"y" * 100_000)) as peer, client_of() as client:
        assert (await ask(client, peer))[2] == b"y" * 100_000


async def test_long_stream_of_tiny_chunks_is_not_mistaken_for_overhead() -> None:
    pieces = [piece for _ in range(300) for piece in (b"1;" + b"x" * 500 + b"\r\n", b"y\r\n")]
    async with Peer(answers(CHUNKED, *pieces, b"0\r\n\r\n")) as peer, client_of() as client:
        assert (await ask(client, peer))[2] == b"y" * 300


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged", b"more", b"HTT"])
@pytest.mark.parametrize("joined", [True, False])
async def test_bytes_after_an_answer_are_never_the_next_answer(extra: bytes, joined: bool) -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(OK + extra) if joined else await talk.send(OK, extra)
        assert await talk.gone() == b""

    async with Peer(script, steady) as peer, client_of() as client:
        assert (await ask(client, peer))[2] == b"ok"
        assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 2
        assert len(peer.questions) == 2


async def test_redirect_is_an_answer_and_cookies_are_not_kept() -> None:
    moved = b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\nset-cookie: a=1\r\ncontent-length: 0\r\n\r\n"
    async with Peer(answers(moved, times=2)) as peer, client_of() as client:
        assert [(await ask(client, peer))[0] for _ in range(2)] == [302, 302]
    assert len(peer.questions) == 2
    assert b"cookie" not in peer.questions[1].lower()


@pytest.mark.parametrize("raw", [True, False])
async def test_packed_body_is_unpacked_unless_it_is_asked_for_raw(raw: bool) -> None:
    packed = gzip.compress(b"hello")
    wire = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\nx-a: 1\r\n\r\n%s" % (len(packed), packed)
    async with Peer(answers(wire, times=2)) as peer, client_of() as client:
        _, headers, body = await ask(client, peer, raw=raw)
        again = await ask(client, peer, raw=raw)
    assert body == again[2] == (packed if raw else b"hello")
    assert [name for name, _ in headers] == (["content-encoding", "content-length", "x-a"] if raw else ["x-a"])
    assert peer.connections == 1
