"""Owns who may use the control plane beside the admin: approvers, their tokens, their ids in chats.

Invariant: a token is shown once, when it is made; what is kept is its sha256, from which it cannot be told. Tokens have
256 bits of chance, so a plain hash is enough.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core import approval
from agentstate.core.approval import Person, Role
from agentstate.errors import BadRequest
from agentstate.store.people_rows import ApproverRow
from agentstate.store.reader import Reader

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

_CHAT_ID = re.compile(r"[A-Za-z0-9]{1,40}")


class Approvers:
    """The verbs; ``actor``: the person who does it."""

    def __init__(self, parts: Parts) -> None:
        self._journal = parts.journal

    async def add(self, name: str, role: str, slack: str, discord: str, actor: Person) -> tuple[ApproverRow, str]:
        """A new approver and their token, which nobody can see again. ``slack``, ``discord``: their user id there, or
        empty. Raises ``BadRequest``, ``Conflict``."""
        if fault := approval.name_fault(name):
            raise BadRequest(f"{name[:80]!r} cannot be an approver's name: {fault}")
        try:
            wanted = Role(role.lower())
        except ValueError:
            raise BadRequest(f"role is {role[:40]!r}; use {', '.join(Role)}") from None
        for place, user in (("slack", slack), ("discord", discord)):
            if user and not _CHAT_ID.fullmatch(user):
                raise BadRequest(
                    f"{place} is {user[:60]!r}; give the user's id there, as U024BE7LH or 80351110224678912"
                )
            if other := next((row for row in self._journal.read.approvers() if _same_chat(row, place, user)), None):
                raise BadRequest(f"the {place} user {user} is {other.name} already; one person has one name")
        token = clock.token()
        row = ApproverRow(name, wanted, digest(token), slack, discord, clock.now(), None)
        await self._journal.add_approver(row, actor.name)
        return row, token

    async def disable(self, name: str, actor: Person) -> ApproverRow:
        """Raises ``NotFound``."""
        await self._journal.disable_approver(name, actor.name)
        return self._found(name)

    async def rotate(self, name: str, actor: Person) -> tuple[ApproverRow, str]:
        """Another token in place of theirs. Raises ``NotFound``."""
        token = clock.token()
        await self._journal.rotate_approver(name, digest(token), actor.name)
        return self._found(name), token

    def _found(self, name: str) -> ApproverRow:
        row = self._journal.read.approver(name)
        assert row is not None
        return row


def _same_chat(row: ApproverRow, place: str, user: str) -> bool:
    return bool(user) and row.disabled_at is None and (row.slack if place == "slack" else row.discord) == user


def digest(token: str) -> bytes:
    """What is kept of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def holder(reader: Reader, token: str) -> Person | None:
    """Whose token it is."""
    wanted = digest(token)
    row = reader.approver_by_token(wanted)
    if row is None or not hmac.compare_digest(row.token, wanted):
        return None
    return Person(row.name, row.role)
