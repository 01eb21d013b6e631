"""Owns keeping a client waiting for a decision, and giving it what was decided. Must not decide anything.

Invariant: a status is sent with the first byte that there is to give, or with the first heartbeat; after a heartbeat
what follows is a whole answer of the shape that was asked for, or the connection ends in a way that shows it is none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from agentstate.engine.headers import live_headers
from agentstate.engine.request import Answer
from agentstate.errors import AgentStateError, UpstreamFault
from agentstate.providers.client import Headers

log = logging.getLogger("agentstate")
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Waiting:
    """One reader of an answer about which a person is to decide, or that comes whole and late."""

    def __init__(self, send: Send, answer: Answer, heartbeat: Callable[[], bytes], patience: float) -> None:
        assert answer.recording is not None
        self._send = send
        self._answer = answer
        self._recording = answer.recording
        self._heartbeat = heartbeat
        self._patience = patience
        self._started = False

    async def give(self) -> bool:
        """Wait, and give what there is; whether all of it was sent. Raises what was decided where no status is out."""
        try:
            if self._answer.converted is None:
                await self._flow()
            else:
                await self._whole(self._answer.converted)
        except AgentStateError as error:
            if not self._started:
                raise
            await self._break_off(error)
        return True

    async def _whole(self, converted: Callable[[bytes], bytes]) -> None:
        """An answer of one piece, or one that must be put into another shape."""
        while not await self._recording.decided(self._patience):
            await self._beat()
        body = converted(await self._recording.whole())
        if self._started and self._recording.status >= 300:
            raise UpstreamFault(f"the provider answered status {self._recording.status}")
        if not self._started:
            headers = [pair for pair in live_headers(self._recording.headers) if pair[0].lower() != "content-type"]
            kind = next(pair for pair in self._answer.headers if pair[0] == "content-type")
            length = ("content-length", str(len(body)))
            await self._start(self._recording.status, [*headers, kind, *self._answer.ours(), length])
        await self._body(body, False)

    async def _flow(self) -> None:
        """A stream of the shape that is asked for is given as it grows."""
        async for data, last in self._recording.follow(self._patience):
            if not (data or last):
                await self._beat()
                continue
            if not self._started:
                await self._start(self._recording.status, live_headers(self._recording.headers) + self._answer.ours())
            elif self._recording.status >= 300:
                raise UpstreamFault(f"the provider answered status {self._recording.status}")
            await self._body(data, not last)

    async def _beat(self) -> None:
        if not self._started:
            self._recording.flushed = True
            await self._start(self._answer.status, self._answer.headers)
        await self._body(self._heartbeat(), True)

    async def _break_off(self, error: AgentStateError) -> None:
        plain = any(name == "content-type" and value == "application/json" for name, value in self._answer.headers)
        if plain or self._answer.stream_error is None:
            log.warning("a held answer broke off: %s", error)
            raise ConnectionAbortedError from error  # the client must see that it is none
        await self._body(self._answer.stream_error(error), False)

    async def _start(self, status: int, headers: Headers) -> None:
        self._started = True
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def _body(self, data: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
