"""The asking side: what it sends is repeatable, and only a whole answer is a sample."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench import load, upstream
from bench.load import Agent, Spec


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[int, upstream.Provider]]:
    provider = upstream.Provider()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: upstream.Connection(provider), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], provider
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def answering(answer: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        answer(writer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def body_of(request: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
    return parsed


def test_same_session_and_step_give_the_same_bytes_again() -> None:
    spec = Spec(port=1, body_bytes=5000)
    first, second = Agent(spec, "s"), Agent(spec, "s")
    assert [first.request(step) for step in range(3)] == [second.request(step) for step in range(3)]
    assert Agent(spec, "t").request(0) != Agent(spec, "s").request(0)


def test_requests_of_one_agent_differ_in_their_last_message_only() -> None:
    agent = Agent(Spec(port=1, body_bytes=10_000), "s")
    one, two = body_of(agent.request(0)), body_of(agent.request(1))
    assert one["messages"][:-1] == two["messages"][:-1]
    assert one["messages"][-1] != two["messages"][-1]


def test_body_has_about_the_size_that_was_asked_for() -> None:
    for size in (1000, 100_000):
        body = Agent(Spec(port=1, body_bytes=size), "s").request(0).partition(b"\r\n\r\n")[2]
        assert 0.9 * size < len(body) < 1.1 * size


def test_growing_conversation_grows_by_one_message_of_a_kilobyte_and_a_half() -> None:
    agent = Agent(Spec(port=1, mode="growing"), "s")
    sizes = [len(agent.request(step).partition(b"\r\n\r\n")[2]) for step in range(4)]
    assert all(1450 <= later - earlier <= 1550 for earlier, later in itertools.pairwise(sizes))


def test_places_in_path_and_headers_are_filled_in() -> None:
    spec = Spec(port=1, path="/s/{session}/r/{run}/v1", headers={"x-agent-step-number": "{step}"}, run="b")
    head = Agent(spec, "job").request(7).partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /s/job/r/b/v1/chat/completions HTTP/1.1\r\n")
    assert b"x-agent-step-number: 7" in head


async def test_plain_answers_are_counted_and_timed() -> None:
    async with scripted() as (port, provider):
        tally = await load.fire(Spec(port=port, least=5, concurrency=2))
    assert (len(tally.whole), tally.errors, tally.made, provider.requests) == (10, 0, [5, 5], 10)
    assert all(value > 0 for value in tally.whole)


async def test_paced_stream_gives_the_lag_of_every_chunk() -> None:
    async with scripted() as (port, _):
        tally = await load.fire(Spec(port=port, mode="sse", least=2, chunks=5, gap_ms=2))
    assert (len(tally.whole), len(tally.ttft), len(tally.lag), tally.errors) == (2, 2, 10, 0)
    assert all(0 <= lag < 1000 for lag in tally.lag)
    assert all(first <= whole for first, whole in zip(tally.ttft, tally.whole, strict=True))


async def test_replay_makes_exactly_the_requests_that_were_recorded() -> None:
    async with scripted() as (port, provider):
        tally = await load.fire(Spec(port=port, concurrency=2, seconds=30, replay=[3, 1]))
        assert (tally.made, provider.requests) == ([3, 1], 4)


async def test_answer_cut_in_the_middle_is_an_error_and_no_sample() -> None:
    def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"choices"')

    async with answering(cut) as port:
        tally = await load.fire(Spec(port=port, least=1))
    assert (tally.whole, tally.errors) == ([], 1)


async def test_stream_without_done_or_with_a_chunk_missing_is_an_error() -> None:
    for events in (b'data: {"choices":[{"delta":{"content":"@1 "}}]}\n\n', b'data: {"choices":[]}\n\ndata: [DONE]\n\n'):

        def answer(writer: asyncio.StreamWriter, events: bytes = events) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(events), events))

        async with answering(answer) as port:
            tally = await load.fire(Spec(port=port, mode="sse", least=1, chunks=1))
        assert (tally.whole, tally.errors) == ([], 1)


async def test_error_status_is_an_error_and_a_worker_gives_up_after_three() -> None:
    def refuse(writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 500 No\r\ncontent-length: 13\r\n\r\n{"choices":0}')

    async with answering(refuse) as port:
        tally = await load.fire(Spec(port=port, least=50))
    assert (tally.whole, tally.errors) == ([], 3)
    assert "HTTP 500" in tally.last_error
