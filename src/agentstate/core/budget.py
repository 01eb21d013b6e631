"""Owns whether a call fits the budgets in force. Must not count, store or price anything.

Invariant: a call that is let through fits every limit together with all that is settled and all that is reserved by
calls in flight; what only the reservations of others stand in the way of is to wait for them, not for a person.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

REPEATS = "repeats"  # the name of the limit on asking the same again and again
SECONDS_OF_DAY = 86_400
_ROUNDING = 1e-9  # of a limit: sums of costs are not exact to the last bit


class Scope(StrEnum):
    """What a limit is for: all that a session ever asked, or all that all sessions ask in a day (UTC)."""

    SESSION = "session"
    DAY = "day"


class Unit(StrEnum):
    USD = "usd"
    STEPS = "steps"
    TOKENS = "tokens"


class Limit(NamedTuple):
    scope: Scope
    unit: Unit
    most: float

    @property
    def name(self) -> str:
        """As the settings call it."""
        return f"{self.scope}_{self.unit}"


class Amount(NamedTuple):
    """Money in USD, steps, tokens."""

    usd: float = 0.0
    steps: int = 0
    tokens: int = 0

    def of(self, unit: Unit) -> float:
        return self.usd if unit is Unit.USD else self.steps if unit is Unit.STEPS else self.tokens

    def plus(self, other: Amount) -> Amount:
        return Amount(self.usd + other.usd, self.steps + other.steps, self.tokens + other.tokens)

    def less(self, other: Amount) -> Amount:
        """Never below nothing."""
        return Amount(
            max(self.usd - other.usd, 0.0), max(self.steps - other.steps, 0), max(self.tokens - other.tokens, 0)
        )


class Used(NamedTuple):
    """What one scope has used. ``reserved``: by calls in flight, at most; ``raised``: by how much people have raised
    its limits, by name."""

    settled: Amount = Amount()
    reserved: Amount = Amount()
    raised: Mapping[str, float] = {}


class Decision(StrEnum):
    """``WAIT``: calls in flight may turn out to cost less than they reserve; ``OVER``: the limit is reached."""

    ALLOW = "allow"
    WAIT = "wait"
    OVER = "over"


class Ruling(NamedTuple):
    """Where a call is not allowed: the name of the limit, what it is and was used of it, and what the call may add."""

    decision: Decision
    limit: str = ""
    most: float = 0.0
    spent: float = 0.0
    adds: float = 0.0

    @property
    def scope(self) -> Scope:
        return Scope.DAY if self.limit.startswith(Scope.DAY) else Scope.SESSION


ALLOWED = Ruling(Decision.ALLOW)


def decide(limits: Sequence[Limit], used: Mapping[Scope, Used], call: Amount, patient: bool = True) -> Ruling:
    """Whether a call that may take as much as ``call`` fits; ``patient``: others in flight may be waited for.

    The first limit that is reached is told, before any that is to be waited for.
    """
    waiting = ALLOWED
    for limit in limits:
        of = used[limit.scope]
        most = limit.most + of.raised.get(limit.name, 0.0)
        settled, adds = of.settled.of(limit.unit), call.of(limit.unit)
        if limit.unit is Unit.STEPS and not adds:
            continue  # a further attempt of a step that was counted
        spent = settled if patient else settled + of.reserved.of(limit.unit)
        if spent >= most or spent + adds > most * (1 + _ROUNDING):
            return Ruling(Decision.OVER, limit.name, most, spent, adds)
        if waiting is ALLOWED and settled + of.reserved.of(limit.unit) + adds > most * (1 + _ROUNDING):
            waiting = Ruling(Decision.WAIT, limit.name, most, settled, adds)
    return waiting


def day_of(at: float) -> int:
    """The day (UTC) of a time in seconds since the epoch, counted from there."""
    return int(at // SECONDS_OF_DAY)


def until_tomorrow(at: float) -> float:
    """Seconds until the next day begins."""
    return SECONDS_OF_DAY - at % SECONDS_OF_DAY


# --- in words ---


def spelled(limit: str, figure: float) -> str:
    """A figure of a limit, as people read it: ``$1.25``, ``12 steps``."""
    if limit.endswith(Unit.USD):
        return f"${figure:,.6f}".rstrip("0").rstrip(".")
    unit = "repeats" if limit == REPEATS else "steps" if limit.endswith(Unit.STEPS) else "tokens"
    return f"{figure:,.0f} {unit}"


def sentence(ruling: Ruling, session: str) -> str:
    """Why a call is kept back, and what next."""
    if ruling.limit == REPEATS:
        return (
            f"session {session} has asked the same {ruling.spent:.0f} times in a row, with the same outcome "
            f"(budget.repeats = {ruling.most:.0f})"
        )
    whose = f"session {session}" if ruling.scope is Scope.SESSION else "today (UTC) all sessions together"
    verb = "has" if ruling.scope is Scope.SESSION else "have"
    return (
        f"{whose} {verb} used {spelled(ruling.limit, ruling.spent)} of {spelled(ruling.limit, ruling.most)} "
        f"(budget.{ruling.limit}), and this call may take {spelled(ruling.limit, ruling.adds)}"
    )


def facts(ruling: Ruling, model: str) -> dict[str, Any]:
    """What a person is asked about, as the approval's arguments hold it."""
    return {
        "limit": ruling.limit,
        "most": ruling.most,
        "spent": ruling.spent,
        "this_call_at_most": ruling.adds,
        "model": model,
    }


# What an edit of such an approval may say: by how much the limit is raised, in its own unit.
RAISE = "raise"
RAISE_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {RAISE: {"type": "number", "exclusiveMinimum": 0}},
        "required": [RAISE],
        "additionalProperties": False,
    }
)
