"""A recording gives every reader the same bytes, whenever it comes, and the last ones only with the end."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Shape
from agentstate.engine.recording import Recording
from agentstate.errors import UpstreamCut
from tests.unit.core.profile import examples

LIMIT_S = 10.0


async def _all(recording: Recording, quiet: float = LIMIT_S) -> tuple[bytes, list[bool]]:
    """Everything a reader is given, and which parts were said to be the last."""
    data, lasts = b"", []
    async with asyncio.timeout(LIMIT_S):
        async for part, last in recording.follow(quiet):
            data += part
            lasts.append(last)
    return data, lasts


async def _until_waiting(recording: Recording, readers: int) -> None:
    """Until so many readers wait for news."""
    async with asyncio.timeout(LIMIT_S):
        while len(recording._waiting) < readers:
            await asyncio.sleep(0)


@examples(60)
@given(st.lists(st.binary(max_size=4), max_size=6), st.binary(max_size=3), st.lists(st.integers(0, 7), max_size=5))
def test_readers_get_the_same_bytes_whenever_they_come(chunks: list[bytes], rest: bytes, comes: list[int]) -> None:
    async def scenario() -> None:
        recording = Recording()
        readers: list[asyncio.Task[tuple[bytes, list[bool]]]] = []
        for place in range(8):
            readers += [asyncio.ensure_future(_all(recording)) for at in comes if at == place]
            await asyncio.sleep(0)
            if place < len(chunks):
                recording.append(chunks[place])
        recording.end(rest)
        readers.append(asyncio.ensure_future(_all(recording)))
        whole = b"".join(chunks) + rest
        for data, lasts in await asyncio.gather(*readers):
            assert data == whole
            assert lasts[-1:] == [True]
            assert not any(lasts[:-1])
        assert await recording.whole() == whole

    asyncio.run(scenario())


async def test_a_reader_is_given_bytes_as_they_come_and_not_the_end_before_its_time() -> None:
    recording = Recording()
    reader = recording.follow(LIMIT_S)
    recording.append(b"a")
    assert await anext(reader) == (b"a", False)
    waits = asyncio.ensure_future(anext(reader))
    await _until_waiting(recording, 1)
    assert not waits.done()
    recording.end(b"b")
    assert await waits == (b"b", True)
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_an_answer_that_fails_gives_what_came_and_then_its_error() -> None:
    recording = Recording()
    reader = recording.follow(LIMIT_S)
    recording.append(b"a")
    recording.fail(UpstreamCut("cut"))
    assert await anext(reader) == (b"a", False)
    with pytest.raises(UpstreamCut, match="cut"):
        await anext(reader)
    with pytest.raises(UpstreamCut):
        await recording.whole()
    async with asyncio.timeout(LIMIT_S):
        await recording.settled()


async def test_a_waiting_reader_is_told_of_a_failure() -> None:
    recording = Recording()
    readers = [asyncio.ensure_future(_all(recording)), asyncio.ensure_future(recording.whole())]
    await _until_waiting(recording, 2)
    recording.fail(UpstreamCut("cut"))
    results = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(result) for result in results] == [UpstreamCut, UpstreamCut]


async def test_a_quiet_recording_gives_empty_bytes_so_that_the_reader_can_say_that_it_lives() -> None:
    recording = Recording()
    reader = recording.follow(0.01)
    async with asyncio.timeout(LIMIT_S):
        assert [await anext(reader) for _ in range(3)] == [(b"", False)] * 3
        recording.append(b"a")
        assert await anext(reader) == (b"a", False)
        recording.end()
        assert await anext(reader) == (b"", True)


async def test_an_empty_append_wakes_nobody() -> None:
    recording = Recording()
    waits = asyncio.ensure_future(recording.settled())
    await _until_waiting(recording, 1)
    recording.append(b"")
    assert not recording.shown
    assert len(recording._waiting) == 1
    recording.append(b"a")
    async with asyncio.timeout(LIMIT_S):
        await waits
    assert recording.shown


async def test_a_reader_that_vanishes_leaves_the_others_alone() -> None:
    recording = Recording()
    gone, stays = asyncio.ensure_future(_all(recording)), asyncio.ensure_future(_all(recording))
    await _until_waiting(recording, 2)
    gone.cancel()
    await asyncio.wait({gone})
    assert len(recording._waiting) == 1
    recording.end(b"whole")
    assert (await stays)[0] == b"whole"


def test_the_last_reader_that_leaves_a_growing_recording_is_noticed() -> None:
    deserted: list[str] = []
    recording = Recording(lambda: deserted.append("first"))
    recording.enter()
    recording.enter()
    recording.leave()
    assert deserted == []
    recording.leave()
    assert deserted == ["first"]
    recording.on_deserted(lambda: deserted.append("second"))
    recording.enter()
    recording.leave()
    assert deserted == ["first", "second"]


async def test_a_reader_that_leaves_a_finished_recording_deserts_nothing() -> None:
    deserted: list[int] = []
    recording = Recording(lambda: deserted.append(1))
    recording.enter()
    recording.end()
    recording.leave()
    assert deserted == []


def test_a_recording_says_how_its_answer_began() -> None:
    recording = Recording()
    assert not recording.begun
    recording.begin(201, [("a", "b")], Shape(True))
    assert (recording.begun, recording.status, recording.headers, recording.shape) == (
        True, 201, [("a", "b")], Shape(True),
    )  # fmt: skip
