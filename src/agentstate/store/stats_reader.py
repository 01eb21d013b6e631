"""Owns the sums over many steps: calls, tokens, money, savings. A part of ``Reader``. Must not run on the event loop.

Invariant: money and tokens are counted from what was sent and handed out; what is unknown is counted apart, never as
nothing.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

import msgspec

from agentstate.core.budget import Scope, Used
from agentstate.core.usage import Tokens, counted
from agentstate.store import reserving
from agentstate.store.asking import Asking
from agentstate.store.sqlite import errors, named

_SQL = named("prune.sql")
UNTIL_EVER = 1e15  # seconds since the epoch, beyond any time that is kept


class Span(NamedTuple):
    """Which part of the journal is summed up: from ``since`` on, before ``until``, both seconds since the epoch, and
    whole days (UTC) where steps were pruned; ``session``: only that one, empty: all."""

    since: float = 0.0
    until: float = UNTIL_EVER
    session: str = ""


class Sent(NamedTuple):
    """What was asked of providers. ``calls``: attempts; ``failed``: those without an answer; ``uncounted``: those that
    told no tokens; ``cost``: what is known of it, USD; ``unpriced``: how many may have cost something unknown."""

    calls: int = 0
    failed: int = 0
    tokens: Tokens = Tokens()
    uncounted: int = 0
    cost: float = 0.0
    unpriced: int = 0


class Spared(NamedTuple):
    """What was not asked of them: hand-outs of recorded answers. ``saved``: what these answers are known to have cost,
    USD, once for each hand-out; ``unpriced``: hand-outs of answers whose cost is unknown."""

    replays: int = 0
    saved: float = 0.0
    unpriced: int = 0


class _Adding:
    """A sum of usage objects, for SQLite."""

    def __init__(self) -> None:
        self._sums = [0] * len(Tokens._fields)
        self._uncounted = 0

    def step(self, usage: str) -> None:
        try:
            found = counted(msgspec.json.decode(usage)) if usage else None
        except msgspec.DecodeError:
            found = None
        if found is None:
            self._uncounted += 1
        else:
            self._sums = [old + new for old, new in zip(self._sums, found, strict=True)]

    def finalize(self) -> str:
        return json.dumps([*self._sums, self._uncounted])


def teach(conn: sqlite3.Connection) -> None:
    """Let a connection add usage objects up: the function ``added_up`` of the statements here."""
    # mypy knows no class without arguments as an aggregate, though that is what SQLite asks for.
    conn.create_aggregate("added_up", 1, _Adding)  # type: ignore[arg-type]


class StatsReader(Asking):
    """A part of ``Reader``."""

    def sent(self, by: str, span: Span) -> dict[str, Sent]:
        """What was asked of providers, by ``day``, ``model``, ``provider``, ``session`` or ``label`` (what has several
        counts under each; none: the empty name); by nothing, empty: in all, under the empty name."""
        teach(self._conn)
        found = {}
        for name, calls, failed, tokens, cost, unpriced in self._sums("sent", by, span):
            *sums, uncounted = json.loads(tokens)
            found[str(name)] = Sent(calls, failed or 0, Tokens(*sums), uncounted, cost or 0.0, unpriced or 0)
        for name, calls, failed, tokens, uncounted, cost, unpriced in self._pruned("sent", by, span):
            known = found.get(name, Sent())
            found[name] = Sent(
                known.calls + calls, known.failed + failed,
                Tokens(*[a + b for a, b in zip(known.tokens, json.loads(tokens), strict=True)]),
                known.uncounted + uncounted, known.cost + cost, known.unpriced + unpriced,
            )  # fmt: skip
        return found

    def spared(self, by: str, span: Span) -> dict[str, Spared]:
        """What was not asked of them, in the same way; the day is that of the hand-out."""
        found = {str(row[0]): Spared(row[1], row[2] or 0.0, row[3] or 0) for row in self._sums("spared", by, span)}
        for name, replays, _, _, _, saved, unpriced in self._pruned("given", by, span):
            known = found.get(name, Spared())
            found[name] = Spared(known.replays + replays, known.saved + saved, known.unpriced + unpriced)
        return found

    def _pruned(self, kind: str, by: str, span: Span) -> list[Any]:
        """The sums of what is there no more; by session, those of sessions that are gone stand under no name."""
        with errors(self.path):
            return self._conn.execute(_SQL["all_sums"], {"kind": kind, "by": by, **span._asdict()}).fetchall()

    def used(self, scope: Scope, which: int) -> Used:
        """What a session (its row), or a day (since the epoch), has used of its budgets."""
        with errors(self.path):
            return reserving.read_used(self._conn, scope, which)

    def _sums(self, question: str, by: str, span: Span) -> list[Any]:
        with errors(self.path):
            return self._conn.execute(self.sql[question], {"by": by, **span._asdict()}).fetchall()
