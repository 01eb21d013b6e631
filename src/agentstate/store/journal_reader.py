"""Owns the questions behind a session's journal as people read it: who was given which step, what its tools were, where
a text stands. A part of ``Reader``; must not run on the event loop.

Invariant: each content of a session is read once in a search, however many steps repeat it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentstate.store.asking import Asking
from agentstate.store.rows import StepRow

_ANSWERED = re.compile(rb'"(?:role"\s*:\s*"(?:assistant|model)|type"\s*:\s*"function_call)"')


_BATCH = 500  # contents that are read at a time


class Forward(NamedTuple):
    """What a run was given again: how many steps, from when to when, and what they had cost, USD; ``None``: unknown."""

    steps: int
    first: float
    last: float
    cost: float | None


class Given(NamedTuple):
    """A hand-out of a step to a run. ``again``: how often it was handed out once more."""

    step: int
    run: int
    outcome: str
    again: int
    at: float


class ToolStep(NamedTuple):
    """What a tool's step is about. ``arguments``: JSON text; ``server``: empty for a function of the agent."""

    server: str
    tool: str
    failed: bool
    arguments: str


class JournalReader(Asking):
    """A part of ``Reader``."""

    def forwards(self, session: int) -> dict[int, Forward]:
        """What each run of a session was given again, by the run's id."""
        return {row[0]: Forward(*row[1:]) for row in self._all("forwards", {"session": session})}

    def given_in(self, steps: Iterable[int]) -> list[Given]:
        """Every hand-out of these steps."""
        return [Given(*row) for row in self._all("given_in", {"steps": json.dumps(list(steps))})]

    def detoured(self, steps: Iterable[int]) -> dict[int, str]:
        """Where the steps that needed more than one attempt were led to, where that was elsewhere."""
        return {row[0]: row[1] for row in self._all("detoured", {"steps": json.dumps(list(steps))})}

    def tool_steps(self, steps: Iterable[int]) -> dict[int, ToolStep]:
        """What those of these steps are about that are calls of tools."""
        return {
            row[0]: ToolStep(row[1], row[2], bool(row[3]), self._content(*row[4:7]).decode("utf-8", "replace"))
            for row in self._all("effect_names", {"steps": json.dumps(list(steps))})
        }

    def fork_points(self, session: int) -> dict[int, list[str]]:
        """The sessions that were forked from this one, by the number of the step before which they begin."""
        found: dict[int, list[str]] = {}
        for key, number in self._all("fork_points", {"session": session}):
            found.setdefault(number, []).append(key)
        return found

    def pending_in(self, session: int) -> list[tuple[str, int, str]]:
        """(id, step, tool) of each approval of a session that waits."""
        return [(row[0], row[1], row[2]) for row in self._all("pending_in", (session,))]

    def models_in(self, session: int, limit: int) -> list[str]:
        """The models that answered a session, or were asked where nobody answered."""
        return sorted(row[0] for row in self._all("models_in", {"session": session, "limit": limit}) if row[0])

    def finding(self, steps: Sequence[StepRow], text: str) -> set[int]:
        """The numbers of the steps in which a text stands: in the answer, or in what their request says for the first
        time. Capitals count as small ones."""
        wanted = text.lower()
        spelled = (wanted, json.dumps(wanted)[1:-1], json.dumps(wanted, ensure_ascii=False)[1:-1])
        needles = {one.encode("utf-8", "surrogatepass") for one in spelled}
        ids = json.dumps([step.id for step in steps])
        nodes = {row[0]: (row[1], row[2]) for row in self._all("nodes_under", {"steps": ids})}
        bodies = {row[0]: row[1:] for row in self._all("bodies_of", {"steps": ids})}
        answers = {row[2] for row in bodies.values() if row[2] is not None}
        hits = self._hits({blob for _, blob in nodes.values()} | answers, needles)
        found, seen = set(), set()
        said = False  # by the answer before: then the message that repeats it says nothing new
        for step in steps:
            node, _, answer = bodies[step.id]
            new = False
            while node is not None and node not in seen:
                seen.add(node)
                node, blob = nodes[node]
                new = new or (blob in hits and not (said and hits[blob]))
            said = answer in hits
            if said or new:
                found.add(step.number)
        return found

    def _hits(self, blobs: Iterable[int], needles: set[bytes]) -> dict[int, bool]:
        """Which of these contents hold one of the texts, and whether each is a message of a model."""
        found, wanted = {}, sorted(blobs)
        for start in range(0, len(wanted), _BATCH):
            for key, *content in self._all("blobs_of", {"ids": json.dumps(wanted[start : start + _BATCH])}):
                body = self._content(*content)
                if _holds(body, needles):
                    found[key] = _ANSWERED.search(body) is not None
        return found


def _holds(body: bytes, needles: set[bytes]) -> bool:
    small = body.lower()
    return any(needle in small for needle in needles)
