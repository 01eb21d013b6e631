"""Owns the questions about approvals that lists for people ask: what was decided lately, and what came of it. A part of
``Reader``; must not write.

Invariant: as for ``Reader``.
"""

from __future__ import annotations

from agentstate.core.model import Release
from agentstate.store.decision_reader import DecisionReader
from agentstate.store.rows import ApprovalRow


class InboxReader(DecisionReader):
    """What is known of decisions that were made."""

    def decided(
        self, state: str = "", session: str = "", limit: int = 50, before: ApprovalRow | None = None
    ) -> list[ApprovalRow]:
        """Latest decision first; ``before``: the last row of the page before."""
        values = {
            "state": state, "session": session, "limit": limit,
            "decided": before.decided_at if before else None, "id": before.id if before else "",
        }  # fmt: skip
        return self._approvals(self._all("decided_approvals", values))

    def decided_since(self, at: float) -> dict[str, int]:
        """How many were decided since a time, in seconds since the epoch, by their state."""
        return {row[0]: row[1] for row in self._all("decided_since", (at,))}

    def released_as(self, step: int) -> tuple[Release, float] | None:
        """How the answer of a step that was held is given, or of a job that it began, and since when; ``None``: nothing
        of it was ever held."""
        row = self._one("released_as", (step, step))
        return None if row is None else (Release(row[0]), row[1])
