"""Owns the path of a tool call from question to leave: which run, which step, then its recorded outcome or a claim.

Must not send anything itself: who executes the call does, the proxy for MCP servers, the agent for its own functions.
Invariant: nobody is given leave to send a call before its claim is on disk; a call that is held, refused or in doubt
has none.
"""

from __future__ import annotations

import asyncio
import json
from functools import cached_property
from typing import Any

from agentstate import clock
from agentstate.core import effects, policy, replay
from agentstate.core.effects import After, Holder, Patterns, Settled, ToolClass
from agentstate.core.model import (
    Action,
    ApprovalKind,
    ApprovalState,
    Fingerprint,
    Outcome,
    RunState,
    SessionStatus,
    Shape,
    State,
    ToolCall,
    Verdict,
)
from agentstate.core.policy import Ruling
from agentstate.core.replay import Ask, Execute
from agentstate.dialects import function, mcp
from agentstate.engine import processes
from agentstate.engine.asked_call import AskedCall, Known, Leave
from agentstate.engine.core import Parts
from agentstate.engine.identity import Identity
from agentstate.engine.presence import Connection
from agentstate.engine.probes import Probes
from agentstate.engine.questions import doubt_of, hold_of, refusal_of
from agentstate.engine.recording import Recording
from agentstate.engine.request import Request
from agentstate.engine.state import Live
from agentstate.engine.waiting_calls import Waiting
from agentstate.errors import BadRequest, RunFenced, SessionPaused, ShuttingDown, StepTaken
from agentstate.store.effect_reader import EffectRow
from agentstate.store.effects import Claimed, Kept, NewEffect
from agentstate.store.rows import ApprovalRow, Begun, Ending, NewStep, RunRow, SessionRow


