"""Owns what decisions make of an answer: which calls are left, how they are changed, what is said in their place.

Pure; must not read, write or wait. Invariant: a call passes only where nothing governs it, or by a decision on that
very call that the policies of now do not deny.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentstate.core import policy
from agentstate.core.model import (
    Action,
    ApprovalKind,
    ApprovalState,
    Call,
    Change,
    OnReject,
    Release,
    ToolCall,
    ToolResult,
    Verdict,
)
from agentstate.core.policy import Place, Rule, Ruling
from agentstate.dialects.base import Dialect
from agentstate.engine.policies import Policies
from agentstate.engine.recording import Recording
from agentstate.store.rows import AnswerRow, ApprovalRow, Invoked
from agentstate.store.steering import LEFT_BEHIND

PASSES = frozenset({ApprovalState.APPROVED, ApprovalState.EDITED})


class Settled(NamedTuple):
    """``changes`` to the answer; ``told``: what the model is told of each call that is not given, in order; ``text``:
    the same as a text for the agent; ``modes``: how to tell it of each; ``left``: how many calls are left."""

    changes: tuple[Change, ...]
    invoked: tuple[Invoked, ...]
    told: tuple[ToolResult, ...]
    text: str
    modes: tuple[OnReject, ...]
    left: int


def settled(
    place: Place, branch: int, step: int, schemas: dict[str, str], verdict: Verdict, rows: Sequence[ApprovalRow],
    policies: Policies, results: dict[tuple[int, int], str],
) -> Settled:  # fmt: skip
    # The question that was held before it was sent has no place in the answer.
    by_place = {(row.choice, row.place): row for row in rows if row.kind is not ApprovalKind.REQUEST}
    changes: list[Change] = []
    invoked: list[Invoked] = []
    told: list[ToolResult] = []
    said: list[str] = []
    modes: list[OnReject] = []
    for call in verdict.calls:
        row = by_place.get((call.choice, call.index))
        result = results.get((call.choice, call.index))
        if result is not None:
            changes.append(Change(call.choice, call.index, None))
            told.append(ToolResult(call.call_id, result))
            said.append(f"{call.name} was called already with these arguments; its result was: {result}")
            modes.append(OnReject.CONTINUE)
            continue
        decided = effective(call, row)
        why = refusal(place, branch, step, call, schemas.get(call.name, ""), row, policies.ruling(decided, place))
        if why:
            changes.append(Change(call.choice, call.index, None))
            told.append(ToolResult(call.call_id, why, True))
            said.append(why)
            modes.append(row.on_reject if row is not None else policies.ruling(call, place).on_reject)
            continue
        if row is not None and row.state is ApprovalState.EDITED:
            changes.append(Change(call.choice, call.index, row.effective))
        invoked.append(
            Invoked(call.choice, call.index, decided.arguments.encode("utf-8", "surrogatepass"), digest_of(decided))
        )
    return Settled(tuple(changes), tuple(invoked), tuple(told), " ".join(said), tuple(modes), len(invoked))


def refusal(
    place: Place, branch: int, step: int, call: ToolCall, schema: str, row: ApprovalRow | None, now: Ruling
) -> str:
    """Why a call is not given; empty: it is. What was decided counts for this very call alone."""
    name = call.name or "a tool"
    if row is None:
        return "" if now.action is Action.ALLOW else f"The call of {name} was refused: {now.why}."
    if row.state in PASSES:
        digest = policy.approval_digest(
            place.session, branch, step, (call.choice, call.index), call.name, call.arguments, schema
        )
        if digest != row.digest:
            return f"The call of {name} was refused: it is not the one that was approved."
        if now.action is Action.DENY:
            return f"The call of {name} was refused: {now.why}."
        return ""
    if row.state is ApprovalState.EXPIRED:
        why = row.reason if row.reason == LEFT_BEHIND else "nobody approved it in time"
        return f"The call of {name} was refused: {why}."
    by = "a policy" if row.decided_by == "policy" else row.decided_by
    return f"The call of {name} was refused by {by}" + (f": {row.reason}." if row.reason else ".")


def mode_of(settled: Settled, recording: Recording, retold: bool) -> Release:
    """How it is given. An error needs that no status is out, what the model says that nothing at all is. ``retold``:
    whether the model can be told of a refusal in later requests, beside the results of the calls that are left."""
    if not settled.modes:
        return Release.ANSWER
    if OnReject.ERROR in settled.modes and (recording.shape.stream or not recording.flushed):
        return Release.ERROR
    all_continue = all(mode is OnReject.CONTINUE for mode in settled.modes)
    if all_continue and settled.left and retold:
        return Release.ANSWER
    if all_continue and not settled.left and not recording.shown:
        return Release.CONTINUE
    return Release.MESSAGE


def effective(call: ToolCall, row: ApprovalRow | None) -> ToolCall:
    if row is None or row.state is not ApprovalState.EDITED:
        return call
    return replace(call, arguments=row.effective)


def agrees(row: ApprovalRow, action: str) -> bool:
    return action == ("EDITED" if row.state is ApprovalState.EDITED else "APPROVED")


def digest_of(call: ToolCall) -> bytes:
    return policy.call_digest(call.name, call.arguments)


def spelled_rule(ruling: Ruling, made: str = "") -> str:
    """A ruling as people are shown it, JSON. ``made``: where an equal call was made."""
    rule: Rule | None = ruling.rule
    shown: dict[str, Any] = {"why": made or ruling.why}
    if rule is not None:
        shown |= {"policy": rule.number, "tools": list(rule.tools), "action": rule.action.value, "when": rule.when}
    return json.dumps(shown)


def verdict_of(dialect: Dialect, call: Call, answer: AnswerRow) -> Verdict:
    """What a dialect says of a recorded answer."""
    if not answer.shape.stream:
        return dialect.judge(call, answer.body)
    gate = dialect.gate(call._replace(shape=answer.shape))
    gate.feed(answer.body)
    return gate.finish()


def schemas_of(dialect: Dialect, call: Call) -> dict[str, str]:
    """The schema of each tool that a request offers, by name; empty text: it has none."""
    offered = getattr(dialect, "offered", None)
    return {tool.name: tool.schema for tool in offered(call)} if offered is not None else {}


def told_by_text(on_reject: OnReject) -> OnReject:
    """The same, but that the model is not asked once more."""
    return OnReject.MESSAGE if on_reject is OnReject.CONTINUE else on_reject
