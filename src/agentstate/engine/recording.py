"""Owns a recording: the bytes of an answer that may be shown, growing or complete, for any number of readers.

Must not know where they come from. Invariant: every reader, whenever it came, is given the same bytes from the first
to the last; the last ones only when the answer is in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from agentstate import clock
from agentstate.core.model import Shape
from agentstate.errors import AgentStateError
from agentstate.providers.client import Headers


class Recording:
    """``begin`` → ``append``* → ``end`` or ``fail``; readers ``follow``."""

    def __init__(self, on_deserted: Callable[[], None] | None = None) -> None:
        self.status = 200
        self.headers: Headers = []
        self.shape = Shape()
        self.begun = False
        self.done = False
        self.held = False  # the answer is in the journal, and a person is to decide about the rest of it
        self.flushed = False  # a reader was sent its status before the end: an error can have none of its own
        self.error: AgentStateError | None = None
        self.readers = 0
        self.waited_s = 0.0  # for the provider, from the first attempt to its last byte
        self.failure: Callable[[AgentStateError], bytes] | None = None  # the end of a stream that fails from now on
        self.heartbeat: Callable[[], bytes] = bytes  # what may be sent now to keep a reader waiting
        self.model = ""  # that answers, where it is known
        self.translating = False  # it is asked for in another wire format, plainly: nothing comes before all of it
        self.translated = False  # it came in another wire format, and plain whatever was asked for
        self.detour = ""  # what is told of an answer that comes from elsewhere than the agent asked
        self.onward: Callable[[], object] | None = None  # how the model is told of a refusal, by who waits here
        self._chunks: list[bytes] = []
        self._waiting: set[asyncio.Future[bool]] = set()
        self._on_deserted = on_deserted

    def begin(self, status: int, headers: Headers, shape: Shape) -> None:
        self.status, self.headers, self.shape, self.begun = status, headers, shape, True

    def append(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self._wake()

    def hold(self) -> None:
        """The answer is complete; what was not shown yet waits for a decision, and then for ``end`` or ``fail``."""
        self.held = True
        self._wake()

    def end(self, data: bytes = b"") -> None:
        """The rest of the answer, now that it is committed."""
        if data:
            self._chunks.append(data)
        self.held, self.done = False, True
        self._wake()

    def fail(self, error: AgentStateError) -> None:
        self.error = error
        self.held, self.done = False, True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _resolve(future, True)

    @property
    def shown(self) -> int:
        """How many bytes readers may have read already."""
        return sum(map(len, self._chunks))

    def so_far(self) -> bytes:
        """What readers may have read already; for looking on. Safe to ask from any thread."""
        return b"".join(tuple(self._chunks))

    async def settled(self, seconds: float | None = None) -> bool:
        """Until the first byte may be shown, the answer is over, or it is held. False: not in so many seconds."""
        while not self._chunks and not self.done and not self.held:
            if not await self._change(seconds) and seconds is not None:
                return False
        return True

    async def decided(self, seconds: float) -> bool:
        """Until the answer is over, at most so long; whether it is."""
        until = clock.monotonic() + seconds
        while not self.done and (left := until - clock.monotonic()) > 0:
            await self._change(left)
        return self.done

    async def complete(self) -> bool:
        """Until the answer is over or held; whether it is over."""
        while not self.done and not self.held:
            await self._change()
        return self.done

    async def whole(self) -> bytes:
        """All bytes, once the answer is complete. Raises its error."""
        while not self.done:
            await self._change()
        if self.error is not None:
            raise self.error
        return b"".join(self._chunks)

    async def follow(self, quiet: float) -> AsyncIterator[tuple[bytes, bool]]:
        """(bytes, whether they are the last). Nothing new for ``quiet`` seconds: (b"", False). Raises its error."""
        place = 0
        while True:
            if place < len(self._chunks):
                data = self._chunks[place] if place + 1 == len(self._chunks) else b"".join(self._chunks[place:])
                place = len(self._chunks)
                last = self.done and self.error is None
                yield data, last
                if last:
                    return
            elif self.done:
                if self.error is not None:
                    raise self.error
                yield b"", True
                return
            elif not await self._change(quiet):
                yield b"", False

    async def _change(self, seconds: float | None = None) -> bool:
        """Wait for news; false: there was none in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.add(future)
        timer = loop.call_later(seconds, _resolve, future, False) if seconds is not None else None
        try:
            return await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()

    def enter(self) -> None:
        self.readers += 1

    def leave(self) -> None:
        self.readers -= 1
        if self.readers == 0 and not self.done and self._on_deserted is not None:
            self._on_deserted()

    def on_deserted(self, call: Callable[[], None]) -> None:
        """What to do when the last reader leaves a growing recording."""
        self._on_deserted = call


def _resolve(future: asyncio.Future[bool], news: bool) -> None:
    if not future.done():
        future.set_result(news)
