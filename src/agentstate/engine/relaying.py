"""Owns the attempts at a call that is not journaled: retries, other candidates. Must not journal, nor hold the rules
(``core.routing`` does).

Invariant: nothing is sent again once a byte of an answer was passed on, nor where sending it may have acted; an answer
comes as its provider sent it, unless another candidate with another wire format gave it; an error is that of the
provider which the agent asked, or ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from agentstate import clock
from agentstate.core import routing
from agentstate.core.model import Call, Shape
from agentstate.core.routing import Candidate, Failure, Fault, GiveUp, History, Planned, Retry
from agentstate.dialects import faults, registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.concealing import scrubbed
from agentstate.engine import candidates, failing
from agentstate.engine.candidates import Asking, Switch, Unfit
from agentstate.engine.core import Parts
from agentstate.engine.looks import whole_of
from agentstate.engine.request import Request
from agentstate.engine.secrets import credentials
from agentstate.errors import BadRequest, UpstreamFault, UpstreamInvalid
from agentstate.providers.client import Question, Reply
from agentstate.providers.provider import Provider

_SAFE = ("GET", "HEAD", "OPTIONS")
_MOST_OF_ERROR = 64 * 1024  # bytes of an error that are looked at before it is passed on


@dataclass(slots=True)
class _Way:
    """Where a call goes now, and what was done for it. ``switch``: how it came there, ``None``: as its agent asked;
    ``next``: where it goes next, if that is known."""

    provider: Provider
    question: Question
    at: Candidate
    planned: Planned = field(default_factory=Planned)
    history: History = field(default_factory=History)
    switch: Switch | None = None
    next: Switch | None = None
    because: str = ""


class Relaying:
    """One call on its way. ``call`` and ``dialect`` are known once that matters; ``refusal``: its own provider's last
    word, whole; ``story``: what became of each attempt, in words."""

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
        self.refusal: Reply | None = None
        self.story: list[str] = []
        self.trials: list[Candidate] = []
        self.answered = False
        self.alone = False  # its breaker is open, and there is no other way

    async def reply(self, stack: AsyncExitStack) -> Reply:
        """The first answer that is not to be tried again. Raises ``AgentStateError``."""
        if self.parts.breakers.known:
            await self._around()
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
                        self.answered = True
                        stack.push_async_exit(attempt.pop_all())
                        return reply
                    chunks = aiter(reply.chunks)
                    start, whole = await _start_of(chunks)
                    failure = faults.of_answer(reply.status, reply.headers, start, clock.now())
                    decision = await self._decided(failure)
                    if way.switch is None:
                        self.refusal = Reply(reply.status, reply.headers, _once(start)) if whole else None
                        if isinstance(decision, GiveUp):
                            reply.chunks = _rejoined(start, chunks)
                            stack.push_async_exit(attempt.pop_all())
                            return reply
            except UpstreamFault as fault:
                if fault.final:
                    raise
                failure = failing.failure_of(fault)
                decision = await self._decided(failure)
                if isinstance(decision, GiveUp) and way.switch is None and len(self.story) < 2:
                    raise
            if isinstance(decision, GiveUp):
                failing.log.warning("nobody answered a call that is not journaled: %s", "; ".join(self.story))
                if self.refusal is None:
                    raise failing.all_failed(self.story)
                return self.refusal
            await self._go_on(decision, failure)

    async def _around(self) -> None:
        """Before the first attempt: a provider whose breaker is open is not asked where there is another way."""
        self._think()
        if self.call is None or not (shut := self._shut(self.way.at)):
            return
        failure = Failure(Fault.LEFT_ALONE, text="breaker_open: nothing was sent, as its breaker is open")
        if Fault.LEFT_ALONE in self.way.planned.on and self._found():
            self.story.append(f"{self.way.at}: {failure.text}")
            await self._go_on(routing.Next(), failure)
        elif self.parts.settings.breaker.alone == "refuse":
            raise failing.left_alone(self.way.at, shut)
        else:
            self.alone = True

    def _shut(self, candidate: Candidate) -> float:
        seconds, trial = self.parts.breakers.shut(candidate)
        if trial:
            self.trials.append(candidate)
        return seconds

    async def ended(self, fault: UpstreamFault | None) -> None:
        """The answer was passed on: whole, or until that fault. Raises ``StoreError``."""
        if fault is not None and not fault.final:
            self._think()
            await self._noted(failing.failure_of(fault))
        elif self.answered and self.parts.breakers.known:
            self._think()
            await self._noted(None)

    def left(self) -> None:
        """The call is over, however it ended."""
        for candidate in self.trials:
            self.parts.breakers.left(candidate)

    async def _noted(self, failure: Failure | None) -> None:
        """Tell the breakers; what no wire format is known for says nothing of a model."""
        breakers, at = self.parts.breakers, self.way.at
        if self.call is None:
            return
        if failure is not None and failure.fault in routing.DOWN:
            await breakers.failed(at, failure)
        elif breakers.known and (failure is None or failure.fault is not Fault.BUSY):
            await breakers.answered(at)

    async def _decided(self, failure: Failure) -> routing.Decision:
        self._think()
        way, settings = self.way, self.parts.settings.retry
        clean = scrubbed(failure.text.encode(), credentials(way.question.headers, way.question.query))
        failure = failure._replace(text=clean.decode("utf-8", "replace"))
        self.story.append(f"{way.at}: {failure.text}")
        await self._noted(failure)
        limits = failing.limits(settings, self.request)
        if self.alone and way.switch is None:
            limits = replace(limits, attempts=1)
        made = way.history
        history = History(made.tried, made.waited, made.lost, clock.monotonic() - self.began)
        acts = (self.request.method not in _SAFE and self.call is None) or faults.acts(way.question.body)
        decision = routing.after_failure(failure, history, limits, way.planned, acts, clock.jitter())
        if self.parts.closing:
            return GiveUp("the proxy is stopping")
        if isinstance(decision, Retry) and self.parts.breakers.is_open(way.at):
            decision = routing.Next() if failure.fault in way.planned.on else GiveUp("its breaker is open")
        if isinstance(decision, routing.Next) and not self._found():
            return GiveUp("nobody else can be asked")
        return decision

    def _think(self) -> None:
        """What the call is, now that it matters."""
        if self.thought:
            return
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
        way.next = None
        while way.planned.candidates and way.next is None:
            candidate, *rest = way.planned.candidates
            way.planned = way.planned._replace(candidates=tuple(rest))
            try:
                if self._shut(candidate):
                    raise Unfit("its breaker is open")
                way.next = candidates.switch_to(asking, candidate, *self.first, way.planned.strict)
            except Unfit as unfit:
                self.story.append(f"{candidate} was left out: {unfit}")
                failing.log.info("%s is no candidate: %s", candidate, unfit)
        return way.next is not None

    async def _go_on(self, decision: routing.Decision, failure: Failure) -> None:
        way = self.way
        if isinstance(decision, Retry):
            await self.parts.rest(decision.delay)
            way.history = way.history.after(decision.delay, failure)
            return
        switch = way.next
        assert switch is not None
        lost = way.history.lost
        self.way = _Way(
            switch.provider, switch.question, switch.candidate, way.planned, History(lost=lost), switch,
            because=failing.short(failure),
        )  # fmt: skip

    async def _carried(self, reply: Reply) -> Reply:
        """The answer of another candidate in the agent's wire format, and where it comes from."""
        switch = self.way.switch
        if switch is None:
            return reply
        losses = switch.losses
        if switch.foreign is not None:
            assert self.dialect is not None and self.call is not None
            body = await whole_of(self.parts, reply)
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


async def _start_of(chunks: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """The first part of an error's body, and whether that is all of it."""
    read = bytearray()
    async for chunk in chunks:
        read += chunk
        if len(read) > _MOST_OF_ERROR:
            return bytes(read), False
    return bytes(read), True


async def _rejoined(start: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    async for chunk in rest:
        yield chunk


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
