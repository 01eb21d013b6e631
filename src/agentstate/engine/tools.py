"""Owns the path of a tool call: which run, which step, its recorded outcome, what is written of it.

Must not send anything itself: who executes the call does, the proxy for MCP servers, the agent for its own functions.
Invariant: what a call came to is on disk before anybody is given it, and is given again instead of being made again;
whether it may be made is for ``permits``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from agentstate.core import effects, replay
from agentstate.core.divergence import Policy
from agentstate.core.effects import Holder, Patterns, ToolClass
from agentstate.core.model import (
    Fingerprint,
    Outcome,
    ReplayMode,
    RunState,
    Shape,
    State,
    Verdict,
)
from agentstate.core.replay import Ask, Execute, Miss
from agentstate.dialects import function, mcp
from agentstate.engine import processes, revised
from agentstate.engine.asked_call import AskedCall, Known
from agentstate.engine.core import Head, Parts
from agentstate.engine.identity import Identity
from agentstate.engine.permits import Permits
from agentstate.engine.recording import Recording
from agentstate.engine.request import Request
from agentstate.engine.state import Live
from agentstate.errors import BadRequest, RunDiverged, RunFenced, ShuttingDown
from agentstate.store.effect_reader import EffectRow
from agentstate.store.effects import Kept, NewEffect
from agentstate.store.rows import Begun, Ending, NewStep, RunRow, SessionRow


class Tools:
    """One for each serving process."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.identity = Identity(parts)
        self.offered: dict[tuple[str, str], mcp.Offered] = {}  # as servers listed them since the start
        self.permits = Permits(self)

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
        """Between this and the note that it was taken there must be no await. Raises ``RunDiverged`` where what is not
        recorded is not wanted."""
        view = self.parts.view(asked.session)
        shown = view.shown
        read, floating = self.parts.journal.read, self.parts.floating
        entries = []
        if self.parts.journal.facts.holds(shown, asked.print.key):
            entries = read.entries(shown, asked.print.key, asked.run.id, asked.run.siblings)
        seen = view.usable(floating.seen(entries, asked.run.id, asked.session.head, asked.print.key))
        under_way = [entry.step for entry in entries if entry.state is not State.COMPLETED]
        holders = {
            step: Holder(process, sending, _alive(owner))
            for step, (process, owner, sending) in (read.holders(under_way) if under_way else {}).items()
        }
        request = asked.request
        ask = Ask(request.mode, request.retry, request.retry_key, request.hint)
        decision = effects.decide(ask, asked.run.id, seen, asked.asker, holders)
        strict = request.mode is ReplayMode.STRICT or Policy(self.parts.settings.replay.on_divergence) is Policy.STRICT
        if strict and isinstance(decision, Miss):
            self._check_all_read(asked, view)
        return decision

    def _check_all_read(self, asked: AskedCall, view: Head) -> None:
        """Raises ``RunDiverged`` for a call that the journal does not hold while its run has answers unread. That an
        agent knows them by itself, as one with a checkpoint does, cannot be seen in a tool call."""
        claimed, run = self.parts.floating.claimed, asked.run
        found = self.parts.journal.read.unread(asked.session.id, view.shown, run)
        _, unread = revised.apart(self.parts, view, run.id, found)
        left = [step.number for step in unread if not claimed(run.id, step.step)]
        if left:
            raise RunDiverged(
                f"run {run.name} calls {asked.tool}, which the journal does not hold, while {len(left)} recorded "
                f"answers are unread, of step {left[0]} first; the call was not made (strict replay)",
                detail={
                    "policy": Policy.STRICT.value,
                    "run": run.name,
                    "unread": left[:100],
                    "unread_count": len(left),
                },
            )

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
        claimed = ToolClass(effect.kind) if effect is not None else None
        return effects.class_of(asked.tool, self._patterns, asked.hints, claimed)

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

    # --- what is written ---

    def new_step(self, asked: AskedCall) -> NewStep:
        _, opening = self.parts.head(asked.session)
        return NewStep(
            asked.session.id, asked.session.head, asked.run.id, "tool", f"mcp:{asked.server}" if asked.server else "",
            asked.call, asked.print, Outcome.LIVE.value, asked.request.hint, asked.request.retry_key, opening is None,
        )  # fmt: skip

    def new_effect(self, asked: AskedCall, leave: str | None = None) -> NewEffect:
        return NewEffect(
            asked.session.key, asked.server, asked.tool, self.class_of(asked).value, effects.spelled(asked.arguments),
            asked.asker.process, asked.owner, asked.asker.sending, leave,
        )  # fmt: skip

    def begun(self, live: Live, begun: Begun) -> None:
        self.parts.floating.begun(live, begun.step, begun.number, begun.attempt)


def _alive(owner: str) -> bool | None:
    return processes.alive(owner) if owner else None
