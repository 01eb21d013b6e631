"""Which connection carries a question, how long anything is waited for, and what is given up when."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import pytest

from agentstate.errors import ShuttingDown, UpstreamCut, UpstreamTimeout, UpstreamUnreachable
from agentstate.providers import http, wire
from agentstate.providers.http import HttpClient
from agentstate.providers.provider import Provider
from tests.unit.providers.peer import BOUND_S, OK, Peer, Talk, answers, ask, client_of, question, steady

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def until(condition: Callable[[], object]) -> None:
    """Wait, within the peer's bound, until a condition holds."""
    while not condition():
        await asyncio.sleep(0.001)


def asked_once(peer: Peer) -> bool:
    return len(peer.questions) == 1


# --- reuse ----------------------------------------------------------------------------------------------------------


async def test_one_connection_carries_question_after_question() -> None:
    async with Peer(steady) as peer, client_of() as client:
        for _ in range(5):
            assert (await ask(client, peer))[2] == b"ok"
    assert peer.connections == 1


async def test_questions_at_the_same_time_have_connections_of_their_own() -> None:
    async with Peer(steady) as peer, client_of() as client:
        got = await asyncio.gather(*(ask(client, peer, body=b"%d" % at) for at in range(8)))
        assert [body for _, _, body in got] == [b"ok"] * 8
        assert peer.connections == 8
        await asyncio.gather(*(ask(client, peer) for _ in range(8)))
        assert peer.connections == 8


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_connection_that_was_closed_meanwhile_is_not_reused(ending: str) -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(OK)
        if ending == "reset":
            talk.reset()

    async with Peer(script, steady) as peer, client_of() as client:
        assert (await ask(client, peer))[2] == b"ok"
        await until(lambda: not any(idle.ready() for idle in client._wires))
        assert (await ask(client, peer))[2] == b"ok"
        assert (peer.connections, len(peer.questions)) == (2, 2)


async def test_end_that_waits_in_the_socket_is_noticed_before_a_question_is_written() -> None:
    """Closed while the loop is busy: only asking the socket itself tells."""
    spoken: list[Talk] = []

    async def script(talk: Talk) -> None:
        await talk.question()
        spoken.append(talk)
        await talk.send(OK)
        await talk.gone()

    async with Peer(script, steady) as peer, client_of() as client:
        await ask(client, peer)
        with socket.socket(fileno=os.dup(spoken[0].writer.get_extra_info("socket").fileno())) as sock:
            sock.shutdown(socket.SHUT_WR)  # the loop has not turned since
        assert (await ask(client, peer))[2] == b"ok"
        assert (peer.connections, len(peer.questions)) == (2, 2)


async def test_bytes_that_wait_in_the_socket_unread_keep_a_connection_from_being_reused() -> None:
    """Sent while the loop is busy, as it is between two calls that follow each other at once."""
    spoken: list[Talk] = []

    async def script(talk: Talk) -> None:
        await talk.question()
        spoken.append(talk)
        await talk.send(OK)
        await talk.gone()

    async with Peer(script, steady) as peer, client_of() as client:
        await ask(client, peer)
        # Both ends live in one thread: this is in the client's socket at once, and the loop does not turn meanwhile.
        with socket.socket(fileno=os.dup(spoken[0].writer.get_extra_info("socket").fileno())) as sock:
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 2


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nconnection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
async def test_connection_that_the_provider_means_to_close_is_not_reused(head: bytes) -> None:
    async with Peer(answers(head + b"content-length: 2\r\n\r\nok", close=False)) as peer, client_of() as client:
        for _ in range(2):
            assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 2


async def test_connection_of_http_1_0_is_reused_if_the_provider_keeps_it() -> None:
    head = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok"
    async with Peer(answers(head, times=2)) as peer, client_of() as client:
        for _ in range(2):
            assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 1


async def test_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wire.KEEP_S == 55.0
    monkeypatch.setattr(wire, "KEEP_S", 0.05)
    closed = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(OK)
        await talk.gone()
        closed.set()

    async with Peer(script, steady) as peer, client_of() as client:
        await ask(client, peer)
        await closed.wait()
        assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 2


@pytest.mark.parametrize("first", [0, 1])
async def test_question_is_never_sent_twice(first: int) -> None:
    """Not even one whose connection, used before or new, ends as soon as it is written."""

    async def script(talk: Talk) -> None:
        for _ in range(first):
            await talk.question()
            await talk.send(OK)
        await talk.question()

    async with Peer(script, steady) as peer, client_of() as client:
        for _ in range(first):
            await ask(client, peer)
        with pytest.raises(UpstreamCut, match=r"^provider scripted closed the connection before its answer$"):
            await ask(client, peer, body=b"precious")
        assert peer.connections == 1
    assert sum(raw.endswith(b"precious") for raw in peer.questions) == 1


