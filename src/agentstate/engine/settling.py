"""Owns what people do about tool calls in doubt: saying what became of them. Must not make or give any call.

Invariant: what is said is a decision like any other: by a named person, once, in the audit log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentstate.core.approval import Person
from agentstate.core.effects import OUTCOMES
from agentstate.core.model import ApprovalKind
from agentstate.engine.approvals import Approvals
from agentstate.errors import BadRequest, Unprocessable
from agentstate.store.rows import ApprovalRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts


async def settle(
    parts: Parts, key: str, outcome: str, person: Person, result: Any = None, reason: str = ""
) -> ApprovalRow:
    """A person says of a call in doubt that it ``ran``, with its ``result`` (any JSON value) where that is known; that
    it ``did_not_run``, so that it is sent again under the same key; or that it is given up (``abort``).

    Raises ``NotFound``, ``BadRequest``, ``Forbidden``, ``Unprocessable``, ``Conflict``.
    """
    approvals = Approvals(parts)
    row = approvals.find(key)
    if row.kind is not ApprovalKind.DOUBT:
        raise Unprocessable(f"approval {row.id} is about no call in doubt; approve or reject it")
    decision = OUTCOMES.get(outcome)
    if decision is None:
        raise BadRequest(f"outcome is {outcome[:60]!r}; use {', '.join(OUTCOMES)}")
    if outcome != "ran" and result is not None:
        raise Unprocessable("a result is taken with the outcome ran only; the call is still in doubt")
    return await approvals.decide(key, decision.value, person, result, reason)
