"""Owns what is written about decisions and those who make them. A part of ``Journal``; must not decide.

Invariant: as for ``Journal``; an act of authority and its entry in the audit log are one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from agentstate.core import approval
from agentstate.core.approval import Vote
from agentstate.core.model import ApprovalKind
from agentstate.store import approvers, decisions
from agentstate.store.counters import Counters
from agentstate.store.facts import Facts
from agentstate.store.outgoing import Outgoing
from agentstate.store.people_rows import ApproverRow
from agentstate.store.reader import Reader
from agentstate.store.rows import Released, Reopened, SessionRow


class Deciding(Outgoing):
    """What ``Journal`` gives its parts."""

    _counters: Counters
    read: Reader
    facts: Facts

    async def decide(self, key: str, vote: Vote, reason: str) -> tuple[approval.Verdict, bool]:
        """Count what a person says about an approval: (what that came to, whether nothing of its step is pending).

        The row itself says what was decided. Raises ``NotFound``."""
        return await self._write(
            "decide",
            lambda conn: decisions.decide(conn, self._counters, self.read, key, vote, reason),
            then=lambda: self._decided(key),
        )

    def _decided(self, key: str) -> None:
        """A stop at a budget pauses the session, whose row is kept in memory."""
        row = self.read.approval(key)
        if row is not None and row.kind is ApprovalKind.BUDGET:
            self.facts.forget_session(row.session_id)

    async def expire(self, keys: Sequence[str]) -> None:
        """The time of pending approvals is over: they are refused."""

        def work(conn: sqlite3.Connection) -> None:
            for key in keys:
                decisions.expire(conn, key)

        await self._write("expire", work)

    async def reopen(self, asked: Reopened) -> None:
        """A decision that was not used yet no longer suffices; the approval is pending again, and people are told."""
        then = self.posted if asked.messages else None
        await self._write("reopen", lambda conn: decisions.reopen(conn, asked), then=then)

    async def release(self, released: Released) -> bool:
        """What agents are given of a step that was held, before they are given it; false: it was said already."""
        return await self._write("release", lambda conn: decisions.release(conn, self._counters, released))

    async def set_labels(self, session: SessionRow, add: Sequence[str], drop: Sequence[str], actor: str) -> None:
        """Labels of a session that come and go. Policies may go by them, so it stands in the audit log who did it."""
        await self._write("set_labels", lambda conn: decisions.set_labels(conn, session, add, drop, actor))

    async def add_approver(self, new: ApproverRow, actor: str) -> None:
        """Raises ``Conflict`` for a name that is or was somebody's."""
        await self._write("add_approver", lambda conn: approvers.add(conn, new, actor))

    async def disable_approver(self, name: str, actor: str) -> None:
        """Their token opens nothing any more; what they decided stays. Raises ``NotFound``."""
        await self._write("disable_approver", lambda conn: approvers.disable(conn, name, actor))

    async def rotate_approver(self, name: str, token: bytes, actor: str) -> None:
        """Another token, of which this is the sha256, takes the place of theirs. Raises ``NotFound``."""
        await self._write("rotate_approver", lambda conn: approvers.rotate(conn, name, token, actor))
