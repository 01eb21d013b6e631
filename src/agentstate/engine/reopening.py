"""Owns whether a decision that was not used yet still counts when it is to be used. Must not release anything.

Invariant: what counts are the time, the policies, the people and the branch of the moment of release; where they ask
for more than was decided, the approval is pending again, and whoever is to decide is told in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core.approval import ADMIN, LINK, Person, Role, is_over, may_decide
from agentstate.core.model import Action, ApprovalKind, Verdict
from agentstate.core.policy import Place, Ruling
from agentstate.engine.policies import Policies
from agentstate.engine.settling import PASSES, agrees, effective, spelled_rule
from agentstate.errors import Conflict
from agentstate.store.rows import ApprovalRow, Reopened, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

_OVER = "its time was over before it was used"
_STRICTER = "what governs the call has become stricter"


def check_shown(parts: Parts, session: SessionRow, step: int) -> None:
    """Raises ``Conflict`` for a step that was rolled back: what was decided about it is for nobody any more."""
    answer = parts.journal.read.received(step)
    shown, _ = parts.head(session)
    if not any(branch == answer.branch and answer.number < upto for branch, upto in shown):
        raise Conflict("the step was rolled back while it was held; ask again")


async def reopened(
    parts: Parts, policies: Policies, place: Place, verdict: Verdict, rows: Sequence[ApprovalRow]
) -> bool:
    """Whether something is asked again: the time of a decision that was not used is over, or policies that have become
    stricter since ask for more. It is pending again then, and people are told."""
    again = False
    proposed = {(one.choice, one.index): one for one in verdict.calls}
    for row in rows:
        call = proposed.get((row.choice, row.place))
        if row.kind not in (ApprovalKind.CALL, ApprovalKind.DUPLICATE) or row.state not in PASSES or call is None:
            continue
        asked = asked_again(parts, row, policies.ruling(effective(call, row), place), clock.now())
        if asked is not None:
            await parts.journal.reopen(asked._replace(messages=parts.gate.messages(place.session, row)))
            again = True
    return again


def asked_again(parts: Parts, row: ApprovalRow, ruling: Ruling, now: float) -> Reopened | None:
    """What is asked in the place of a decision that does not suffice; ``None``: it does, or there is nothing to ask."""
    rule = ruling.rule
    held = ruling.action is Action.HOLD and rule is not None
    if ruling.action is Action.DENY or not (held or row.kind is ApprovalKind.DUPLICATE):
        return None
    over = is_over(row.expires_at, now)
    if not held or rule is None:  # a suspected duplicate, which no policy holds: it is asked as it was
        span = row.expires_at - row.created_at if row.expires_at is not None else 0.0
        again = Reopened(row.id, row.rule, _OVER, row.quorum, row.approvers, now + span, True)
        return again if over else None
    expires_at = now + rule.expires_s if rule.expires_s is not None else None
    asked = Reopened(row.id, spelled_rule(ruling), _OVER, rule.quorum, rule.approvers, expires_at, over)
    if over:
        return asked
    return None if suffices(parts, row, ruling) else asked._replace(reason=_STRICTER)


def suffices(parts: Parts, row: ApprovalRow, ruling: Ruling) -> bool:
    """Whether those who agreed are enough for what governs the call now. Whose word counts, and how many must agree, is
    as it is now."""
    rule = ruling.rule
    if ruling.action is not Action.HOLD or rule is None:
        return True
    agreed = [
        who for who, action, *_ in parts.journal.read.votes(row.id)
        if agrees(row, action) and (found := person(parts, who)) and may_decide(found, rule.approvers)
    ]  # fmt: skip
    return len(agreed) >= rule.quorum


def person(parts: Parts, name: str) -> Person | None:
    """Who that is today; ``None``: nobody any more."""
    if name == ADMIN:
        return Person(name, Role.ADMIN)
    if name.startswith(LINK):
        return Person(name, Role.APPROVER)
    found = parts.journal.read.approver(name)
    return None if found is None or found.disabled_at is not None else Person(name, found.role)
