"""Owns which recorded steps a branch shows. Must not delete any: rollback, fork and new generations only add branches.

Invariant: a step stays on the branch on which it was first asked for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Branch:
    """``upto``: steps of ``parent`` with a number below it are shared; a root has no parent."""

    id: int
    parent: int | None
    upto: int


def lineage(branches: Mapping[int, Branch], head: int) -> tuple[tuple[int, int], ...]:
    """The branches that ``head`` shows, each with the number below which its steps count; the head comes first."""
    shown: list[tuple[int, int]] = []
    limit, at = NO_LIMIT, branches.get(head)
    while at is not None:
        shown.append((at.id, limit))
        limit = min(limit, at.upto)
        at = branches.get(at.parent) if at.parent is not None else None
    return tuple(shown)
