"""Owns what decisions do to an approval. Must not store them, nor know who asks.

Invariant: the first decision is the only one; an agent's silence, an error or an edit that does not fit never opens
the gate; what expires is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentstate.core.model import ApprovalKind, ApprovalState


class Decision(StrEnum):
    """What an approver says."""

    APPROVED = "APPROVED"
    EDITED = "EDITED"
    REJECTED = "REJECTED"
    # Of a suspected duplicate: give the result that is recorded; of a call in doubt: it ran, and this is its result.
    REUSED = "REUSED"


class Role(StrEnum):
    """Viewers read, approvers decide, admins do everything."""

    VIEWER = "viewer"
    APPROVER = "approver"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Person:
    """Who decides: ``name`` is unique. The admin token's is ``admin``."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Vote:
    """What one person said; ``arguments``: as JSON text, of an edit."""

    approver: str
    action: Decision
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of an approval that a decision depends on. ``rejected_by``, ``wanted``: see ``tally``."""

    kind: ApprovalKind
    state: ApprovalState
    quorum: int
    approvers: tuple[str, ...]
    expires_at: float | None
    effective: str = ""


class Verdict(StrEnum):
    """What a decision comes to: it is taken, it counts towards a quorum, it says what was said already, or another
    decision was first."""

    TAKEN = "taken"
    COUNTED = "counted"
    SAME = "same"
    CONFLICT = "conflict"
    EXPIRED = "expired"


_STATE = {
    Decision.APPROVED: ApprovalState.APPROVED,
    Decision.EDITED: ApprovalState.EDITED,
    Decision.REJECTED: ApprovalState.REJECTED,
    Decision.REUSED: ApprovalState.REUSED,
}


def state_of(action: Decision) -> ApprovalState:
    return _STATE[action]


def may_decide(person: Person, approvers: Sequence[str]) -> bool:
    """Whether a person may decide: an approver or admin who, where some are named, is one of them by name or role."""
    if person.role is Role.VIEWER:
        return False
    return not approvers or person.name in approvers or person.role.value in approvers


def fits(kind: ApprovalKind, action: Decision) -> str:
    """Why an action cannot be taken on this kind of approval; empty: it can."""
    if action is Decision.EDITED and kind is ApprovalKind.REQUEST:
        return "a held request is approved or rejected as it is; it cannot be edited"
    if action is Decision.EDITED and kind is ApprovalKind.DOUBT:
        return "a call in doubt is settled, not edited: say whether it ran, and its result"
    if action is Decision.REUSED and kind not in (ApprovalKind.DUPLICATE, ApprovalKind.DOUBT):
        return "only a suspected duplicate has a recorded result to reuse"
    return ""


def tally(asked: Asked, votes: Sequence[Vote], new: Vote, now: float) -> Verdict:
    """What ``new`` comes to after ``votes`` of others and of the same person, at the time ``now`` in seconds.

    One rejection rejects. Otherwise ``quorum`` different people must say the same, edits to the letter.
    """
    if asked.state is not ApprovalState.PENDING:
        equal = asked.state is state_of(new.action) and (
            new.action not in (Decision.EDITED, Decision.REUSED) or asked.effective == new.arguments
        )
        return Verdict.SAME if equal else Verdict.CONFLICT
    if asked.expires_at is not None and now >= asked.expires_at:
        return Verdict.EXPIRED
    if new.action is Decision.REJECTED:
        return Verdict.TAKEN
    said = {vote.approver: vote for vote in votes}
    said[new.approver] = new
    equal_votes = [vote for vote in said.values() if (vote.action, vote.arguments) == (new.action, new.arguments)]
    return Verdict.TAKEN if len(equal_votes) >= asked.quorum else Verdict.COUNTED
