"""Owns what decisions do to an approval. Must not store them, nor know who asks.

Invariant: the first decision is the only one; an agent's silence, an error or an edit that does not fit never opens
the gate; what expires is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentstate.core.model import ApprovalKind, ApprovalState

ADMIN = "admin"  # whoever has the admin token
LINK = "link:"


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
    """Who decides: ``name`` is unique. The admin token's is ``admin``; who holds a link that was sent to a target
    decides as ``link:<target>``."""

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
    """The part of an approval that a decision depends on."""

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


_RANK = {Role.VIEWER: 0, Role.APPROVER: 1, Role.ADMIN: 2}
_NAME = re.compile(r"[^\W_][\w.@+-]{0,63}")
_TAKEN = frozenset({"admin", "agentstate", "policy", *(role.value for role in Role)})


def reaches(role: Role, least: Role) -> bool:
    """Whether a role may do what asks for ``least``."""
    return _RANK[role] >= _RANK[least]


def name_fault(name: str) -> str:
    """Why an approver cannot be called so; empty: they can. Names stand in policies beside roles, and in the audit log
    beside what the program itself does."""
    if not _NAME.fullmatch(name):
        return "a name has 1 to 64 letters, digits and the characters . _ @ + -, and begins with a letter or digit"
    return f"{name} means something else already" if name.lower() in _TAKEN else ""


def may_decide(person: Person, approvers: Sequence[str]) -> bool:
    """Whether a person may decide: an approver or admin who, where some are named, is one of them by name or role.

    Whoever holds a link is nobody in particular: no role counts for them, only the name of the link's target.
    """
    if person.role is Role.VIEWER:
        return False
    if person.name.startswith(LINK):
        return not approvers or person.name in approvers or person.name.removeprefix(LINK) in approvers
    return not approvers or person.name in approvers or person.role.value in approvers


def is_over(expires_at: float | None, now: float) -> bool:
    """Whether the time of an approval is over: it is not decided any more, and what was decided is not used."""
    return expires_at is not None and now >= expires_at


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
    if is_over(asked.expires_at, now):
        return Verdict.EXPIRED
    if new.action is Decision.REJECTED:
        return Verdict.TAKEN
    said = {vote.approver: vote for vote in votes} | {new.approver: new}
    equal_votes = [vote for vote in said.values() if (vote.action, vote.arguments) == (new.action, new.arguments)]
    if len(equal_votes) >= asked.quorum:
        return Verdict.TAKEN
    return Verdict.SAME if new in votes else Verdict.COUNTED
