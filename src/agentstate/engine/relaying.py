"""Owns the attempts at a call that is not journaled: retries, other candidates. Must not journal, nor hold the rules
(``core.routing`` does).

Invariant: nothing is sent again once a byte of an answer was passed on, nor where sending it may have acted; an answer
comes as its provider sent it, unless another candidate with another wire format gave it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from agentstate import clock
from agentstate.core import routing
from agentstate.core.model import Call, Shape
from agentstate.core.routing import Candidate, Failure, GiveUp, History, Planned, Retry
from agentstate.dialects import faults, registry
from agentstate.dialects.base import Dialect
from agentstate.engine import attempts, candidates
from agentstate.engine.candidates import Asking, Switch, Unfit
from agentstate.engine.core import Parts
from agentstate.engine.request import Request
from agentstate.errors import BadRequest, UpstreamFault, UpstreamInvalid
from agentstate.providers.client import Question, Reply
from agentstate.providers.provider import Provider

_SAFE = ("GET", "HEAD", "OPTIONS")
_MOST_OF_ERROR = 64 * 1024  # bytes of an error that are looked at before it is passed on


@dataclass(slots=True)
class _Way:
    """Where a call goes now, and what was done for it."""

    provider: Provider
    question: Question
    at: Candidate
    planned: Planned = field(default_factory=Planned)
    history: History = field(default_factory=History)
    switch: Switch | None = None
    because: str = ""


class Relaying:
    """One call on its way. ``call`` and ``dialect`` are known once that matters."""

    def __init__(self, parts: Parts, request: Request, provider: Provider, question: Question) -> None:
        self.parts = parts
        self.request = request
        self.began = clock.monotonic()
        self.first = (provider, question)
        self.way = _Way(provider, question, Candidate(provider.name, ""))
        self.dialect: Dialect | None = None
        self.call: Call | None = None
        self.thought = False
        self.model = self.detour = ""

    async def reply(self, stack: AsyncExitStack) -> Reply:
        """The first answer that is not to be tried again. Raises ``AgentStateError``."""
        while True:
            way = self.way
            try:
                queue = self.parts.queues.get(way.provider.name)
                async with AsyncExitStack() as attempt:
                    if queue is not None:
                        await attempt.enter_async_context(queue.turn(id(self.request.connection)))
                    reply: Reply = await attempt.enter_async_context(
                        self.parts.client.attempt(way.provider, way.question)
                    )
                    if reply.status < 400:
                        reply = await self._carried(reply)
                        stack.push_async_exit(attempt.pop_all())
                        return reply
                    chunks = aiter(reply.chunks)
                    start = await _start_of(chunks)
                    failure = faults.of_answer(reply.status, reply.headers, start, clock.now())
                    decision = self._decided(failure)
                    if isinstance(decision, GiveUp):
                        reply.chunks = _rejoined(start, chunks)
                        stack.push_async_exit(attempt.pop_all())
                        return reply
            except UpstreamFault as fault:
                if fault.final:
                    raise
                failure = attempts.failure_of(fault)
                decision = self._decided(failure)
                if isinstance(decision, GiveUp):
                    raise
            await self._go_on(decision, failure)

    def _decided(self, failure: Failure) -> routing.Decision:
        if not self.thought:
            self._think()
        way, settings = self.way, self.parts.settings.retry
        limits = attempts.limits(settings, self.request)
        made = way.history
        history = History(made.tried, made.waited, made.lost, clock.monotonic() - self.began)
        acts = (self.request.method not in _SAFE and self.call is None) or faults.acts(way.question.body)
        decision = routing.after_failure(failure, history, limits, way.planned, acts, clock.jitter())
        if self.parts.closing:
            return GiveUp("the proxy is stopping")
        if isinstance(decision, routing.Next) and not self._found():
            return GiveUp("nobody else can be asked")
        return decision

    def _think(self) -> None:
        """What the call is, now that it matters."""
        self.thought, request = True, self.request
        dialect = registry.for_path(request.method, request.normal)
        if dialect is None:
            return
        try:
            self.call = dialect.parse(request.method, request.normal, request.body, request.query)
        except BadRequest:
            return
        self.dialect = dialect
        self.way.at = Candidate(self.way.provider.name, self.call.model)
        if not (self.call.pure or self.call.background):
            self.way.planned = self.parts.routes.planned(self.way.at, request.fallback)

    def _found(self) -> bool:
        assert self.dialect is not None and self.call is not None
        way = self.way
        asking = Asking(self.parts, self.dialect, self.call, None)
        way.switch = None
        while way.planned.candidates and way.switch is None:
            candidate, *rest = way.planned.candidates
            way.planned = way.planned._replace(candidates=tuple(rest))
            try:
                way.switch = candidates.switch_to(asking, candidate, *self.first, way.planned.strict)
            except Unfit as unfit:
                attempts.log.info("%s is no candidate: %s", candidate, unfit)
        return way.switch is not None

    async def _go_on(self, decision: routing.Decision, failure: Failure) -> None:
        way = self.way
        if isinstance(decision, Retry):
            await asyncio.sleep(decision.delay)
            way.history = way.history.after(decision.delay, failure)
            return
        switch = way.switch
        assert switch is not None
        lost = way.history.lost
        self.way = _Way(
            switch.provider, switch.question, switch.candidate, way.planned, History(lost=lost), switch,
            attempts.short(failure),
        )  # fmt: skip

    async def _carried(self, reply: Reply) -> Reply:
        """The answer of another candidate in the agent's wire format, and where it comes from."""
        switch = self.way.switch
        if switch is None:
            return reply
        losses = switch.losses
        if switch.foreign is not None:
            assert self.dialect is not None and self.call is not None
            body = b"".join([chunk async for chunk in reply.chunks])
            try:
                body, verdict, losses = candidates.answered(self.dialect, self.call, switch.foreign, body)
            except Unfit as unfit:
                raise UpstreamInvalid(f"the answer of {switch.candidate} cannot be carried over: {unfit}") from unfit
            if verdict.fault or verdict.failed:
                raise UpstreamInvalid(f"provider {switch.provider.name}: {verdict.fault or verdict.failed}")
            body = self.dialect.convert(Shape(), self.call.shape, body)
            reply = Reply(reply.status, [("content-type", self.dialect.content_type(self.call.shape))], _once(body))
        self.model = switch.candidate.model
        self.detour = routing.told(str(switch.candidate), self.way.because, losses)
        return reply


async def _start_of(chunks: AsyncIterator[bytes]) -> bytes:
    """The first part of an error's body."""
    read = bytearray()
    async for chunk in chunks:
        read += chunk
        if len(read) > _MOST_OF_ERROR:
            break
    return bytes(read)


async def _rejoined(start: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    async for chunk in rest:
        yield chunk


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
