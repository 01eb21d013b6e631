"""Owns what is asked about what people think of sessions and steps: ratings, labels of steps; and which sessions there
are, in the order of exports. A part of ``Reader``; must not write.

Invariant: as for ``Reader``; a step that a fork shares is rated and labelled for all sessions that show it.
"""

from __future__ import annotations

from typing import NamedTuple

from agentstate.core.model import SessionStatus
from agentstate.store.branches import BranchReader
from agentstate.store.rows import SessionRow


class RatingRow(NamedTuple):
    """``verdict``: ``good`` or ``bad``; ``by``: who said so, ``at``: when."""

    verdict: str
    note: str
    by: str
    at: float


class RatingReader(BranchReader):
    """What ``Reader`` gives its parts."""

    def ratings(self, session: int) -> dict[int, RatingRow]:
        """What is said of a session and of the steps that it has or shares, by the id of the step; 0: of the session
        as a whole."""
        rows = self._all("ratings", (session,))
        for branch, upto in self.shared(session):
            rows += self._all("ratings_on", {"branch": branch, "upto": upto})
        return {row[0]: RatingRow(*row[1:]) for row in rows}

    def step_labels(self, session: int) -> dict[int, tuple[str, ...]]:
        """The labels of the steps that it has or shares, by the id of the step."""
        rows = self._all("step_labels", (session,))
        for branch, upto in self.shared(session):
            rows += self._all("step_labels_on", {"branch": branch, "upto": upto})
        found: dict[int, tuple[str, ...]] = {}
        for step, name in rows:
            found[step] = (*found.get(step, ()), name)
        return found

    def sessions_in_order(self, after: int = 0, status: str = "", limit: int = 200) -> list[SessionRow]:
        """Sessions in the order in which they were made, behind the one of that id."""
        values = {"after": after, "status": status, "limit": limit}
        return [
            SessionRow(row[0], row[1], SessionStatus(row[2]), *row[3:])
            for row in self._all("sessions_in_order", values)
        ]
