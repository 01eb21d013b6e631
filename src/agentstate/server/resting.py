"""Owns keeping a client waiting while its session is paused, and giving it its answer then. Must not decide anything.

Invariant: a status is sent with the first heartbeat, or with the answer if that comes before; what follows a heartbeat
is a whole answer of the shape that was asked for, or the connection ends in a way that shows it is none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from agentstate.engine.pausing import Rest
from agentstate.engine.request import Answer
from agentstate.errors import AgentStateError, UpstreamFault

log = logging.getLogger("agentstate")
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Resting:
    """One client whose request waits. ``begun``: its status is out."""

    def __init__(self, send: Send, rest: Rest, patience: float) -> None:
        self._send = send
        self._rest = rest
        self._patience = patience
        self.begun = False

    async def over(self) -> Answer | None:
        """The answer, once the session goes on; ``None``: it was given already, or its failure was told. Raises
        ``AgentStateError`` where no status is out."""
        try:
            while True:
                while not await self._rest.over(self._patience):
                    await self._beat()
                answer = await self._rest.again()
                if answer is None or answer.rest is None:
                    return self._fitted(answer)
                answer.rest.goes_on_from(self._rest)
                self._rest = answer.rest
        except AgentStateError as error:
            if not self.begun:
                raise
            await self.break_off(error)
            return None

    def _fitted(self, answer: Answer | None) -> Answer | None:
        if self.begun and answer is not None and answer.body is not None:
            try:
                answer.body = self._rest.fitted(answer)
            except BaseException:
                answer.close(False)
                raise
        if self.begun and answer is not None and answer.recording is not None:
            answer.recording.flushed = True
        return answer

    async def sent(self, message: dict[str, Any]) -> None:
        """In the place of ``send`` for the answer: its start is left out where a status is out. Raises
        ``UpstreamFault`` for an error that can have no status of its own any more."""
        if not self.begun or message["type"] != "http.response.start":
            await self._send(message)
        elif message["status"] >= 300:
            raise UpstreamFault(f"the provider answered status {message['status']}")

    async def break_off(self, error: AgentStateError) -> None:
        """The end for a client whose status is out."""
        if self._rest.failed is None:
            log.warning("an answer that had waited broke off: %s", error)
            raise ConnectionAbortedError from error  # the client must see that it is none
        await self._body(self._rest.failed(error), False)

    async def _beat(self) -> None:
        if not self.begun:
            self.begun = True
            pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._rest.headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": pairs})
        await self._body(self._rest.heartbeat(), True)

    async def _body(self, data: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
