"""Owns one write on its way through the writer, and what its caller is told in the end. Must not commit.

Invariant: what follows a write, and what it changed, is told once, in the event loop, after the commit.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentstate.store.changes import Change

log = logging.getLogger("agentstate")


@dataclass(slots=True)
class Write:
    name: str
    work: Callable[[sqlite3.Connection], Any]
    durable: bool
    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Any] | None
    size: int = 0
    then: Callable[[], None] | None = None
    result: Any = None
    error: BaseException | None = None
    done: threading.Event | None = None
    changes: list[Change] | None = None
    told: Callable[[list[Change]], None] | None = None

    def committed(self) -> None:
        if self.error is None and (self.then is not None or self.changes):
            try:
                if self.then is not None:
                    self.then()
                if self.changes and self.told is not None:
                    self.told(self.changes)
            except Exception:  # those who wait for the other writes of the group must hear of theirs
                log.exception("what follows a write (%s) failed", self.name)


class Group(list[Write]):
    """What the thread is given: writes to commit, or writes that are committed and want their fsync."""

    __slots__ = ("commit",)

    def __init__(self, writes: list[Write], commit: bool) -> None:
        super().__init__(writes)
        self.commit = commit


def hand_over(items: list[Write]) -> None:
    for item in items:
        item.committed()
        future = item.future
        if future is None:
            if item.error is not None:
                log.warning("a note (%s) was not kept: %s", item.name, item.error)
        elif future.done():
            continue
        elif item.error is not None:
            future.set_exception(item.error)
        else:
            future.set_result(item.result)