# --- turns ----------------------------------------------------------------------------------------------------------


async def test_calls_beyond_the_limit_wait_in_order() -> None:
    go = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.question()
        await go.wait()
        await talk.send(OK)
        await steady(talk)

    async with Peer(script) as peer, client_of(connections=1) as client, asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(client, peer, body=b"%d" % at)) for at in range(6)]
        await until(lambda: asked_once(peer))
        go.set()
        await asyncio.wait(tasks)
        assert [raw[-1:] for raw in peer.questions] == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert peer.connections == 1


async def test_call_that_is_cancelled_while_it_waits_leaves_its_place_to_the_next() -> None:
    go = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.question()
        await go.wait()
        await talk.send(OK)
        await steady(talk)

    async with Peer(script) as peer, client_of(connections=1) as client, asyncio.TaskGroup() as group:
        first = group.create_task(ask(client, peer, body=b"first"))
        await until(lambda: asked_once(peer))
        waiting = [group.create_task(ask(client, peer, body=b"%d" % at)) for at in range(4)]
        await until(lambda: len(client._waiting) == 4)
        waiting[0].cancel()
        await asyncio.wait([waiting[0]])
        go.set()
        await first  # the next place is given away in this turn …
        waiting[1].cancel()  # … to one that is cancelled before it can take it, or just after
        await asyncio.wait(waiting)
        assert [task.cancelled() for task in waiting] == [True, True, False, False]
        assert (await ask(client, peer))[2] == b"ok"
        assert client._free == 1


async def test_place_given_to_a_cancelled_call_is_passed_on() -> None:
    async with asyncio.timeout(BOUND_S), client_of(connections=1) as client, asyncio.TaskGroup() as group:
        client._free = 0
        tasks = [group.create_task(client._turn()) for _ in range(2)]
        await until(lambda: len(client._waiting) == 2)
        client._pass_on()
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert (tasks[0].cancelled(), tasks[1].cancelled(), client._free) == (True, False, 0)


async def test_failed_call_gives_its_place_back() -> None:
    async with Peer(steady) as peer:
        port = peer.port
    nobody = Provider("nobody", f"http://127.0.0.1:{port}", "/v1", ("openai",))
    async with Peer(answers(b"nonsense"), answers(b""), steady) as peer, client_of(connections=1) as client:
        for _ in range(2):
            with pytest.raises(UpstreamUnreachable):
                async with client.attempt(nobody, question()):
                    raise AssertionError("nobody is there")
            with pytest.raises(Exception, match=r"^provider scripted"):
                await ask(client, peer)
        assert (await ask(client, peer))[2] == b"ok"
        assert client._free == 1


async def test_slow_work_after_the_last_byte_does_not_keep_the_connection() -> None:
    async with Peer(steady) as peer, client_of(connections=1) as client:
        async with client.attempt(peer.provider(), question()) as reply:
            assert [chunk async for chunk in reply.chunks] == [b"ok"]
            assert (await ask(client, peer))[2] == b"ok"
        assert (peer.connections, client._free) == (1, 1)


# --- giving up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
async def test_cancelled_call_closes_its_connection_and_frees_its_place(begun: bool) -> None:
    gone = asyncio.Event()
    read: list[bytes] = []

    async def script(talk: Talk) -> None:
        await talk.question()
        if begun:
            await talk.send(CHUNKED + b"5\r\nhello\r\n")
        await talk.gone()
        gone.set()

    async def call(client: HttpClient) -> None:
        nonlocal read
        async with client.attempt(peer.provider(), question()) as reply:
            async for chunk in reply.chunks:
                read += [chunk]

    async with Peer(script, steady) as peer, client_of(connections=1) as client, asyncio.TaskGroup() as group:
        task = group.create_task(call(client))
        await until(lambda: read if begun else asked_once(peer))
        task.cancel()
        await gone.wait()
        assert (await ask(client, peer))[2] == b"ok"
        assert client._free == 1


