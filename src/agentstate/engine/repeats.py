"""Owns noticing that a run asks the same again and again and gets nowhere. Must not stop it: the budgets do.

Invariant: only the same with the same outcome counts, one after the other: an agent that polls gets another answer in
the end, and one whose tool results change gets on. Counts are kept for the process alone; a restart begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentstate.core import budget
from agentstate.core.budget import Decision, Ruling
from agentstate.core.model import Shape
from agentstate.dialects import registry
from agentstate.dialects.base import UNREADABLE, canonical

if TYPE_CHECKING:
    from agentstate.engine.core import Parts
    from agentstate.engine.recorder import Job

_MOST_RUNS = 10_000


class Repeats:
    """``most``: how many in a row are let pass; 0: any number."""

    def __init__(self, parts: Parts, most: int) -> None:
        self._parts = parts
        self._most = most
        self._asked: dict[int, tuple[bytes, int]] = {}  # by run: the last question, and how often it came in a row
        self._told: dict[int, int] = {}  # by run: the last step of the calls that people were told of

    def noticed(self, job: Job) -> Ruling | None:
        """What a call that is about to be sent repeats; ``None``: nothing, or not often enough."""
        if not self._most or job.call.pure:
            return None
        run, key = job.new.run, job.new.fingerprint.key
        last, count = self._asked.get(run, (b"", 0))
        count = count + 1 if last == key else 1
        if len(self._asked) >= _MOST_RUNS:
            self._asked.clear()
            self._told.clear()
        self._asked[run] = key, count
        if (count > self._most and self._same_answers(run, key)) or self._same_calls(run):
            self._asked[run] = key, 0  # as many again are let pass before it is asked about once more
            return Ruling(Decision.OVER, budget.REPEATS, self._most, self._most, 1)
        return None

    def _same_answers(self, run: int, key: bytes) -> bool:
        """Whether the last answers of the run to this very question say the same."""
        steps = self._parts.journal.read.answered(run, key, self._most)
        said = {self._said(step) for step in steps}
        return len(steps) >= self._most and len(said) == 1 and None not in said

    def _said(self, step: int) -> bytes | None:
        answer = self._parts.journal.read.answer(step)
        dialect = registry.BY_NAME[answer.dialect]
        try:
            return canonical(dialect.spoken(dialect.convert(answer.shape, Shape(), answer.body)))
        except (*UNREADABLE, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _same_calls(self, run: int) -> bool:
        """Whether the last calls that the run was given, and made, were the same call with the same result."""
        calls = self._parts.journal.read.last_calls(run, self._most + 1, self._told.get(run, 0))
        made = [(digest, result) for _, digest, result in calls if result is not None][: self._most]
        if len(made) < self._most or len(set(made)) != 1:
            return False
        self._told[run] = calls[0][0]
        return True
