"""Owns tool calls in doubt that nobody waits for: asking people about them, and what people say. Must not make or give
any call.

Invariant: what is said is a decision like any other: by a named person, once, in the audit log; a doubt that a probe
may resolve is left to it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from agentstate.core import effects
from agentstate.core.approval import Person
from agentstate.core.effects import OUTCOMES, Patterns, ToolClass
from agentstate.core.model import ApprovalKind, SessionStatus, State, ToolCall
from agentstate.core.policy import Ruling
from agentstate.engine import processes
from agentstate.engine.approvals import Approvals
from agentstate.engine.questions import doubt_of
from agentstate.errors import BadRequest, NotFound, StepTaken, Unprocessable
from agentstate.store.effect_reader import EffectRow
from agentstate.store.rows import ApprovalRow, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts


async def settle(
    parts: Parts, key: str, number: int, outcome: str, person: Person, result: Any = None, reason: str = ""
) -> ApprovalRow:
    """A person says of the call in doubt at step ``number`` of session ``key`` that it ``ran``, with its ``result``
    (any JSON value) where that is known; that it ``did_not_run``, so that it is sent again under the same key when it
    is asked for; or that it is given up (``abort``).

    Raises ``NotFound``, ``BadRequest``, ``Forbidden``, ``Unprocessable``, ``Conflict``.
    """
    read = parts.journal.read
    session = read.session(key)
    if session is None:
        raise NotFound(f"no session is called {key[:80]!r}; `agentstate sessions` lists those there are")
    step = read.step_by_number(session.id, number)
    effect = read.effect(step) if step is not None else None
    if effect is None:
        raise NotFound(f"step {number} of session {key!r} is no tool call")
    decision = OUTCOMES.get(outcome)
    if decision is None:
        raise BadRequest(f"outcome is {outcome[:60]!r}; use {', '.join(OUTCOMES)}")
    if outcome != "ran" and result is not None:
        raise Unprocessable("a result is taken with the outcome ran only; the call is still in doubt")
    row = read.asked(effect.step, ApprovalKind.DOUBT, effect.attempt)
    if row is None:
        if effect.state is not State.INTERRUPTED:
            raise Unprocessable(f"the call at step {number} is not in doubt")
        question = doubt_of(session, effect, "", _ruling(parts, session, effect))
        await parts.journal.doubt(session.id, effect.step, question, ())
        row = Approvals(parts).find(question.id)
    return await Approvals(parts).decide(row.id, decision.value, person, result, reason)


async def ask_left(parts: Parts) -> None:
    """After a start: ask about the calls that an earlier proxy left in doubt, without waiting for their agents."""
    for step in parts.journal.read.left_in_doubt():
        await ask(parts, step)


async def ask(parts: Parts, step: int) -> None:
    """Ask people what became of a call, where nobody else can tell: no probe is set up for it, the process that made it
    is known to be gone, and its session goes on."""
    read = parts.journal.read
    effect = read.effect(step)
    session = read.session(effect.session_key) if effect is not None else None
    if effect is None or session is None or effect.state is not State.INTERRUPTED:
        return
    if session.status is SessionStatus.COMPLETED or not _is_shown(parts, session, effect):
        return
    tools, probes = parts.settings.tools, parts.settings.probes
    kind = effects.class_of(effect.tool, Patterns(tuple(tools.read), tuple(tools.idempotent)))
    probed = effects.first_matching(effect.tool, [probe.tools for probe in probes]) is not None
    lives = bool(effect.holder) and (not effect.owner or processes.alive(effect.owner))
    if effect.kind != ToolClass.ONCE or kind is not ToolClass.ONCE or probed or lives:
        return
    question = doubt_of(session, effect, "", _ruling(parts, session, effect))
    facts = {"approval": question.id, "tool": effect.tool, "kind": question.kind.value}
    messages = parts.outbox.messages("call.in_doubt", session.key, question.id, facts)
    with contextlib.suppress(StepTaken):  # its agent is back, and was faster
        await parts.journal.doubt(session.id, effect.step, question, messages)


def _is_shown(parts: Parts, session: SessionRow, effect: EffectRow) -> bool:
    shown, _ = parts.head(session)
    return any(branch == effect.branch and effect.number < upto for branch, upto in shown)


def _ruling(parts: Parts, session: SessionRow, effect: EffectRow) -> Ruling:
    names = effects.names(effect.server, effect.tool)[1:]
    call = ToolCall(0, 0, "", effect.tool, effect.arguments, names)
    return parts.gate.policies.ruling(call, parts.gate.place_of(session))
