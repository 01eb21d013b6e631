"""Owns whether a decision that was not used yet still counts when it is to be used. Must not release anything.

Invariant: what counts are the policies, the people and the branch of the moment of release; where they ask for more
than was decided, the approval is pending again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentstate.core.approval import ADMIN, LINK, Person, Role, may_decide
from agentstate.core.model import Action, ApprovalKind, Verdict
from agentstate.core.policy import Place
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
        rule = ruling.rule
        if ruling.action is not Action.HOLD or rule is None:
            continue
        # Whose word counts, and how many must agree, is as it is now.
        agreed = [
            who for who, action, *_ in parts.journal.read.votes(row.id)
            if agrees(row, action) and (person := _person(parts, who)) and may_decide(person, rule.approvers)
        ]  # fmt: skip
        if len(agreed) < rule.quorum:
            await parts.journal.reopen(row.id, spelled_rule(ruling), rule.quorum, rule.approvers)
            again = True
    return again


def _person(parts: Parts, name: str) -> Person | None:
    """Who that is today; ``None``: nobody any more."""
    if name == ADMIN:
        return Person(name, Role.ADMIN)
    if name.startswith(LINK):
        return Person(name, Role.APPROVER)
    found = parts.journal.read.approver(name)
    return None if found is None or found.disabled_at is not None else Person(name, found.role)
