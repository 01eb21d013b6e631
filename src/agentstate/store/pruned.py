"""Owns the sums that stand for steps which are there no more: attempts, replays, steps, by day, provider and model.

Must not decide what goes. Invariant: what is summed up here and what is left in the journal together make the same
figures as before; a sum is written in the transaction that deletes what it stands for.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentstate.core.usage import Tokens
from agentstate.store.sqlite import named
from agentstate.store.stats_reader import teach

_SQL = named("prune.sql")
SENT, GIVEN, ASKED = "sent", "given", "asked"


class Sum(NamedTuple):
    """``times``: attempts, replays or steps; ``usd``: what they cost, or spared, as far as it is known."""

    times: int = 0
    failed: int = 0
    tokens: Tokens = Tokens()
    uncounted: int = 0
    usd: float = 0.0
    unpriced: int = 0

    def plus(self, other: Sum) -> Sum:
        tokens = Tokens(*[a + b for a, b in zip(self.tokens, other.tokens, strict=True)])
        return Sum(
            self.times + other.times, self.failed + other.failed, tokens, self.uncounted + other.uncounted,
            self.usd + other.usd, self.unpriced + other.unpriced,
        )  # fmt: skip


def sum_up(conn: sqlite3.Connection, steps: Sequence[int], session: int) -> None:
    """Keep the sums of steps that are about to be deleted. ``session``: theirs, while it lives; 0: it does not."""
    teach(conn)
    values = {"steps": json.dumps(steps), "pairs": None}
    for kind in (SENT, GIVEN, ASKED):
        for day, provider, model, sum_ in _sums(conn, kind, values):
            _add(conn, kind, day, provider, model, session, sum_)


def sum_up_hand_outs(conn: sqlite3.Connection, pairs: Sequence[tuple[int, int]]) -> None:
    """The same of hand-outs, (run, step) each, of steps that stay: those that a fork's runs were given of its
    source."""
    values = {"steps": json.dumps([step for _, step in pairs]), "pairs": json.dumps(pairs)}
    for day, provider, model, sum_ in _sums(conn, GIVEN, values):
        _add(conn, GIVEN, day, provider, model, 0, sum_)


def fold(conn: sqlite3.Connection, session: int) -> None:
    """The session lives no longer: its sums become those of no session."""
    rows = conn.execute(_SQL["sums_of_session"], (session,)).fetchall()
    conn.execute(_SQL["drop_sums"], (session,))
    for kind, day, provider, model, *rest in rows:
        _add(conn, kind, day, provider, model, 0, _sum(rest))


def _sums(conn: sqlite3.Connection, kind: str, values: dict[str, Any]) -> list[tuple[str, str, str, Sum]]:
    found = []
    for day, provider, model, times, failed, counted, usd, unpriced in conn.execute(_SQL[f"sums_{kind}"], values):
        *tokens, uncounted = json.loads(counted)
        sum_ = Sum(times, failed or 0, Tokens(*tokens), uncounted, usd or 0.0, unpriced or 0)
        found.append((day, provider, model, sum_))
    return found


def _add(
    conn: sqlite3.Connection, kind: str, day: str, provider: str, model: str, session: int, more: Sum
) -> None:  # fmt: skip
    key = {"kind": kind, "day": day, "provider": provider, "model": model, "session": session}
    row = conn.execute(_SQL["sum_of"], key).fetchone()
    total = more if row is None else _sum(row).plus(more)
    conn.execute(_SQL["keep_sum"], {**key, **total._asdict(), "tokens": json.dumps(total.tokens)})


def _sum(row: Sequence[Any]) -> Sum:
    times, failed, tokens, uncounted, usd, unpriced = row
    return Sum(times, failed, Tokens(*json.loads(tokens)), uncounted, usd, unpriced)
