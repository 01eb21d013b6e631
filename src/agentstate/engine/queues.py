"""Owns turns at providers that take a limited number of calls at a time. Must not send.

Invariant: no more calls are under way at a provider than its settings say; those that wait are let in by session, each
session in its turn, so that one that asks a thousand things does not keep the others waiting; nobody waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from agentstate.errors import ShuttingDown, UpstreamBusy
from agentstate.settings import ProviderSettings


class Queue:
    """Turns at one provider. ``limit``: most at a time; ``wait_s``: the longest wait for one."""

    def __init__(self, name: str, limit: int, wait_s: float) -> None:
        self.name = name
        self.limit = limit
        self.going = 0
        self._wait_s = wait_s
        self._waiting: dict[int | str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many calls wait for a turn."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, session: int | str) -> AsyncIterator[None]:
        """Hold a turn. Raises ``UpstreamBusy`` if none comes in time, ``ShuttingDown`` where the proxy stops."""
        if self.going < self.limit:
            self.going += 1
        else:
            await self._wait(session)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, session: int | str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session, deque()).append(waiter)
        try:
            async with asyncio.timeout(self._wait_s):
                await waiter
        except ShuttingDown:
            raise
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self._pass_on()  # the turn came at the very moment in which nobody wanted it any more
            else:
                self._leave(session, waiter)
            if isinstance(error, TimeoutError):
                raise UpstreamBusy(
                    f"{self.limit} calls are under way at provider {self.name}, and no turn came within "
                    f"{self._wait_s:g} s; ask again later, or raise providers.{self.name}.max_concurrent"
                ) from None
            raise

    def close(self) -> None:
        """The proxy stops: nobody waits any more."""
        waiting, self._waiting = self._waiting, {}
        for waiter in (one for mine in waiting.values() for one in mine if not one.done()):
            waiter.set_exception(ShuttingDown("the proxy is stopping; ask again"))

    def _leave(self, session: int | str, waiter: asyncio.Future[None]) -> None:
        mine = self._waiting.get(session)
        if mine is not None and waiter in mine:
            mine.remove(waiter)
            if not mine:
                del self._waiting[session]

    def _pass_on(self) -> None:
        """Give the turn to the session that has waited longest since it last got one."""
        while self._waiting:
            session = next(iter(self._waiting))
            mine = self._waiting.pop(session)
            waiter = mine.popleft()
            if mine:
                self._waiting[session] = mine
            if not waiter.done():
                waiter.set_result(None)
                return
        self.going -= 1


def queues(providers: Mapping[str, ProviderSettings], wait_s: float) -> dict[str, Queue]:
    """The queues of providers that have a limit, by name."""
    return {name: Queue(name, part.max_concurrent, wait_s) for name, part in providers.items() if part.max_concurrent}
