"""Owns what people do about tool calls in doubt: saying what became of them. Must not make or give any call.

Invariant: what is said is a decision like any other: by a named person, once, in the audit log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentstate.core.approval import Person
from agentstate.core.effects import OUTCOMES
from agentstate.core.model import ApprovalKind, State
from agentstate.engine.approvals import Approvals
from agentstate.engine.questions import doubt_of
from agentstate.engine.sessions import found
from agentstate.errors import BadRequest, NotFound, Unprocessable
from agentstate.store.rows import ApprovalRow

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
    session = found(read, key)
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
        question = doubt_of(session, effect, "")
        await parts.journal.doubt(session.id, effect.step, question, ())
        row = Approvals(parts).find(question.id)
    return await Approvals(parts).decide(row.id, decision.value, person, result, reason)
