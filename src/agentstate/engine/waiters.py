"""Owns waiting for news that concern whoever waits. Must not know what is waited for.

Invariant: news wake everybody who waits by then, and nobody is left behind by a wait that was given up.
"""

from __future__ import annotations

import asyncio


class Waiters:
    """Those who wait; each looks again when there are news."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def wake(self) -> None:
        """There are news."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seconds: float | None) -> None:
        """Until there are news, at most so long."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return
        finally:
            self._waiting.discard(future)
