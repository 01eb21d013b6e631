"""Owns what people do with approvals: finding them, deciding, letting them expire. Must not release anything itself:
the gate does.

Invariant: every decision is made by a named person who may make it, on what that person was shown; an edit fits the
tool's schema and passes the policies; nothing of it depends on an agent being there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from agentstate import clock
from agentstate.core import approval
from agentstate.core.approval import LINK, Decision, Person, Verdict, Vote
from agentstate.core.model import Action, ApprovalKind, ToolCall
from agentstate.engine import budgets
from agentstate.engine.arguments import Fault, checked, faults
from agentstate.errors import BadRequest, Conflict, Forbidden, NotFound, Unprocessable
from agentstate.store.rows import ApprovalRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
MOST_REASON = 2000  # characters
_PENDING = "the approval is still pending"
_LOOK_S = 1.0  # between looks at what has expired


class Approvals:
    """The verbs. ``parts``: of the serving process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def find(self, key: str) -> ApprovalRow:
        """Raises ``NotFound``."""
        row = self._parts.journal.read.approval(key)
        if row is None:
            raise NotFound(f"there is no approval {key[:80]!r}; `agentstate approvals` lists those that are pending")
        return row

    async def decide(
        self, key: str, action: str, person: Person, arguments: Any = None, reason: str = "", shown: str = ""
    ) -> ApprovalRow:
        """A person decides. ``arguments``: of an edit, a JSON object; ``shown``: the digest (hex) of what the person
        saw, empty where the way of asking has no room for it.

        Raises ``NotFound``, ``BadRequest``, ``Forbidden``, ``Unprocessable`` (the approval stays pending), and
        ``Conflict`` where it was decided otherwise or has expired.
        """
        row = self.find(key)
        try:
            decision = Decision(action.upper())
        except ValueError:
            raise BadRequest(f"action is {action[:60]!r}; use {', '.join(Decision)}") from None
        if not approval.may_decide(person, row.approvers):
            named = f"; it asks for {', '.join(row.approvers)}" if row.approvers else ""
            raise Forbidden(f"{person.name} ({person.role}) may not decide approval {row.id}{named}")
        if row.quorum > 1 and person.name.startswith(LINK) and decision is not Decision.REJECTED:
            raise Forbidden(
                f"{row.quorum} different people must agree, and a link does not tell who uses it: decide with a token "
                "of your own"
            )
        if shown and shown != row.digest.hex():
            raise Conflict("what you saw is not what the approval is about any more; look at it again")
        if len(reason) > MOST_REASON:
            raise BadRequest(f"the reason has {len(reason)} characters; {MOST_REASON} are taken")
        if fault := approval.fits(row.kind, decision):
            raise Unprocessable(fault)
        edited = ""
        if decision is Decision.EDITED and row.kind is ApprovalKind.BUDGET:
            edited = budgets.raised(row, arguments)
        elif decision is Decision.EDITED:
            edited = await self._edited(row, arguments, person)
        elif row.kind is ApprovalKind.DOUBT and decision is Decision.REUSED:
            edited = json.dumps(arguments)  # a call in doubt ran, and this is its result
        elif arguments is not None:
            raise Unprocessable("arguments are taken with the action EDITED only; the approval is still pending")
        verdict, done = await self._parts.journal.decide(row.id, Vote(person.name, decision, edited), reason)
        row = self.find(key)
        if verdict is Verdict.CONFLICT:
            by = f" by {row.decided_by}" if row.decided_by else ""
            raise Conflict(f"approval {row.id} is {row.state.value} already{by}", detail={"state": row.state.value})
        if done:
            self._parts.gate.look(row.step)
        if row.kind is ApprovalKind.BUDGET:
            self._parts.gate.look_again()  # what was raised for one has room for others
        if verdict is Verdict.EXPIRED:
            raise Conflict(f"approval {row.id} has expired", detail={"state": row.state.value})
        return row

    async def _edited(self, row: ApprovalRow, arguments: Any, person: Person) -> str:
        """The edited arguments as JSON text. Raises ``Unprocessable``, and ``Forbidden`` where they fall under a policy
        that asks for somebody else."""
        text = await asyncio.to_thread(checked, arguments, row.schema, row.tool, _PENDING)
        session = self._parts.journal.read.session(row.session)
        assert session is not None
        call = ToolCall(row.choice, row.place, row.call_id, row.tool, text)
        self._parts.gate.check_edit(row, text)
        ruling = self._parts.gate.policies.ruling(call, self._parts.gate.place_of(session))
        if ruling.action is Action.DENY:
            raise Unprocessable(f"the edited call is not allowed: {ruling.why}; the approval is still pending")
        rule = ruling.rule
        if rule is not None and ruling.action is Action.HOLD:
            if not approval.may_decide(person, rule.approvers):
                asks = ", ".join(rule.approvers)
                raise Forbidden(f"{ruling.why}, and it asks for {asks}; the approval is still pending")
            if rule.quorum > row.quorum:
                raise Unprocessable(
                    f"{ruling.why}, and {rule.quorum} people must agree to it, which this approval does not ask for; "
                    "it is still pending"
                )
        return text

    async def faults(self, key: str, arguments: Any, person: Person) -> list[Fault]:
        """Why an edit to these arguments would not be taken from that person now; empty: it would be. Decides nothing.

        Raises ``NotFound``.
        """
        row = self.find(key)
        try:
            if row.kind is ApprovalKind.BUDGET:
                budgets.raised(row, arguments)
                return []
            if row.schema and isinstance(arguments, dict):
                found = await asyncio.to_thread(faults, row.schema, arguments, row.tool, _PENDING)
                if found:
                    return found
            await self._edited(row, arguments, person)
        except (Unprocessable, Forbidden) as error:
            return [Fault("", error.message)]
        return []

    async def expire(self) -> None:
        """Refuse, for as long as the process serves, what nobody has decided in time."""
        read = self._parts.journal.read
        while not self._parts.closing:
            over = read.expired(clock.now())
            if over:
                await self._parts.journal.expire([key for key, _ in over])
                for step in {step for _, step in over}:
                    self._parts.gate.look(step)
            await asyncio.sleep(_LOOK_S)
