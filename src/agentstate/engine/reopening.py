"""Owns whether a decision that was not used yet still counts when it is to be used. Must not release anything.

Invariant: what counts are the policies, the people and the branch of the moment of release; where they ask for more
than was decided, the approval is pending again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentstate.core.approval import ADMIN, LINK, Person, Role, may_decide
from agentstate.core.model import Action, ApprovalKind, Verdict
from agentstate.core.policy import Place, Ruling
from agentstate.engine.policies import Policies
from agentstate.engine.settling import PASSES, agrees, effective, spelled_rule
from agentstate.errors import Conflict
from agentstate.store.rows import ApprovalRow, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts


def check_shown(parts: Parts, session: SessionRow, step: int) -> None:
    """Raises ``Conflict`` for a step that was rolled back: what was decided about it is for nobody any more."""
    answer = parts.journal.read.received(step)
    shown, _ = parts.head(session)
    if not any(branch == answer.branch and answer.number < upto for branch, upto in shown):
        raise Conflict("the step was rolled back while it was held; ask again")


async def reopened(
    parts: Parts, policies: Policies, place: Place, verdict: Verdict, rows: Sequence[ApprovalRow]
) -> bool:
    """Whether policies that have become stricter since ask for more than was decided; it is pending again then."""
    again = False
    proposed = {(one.choice, one.index): one for one in verdict.calls}
    for row in rows:
        call = proposed.get((row.choice, row.place))
        if row.kind not in (ApprovalKind.CALL, ApprovalKind.DUPLICATE) or row.state not in PASSES or call is None:
            continue
        ruling = policies.ruling(effective(call, row), place)
        if not suffices(parts, row, ruling):
            assert ruling.rule is not None
            await parts.journal.reopen(row.id, spelled_rule(ruling), ruling.rule.quorum, ruling.rule.approvers)
            again = True
    return again


def suffices(parts: Parts, row: ApprovalRow, ruling: Ruling) -> bool:
    """Whether those who agreed are enough for what governs the call now. Whose word counts, and how many must agree, is
    as it is now."""
    rule = ruling.rule
    if ruling.action is not Action.HOLD or rule is None:
        return True
    agreed = [
        who for who, action, *_ in parts.journal.read.votes(row.id)
        if agrees(row, action) and (person := _person(parts, who)) and may_decide(person, rule.approvers)
    ]  # fmt: skip
    return len(agreed) >= rule.quorum


def _person(parts: Parts, name: str) -> Person | None:
    """Who that is today; ``None``: nobody any more."""
    if name == ADMIN:
        return Person(name, Role.ADMIN)
    if name.startswith(LINK):
        return Person(name, Role.APPROVER)
    found = parts.journal.read.approver(name)
    return None if found is None or found.disabled_at is not None else Person(name, found.role)
