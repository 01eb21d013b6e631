"""The feed's ring: what is kept is bounded, and a listener gets all of what it asks for, or is told that it did not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from agentstate.engine.events import BATCH, MOST, Events, Missed
from agentstate.errors import BadRequest
from agentstate.store import changes
from agentstate.store.change_reader import Named
from agentstate.store.changes import Change
from agentstate.store.reader import Reader


class Names:
    """Knows session 1 as ``s1``, and so on; every step is number 0."""

    def __init__(self) -> None:
        self.asked = 0

    def changed_session(self, session: int, run: int) -> Named:
        self.asked += 1
        return Named(f"s{session}" if session else "", None, f"r{run}" if run else "")

    def changed_step(self, step: int, run: int) -> Named:
        self.asked += 1
        return Named("s1", step, "r1")


def reader() -> Any:
    return cast(Reader, Names())


def change(session: int) -> Change:
    return (changes.SESSION, session, 0, 0, "", "made")


def listened(events: Events, names: Any, count: int, **asked: str) -> list[str]:
    """The sessions that a listener hears of until it has heard of that many."""

    async def hear() -> list[str]:
        found: list[str] = []
        async with asyncio.timeout(20):
            with events.listen(names, **asked) as listener:
                while len(found) < count:
                    found += [event.data.get("session", event.kind) for event in await listener.next()]
        return found

    return asyncio.run(hear())


def test_a_change_that_nobody_listens_to_is_not_even_spelled() -> None:
    events, names = Events(), reader()
    events.publish([change(1)] * 500)
    assert names.asked == 0


def test_all_listeners_share_what_was_spelled() -> None:
    events, names = Events(), reader()
    events.publish([change(1)] * 50)
    for _ in range(10):
        assert len(listened(events, names, 50, after="first")) == 50
    assert names.asked == 50


def test_a_long_way_back_is_gone_in_pieces_and_complete() -> None:
    events = Events()
    events.publish([change(number) for number in range(1, MOST + 1)])
    assert listened(events, reader(), MOST, after="first") == [f"s{number}" for number in range(1, MOST + 1)]


def test_what_is_kept_is_bounded_and_what_fell_out_is_said() -> None:
    events = Events()
    first = events.last
    events.publish([change(number) for number in range(MOST + 1)])
    assert len(events._ring) == MOST
    assert listened(events, reader(), 1, after=first) == ["resync"]


def test_a_listener_who_is_too_slow_is_told_that_it_missed_something() -> None:
    events = Events()

    async def lag() -> None:
        with events.listen(reader()) as listener:
            events.publish([change(1)])
            assert len(await listener.next()) == 1
            for _ in range(MOST // 100 + 1):
                events.publish([change(2)] * 100)
            with pytest.raises(Missed):
                await listener.next()
        assert events.listening == 0

    asyncio.run(lag())


def test_a_listener_is_woken_by_what_comes() -> None:
    events = Events()

    async def wait() -> list[str]:
        with events.listen(reader(), session="s7") as listener:
            async with asyncio.TaskGroup() as group:
                hearing = group.create_task(listener.next())
                await asyncio.sleep(0)
                events.publish([change(6)])
                events.publish([change(7)])
            return [event.id for event in hearing.result()]

    async def bounded() -> list[str]:
        async with asyncio.timeout(20):
            return await wait()

    assert asyncio.run(bounded()) == [f"{events.boot}-2"]


def test_others_have_their_turn_while_much_is_passed_over() -> None:
    events = Events()
    events.publish([change(1)] * (5 * BATCH))
    turns = 0

    async def look() -> None:
        nonlocal turns
        with events.listen(reader(), after="first", session="other") as listener:
            hearing = asyncio.ensure_future(listener.next())
            for _ in range(5):
                await asyncio.sleep(0)
                turns += not hearing.done()
            hearing.cancel()

    asyncio.run(look())
    assert turns == 5


@pytest.mark.parametrize("after", ["x", "-", "a-", "a-b", "a-١", "a-" + "9" * 30])
def test_what_is_no_id_is_refused(after: str) -> None:
    with pytest.raises(BadRequest):
        Events().position(after)
