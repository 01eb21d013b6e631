"""Owns the questions that are asked of the journal about branches: which steps they show, across the sessions that were
forked from another, and which answers a person edited on them. A part of ``Reader``; must not write.

Invariant: as for ``Reader``; a session that was not forked is asked nothing more than it would be without forks.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentstate.core.branching import Branch, lineage
from agentstate.core.model import State, ToolCall
from agentstate.store.decision_reader import DecisionReader

Shown = tuple[tuple[int, int], ...]
FORK, EDIT = "fork", "edit"


@dataclass(frozen=True, slots=True)
class BranchRow:
    """``reason``: why it was made; ``session``: whose it is; ``made_by``: the person who made it, empty: nobody did."""

    branch: Branch
    reason: str
    opening: bytes | None
    created_at: float
    session: int = 0
    made_by: str = ""


class RevisionRow(NamedTuple):
    """An answer that a person edited, as ``branch`` and all that show it give it. ``body``: a blob, the plain answer;
    ``changed``: what of it was edited, JSON."""

    branch: int
    step: int
    body: int
    changed: str
    made_by: str
    reason: str
    made_at: float


class LeftRow(NamedTuple):
    """A recorded step that goes on from what an edit replaced. ``held``: its request only names what it goes on from,
    which its provider holds."""

    branch: int
    revised: int
    step: int
    held: bool


class PointRow(NamedTuple):
    """A step as the verbs see it. ``release``: how its answer was released, empty: it was never held; ``cost``: USD of
    all its attempts, ``None``: none is known; ``unpriced``: it cost something unknown; ``asked``: people are asked
    about it."""

    step: int
    number: int
    kind: str
    state: State
    dialect: str
    node: int | None
    release: str
    cost: float | None
    unpriced: bool
    asked: bool
    branch: int


class BranchReader(DecisionReader):
    """What is known of branches."""

    def branches(self, session: int) -> dict[int, BranchRow]:
        """The branches of a session, and those of others that it goes on from, by id."""
        return _family(self._all("branches", (session,)), lambda branch: self._one("branch", (branch,)))

    def branches_with(self, conn: sqlite3.Connection, session: int) -> dict[int, BranchRow]:
        """The same as a writer's transaction sees it."""
        return _family(
            conn.execute(self.sql["branches"], (session,)).fetchall(),
            lambda branch: conn.execute(self.sql["branch"], (branch,)).fetchone(),
        )

    def fork_of(self, session: int) -> BranchRow | None:
        """The branch with which a session goes on from another's; ``None``: it was not forked."""
        row = self._one("fork_of", (session,))
        return None if row is None else branch_row(row)

    def shared(self, session: int) -> Shown:
        """The branches of other sessions that this one goes on from, each with the number below which its steps are
        shared; none where it was not forked."""
        row = self.fork_of(session)
        if row is None:
            return ()
        rows = self.branches(session)
        return lineage({key: one.branch for key, one in rows.items()}, row.branch.id)[1:]

    def revisions(self, shown: Iterable[tuple[int, int]]) -> dict[int, RevisionRow]:
        """By step, the nearest edit of its answer on a lineage."""
        order = {branch: place for place, (branch, _) in enumerate(shown)}
        found: dict[int, RevisionRow] = {}
        for row in map(RevisionRow._make, self._all("revisions", {"branches": json.dumps(list(order))})):
            if row.step not in found or order[row.branch] < order[found[row.step].branch]:
                found[row.step] = row
        return found

    def revisions_of(self, step: int) -> list[RevisionRow]:
        """All edits of a step's answer, oldest first."""
        return [RevisionRow._make(row) for row in self._all("revisions_of", (step,))]

    def left_behind(self, shown: Iterable[tuple[int, int]]) -> list[LeftRow]:
        """The recorded steps that a lineage leaves behind by its edits."""
        rows = self._all("left_behind", {"branches": json.dumps([branch for branch, _ in shown])})
        return [LeftRow(row[0], row[1], row[2], bool(row[3])) for row in rows]

    def points(self, shown: Iterable[tuple[int, int]]) -> list[PointRow]:
        """The steps that a lineage shows, by number."""
        found = [
            PointRow(row[0], row[1], row[2], State(row[3]), row[4], row[5], row[6], row[7], bool(row[8]), bool(row[9]),
                     branch)
            for branch, upto in shown for row in self._all("points_on", {"branch": branch, "upto": upto})
        ]  # fmt: skip
        return sorted(found, key=lambda point: point.number)

    def step_on(self, shown: Iterable[tuple[int, int]], number: int) -> int | None:
        """The step of that number, as a lineage shows it."""
        for branch, upto in shown:
            row = self._one("step_on", {"branch": branch, "number": number}) if number < upto else None
            if row is not None:
                return int(row[0])
        return None

    def session_of_branch(self, branch: int) -> int:
        row = self._one("branch", (branch,))
        return 0 if row is None else int(row[6])

    def ended_at(self, step: int) -> float | None:
        """When a step's last attempt ended."""
        row = self._one("ended_at", (step,))
        return None if row is None or row[0] is None else float(row[0])

    def steps_by_branch(self, session: int) -> dict[int, int]:
        """How many steps each branch of a session has of its own."""
        return dict(self._all("steps_by_branch", (session,)))

    def goes_on_from(self, node: int, above: int) -> bool:
        """Whether a transcript is the continuation of another one, byte for byte."""
        return self._one("goes_on_from", {"node": node, "above": above}) is not None

    def held_names(self, step: int) -> list[tuple[str, bool]]:
        """(name, whether it is a job's) of what its provider holds of a step's answer."""
        return [(row[0], bool(row[1])) for row in self._all("held_names", (step,))]

    def calls_of(self, step: int) -> list[tuple[int, int, str, str]]:
        """(choice, place, call id, tool) of the calls that a step's answer proposes."""
        return [(row[0], row[1], row[2], row[3]) for row in self._all("calls_of", (step,))]

    def withdrawn(self, session: int) -> list[tuple[str, int, int]]:
        """(approval, branch, number of its step) of what is asked no more as its step was rolled back, or left behind
        by an edit, and was not given since."""
        return [(row[0], row[1], row[2]) for row in self._all("withdrawn_in", (session,))]

    def run_names(self, runs: Iterable[int]) -> dict[int, str]:
        """Their names, of whichever session they are."""
        return dict(self._all("names_of_runs", {"runs": json.dumps(list(runs))}))

    def revised_calls(self, branch: int, step: int) -> list[ToolCall]:
        """The calls of an answer that an edit changed, as they are given."""
        rows = self._all("revised_calls", (branch, step))
        return [ToolCall(row[0], row[1], row[2], row[3], self._text(*row[4:7])) for row in rows]

    def was_given_edited(self, edit: RevisionRow) -> bool:
        """Whether a run was given the answer of a step as this edit has it: it is the nearest on the branch on which
        the run's session was then, as each change of that is a branch of its own."""
        for session, at in self._all("given_since", (edit.step, edit.made_at)):
            head = self._one("head_at", (session, at))
            if head is not None:
                branches = {key: row.branch for key, row in self.branches(session).items()}
                now = self.revisions(lineage(branches, head[0])).get(edit.step)
                if now is not None and now.branch == edit.branch:
                    return True
        return False

    def open_revised(
        self, branches: Sequence[int], run: int, ids: Iterable[str]
    ) -> dict[str, tuple[int, int, int, int]]:
        """By call id: (step, branch, choice, place) of edited calls that a run was given and that have no result."""
        values = {"branches": json.dumps(list(branches)), "run": run, "ids": json.dumps(list(ids))}
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in self._all("open_revised", values)}

    def begins_with(self, start: str) -> set[str]:
        """The ids of sessions that begin so."""
        rows = self._all("fork_names", {"from": start, "before": start + "\U0010ffff"})
        return {row[0] for row in rows}


def is_in(shown: Iterable[tuple[int, int]], branch: int, number: int) -> bool:
    """Whether a lineage shows the step of that number on that branch."""
    return any(branch == known and number < upto for known, upto in shown)


def branch_row(row: Any) -> BranchRow:
    return BranchRow(Branch(row[0], row[1], row[2]), row[3], row[4], row[5], row[6], row[7])


def _family(rows: Iterable[Any], find: Callable[[int], Any]) -> dict[int, BranchRow]:
    found: dict[int, BranchRow] = {row[0]: branch_row(row) for row in rows}
    missing = _missing(found)
    while missing:
        for branch in missing:
            row = find(branch)
            if row is None:
                return found  # a parent that is not there any more shows nothing
            found[branch] = branch_row(row)
        missing = _missing(found)
    return found


def _missing(found: Mapping[int, BranchRow]) -> list[int]:
    return [
        row.branch.parent for row in found.values() if row.branch.parent is not None and row.branch.parent not in found
    ]
