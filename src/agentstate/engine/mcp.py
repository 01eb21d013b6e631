"""Owns calls of tools at MCP servers: sending each under its claim, reading what comes, keeping it, telling who waits.

Must not decide whether a call may be made (``engine.tools`` does). Invariant: a call leaves only under a claim that is
on disk; what it came to is on disk before anybody is told; where that cannot be known it is in doubt.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from agentstate import clock
from agentstate.core import fingerprint
from agentstate.core.effects import ToolClass
from agentstate.core.model import Outcome, Shape, State, Verdict
from agentstate.core.replay import Follow, Replay
from agentstate.dialects import mcp
from agentstate.dialects.concealing import SHORTEST_SECRET, scrubbed
from agentstate.engine.asked_call import AskedCall, Leave
from agentstate.engine.core import Parts
from agentstate.engine.headers import forwarded_to
from agentstate.engine.listener import Listener, resting
from agentstate.engine.mcp_reply import Refused, read_reply
from agentstate.engine.readers import cut, left
from agentstate.engine.request import Answer, Request
from agentstate.engine.secrets import secrets_of
from agentstate.engine.state import Live
from agentstate.engine.tools import Tools
from agentstate.engine.waiting_calls import Waiting
from agentstate.errors import AgentStateError, SettingsError, ShuttingDown, StepTaken, UpstreamUnreachable
from agentstate.providers.client import Headers, Question
from agentstate.providers.mcp import Server
from agentstate.store.rows import ApprovalRow, Ending

log = logging.getLogger("agentstate")
_AGAIN = 1  # how often a call that may be made twice is sent again by itself


@dataclass(slots=True)
class Work:
    """A call on its way. ``listeners``: those who wait for it; the first one's request is what the server is sent.
    ``leaving``: nobody waits, and its task ends without it being sent: who comes now asks once it has."""

    asked: AskedCall
    message: mcp.Message
    server: Server
    live: Live
    listeners: list[Listener] = field(default_factory=list)
    sending: bool = False
    leaving: bool = False
    task: asyncio.Task[None] | None = None

    def wait(self, row: ApprovalRow) -> None:
        for listener in self.listeners:
            listener.wait(row)
        if self.live.recording.readers == 0:
            self.deserted()  # the next who asks will wait

    def deserted(self) -> None:
        if not self.sending and self.task is not None:
            self.leaving = True
            self.task.cancel()

    def finish(self, outcome: bytes, headers: Headers, how: Outcome) -> None:
        for place, listener in enumerate(self.listeners):
            listener.finish(outcome, headers, how if place == 0 else Outcome.JOINED)

    def fail(self, error: AgentStateError) -> None:
        for listener in self.listeners:
            listener.fail(error)


class McpCalls:
    """``answer`` is the whole path of a call within a session."""

    def __init__(self, parts: Parts, tools: Tools) -> None:
        self.parts = parts
        self.tools = tools
        self._works: list[Work] = []

    async def answer(self, request: Request, server: Server, message: mcp.Message, streams: bool) -> Answer:
        """Raises ``AgentStateError``."""
        call = mcp.call_of("POST", f"mcp/{server.name}", message)
        print_ = fingerprint.of(call)
        session, run = await self.tools.whose(request, print_)
        listed = self.tools.offered.get((server.name, message.name))
        known = listed or mcp.Offered(message.name)
        asked = AskedCall(
            request, call, print_, session, run, server.name, message.name, message.arguments,
            listed.hints if listed else None, known.schema, known.output,
        )  # fmt: skip
        while isinstance(decision := self.tools.decide(asked), Follow):
            work = next((one for one in self._works if one.live.step == decision.step), None)
            if work is None:
                raise StepTaken("an equal call is under way elsewhere; ask again")
            if not work.leaving or work.task is None:
                return await self._attend(asked, work, message, streams, Outcome.JOINED)
            await asyncio.wait({work.task})
        if isinstance(decision, Replay):
            return await self._replay(asked, message, decision.step)
        if self.parts.pauses.waits(session.key):
            told = asked.told(Outcome.HELD, None, False).headers()
            again = partial(self.answer, request, server, message, streams)
            return Answer(200, told, rest=resting(self.parts.pauses, session.key, message, streams, told, again))
        step = self.tools.step_of(decision)
        work = Work(asked, message, server, self.tools.new_live(asked, step))
        self._works.append(work)
        return await self._attend(asked, work, message, streams, Outcome.LIVE, step)

    def cancel(self, request: Request, ident: str | int | float) -> bool:
        """The client of ``request`` does not wait for its call ``ident`` any more: it goes on if it was sent, and the
        next who asks for it is given its result. Whether there is such a call."""
        found = [one for work in self._works for one in work.listeners if one.is_of(request, ident)]
        if len(found) == 1:  # else whose it is cannot be told
            found[0].give_up()
        return len(found) == 1

    async def _replay(self, asked: AskedCall, message: mcp.Message, step: int) -> Answer:
        run, floating = asked.run, self.parts.floating
        commit = self.parts.journal.serve(asked.session.id, run.id, step, Outcome.REPLAY.value, hint=asked.request.hint)
        floating.claim(run.id, step, commit)
        floating.reads(run.id, step, asked.request.retry)
        close = partial(left, self.tools.parts, run.id, step, None, asked.request.connection)
        try:
            known = self.tools.recorded(step)
            await asyncio.shield(commit)
        except BaseException:
            close(False)
            raise
        told = asked.told(Outcome.REPLAY, known.number, True)
        headers = [("content-type", "application/json"), *told.headers()]
        return Answer(200, headers, mcp.response(message, known.outcome), close=close, told=told)

    async def _attend(
        self, asked: AskedCall, work: Work, message: mcp.Message, streams: bool, how: Outcome, step: int | None = None
    ) -> Answer:
        """Wait with a call: a new one, which begins now, or one that is under way."""
        live, run, connection = work.live, asked.run.id, asked.request.connection

        def told(outcome: Outcome) -> Headers:
            shown = how if how is Outcome.JOINED else outcome
            return asked.told(shown, live.number, how is Outcome.JOINED).headers()

        listener = Listener(message, asked.request, streams, told)
        work.listeners.append(listener)
        live.recording.enter()
        if how is not Outcome.JOINED:
            live.recording.on_deserted(work.deserted)
            work.task = self.parts.followers.start(f"call {work.message.name}", self._work(work, step))
        try:
            await live.ready.wait()
        except BaseException:
            live.recording.leave()
            if live.step >= 0:
                cut(self.tools.parts, run, live.step, connection)
            else:
                live.left.append(lambda: cut(self.tools.parts, run, live.step, connection))
            raise
        if live.step < 0:
            live.recording.leave()
            raise listener.recording.error or AgentStateError("the call could not begin; ask again")
        self.parts.floating.reads(run, live.step, asked.request.retry)

        def close(delivered: bool) -> None:
            left(self.tools.parts, run, live.step, live.recording, connection, delivered and not listener.gone)

        try:
            if how is Outcome.JOINED:
                commit = self.parts.journal.serve(live.session, run, live.step, how.value, hint=asked.request.hint)
                self.parts.floating.claim(run, live.step, commit)
                await asyncio.shield(commit)
            answer = await _answer_of(listener, close)
            answer.told = asked.told(how, live.number, how is Outcome.JOINED)
            return answer
        except AgentStateError:
            close(True)
            raise
        except BaseException:
            close(False)
            raise

    # --- the work ---

    async def _work(self, work: Work, step: int | None) -> None:
        """From the wish to make a call to what it came to."""
        asked, live = work.asked, work.live
        sent_again = 0
        waiting = Waiting(work.wait)
        try:
            got = await self.tools.permits.permit(asked, step, live, waiting)
            while isinstance(got, Leave):
                work.sending = True
                sending = self.parts.tasks.start(f"send a call of {asked.tool}", self._send(work, got))
                fault = await asyncio.shield(sending)
                work.sending = False
                if fault is None:
                    return
                effect = self.parts.journal.read.effect(live.step)
                if self.tools.class_of(asked, effect) is ToolClass.ONCE:
                    got = await self.tools.permits.doubted(asked, live, waiting)
                elif sent_again < _AGAIN and not self.parts.closing:
                    sent_again += 1
                    got = await self.tools.permits.permit(asked, live.step, live, waiting)
                else:
                    raise fault
            work.finish(got.outcome, [], Outcome.LIVE)
        except AgentStateError as error:
            work.fail(error)
        except asyncio.CancelledError:
            work.fail(ShuttingDown("the call is not waited for any more; ask again"))
            raise
        except Exception as error:  # a fault of ours must not leave anybody waiting
            log.exception("a call of %s failed", asked.tool)
            work.fail(AgentStateError(f"the proxy failed while it made a call ({type(error).__name__}); ask again"))
        finally:
            live.recording.on_deserted(lambda: None)
            self._works.remove(work)
            self.parts.floating.drop(live)

    async def _send(self, work: Work, leave: Leave) -> AgentStateError | None:
        """Send a call once. ``None``: what it came to is kept and told; else why it is not known, which is kept too."""
        live, journal = work.live, self.parts.journal
        began = clock.monotonic()
        heard, status = began, 0
        try:
            if self.parts.closing:
                raise UpstreamUnreachable("the proxy is stopping; ask again")
            question = self._question(work, leave)
            async with self.parts.http.attempt(work.server.provider, question) as reply:
                heard = clock.monotonic()
                most = self.parts.settings.server.max_answer_bytes
                resume = partial(self.parts.http.attempt, work.server.provider)
                read = await read_reply(reply, work.message.id, question, resume, most, work.listeners[0].event)
                headers, status = reply.headers, reply.status
            secrets = self._secrets(work, question)
            if isinstance(read, Refused):
                await self._not_made(work, read.status, scrubbed(read.body, secrets), f"HTTP {read.status}")
                for listener in work.listeners:
                    listener.relay(read.status, headers, read.body)
                return None
            kept = scrubbed(read, secrets)
            await self.tools.keep(work.asked, live, kept, failed=mcp.failed(read))
            work.finish(read, headers, Outcome.LIVE)
        except (UpstreamUnreachable, SettingsError) as error:  # it was not sent
            await self._not_made(work, 0, b"", f"{error.code}: {error}")
            work.fail(error)
        except AgentStateError as error:
            await journal.interrupt_step(live.step)
            return error
        except BaseException:
            await asyncio.shield(journal.interrupt_step(live.step))
            raise
        finally:
            whole_s = clock.monotonic() - began
            metrics = self.parts.insight.metrics
            metrics.attempt(f"mcp:{work.server.name}", "", status, heard - began, whole_s, "", None)
        return None

    def _secrets(self, work: Work, question: Question) -> list[bytes]:
        """What must not be kept of an answer: the agent's credentials, and the proxy's own under whatever name."""
        ours = [part for _, value in work.server.headers() for part in (value, value.partition(" ")[2])]
        return [
            *secrets_of(question, work.asked.call),
            *(part.encode() for part in ours if len(part) >= SHORTEST_SECRET),
        ]

    def _question(self, work: Work, leave: Leave) -> Question:
        added = [("idempotency-key", leave.key)]
        dropped: tuple[str, ...] = ()
        if leave.edited is not None:
            dropped = (mcp.PARAM_HEADER,)
            added += mcp.param_headers(work.asked.schema, json.loads(leave.edited))
        body = mcp.sent(work.message.body, leave.key, leave.edited)
        return forwarded_to(work.asked.request, work.server, body, dropped, added)

    async def _not_made(self, work: Work, status: int, body: bytes, error: str) -> None:
        """The call certainly did not run: it failed, and may be made when it is asked for again."""
        live = work.live
        ending = Ending(
            live.session, live.step, live.attempt, State.FAILED, status, b"[]", body, bool(body), Shape(), Verdict(),
            0.0, error[:2000],
        )  # fmt: skip
        await self.parts.journal.end_step(ending)


async def _answer_of(listener: Listener, close: Callable[[bool], None]) -> Answer:
    """The answer as it grows; whole, where it is over already."""
    recording = listener.recording
    await recording.settled()
    if recording.error is not None:
        raise recording.error
    if recording.done and not recording.shape.stream:
        return Answer(recording.status, recording.headers, await recording.whole(), close=close)
    return Answer(recording.status, recording.headers, None, recording, close)