class Tools:
    """One for each serving process."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.identity = Identity(parts)
        self.offered: dict[tuple[str, str], mcp.Offered] = {}  # as servers listed them since the start
        self.probes = Probes(parts)

    @cached_property
    def _patterns(self) -> Patterns:
        given = self.parts.settings.tools
        return Patterns(tuple(given.read), tuple(given.idempotent))

    # --- which run ---

    async def whose(self, request: Request, asked: Fingerprint) -> tuple[SessionRow, RunRow]:
        """Raises ``AgentStateError``."""
        if self.parts.closing:
            raise ShuttingDown("the proxy is stopping; ask again")
        facts = self.parts.journal.facts
        session = facts.session(request.session) or await self.parts.journal.open_session(request.session)
        if not request.run:
            request = await self._named(request, session)
        session, run = await self.identity.of(request, session, asked)
        self.parts.presence.speaks_for(request.connection, session.key, run.id)
        if run.state is RunState.FENCED:
            raise RunFenced(f"run {run.name} was replaced by a newer one; this process should end")
        return session, run

    async def _named(self, request: Request, session: SessionRow) -> Request:
        """The request under the run id that its process uses elsewhere. Raises ``BadRequest`` where every run has an id
        and this process none: after a restart its calls could not be told from new ones."""
        rows = self.parts.journal.facts.runs(session.id)
        if not rows or not all(row.named for row in rows):
            return request
        owner = await request.connection.owner() if request.connection.local else ""
        mine = next((row for row in rows if owner and row.owner == owner and row.state is RunState.OPEN), None)
        if mine is None:
            raise BadRequest(
                f"the runs of session {session.key} have run ids and this call has none, so that it could not be told "
                "from a new one after a restart; send it to /s/SESSION/r/RUN/mcp/NAME, or send x-agent-run-id"
            )
        return request._replace(run=mine.name)

    # --- the decision ---

    def decide(self, asked: AskedCall) -> replay.Decision:
        """Between this and the note that it was taken there must be no await."""
        shown, _ = self.parts.head(asked.session)
        read, floating = self.parts.journal.read, self.parts.floating
        entries = []
        if self.parts.journal.facts.holds(shown, asked.print.key):
            entries = read.entries(shown, asked.print.key, asked.run.id, asked.run.siblings)
        seen = floating.seen(entries, asked.run.id, asked.session.head, asked.print.key)
        under_way = [entry.step for entry in entries if entry.state is not State.COMPLETED]
        holders = {
            step: Holder(process, sending, _alive(owner))
            for step, (process, owner, sending) in (read.holders(under_way) if under_way else {}).items()
        }
        request = asked.request
        ask = Ask(request.mode, request.retry, request.retry_key, request.hint)
        return effects.decide(ask, asked.run.id, seen, asked.asker, holders)

    def new_live(self, asked: AskedCall, step: int | None) -> Live:
        """A note that a call is under way here; its recording stays empty and counts its readers."""
        floating = self.parts.floating
        live = Live(
            asked.session.id, asked.session.head, asked.run.id, asked.print.key, Recording(),
            floating.temporary() if step is None else step, hint=asked.request.hint,
            retry_key=asked.request.retry_key, tries=asked.request.retry,
        )  # fmt: skip
        floating.add(live)
        return live

    def step_of(self, decision: replay.Decision) -> int | None:
        return decision.step if isinstance(decision, Execute) else None

    def recorded(self, step: int) -> Known:
        """The outcome that is kept of a step."""
        row = self.parts.journal.read.answer(step)
        return Known(step, row.number, row.body)

    def class_of(self, asked: AskedCall, effect: EffectRow | None = None) -> ToolClass:
        """By the settings, by what the server or the agent says, by what it was when it was claimed."""
        kind = effects.class_of(asked.tool, self._patterns, asked.hints)
        if kind is ToolClass.ONCE and effect is not None and asked.hints is None:
            return ToolClass(effect.kind)
        return kind

    # --- readers ---

    def left(self, run: int, step: int, live: Live | None, connection: Connection, delivered: bool) -> None:
        """A reader of a call's outcome, as which it was counted, has its last byte, or is gone."""
        if live is not None:
            live.recording.leave()
        if self.parts.floating.read(run, step, delivered):
            self.cut(run, step, connection)
        elif delivered and not self.parts.journal.closed:
            # A restart of the proxy must know that it arrived.
            arrived = self.parts.floating.delivered
            if (run, step) in arrived:
                self.parts.journal.note_delivered(run, step, lambda: arrived.discard((run, step)))

    def cut(self, run: int, step: int, connection: Connection) -> None:
        at = connection.closed_at or clock.now()
        self.parts.floating.cut(run, step, at, self.parts.journal.note_cut(run, step, at))

    # --- leave ---

    async def permit(self, asked: AskedCall, step: int | None, live: Live, waiting: Waiting) -> Leave | Known:
        """Leave to make a call, or what it came to. ``step``: the one whose further attempt it is. Waits for people as
        long as it takes, and says so to ``waiting``. Raises ``AgentStateError``."""
        self._check_paused(asked)
        if step is None:
            return await self._first(asked, live, waiting)
        effect = self.parts.journal.read.effect(step)
        assert effect is not None
        todo = effects.after(effect.state, self.class_of(asked, effect), asked.asker, _holder(effect))
        if todo is After.WAIT:
            self._begun(live, Begun(step, effect.number, effect.attempt))
            return await self._held(asked, live, waiting)
        if todo is After.DOUBT:
            self._begun(live, Begun(step, effect.number, effect.attempt))
            return await self.doubted(asked, live, waiting)
        if todo is After.GRANT and effect.state is State.IN_FLIGHT:
            self._begun(live, Begun(step, effect.number, effect.attempt))
            return Leave(Begun(step, effect.number, effect.attempt), effect.key, _edited(asked, effect.arguments))
        return await self._again(asked, effect, live)

    async def _first(self, asked: AskedCall, live: Live, waiting: Waiting) -> Leave | Known:
        ruling = self._ruling(asked, asked.proposed)
        leave = self._leave(asked) if ruling.action is Action.HOLD else None
        if ruling.action is Action.ALLOW or leave is not None:
            claimed = await self.parts.journal.claim(self._new(asked), self._effect(asked, leave=leave))
            return self._claimed(live, claimed)
        question = hold_of(asked.session, asked.proposed, asked.schema, ruling)
        pending = question.state is ApprovalState.PENDING
        facts = {"approval": question.id, "tool": asked.tool, "kind": question.kind.value}
        messages = self._messages("approval.required", asked, question.id, facts) if pending else ()
        new = self._new(asked)._replace(asked=question, messages=messages)
        begun = await self.parts.journal.hold_call(new, self._effect(asked))
        self._begun(live, begun)
        return await self._held(asked, live, waiting)

    def _leave(self, asked: AskedCall) -> str | None:
        """The approval of this very call as the model proposed it, if a person gave one that is not used up yet."""
        wanted = policy.call_digest(asked.tool, asked.proposed.arguments)
        for row in self.parts.journal.read.leaves(asked.session.id, asked.tool):
            effective = row.effective if row.state is ApprovalState.EDITED else row.arguments
            if policy.call_digest(row.tool, effective) == wanted:
                return row.id
        return None

    async def _held(self, asked: AskedCall, live: Live, waiting: Waiting) -> Leave | Known:
        """Until it is decided about a call that is held. What was decided counts for this very call alone."""
        read = self.parts.journal.read
        row = await self._decision(asked, live, ApprovalKind.CALL, 0, waiting)
        effect = read.effect(live.step)
        if row is None or effect is None or effect.state is State.COMPLETED:
            return self.recorded(live.step)
        if effect.state is not State.HELD:
            raise StepTaken("the call was taken up by another request meanwhile; ask again")
        self._check_paused(asked)
        arguments = row.effective if row.state is ApprovalState.EDITED else row.arguments
        call = ToolCall(0, 0, "", asked.tool, arguments)
        why = refusal_of(effect.branch, asked.proposed, row, self._ruling(asked, call))
        if why:
            return await self.keep(asked, live, self.refusal(asked, why), failed=True)
        edited = json.loads(arguments) if row.state is ApprovalState.EDITED else asked.arguments
        given = self._effect(asked)._replace(arguments=effects.spelled(edited))
        claimed = await self.parts.journal.claim(self._new(asked), given, live.step, State.HELD)
        return self._claimed(live, claimed, arguments if row.state is ApprovalState.EDITED else None)

    async def _again(self, asked: AskedCall, effect: EffectRow, live: Live, settled: str = "") -> Leave:
        """A further attempt of a call that did not run, or may run again; with the key that it had."""
        state = effect.state
        if state is State.IN_FLIGHT:
            await self.parts.journal.interrupt_step(effect.step)
            state = State.INTERRUPTED
        given = self._effect(asked)._replace(arguments=effect.arguments, settled=settled)
        claimed = await self.parts.journal.claim(self._new(asked), given, effect.step, state)
        return self._claimed(live, claimed, _edited(asked, effect.arguments))

    # --- doubt ---

    async def doubted(self, asked: AskedCall, live: Live, waiting: Waiting) -> Leave | Known:
        """Until it is known what became of a call whose result never came."""
        read = self.parts.journal.read
        effect = read.effect(live.step)
        assert effect is not None
        if read.asked(effect.step, ApprovalKind.DOUBT, effect.attempt) is None:
            found = await self.probes.ask(asked.request, effect)
            if found.ran:
                outcome = self.told_by(asked, found.result)
                return await self.keep(asked, live, outcome, settled=Settled.RAN)
            if found.ran is False:
                return await self._again(asked, effect, live, Settled.AGAIN)
            await self._ask_doubt(asked, effect)
        row = await self._decision(asked, live, ApprovalKind.DOUBT, effect.attempt, waiting)
        effect = read.effect(live.step)
        if row is None or effect is None or effect.state is State.COMPLETED:
            return self.recorded(live.step)
        self._check_paused(asked)
        settled = effects.settled_by(row.state)
        if settled is Settled.AGAIN:
            return await self._again(asked, effect, live, settled)
        if settled is Settled.RAN:
            outcome = self.told_by(asked, json.loads(row.effective or "null"))
            return await self.keep(asked, live, outcome, settled=settled)
        because = f": {row.reason}" if row.reason else ""
        text = f"The call of {asked.tool} was given up by {row.decided_by}{because}. It is not known whether it ran."
        return await self.keep(asked, live, self.refusal(asked, text), failed=True, settled=settled)

    async def _ask_doubt(self, asked: AskedCall, effect: EffectRow) -> None:
        question = doubt_of(asked.session, effect, asked.schema)
        facts = {"approval": question.id, "tool": asked.tool, "kind": question.kind.value, "key": effect.key}
        messages = self._messages("call.in_doubt", asked, question.id, facts)
        await self.parts.journal.doubt(asked.session.id, effect.step, question, messages)

    async def _decision(
        self, asked: AskedCall, live: Live, kind: ApprovalKind, place: int, waiting: Waiting
    ) -> ApprovalRow | None:
        """The decided approval; ``None``: the call's own result came first."""
        read = self.parts.journal.read
        while True:
            event = self.parts.floating.undecided(live.step)
            row = read.asked(live.step, kind, place)
            if row is None or row.state is not ApprovalState.PENDING:
                overtaken = row is not None and kind is ApprovalKind.DOUBT and row.state is ApprovalState.EXPIRED
                return None if overtaken else row
            waiting.begin(row)
            left = None if row.expires_at is None else row.expires_at - clock.now()
            if left is not None and left <= 0:
                await self.parts.journal.expire([row.id])
                continue
            try:
                async with asyncio.timeout(left):
                    await event.wait()
            except TimeoutError:
                continue

    # --- results ---

    async def keep(
        self, asked: AskedCall, live: Live, outcome: bytes, *, failed: bool = False, settled: str = "",
        attempt: int = 0, given: bool = False,
    ) -> Known:  # fmt: skip
        """Commit what a call came to, before anybody is given it. ``given``: its run has it already. Raises
        ``StoreError`` and ``Conflict``."""
        ending = Ending(
            asked.session.id, live.step, attempt or live.attempt, State.COMPLETED, 200, b"[]", outcome, True, Shape(),
            Verdict(model=asked.tool), 0.0,
        )  # fmt: skip
        await self.parts.journal.keep_result(Kept(ending, failed, settled, asked.run.id if given else None))
        self.parts.floating.decided(live.step)
        return Known(live.step, live.number, outcome)

    def refusal(self, asked: AskedCall, text: str) -> bytes:
        """The outcome of a call that is not made, as its caller understands it."""
        return mcp.refusal(text) if asked.call.dialect == mcp.NAME else function.refusal(text)

    def told_by(self, asked: AskedCall, value: Any) -> bytes:
        """The outcome of a call that ran, as a person or a probe knows it."""
        if asked.call.dialect == mcp.NAME:
            return mcp.of_person(asked.tool, value, asked.output)
        return function.result(value)

    # --- parts of it ---

    def _new(self, asked: AskedCall) -> NewStep:
        _, opening = self.parts.head(asked.session)
        return NewStep(
            asked.session.id, asked.session.head, asked.run.id, "tool", f"mcp:{asked.server}" if asked.server else "",
            asked.call, asked.print, Outcome.LIVE.value, asked.request.hint, asked.request.retry_key, opening is None,
        )  # fmt: skip

    def _effect(self, asked: AskedCall, leave: str | None = None) -> NewEffect:
        return NewEffect(
            asked.session.key, asked.server, asked.tool, self.class_of(asked).value, effects.spelled(asked.arguments),
            asked.asker.process, asked.owner, asked.asker.sending, leave,
        )  # fmt: skip

    def _claimed(self, live: Live, claimed: Claimed, edited: str | None = None) -> Leave:
        self._begun(live, claimed.begun)
        return Leave(claimed.begun, claimed.key, edited)

    def _begun(self, live: Live, begun: Begun) -> None:
        self.parts.floating.begun(live, begun.step, begun.number, begun.attempt)

    def _ruling(self, asked: AskedCall, call: ToolCall) -> Ruling:
        ruling = self.parts.gate.policies.ruling(call, self.parts.gate.place_of(asked.session))
        if asked.request.needs_approval and ruling.action is Action.ALLOW:
            return Ruling(Action.HOLD, None, "the request asks for it (x-agent-require-approval)")
        return ruling

    def _messages(self, event: str, asked: AskedCall, subject: str, facts: dict[str, str]) -> Any:
        return self.parts.outbox.messages(event, asked.session.key, subject, facts)

    def _check_paused(self, asked: AskedCall) -> None:
        session = self.parts.journal.facts.session(asked.session.key) or asked.session
        if session.status is SessionStatus.PAUSED:
            raise SessionPaused(f"session {session.key} is paused; set its status to RUNNING to go on")


def _edited(asked: AskedCall, sent: str) -> str | None:
    """The arguments of an earlier attempt, where a person changed them."""
    return None if sent == effects.spelled(asked.arguments) else sent


def _holder(effect: EffectRow) -> Holder:
    return Holder(effect.holder, effect.sending, _alive(effect.owner))


def _alive(owner: str) -> bool | None:
    return processes.alive(owner) if owner else None