async def test_answer_that_nobody_reads_to_its_end_is_broken_off_and_cannot_pass_for_whole() -> None:
    gone = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(CHUNKED + b"5\r\nhello\r\n")
        await talk.gone()
        gone.set()

    async with Peer(script) as peer, client_of() as client:
        async with client.attempt(peer.provider(), question()) as reply:
            assert await anext(reply.chunks) == b"hello"
        await gone.wait()
        with pytest.raises(UpstreamCut):
            await anext(reply.chunks)


async def test_close_ends_what_is_under_way_what_waits_and_what_is_idle() -> None:
    async def hangs(talk: Talk) -> None:
        await talk.question()
        await talk.gone()
        ended.append(talk)

    async def idle(talk: Talk) -> None:
        await talk.question()
        await talk.send(OK)
        await talk.gone()
        ended.append(talk)

    ended: list[Talk] = []
    async with (
        Peer(idle) as other,
        Peer(hangs) as peer,
        client_of(connections=1) as client,
        asyncio.TaskGroup() as group,
    ):
        await ask(client, other)
        under_way = group.create_task(_fault(client, peer))
        await until(lambda: asked_once(peer))
        waits = group.create_task(_fault(client, peer))
        await until(lambda: client._waiting)
        await client.close()
        assert (await under_way, await waits) == (UpstreamCut, ShuttingDown)
        assert await _fault(client, peer) is ShuttingDown
        await until(lambda: len(ended) == 2)
        assert not client._wires


async def _fault(client: HttpClient, peer: Peer) -> type[Exception]:
    with pytest.raises(Exception, match=r"scripted|stopping") as caught:
        await ask(client, peer)
    return caught.type


# --- time -----------------------------------------------------------------------------------------------------------


async def test_provider_that_does_not_begin_is_timed_out() -> None:
    async with Peer(answers(b"", close=False)) as peer, client_of(first_byte_timeout_s=0.05) as client:
        with pytest.raises(UpstreamTimeout, match=r"^provider scripted did not begin to answer in time$"):
            await ask(client, peer)


async def test_provider_that_falls_silent_is_timed_out_after_what_it_said() -> None:
    got = []
    async with (
        Peer(answers(CHUNKED + b"5\r\nhello\r\n", close=False)) as peer,
        client_of(idle_timeout_s=0.05) as client,
    ):
        with pytest.raises(UpstreamTimeout, match=r"^provider scripted fell silent in the middle of its answer$"):
            async with client.attempt(peer.provider(), question()) as reply:
                async for chunk in reply.chunks:
                    got += [chunk]
    assert got == [b"hello"]


async def test_limit_counts_from_the_last_byte_and_not_from_the_first() -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(CHUNKED)
        for _ in range(12):
            await asyncio.sleep(0.05)  # this is the provider's pace, not a wait for something
            await talk.send(b"1\r\nx\r\n")
        await talk.send(b"0\r\n\r\n")

    async with Peer(script) as peer, client_of(idle_timeout_s=0.4, first_byte_timeout_s=0.4) as client:
        assert (await ask(client, peer))[2] == b"x" * 12


async def test_limits_of_one_call_do_not_end_the_next_on_the_same_connection() -> None:
    async def script(talk: Talk) -> None:
        for _ in range(8):
            await talk.question()
            await asyncio.sleep(0.05)  # this is the provider's pace
            await talk.send(OK)

    async with Peer(script) as peer, client_of(first_byte_timeout_s=0.3, idle_timeout_s=0.3) as client:
        for _ in range(8):
            assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 1


async def test_silence_is_not_the_providers_while_the_reader_is_behind() -> None:
    size = 8 * 2**20
    async with (
        Peer(answers(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)) as peer,
        client_of(idle_timeout_s=0.05) as client,
        client.attempt(peer.provider(), question()) as reply,
    ):
        exchange_wire = next(iter(client._wires))
        await until(lambda: exchange_wire._paused)
        await asyncio.sleep(0.2)  # several limits long
        assert sum([len(chunk) async for chunk in reply.chunks]) == size


async def test_provider_that_takes_in_a_large_body_slowly_is_not_timed_out() -> None:
    size, pace = 64 * 2**20, 40 * 2**20  # bytes, bytes a second: twice as long as the limit

    async def script(talk: Talk) -> None:
        left = size
        await talk.reader.readuntil(b"\r\n\r\n")
        while left:
            talk.writer.transport.resume_reading()
            taken = len(await talk.reader.read(size))
            talk.writer.transport.pause_reading()
            left -= taken
            await asyncio.sleep(taken / pace)
        await talk.send(OK)

    async with Peer(script) as peer, client_of(first_byte_timeout_s=0.8) as client:
        assert (await ask(client, peer, body=b"x" * size))[2] == b"ok"


