"""Owns what happens where a call meets the budgets: it begins, waits for a person, or is denied. Must not open, commit,
wait, nor rule: ``core.budget`` does.

Invariant: whether a call fits is ruled in the transaction that begins it, and what it may cost is reserved there, so
that no two calls ever use the same part of a budget.
"""

from __future__ import annotations

import sqlite3

from agentstate import clock
from agentstate.core import budget
from agentstate.core.budget import Decision, Ruling, Scope
from agentstate.core.model import ApprovalState, State
from agentstate.store import changes, decisions, transactions
from agentstate.store.changes import changed
from agentstate.store.counters import Counters
from agentstate.store.reserving import limit_of, reserve, used
from agentstate.store.rows import Begun, NewStep, Plan
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_AGENTSTATE = "agentstate"  # who settles a question that needs no answer any more


def begin(
    conn: sqlite3.Connection, counters: Counters, new: NewStep, plan: Plan, again: tuple[int, State] | None
) -> Begun | Ruling:
    """A question is about to be sent, as a step of its own or as a further attempt of one, if the budgets let it.

    Else it waits for a person, as a step that is held, or, where they deny, what stands in its way.
    """
    ruling = _ruled(conn, counters, new, plan, again is None)
    if ruling.decision is Decision.ALLOW:
        if again is None:
            begun = transactions.begin_step(conn, counters, new)
        else:
            begun = transactions.begin_attempt(conn, counters, *again, new)
        reserve(conn, counters, begun, new, plan, again is None)
        return begun
    if ruling.decision is Decision.OVER:
        _tell(conn, new, plan, ruling)
        if plan.hold:
            asked, messages = plan.question(ruling, 0)
            return transactions.hold_step(conn, counters, new._replace(asked=asked, messages=messages))
    return ruling


def send(conn: sqlite3.Connection, counters: Counters, new: NewStep, plan: Plan, step: int) -> Begun | Ruling:
    """A question that waited is about to be sent, if the budgets let it, or a person let this one through. Else what
    stands in its way; a person is asked, if none is yet."""
    asked = [(key, state, limit_of(rule)) for key, state, rule in conn.execute(_SQL["budget_questions"], (step,))]
    pending = {limit: key for key, state, limit in asked if state == ApprovalState.PENDING}
    if budget.REPEATS in pending:
        return Ruling(Decision.OVER, budget.REPEATS)
    passed = {limit for _, state, limit in asked if state == ApprovalState.APPROVED}
    limits = tuple(limit for limit in plan.limits if limit.name not in passed)
    ruling = _ruled(conn, counters, new, plan._replace(limits=limits, repeated=None), True)
    if ruling.decision is Decision.OVER and ruling.limit not in pending and plan.hold:
        _tell(conn, new, plan, ruling)
        question, messages = plan.question(ruling, len(asked))
        decisions.ask(conn, counters, new.session, step, question)
        decisions.tell(conn, messages, clock.now())
    if ruling.decision is not Decision.ALLOW:
        return ruling
    begun = transactions.send_held(conn, new, step)
    reason = "there is room in the budget again"
    for key in pending.values():
        values = {
            "id": key, "state": ApprovalState.APPROVED.value, "effective": None, "by": _AGENTSTATE, "reason": reason,
            "now": clock.now(),
        }  # fmt: skip
        conn.execute(_SQL["decide"], values)
        decisions.audit(conn, _AGENTSTATE, "approval.decided", key, {"reason": reason})
    reserve(conn, counters, begun, new, plan, True)
    return begun


def _ruled(conn: sqlite3.Connection, counters: Counters, new: NewStep, plan: Plan, first: bool) -> Ruling:
    """``first``: the call is one that its step has not been counted for."""
    if plan.repeated is not None:
        return plan.repeated
    found = {limit.scope: used(conn, counters, limit.scope, new.session, plan.at) for limit in plan.limits}
    return budget.decide(plan.limits, found, plan.call._replace(steps=int(first)), plan.patient)


def _tell(conn: sqlite3.Connection, new: NewStep, plan: Plan, ruling: Ruling) -> None:
    """People are told once of each limit that is reached, and again only when it was raised and is reached again."""
    if plan.told is None:
        return
    whose = budget.day_of(plan.at) if ruling.scope is Scope.DAY else new.session
    now = clock.now()
    values = {"limit": ruling.limit, "which": whose, "most": ruling.most, "now": now}
    if ruling.limit == budget.REPEATS or conn.execute(_SQL["reach"], values).rowcount == 1:
        changed(conn, changes.BUDGET, new.session, run=new.run, subject=ruling.limit)
        decisions.tell(conn, plan.told(ruling), now)
