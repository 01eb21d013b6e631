"""Owns calls that the agent's side makes itself under a claim: its own functions, and servers that it speaks to over
stdio. Must not send anything.

Invariant: leave is given once for each call, to the process that asked, and again only to that very call of the same
process; what a process that lost its leave reports is taken as long as it is the call's last attempt.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from agentstate.core.model import Outcome, Shape, State, Verdict
from agentstate.core.replay import Follow, Replay
from agentstate.dialects import function, mcp
from agentstate.engine import doubts
from agentstate.engine.asked_call import AskedCall, Known, Leave
from agentstate.engine.core import Parts
from agentstate.engine.request import Request
from agentstate.engine.tools import Tools
from agentstate.engine.waiting_calls import Waiting
from agentstate.errors import Conflict, NotFound, StepTaken
from agentstate.store.effect_reader import EffectRow
from agentstate.store.effects import Kept
from agentstate.store.rows import ApprovalRow, Ending


class Held(NamedTuple):
    """A person is to decide; the process asks again. ``row``: the question; ``None``: it is not put yet, or ``why``."""

    row: ApprovalRow | None
    why: str = ""


class Report(NamedTuple):
    """What a process says of a call that it was given leave for. ``outcome`` ``None``: it does not know, or has not
    ``made`` it."""

    step: int
    attempt: int
    process: str
    sending: bytes
    outcome: bytes | None
    made: bool = True


class Claims:
    def __init__(self, parts: Parts, tools: Tools) -> None:
        self.parts = parts
        self.tools = tools

    async def claim(self, asked: AskedCall, wait_s: float) -> Leave | Known | Held:
        """Leave to make a call, what it came to, or that it is held after so many seconds. Raises
        ``AgentStateError``."""
        decision = self.tools.decide(asked)
        run, floating = asked.run.id, self.parts.floating
        if isinstance(decision, Replay):
            commit = self.parts.journal.serve(asked.session.id, run, decision.step, Outcome.REPLAY.value)
            floating.claim(run, decision.step, commit)
            await asyncio.shield(commit)
            return self.tools.recorded(decision.step)
        if isinstance(decision, Follow):
            raise StepTaken("an equal call is being asked for by another request; ask again")
        if self.parts.pauses.waits(asked.session.key):
            await self.parts.pauses.rested_once(asked.session.key, wait_s)
            return Held(None, "the session is paused")  # asked again, it is judged anew
        step = self.tools.step_of(decision)
        live, waiting = self.tools.new_live(asked, step), Waiting()
        live.recording.enter()
        try:
            async with asyncio.timeout(wait_s):
                return await self.tools.permits.permit(asked, step, live, waiting)
        except TimeoutError:
            return Held(waiting.row)
        finally:
            live.recording.leave()
            floating.drop(live)

    async def report(self, request: Request, said: Report) -> None:
        """What a call came to. Raises ``NotFound``, ``Conflict``, ``StoreError``."""
        session = self.parts.journal.facts.session(request.session)
        effect = self.parts.journal.read.effect(said.step)
        if session is None or effect is None or effect.session != session.id:
            raise NotFound(f"session {request.session!r} has no call {said.step}")
        if (effect.holder, effect.sending) != (said.process, said.sending) or effect.attempt != said.attempt:
            raise Conflict(
                "leave for this call was given to another process meanwhile; what this one says is not taken"
            )
        if said.outcome is None:
            if said.made:  # in doubt, for the process itself too when it asks again
                await self.parts.journal.abandon(effect.step)
                await doubts.ask(self.parts, effect.step)
            else:
                await self._hand_back(effect)
            return
        run = self.parts.journal.facts.run(session.id, request.run) if request.run else None
        of_mcp = effect.dialect == mcp.NAME
        failed = (mcp.failed if of_mcp else function.failed)(said.outcome)
        ending = Ending(
            session.id, effect.step, effect.attempt, State.COMPLETED, 200, b"[]", said.outcome, True, Shape(),
            Verdict(model=effect.tool), 0.0,
        )  # fmt: skip
        await self.parts.journal.keep_result(Kept(ending, failed, given=run.id if run is not None else None))
        self.parts.floating.decided(effect.step)
        self.parts.insight.reported(request, effect.step, effect.number, effect.tool, failed)

    async def _hand_back(self, effect: EffectRow) -> None:
        """The call was not made: it may be, when it is asked for again."""
        if effect.state is not State.IN_FLIGHT:
            await self.parts.journal.abandon(effect.step)
            return
        ending = Ending(
            effect.session, effect.step, effect.attempt, State.FAILED, 0, b"[]", b"", False, Shape(), Verdict(), 0.0,
            "the agent gave the call up before it made it",
        )  # fmt: skip
        await self.parts.journal.end_step(ending)
