"""Owns leave to make a tool call: what policies, people and probes say of it before it is made, and in doubt.

Must not send anything, nor choose the step. Invariant: nobody has leave before the claim is on disk; what gives it are
the policies, the people and the branch of that moment, not those of the moment at which it was asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentstate import clock
from agentstate.core import effects, policy
from agentstate.core.effects import After, Holder, Settled, ToolClass
from agentstate.core.model import Action, ApprovalKind, ApprovalState, ReplayMode, State, ToolCall
from agentstate.core.policy import Ruling
from agentstate.engine import processes, revised
from agentstate.engine.asked_call import AskedCall, Known, Leave
from agentstate.engine.probes import Probes
from agentstate.engine.questions import doubt_of, hold_of, refusal_of
from agentstate.engine.reopening import asked_again, suffices
from agentstate.engine.settling import PASSES, digest_of
from agentstate.engine.state import Live
from agentstate.engine.waiting_calls import Waiting
from agentstate.errors import ShuttingDown, StepTaken
from agentstate.store.effect_reader import EffectRow, MadeRow
from agentstate.store.effects import Claimed
from agentstate.store.rows import ApprovalRow, Begun, Message, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.tools import Tools

_HOLDS = (ApprovalKind.CALL, ApprovalKind.DUPLICATE)


class Permits:
    """One for each serving process."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._parts = tools.parts
        self._probes = Probes(tools.parts)

    async def permit(self, asked: AskedCall, step: int | None, live: Live, waiting: Waiting) -> Leave | Known:
        """Leave to make a call, or what it came to. ``step``: the one whose further attempt it is. Waits for people as
        long as it takes, and says so to ``waiting``. Raises ``AgentStateError``."""
        await self._rested(asked)
        if step is None:
            return await self._first(asked, live, waiting)
        effect = self._parts.journal.read.effect(step)
        assert effect is not None
        begun = Begun(step, effect.number, effect.attempt)
        self._tools.begun(live, begun)
        todo = effects.after(effect.state, self._tools.class_of(asked, effect), asked.asker, _holder(effect))
        if todo is After.WAIT:
            return await self._held(asked, live, waiting)
        if todo is After.DOUBT:
            return await self.doubted(asked, live, waiting)
        if todo is After.GRANT and effect.state is State.IN_FLIGHT:
            return Leave(begun, effect.key, _edited(asked, effect.arguments))
        return await self._again(asked, effect, live, waiting)

    # --- the first time ---

    async def _first(self, asked: AskedCall, live: Live, waiting: Waiting) -> Leave | Known:
        ruling = self._ruling(asked, asked.proposed)
        made = self._made_before(asked) if ruling.action is not Action.DENY else None
        leave = self._leave(asked, ruling, made) if made or ruling.action is Action.HOLD else None
        if leave is not None or (made is None and ruling.action is Action.ALLOW):
            effect = self._tools.new_effect(asked, leave=leave)
            return self._claimed(live, await self._parts.journal.claim(self._tools.new_step(asked), effect))
        where = f"step {made.number}, of another branch or fork, made an equal call already" if made else ""
        question = hold_of(asked.session, asked.session.head, asked.proposed, asked.schema, ruling, where)
        messages = self._messages("approval.required", asked, question.id, question.kind)
        if question.state is not ApprovalState.PENDING:
            messages = ()
        new = self._tools.new_step(asked)._replace(asked=question, messages=messages)
        self._tools.begun(live, await self._parts.journal.hold_call(new, self._tools.new_effect(asked)))
        return await self._held(asked, live, waiting)

    def _made_before(self, asked: AskedCall) -> MadeRow | None:
        """An equal call that a run before this one made on a branch that is shown no more, where once more would matter
        and nobody said that everything is to be made anew."""
        if asked.request.mode is ReplayMode.OFF or self._tools.class_of(asked) is not ToolClass.ONCE:
            return None
        shown, _ = self._parts.head(asked.session)
        rows = self._parts.journal.read.call_made_before(asked.session, asked.run.id, asked.print.key)
        return next((row for row in rows if not _is_shown(shown, row.branch, row.number)), None)

    def _leave(self, asked: AskedCall, ruling: Ruling, made: MadeRow | None) -> str | None:
        """The approval of this very call as the model proposed it, if it was given to the agent and is not used up."""
        arguments = asked.proposed.arguments
        digests = [policy.call_digest(name, arguments) for name in effects.names(asked.server, asked.tool)]
        view = self._parts.view(self._session(asked))
        for row, branch in self._parts.journal.read.leaves(asked.session.id, digests):
            known = made is None or row.kind is ApprovalKind.DUPLICATE
            now = revised.call_of(self._parts, view, row.step, (row.choice, row.place))
            other = now is not None and digest_of(now) not in digests  # a person has edited the call since
            if known and not other and _is_shown(view.shown, branch, row.number) and suffices(self._parts, row, ruling):
                return row.id
        return None

    # --- once it is decided ---

    async def _held(self, asked: AskedCall, live: Live, waiting: Waiting, settled: str = "") -> Leave | Known:
        """Until it is decided about a call that is held. What was decided counts for this very call alone."""
        read, step = self._parts.journal.read, live.step
        while True:
            row = await self._decision(lambda: self._hold(step), live, waiting)
            effect = read.effect(step)
            assert effect is not None
            if row is None or effect.state is State.COMPLETED:
                return self._tools.recorded(step)
            if effect.state is State.IN_FLIGHT:
                raise StepTaken("the call was taken up by another request meanwhile; ask again")
            if await self._rested(asked):
                continue
            self._check_shown(asked, effect)
            arguments = row.effective if row.state is ApprovalState.EDITED else row.arguments
            ruling = self._ruling(asked, asked.named(arguments))
            again = asked_again(self._parts, row, ruling, clock.now()) if row.state in PASSES else None
            if again is None:
                break
            messages = self._messages("approval.required", asked, row.id, row.kind)
            await self._parts.journal.reopen(again._replace(messages=messages))
        if row.state is ApprovalState.REUSED:
            return await self._reuse(asked, live)
        proposed = asked.named(effects.readable(json.loads(effect.arguments)))
        if why := refusal_of(effect.branch, proposed, row, ruling):
            return await self._tools.keep(asked, live, self._tools.refusal(asked, why), failed=True)
        edited = effects.spelled(json.loads(arguments)) if row.state is ApprovalState.EDITED else effect.arguments
        return await self._claim(asked, effect, live, edited, settled)

    async def _reuse(self, asked: AskedCall, live: Live) -> Known:
        """A suspected duplicate is not made: what the equal call came to is its outcome too."""
        made = self._made_before(asked)
        known = made is not None and made.state is State.COMPLETED
        outcome = self._tools.recorded(made.step).outcome if made and known else self._tools.told_by(asked, None)
        return await self._tools.keep(asked, live, outcome)

    async def _again(
        self, asked: AskedCall, effect: EffectRow, live: Live, waiting: Waiting, settled: str = "",
        said: ApprovalRow | None = None,
    ) -> Leave | Known:  # fmt: skip
        """A further attempt of a call that did not run, or may run again; with the key that it had. ``said``: the
        decision by which it may. Policies that have become stricter since are asked like any others."""
        proposed = asked.named(effects.readable(json.loads(effect.arguments)))
        ruling = self._ruling(asked, proposed)
        if ruling.action is Action.DENY:
            why = f"The call of {asked.tool} was refused: {ruling.why}."
            return await self._tools.keep(asked, live, self._tools.refusal(asked, why), failed=True)
        if ruling.action is Action.HOLD and not self._granted(effect, ruling, said):
            if self._hold(effect.step) is None:
                question = hold_of(asked.session, effect.branch, proposed, asked.schema, ruling)
                messages = self._messages("approval.required", asked, question.id, question.kind)
                await self._parts.journal.doubt(asked.session.id, effect.step, question, messages)
            return await self._held(asked, live, waiting, settled)
        return await self._claim(asked, effect, live, effect.arguments, settled)

    def _granted(self, effect: EffectRow, ruling: Ruling, said: ApprovalRow | None) -> bool:
        """Whether somebody let this very call pass who may let it pass now too."""
        used = self._parts.journal.read.approval(effect.leave) if effect.leave else None
        rows = [row for row in (said, used, self._hold(effect.step)) if row is not None]
        return any(row.state in PASSES and suffices(self._parts, row, ruling) for row in rows)

    async def _claim(self, asked: AskedCall, effect: EffectRow, live: Live, arguments: str, settled: str) -> Leave:
        state = effect.state
        if state is State.IN_FLIGHT:
            await self._parts.journal.interrupt_step(effect.step)
            state = State.INTERRUPTED
        kind = self._tools.class_of(asked, effect).value
        given = self._tools.new_effect(asked)._replace(kind=kind, arguments=arguments, settled=settled)
        claimed = await self._parts.journal.claim(self._tools.new_step(asked), given, effect.step, state)
        return self._claimed(live, claimed, _edited(asked, arguments))

    # --- doubt ---

    async def doubted(self, asked: AskedCall, live: Live, waiting: Waiting) -> Leave | Known:
        """Until it is known what became of a call whose result never came."""
        await self._rested(asked)
        read, step = self._parts.journal.read, live.step
        effect = read.effect(step)
        assert effect is not None
        place = effect.attempt
        if read.asked(step, ApprovalKind.DOUBT, place) is None:
            found = await self._probes.ask(asked.request, effect)
            if found.ran:
                outcome = self._tools.told_by(asked, found.result)
                return await self._tools.keep(asked, live, outcome, settled=Settled.RAN)
            if found.ran is False:
                return await self._again(asked, effect, live, waiting, Settled.AGAIN)
            ruling = self._ruling(asked, asked.named(effect.arguments))
            question = doubt_of(asked.session, effect, asked.schema, ruling)
            messages = self._messages("call.in_doubt", asked, question.id, question.kind)
            try:
                await self._parts.journal.doubt(asked.session.id, step, question, messages)
            except StepTaken:
                if read.asked(step, ApprovalKind.DOUBT, place) is None:
                    raise
        row = await self._decision(lambda: read.asked(step, ApprovalKind.DOUBT, place), live, waiting)
        effect = read.effect(step)
        assert effect is not None
        if row is None or effect.state is State.COMPLETED:
            return self._tools.recorded(step)
        if await self._rested(asked):
            return await self.doubted(asked, live, waiting)
        self._check_shown(asked, effect)
        settled = effects.settled_by(row.state)
        if settled is Settled.AGAIN:
            return await self._again(asked, effect, live, waiting, settled, row)
        if settled is Settled.RAN:
            outcome = self._tools.told_by(asked, json.loads(row.effective or "null"))
            return await self._tools.keep(asked, live, outcome, settled=settled)
        because = f": {row.reason}" if row.reason else ""
        text = f"The call of {asked.tool} was given up by {row.decided_by}{because}. It is not known whether it ran."
        return await self._tools.keep(asked, live, self._tools.refusal(asked, text), failed=True, settled=settled)

    # --- people ---

    def _hold(self, step: int) -> ApprovalRow | None:
        """The question whether a call may be made."""
        return next((row for row in self._parts.journal.read.approvals_of(step) if row.kind in _HOLDS), None)

    async def _decision(
        self, find: Callable[[], ApprovalRow | None], live: Live, waiting: Waiting
    ) -> ApprovalRow | None:
        """The decided approval; ``None``: the call's own result came first."""
        while True:
            if self._parts.closing:
                raise ShuttingDown("the proxy is stopping; ask again")
            event = self._parts.floating.undecided(live.step)
            row = find()
            if row is None or row.state is not ApprovalState.PENDING:
                expired = row is not None and row.kind is ApprovalKind.DOUBT and row.state is ApprovalState.EXPIRED
                return None if expired and self._is_over(live.step) else row
            waiting.begin(row)
            left = None if row.expires_at is None else row.expires_at - clock.now()
            if left is not None and left <= 0:
                await self._parts.journal.expire([row.id])
                continue
            try:
                async with asyncio.timeout(left):
                    await event.wait()
            except TimeoutError:
                continue

    def _is_over(self, step: int) -> bool:
        effect = self._parts.journal.read.effect(step)
        return effect is not None and effect.state is State.COMPLETED

    # --- parts of it ---

    def _claimed(self, live: Live, claimed: Claimed, edited: str | None = None) -> Leave:
        self._tools.begun(live, claimed.begun)
        return Leave(claimed.begun, claimed.key, edited)

    def _ruling(self, asked: AskedCall, call: ToolCall) -> Ruling:
        ruling = self._parts.gate.policies.ruling(call, self._parts.gate.place_of(self._session(asked)))
        if asked.request.needs_approval and ruling.action is Action.ALLOW:
            return Ruling(Action.HOLD, None, "the request asks for it (x-agent-require-approval)")
        return ruling

    def _messages(self, event: str, asked: AskedCall, approval: str, kind: ApprovalKind) -> tuple[Message, ...]:
        facts: dict[str, Any] = {"approval": approval, "tool": asked.tool, "kind": kind.value}
        return self._parts.outbox.messages(event, asked.session.key, approval, facts)

    def _session(self, asked: AskedCall) -> SessionRow:
        """As it is by now."""
        return self._parts.journal.facts.session(asked.session.key) or asked.session

    async def _rested(self, asked: AskedCall) -> bool:
        """Nothing is claimed or probed while the session is paused; whether the call had to wait, so that what was
        known of it is old. Raises ``SessionPaused``, and ``StepTaken`` where it was rolled back meanwhile."""
        pauses, key = self._parts.pauses, asked.session.key
        if not pauses.waits(key):
            pauses.check(key)
            return False
        await pauses.rested(key)
        if self._session(asked).head != asked.session.head:
            raise StepTaken("the session was rolled back while the call waited; ask again")
        return True

    def _check_shown(self, asked: AskedCall, effect: EffectRow) -> None:
        shown, _ = self._parts.head(self._session(asked))
        if not _is_shown(shown, effect.branch, effect.number):
            raise StepTaken("the call was rolled back while it waited; ask again")


def _is_shown(shown: Any, branch: int, number: int) -> bool:
    return any(branch == known and number < upto for known, upto in shown)


def _edited(asked: AskedCall, sent: str) -> str | None:
    """The arguments that are sent, where a person changed them."""
    return None if sent == effects.spelled(asked.arguments) else sent


def _holder(effect: EffectRow) -> Holder:
    return Holder(effect.holder, effect.sending, processes.alive(effect.owner) if effect.owner else None)
