"""Turns at a provider: never more than the limit, each session in its turn, nobody for ever."""

from __future__ import annotations

import asyncio
import random

import pytest

from agentstate.engine.queues import Queue
from agentstate.errors import UpstreamBusy


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


class Work:
    """A call that goes on until it is told to end."""

    def __init__(self, queue: Queue, session: str, order: list[str]) -> None:
        self.end = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._work(queue, session, order))

    async def _work(self, queue: Queue, session: str, order: list[str]) -> None:
        async with queue.turn(session):
            order.append(session)
            await self.end.wait()


async def test_sessions_are_let_in_each_in_its_turn() -> None:
    queue, order = Queue("p", 1, 60.0), list[str]()
    works = [Work(queue, session, order) for session in ("first", "a", "a", "a", "b", "c", "b")]
    await settle()
    assert (queue.going, queue.waiting) == (1, 6)
    for work in works:
        work.end.set()
    await asyncio.gather(*(work.task for work in works))
    assert order == ["first", "a", "b", "c", "a", "b", "a"]
    assert (queue.going, queue.waiting) == (0, 0)


async def test_who_gets_no_turn_in_time_is_told_so_and_takes_none_later() -> None:
    queue, order = Queue("p", 1, 0.01), list[str]()
    work = Work(queue, "first", order)
    await settle()
    with pytest.raises(UpstreamBusy, match="max_concurrent"):
        async with queue.turn("late"):
            raise AssertionError("it got a turn")
    assert (queue.going, queue.waiting) == (1, 0)
    work.end.set()
    await work.task
    assert queue.going == 0


async def test_whatever_is_cancelled_the_limit_holds_and_no_turn_is_lost() -> None:
    chance = random.Random(7)
    queue, order = Queue("p", 3, 60.0), list[str]()
    works: list[Work] = []
    for _ in range(400):
        if chance.random() < 0.5 or not works:
            works.append(Work(queue, chance.choice("abcde"), order))
        else:
            work = works.pop(chance.randrange(len(works)))
            if chance.random() < 0.5:
                work.task.cancel()
            work.end.set()
        if chance.random() < 0.5:
            await settle()
        assert queue.going <= 3
    for work in works:
        work.end.set()
    await asyncio.gather(*(work.task for work in works), return_exceptions=True)
    await settle()
    assert (queue.going, queue.waiting) == (0, 0)
