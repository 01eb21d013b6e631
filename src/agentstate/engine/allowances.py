"""Owns what is used of the budgets in force, for people to see. Must not rule on a call (``core.budget`` does).

Invariant: it is what a call at this moment would be ruled by; sessions that ended use nothing more and are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentstate.core.budget import Limit, Scope, Unit, day_of
from agentstate.core.model import SessionStatus
from agentstate.store.reader import Reader

_SESSIONS = 200  # that changed last are looked at
_LIVING = (SessionStatus.RUNNING, SessionStatus.PAUSED)


class Use(NamedTuple):
    """Of one limit. ``session``: whose, empty: of the day; ``most``: with what people raised it by (``raised``);
    ``used``: settled; ``reserved``: by calls in flight, at most. In the limit's own unit."""

    limit: Limit
    session: str
    most: float
    used: float
    reserved: float
    raised: float

    @property
    def share(self) -> float:
        """Of the limit, settled and reserved together: 1 and more is all of it."""
        return (self.used + self.reserved) / self.most if self.most else 1.0


def uses(reader: Reader, limits: Sequence[Limit], at: float, sessions: int = 5) -> list[Use]:
    """What is used of each limit: of the day, then of the ``sessions`` that have used most of theirs. In a thread."""
    found = [_use(reader, limit, "", day_of(at)) for limit in limits if limit.scope is Scope.DAY]
    of_sessions = [limit for limit in limits if limit.scope is Scope.SESSION]
    if not of_sessions:
        return found
    living = [row for row in reader.sessions(_SESSIONS) if row.status in _LIVING]
    for limit in of_sessions:
        each = [_use(reader, limit, row.key, row.id) for row in living]
        found += sorted(each, key=lambda use: use.share, reverse=True)[:sessions]
    return found


def _use(reader: Reader, limit: Limit, session: str, which: int) -> Use:
    used = reader.used(limit.scope, which)
    raised = used.raised.get(limit.name, 0.0)
    reserved = 0.0 if limit.unit is Unit.STEPS else used.reserved.of(limit.unit)
    return Use(limit, session, limit.most + raised, used.settled.of(limit.unit), reserved, raised)
