"""Owns the background tasks of a serving process. Must not know what they do.

Invariant: every task has a name and is awaited before the process ends; an unexpected error is logged, never lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("agentstate")


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    def __len__(self) -> int:
        return len(self._running)

    async def finish(self, grace_s: float) -> int:
        """Wait for all, at most ``grace_s`` seconds; then cancel. How many had to be cancelled."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace_s)
        late = list(self._running)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return len(late)
