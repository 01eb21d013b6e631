"""Owns the questions that people are asked about tool calls, and what their answers mean for a call. Must not ask.

Invariant: an answer counts for the very call that was shown, under the policies in force when it is used.
"""

from __future__ import annotations

import json

from agentstate import clock
from agentstate.core import policy
from agentstate.core.model import Action, ApprovalKind, ApprovalState, OnReject, ToolCall
from agentstate.core.policy import Ruling
from agentstate.engine.settling import spelled_rule
from agentstate.store.effect_reader import EffectRow
from agentstate.store.rows import ApprovalRow, NewApproval, SessionRow

_PASSES = frozenset({ApprovalState.APPROVED, ApprovalState.EDITED})


def hold_of(
    session: SessionRow, branch: int, call: ToolCall, schema: str, ruling: Ruling, made: str = ""
) -> NewApproval:
    """Whether a call on ``branch`` may be made; refused already where a policy denies it. ``made``: where an equal call
    was made before."""
    denied = ruling.action is Action.DENY
    rule = ruling.rule
    return NewApproval(
        clock.approval_id(), ApprovalKind.DUPLICATE if made and not denied else ApprovalKind.CALL,
        _digest(session.key, branch, call, schema),
        _bytes(call.arguments), OnReject.MESSAGE, call.name, schema=_bytes(schema), rule=spelled_rule(ruling, made),
        quorum=rule.quorum if rule is not None else 1, approvers=rule.approvers if rule is not None else (),
        expires_at=clock.now() + rule.expires_s if rule is not None and rule.expires_s is not None else None,
        state=ApprovalState.REJECTED if denied else ApprovalState.PENDING, reason=ruling.why if denied else "",
    )  # fmt: skip


def doubt_of(session: SessionRow, effect: EffectRow, schema: str, ruling: Ruling) -> NewApproval:
    """What became of a call that was claimed and has no result. It is asked anew of each attempt, and never expires.
    Who may say so are those whom the policies would ask about the call."""
    rule = ruling.rule if ruling.action is not Action.ALLOW else None
    call = ToolCall(0, effect.attempt, "", effect.tool, effect.arguments)
    why = f"{effect.tool} was called (key {effect.key}), and it is not known whether it ran: look, then say"
    return NewApproval(
        clock.approval_id(), ApprovalKind.DOUBT, _digest(session.key, effect.branch, call, schema, effect.step),
        _bytes(call.arguments), OnReject.MESSAGE, call.name, place=effect.attempt, schema=_bytes(schema),
        rule=json.dumps({"why": why, "key": effect.key, "server": effect.server}),
        quorum=rule.quorum if rule is not None else 1, approvers=rule.approvers if rule is not None else (),
    )  # fmt: skip


def refusal_of(branch: int, call: ToolCall, row: ApprovalRow, now: Ruling) -> str:
    """Why a decided call may not be made; empty: it may. ``call``: as it was proposed, on ``branch``; ``now``: what
    governs it, as it would be made."""
    name = call.name
    if row.state in _PASSES:
        # The schema is not compared: a proxy that was started again may not have seen the server's list yet.
        if _digest(row.session, branch, call, row.schema) != row.digest:
            return f"The call of {name} was refused: it is not the one that was approved."
        return f"The call of {name} was refused: {now.why}." if now.action is Action.DENY else ""
    if row.state is ApprovalState.EXPIRED:
        return f"The call of {name} was refused: nobody approved it in time."
    by = "a policy" if row.decided_by == "policy" else row.decided_by
    return f"The call of {name} was refused by {by}" + (f": {row.reason}." if row.reason else ".")


def _digest(session: str, branch: int, call: ToolCall, schema: str, step: int = 0) -> bytes:
    return policy.approval_digest(session, branch, step, (call.choice, call.index), call.name, call.arguments, schema)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