# --- back-pressure --------------------------------------------------------------------------------------------------


async def test_reader_that_is_behind_stops_the_provider_and_then_gets_everything() -> None:
    size, piece = 64 * 2**20, b"x" * 2**20
    sent = 0

    async def script(talk: Talk) -> None:
        nonlocal sent
        await talk.question()
        await talk.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % size)
        for _ in range(size // len(piece)):
            await talk.send(piece)
            sent += len(piece)
        await talk.send(b"\r\n0\r\n\r\n")

    async with Peer(script) as peer, client_of() as client, client.attempt(peer.provider(), question()) as reply:
        exchange_wire = next(iter(client._wires))
        await until(lambda: exchange_wire._paused)
        assert exchange_wire._exchange is not None
        assert wire.MOST_UNREAD < exchange_wire._exchange.unread < 3 * wire.MOST_UNREAD
        sizes = [len(chunk) async for chunk in reply.chunks]
        assert sum(sizes) == size == sent
        assert len(sizes) > 16 and max(sizes) < 3 * wire.MOST_UNREAD, "one chunk came in one piece"


async def test_pieces_are_handed_on_as_soon_as_they_come() -> None:
    step = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(CHUNKED)
        for at in range(5):
            await step.wait()
            step.clear()
            await talk.send(b"1\r\n%d\r\n" % at)
        await talk.send(b"0\r\n\r\n")

    async with Peer(script) as peer, client_of() as client, client.attempt(peer.provider(), question()) as reply:
        got = []
        step.set()
        async for chunk in reply.chunks:
            got.append(chunk)
            step.set()
    assert got == [b"0", b"1", b"2", b"3", b"4"]


# --- connecting -----------------------------------------------------------------------------------------------------


async def test_host_without_an_address_is_called_unreachable() -> None:
    async with client_of() as client:
        with pytest.raises(
            UpstreamUnreachable, match=r"^provider gone cannot be reached \(.+\); check providers.gone.url"
        ):
            async with client.attempt(Provider("gone", "http://gone.invalid", "/v1", ("openai",)), question()):
                raise AssertionError("that host has no address")


@pytest.mark.parametrize("addresses", [["127.0.0.2", "127.0.0.1"], ["127.0.0.2", "127.0.0.3", "127.0.0.1"]])
async def test_next_address_of_a_host_is_tried_after_one_that_refuses(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Peer(steady) as peer, client_of() as client:
        loop = asyncio.get_running_loop()
        place = ("many.test", peer.port)
        client._addresses[place] = (loop.time() + 60, addresses)
        async with client.attempt(peer.provider(host="many.test"), question()) as reply:
            assert reply.status == 200
        assert f"Host: many.test:{peer.port}".encode() in peer.questions[0]


async def test_all_addresses_that_refuse_make_the_first_ones_reason_and_are_looked_up_again() -> None:
    async with Peer(steady) as peer, client_of() as client:
        place = ("many.test", peer.port)
        client._addresses[place] = (asyncio.get_running_loop().time() + 60, ["127.0.0.2", "127.0.0.3"])
        with pytest.raises(UpstreamUnreachable):
            async with client.attempt(peer.provider(host="many.test"), question()):
                raise AssertionError("nobody is there")
        assert place not in client._addresses
        assert (client._free, client._wires) == (client.settings.connections, set())


async def test_connection_that_comes_about_beside_the_first_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    both = asyncio.Barrier(2)

    async def together(origin: object, address: str) -> wire.Wire:
        made = await dial(origin, address)  # type: ignore[arg-type]
        await both.wait()
        return made

    async with Peer(steady) as peer, client_of() as client:
        monkeypatch.setattr(http, "_NEXT_ADDRESS_S", 0.0)
        dial = client._dial
        monkeypatch.setattr(client, "_dial", together)
        place = ("many.test", peer.port)
        client._addresses[place] = (asyncio.get_running_loop().time() + 60, ["127.0.0.1", "127.0.0.1"])
        async with client.attempt(peer.provider(host="many.test"), question()) as reply:
            assert [chunk async for chunk in reply.chunks] == [b"ok"]
            await until(lambda: len(client._wires) == 1)
        assert (peer.connections, len(peer.questions)) == (2, 1)


async def test_localhost_is_found_whatever_family_the_provider_listens_on() -> None:
    async with (
        Peer(steady) as peer,
        client_of() as client,
        client.attempt(peer.provider(host="localhost"), question()) as reply,
    ):
        assert reply.status == 200
