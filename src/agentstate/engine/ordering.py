"""Owns the order in which replayed answers are given: that of the recording. Must not wait without a bound.

Invariant: an answer waits only for those that overlapped it in the recording and were finished before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.store.rows import AnswerRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

_LONGEST_ORDER_S = 5.0  # a reader that takes longer than that to read its answer holds up nobody


async def in_order(parts: Parts, run: int, recorded: AnswerRow) -> None:
    """Let those go first that overlapped this answer and were finished before it, for a bounded time."""
    limit = parts.settings.replay.order_wait_s
    read, floating = parts.journal.read, parts.floating
    before = read.overlapped(recorded.branch, recorded.number, recorded.started, recorded.finished)
    deadline = clock.monotonic() + limit
    while before:
        event = floating.moves(run)
        asked_too = floating.being_read(run, before)
        out = read.served_among(run, before) - asked_too
        before = [step for step in before if step not in out]
        left = deadline - clock.monotonic()
        if left <= 0:
            # Those not asked by now are not waited for; those asked are, as they wait for nobody behind them.
            before = [step for step in before if step in asked_too]
        if not before:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left if left > 0 else _LONGEST_ORDER_S):
                await event.wait()
                continue
        if left <= 0:
            return
