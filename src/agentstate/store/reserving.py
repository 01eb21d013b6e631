"""Owns what calls reserve of budgets, and how much of them is used. Must not open, commit, wait, nor rule.

Invariant: what is kept in memory is what the transaction at hand would read; a reservation goes with the end of its
call, in the same transaction, or with the next start.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from agentstate import clock
from agentstate.core import budget
from agentstate.core.budget import Amount, Scope, Used
from agentstate.core.model import ApprovalState
from agentstate.core.usage import Tokens
from agentstate.dialects.usage import tokens as tokens_of
from agentstate.store import bodies
from agentstate.store.counters import Counters
from agentstate.store.rows import Begun, Ending, NewStep, Plan
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_MOST = 10_000  # most sessions and days whose totals are kept


def used(conn: sqlite3.Connection, counters: Counters, scope: Scope, session: int, at: float) -> Used:
    """What a session, or the day of that time, has used; read once, and kept up to date from then on."""
    key = (scope, session if scope is Scope.SESSION else budget.day_of(at))
    known = counters.spent.get(key)
    if known is None:
        if len(counters.spent) >= _MOST:
            counters.spent.clear()
        known = counters.spent[key] = read_used(conn, *key)
    return known


def read_used(conn: sqlite3.Connection, scope: Scope, which: int) -> Used:
    """What a session, or a day since the epoch, has used, as the journal says it."""
    start = which * budget.SECONDS_OF_DAY
    values = {"which": which, "start": start, "end": start + budget.SECONDS_OF_DAY, "first": 0}
    if scope is Scope.DAY:
        values["first"] = _first_step(conn, start)
    tokens, usd = 0, 0.0
    for usage, cost in conn.execute(_SQL[f"spent_in_{scope}"], values):
        tokens += tokens_of(usage).total
        usd += cost or 0.0
    [steps] = conn.execute(_SQL[f"steps_in_{scope}"], values).fetchone()
    held, reserved = conn.execute(_SQL[f"reserved_in_{scope}"], values).fetchone()
    gone = _pruned(conn.execute(_SQL[f"pruned_in_{scope}"], values).fetchall())
    raised: dict[str, float] = {}
    for rule, codec, size, data in conn.execute(_SQL[f"raised_in_{scope}"], values):
        by = json.loads(bodies.unpacked(codec, size, data))[budget.RAISE]
        raised[limit_of(rule)] = raised.get(limit_of(rule), 0.0) + float(by)
    return Used(Amount(usd, steps, tokens).plus(gone), Amount(held or 0.0, 0, reserved or 0), raised)


def _pruned(rows: Sequence[Any]) -> Amount:
    """What steps have used that are there no more: rows of (kind, times, tokens, usd)."""
    total = Amount()
    for kind, times, tokens, usd in rows:
        counted = Amount(steps=times) if kind == "asked" else Amount(usd, 0, Tokens(*json.loads(tokens)).total)
        total = total.plus(counted)
    return total


def _first_step(conn: sqlite3.Connection, start: float) -> int:
    """The first step that was made at that time or later: ids grow with time, so it is found by halving."""
    low, high = 1, conn.execute(_SQL["last_ids"]).fetchone()[0] + 1
    while low < high:
        middle = (low + high) // 2
        row = conn.execute(_SQL["made_at"], (middle,)).fetchone()
        if row is not None and row[0] < start:
            low = middle + 1
        else:
            high = middle
    return int(low)


def reserve(conn: sqlite3.Connection, counters: Counters, begun: Begun, new: NewStep, plan: Plan, first: bool) -> None:
    """``first``: its step was not counted yet."""
    day = budget.day_of(plan.at)
    call = plan.call
    conn.execute(_SQL["reserve"], (begun.step, begun.attempt, new.session, day, call.usd, call.tokens))
    for key in ((Scope.SESSION, new.session), (Scope.DAY, day)):
        known = counters.spent.get(key)
        if known is not None:
            counters.spent[key] = known._replace(
                settled=known.settled.plus(Amount(steps=int(first))),
                reserved=known.reserved.plus(call._replace(steps=0)),
            )


def carry(
    conn: sqlite3.Connection, counters: Counters, step: int, n: int, session: int, plan: Plan | None
) -> budget.Ruling:
    """A further attempt, the ``n``-th, takes over what was reserved for its step: as much as ``plan`` says, where that
    fits; ``None``: as it is. What a person has let through for this call is no limit any more."""
    if plan is None:
        conn.execute(_SQL["carry_reservation"], {"step": step, "n": n})
        return budget.ALLOWED
    row = conn.execute(_SQL["release_reservation"], (step, n - 1)).fetchone()
    counters.spent.clear()
    rows = conn.execute(_SQL["budget_questions"], (step,))
    passed = {limit_of(rule) for _, state, rule in rows if state == ApprovalState.APPROVED}
    limits = [limit for limit in plan.limits if limit.name not in passed]
    found = {limit.scope: used(conn, counters, limit.scope, session, plan.at) for limit in limits}
    ruling = budget.decide(limits, found, plan.call._replace(steps=0))
    usd, tokens, day = row if row is not None else (0.0, 0, budget.day_of(plan.at))
    if ruling.decision is budget.Decision.ALLOW:
        conn.execute(_SQL["reserve"], (step, n, session, day, plan.call.usd, plan.call.tokens))
    elif row is not None:
        conn.execute(_SQL["reserve"], (step, n - 1, session, day, usd, tokens))
    counters.spent.clear()
    return ruling


def settle(conn: sqlite3.Connection, counters: Counters, ending: Ending) -> None:
    """A call has ended: what it cost takes the place of what was reserved for it."""
    usd, tokens, day = 0.0, 0, budget.day_of(clock.now())  # of a further attempt that reserves nothing of its own
    row = conn.execute(_SQL["release_reservation"], (ending.step, ending.attempt)).fetchone()
    if row is not None:
        usd, tokens, day = row
    reserved, cost = Amount(usd, 0, tokens), Amount(ending.cost or 0.0, 0, tokens_of(ending.verdict.usage).total)
    for key in ((Scope.SESSION, ending.session), (Scope.DAY, day)):
        known = counters.spent.get(key)
        if known is not None:
            counters.spent[key] = known._replace(
                settled=known.settled.plus(cost), reserved=known.reserved.less(reserved)
            )


def forget(conn: sqlite3.Connection, counters: Counters, step: int) -> None:
    """A call was given up, and what it cost is not known: nothing is reserved for it any more."""
    if conn.execute(_SQL["drop_reservations"], (step,)).rowcount:
        counters.spent.clear()


def limit_of(rule: str) -> str:
    return str(json.loads(rule).get("limit", ""))
