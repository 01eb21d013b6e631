"""Owns the questions that are asked about what has changed: how people and agents call it. A part of ``Reader``; must
not write.

Invariant: as for ``Reader``; each is one row, found by its key.
"""

from __future__ import annotations

from typing import NamedTuple

from agentstate.store.asking import Asking


class Named(NamedTuple):
    """``session``: its id as agents know it, ``step``: a number, ``run``: its name; empty or ``None`` where there is
    none (any more). ``state``: what an approval has become."""

    session: str = ""
    step: int | None = None
    run: str = ""
    state: str = ""


class ChangeReader(Asking):
    """A part of ``Reader``."""

    def changed_session(self, session: int, run: int) -> Named:
        """By ids of rows; a run of 0: none."""
        row = self._one("changed_session", {"session": session, "run": run})
        return Named(row[0] or "", None, row[1] or "")

    def changed_step(self, step: int, run: int) -> Named:
        """A run of 0: the one that asked first."""
        row = self._one("changed_step", {"step": step, "run": run})
        return Named() if row is None else Named(row[0], row[1], row[2] or "")

    def changed_approval(self, approval: str) -> Named:
        row = self._one("changed_approval", (approval,))
        return Named() if row is None else Named(row[0], row[1], row[2] or "", row[3])
