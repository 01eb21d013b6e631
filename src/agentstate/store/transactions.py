"""Owns what each fact writes: the statements of one transaction. Must not open, commit or wait.

Invariant: all of a fact is written or, by an exception, none of it; times come in with the fact or from the clock.
"""

from __future__ import annotations

import sqlite3
from hashlib import sha256

from agentstate import clock
from agentstate.core import lifecycle
from agentstate.core.model import Release, RunState, State
from agentstate.errors import SessionGone, StepTaken
from agentstate.store import bodies, changes, decisions, detouring, reserving
from agentstate.store.changes import changed
from agentstate.store.counters import Counters
from agentstate.store.rows import Begun, Ending, FinishedJob, NewStep, shape_code
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_BOOT = "boot"  # of the machine on which the journal is open; empty: closed cleanly


def note_cut(conn: sqlite3.Connection, run: int, step: int, at: float) -> None:
    conn.execute(_SQL["cut"], {"run": run, "step": step, "now": at})


def recover(conn: sqlite3.Connection) -> None:
    """Put a journal that was left without a farewell in order.

    Steps in flight are interrupted. Where the whole machine went down, the last hand-outs may be lost, as they are
    committed without an fsync of their own: open runs could be given an answer twice, so nothing is replayed into
    them any more. New runs are not concerned.
    """
    now = clock.now()
    row = conn.execute(_SQL["get_meta"], (_BOOT,)).fetchone()
    boot = clock.boot_id()
    if row is not None and row[0] and row[0] != boot:
        conn.execute(_SQL["seal_runs"])
    remember_boot(conn, boot)
    conn.execute(_SQL["interrupt_attempts"], {"now": now})
    conn.execute(_SQL["interrupt_steps"])
    conn.execute(_SQL["drop_all_reservations"])


def remember_boot(conn: sqlite3.Connection, boot: str) -> None:
    conn.execute(_SQL["set_meta"], {"key": _BOOT, "value": boot})


def new_branch(
    conn: sqlite3.Connection,
    session: int,
    parent: int | None,
    upto: int,
    reason: str,
    opening: bytes | None,
    now: float,
    by: str = "",
) -> int:
    values = {
        "session": session, "parent": parent, "upto": upto, "reason": reason, "opening": opening, "now": now, "by": by,
    }  # fmt: skip
    branch = conn.execute(_SQL["add_branch"], values).lastrowid or 0
    conn.execute(_SQL["set_head"], {"session": session, "head": branch, "now": now})
    changed(conn, changes.SESSION, session, state=reason)
    return branch


def move_run(conn: sqlite3.Connection, run: int, to: RunState, exit_code: int | None, now: float) -> None:
    row = conn.execute("select state, session from run where id = ?", (run,)).fetchone()
    if row is None or row[0] == to.value:
        return
    lifecycle.move_run(RunState(row[0]), to)
    values = {"run": run, "state": to.value, "now": None if to is RunState.OPEN else now, "exit_code": exit_code}
    conn.execute(_SQL["set_run_state"], values)
    changed(conn, changes.RUN_BEGAN if to is RunState.OPEN else changes.RUN_ENDED, row[1], run=run, state=to.value)


def session_now(conn: sqlite3.Connection, session: int) -> tuple[int, str]:
    """(steps, status) of a session. Raises ``SessionGone``."""
    row = conn.execute("select steps, status from session where id = ?", (session,)).fetchone()
    if row is None:
        raise SessionGone("the session was deleted meanwhile; ask again, and a new one begins")
    return int(row[0]), str(row[1])


def begin_step(conn: sqlite3.Connection, counters: Counters, new: NewStep) -> Begun:
    now = clock.now()
    call = new.call
    step, number = counters.step(conn), counters.number(conn, new.session)
    frame, node = bodies.put_frame(conn, counters, call), bodies.put_transcript(conn, counters, call)
    conn.execute(
        _SQL["begin_step"],
        (
            step, new.session, number, new.branch, new.run, new.kind, call.dialect, call.method, call.path, call.model,
            shape_code(call.shape), new.fingerprint.key, new.fingerprint.tip, frame, node,
            counters.tick(conn, new.session), new.hint, new.retry_key, now, new.provider, new.outcome,
        ),
    )  # fmt: skip
    if new.opening:
        conn.execute(_SQL["set_opening"], {"branch": new.branch, "opening": new.fingerprint.key})
    note_run(conn, new, now)
    changed(conn, changes.STEP_BEGAN, new.session, step, new.run)
    return Begun(step, number, 1)


def begin_attempt(conn: sqlite3.Connection, counters: Counters, step: int, was: State, new: NewStep) -> Begun:
    now = clock.now()
    tick = counters.tick(conn, new.session)
    conn.execute(_SQL["tick"], {"session": new.session, "tick": tick, "now": now})
    values = {"step": step, "was": was.value, "stream": shape_code(new.call.shape)}
    row = conn.execute(_SQL["again"], values).fetchone()
    if row is None:
        raise StepTaken("the step was taken up by another request meanwhile; ask again")
    attempt, number = row
    sent = {"step": step, "n": attempt, "run": new.run, "provider": new.provider, "now": now}
    conn.execute(_SQL["add_attempt"], sent)
    served = {"run": new.run, "outcome": new.outcome, "match": "strict", "now": now}
    conn.execute(_SQL["serve"], {**served, "step": step, "hint": new.hint})
    note_run(conn, new, now)
    changed(conn, changes.STEP_BEGAN, new.session, step, new.run)
    return Begun(step, number, attempt)


def note_run(conn: sqlite3.Connection, new: NewStep, now: float) -> None:
    """What a new question says of its run: steps that the agent carries itself, the range of its step numbers."""
    served = {"run": new.run, "outcome": "carried", "match": "strict", "hint": None, "now": now}
    for other in new.carried:
        conn.execute(_SQL["serve"], {**served, "step": other})
    if new.hint is not None:
        conn.execute(_SQL["widen_hint"], {"run": new.run, "hint": new.hint})


def end_step(conn: sqlite3.Connection, counters: Counters, ending: Ending) -> None:
    verdict = ending.verdict
    codec, head = bodies.packed(ending.head)
    key = sha256(ending.body).digest() if ending.body else None
    body_codec, body = bodies.packed(ending.body)
    try:
        conn.execute(
            _SQL["end_step"],
            (
                ending.step, ending.attempt, ending.status, bytes([codec]) + head, int(ending.released), verdict.model,
                verdict.usage, ending.cost, ending.prices, ending.error, int(verdict.broken), clock.now(),
                ending.session, ending.state.value, shape_code(ending.shape), counters.tick(conn, ending.session), key,
                body_codec, len(ending.body), body,
            ),
        )  # fmt: skip
    except sqlite3.IntegrityError as error:
        raise StepTaken(str(error)) from error
    changed(conn, changes.STEP_ENDED, ending.session, ending.step, state=ending.state.value)
    decisions.tell(conn, ending.messages, clock.now())
    if ending.lost:
        detouring.set_lost(conn, ending.step, ending.attempt, ending.lost)
    if ending.budgeted:
        reserving.settle(conn, counters, ending)
    if ending.state is not State.COMPLETED:
        return
    if verdict.answer_id:
        held = {"id": verdict.answer_id, "session": ending.session, "step": ending.step, "job": int(ending.job)}
        conn.execute(_SQL["hold"], held)
    for call in verdict.calls:
        conn.execute(_SQL["add_call"], (ending.step, call.choice, call.index, call.call_id, call.name))
    decisions.add_invocations(conn, counters, ending.step, ending.invoked)
    if ending.asked:
        conn.execute(_SQL["withhold"], (ending.step, clock.now()))
        ask_people(conn, counters, ending.step, ending)


def interrupt_step(conn: sqlite3.Connection, step: int) -> None:
    """A step is not in flight any more, and its end is not known."""
    conn.execute(_SQL["interrupt_attempt"], {"step": step, "now": clock.now()})
    row = conn.execute(_SQL["interrupt_step"], {"step": step}).fetchone()
    if row is not None:
        changed(conn, changes.STEP_ENDED, row[0], step, state=State.INTERRUPTED.value)


def ask_people(conn: sqlite3.Connection, counters: Counters, step: int, ending: Ending | FinishedJob) -> None:
    """What people must decide about an answer, and the names by which nobody else may look it up meanwhile."""
    conn.executemany(_SQL["name_withheld"], [(name, step) for name in ending.names])
    for asked in ending.asked:
        decisions.ask(conn, counters, ending.session, step, asked)


def hold_step(conn: sqlite3.Connection, counters: Counters, new: NewStep) -> Begun:
    """A question that waits for a person before it is sent."""
    begun = begin_step(conn, counters, new)
    conn.execute(_SQL["hold_step"], (begun.step,))
    assert new.asked is not None
    decisions.ask(conn, counters, new.session, begun.step, new.asked)
    decisions.tell(conn, new.messages, clock.now())
    return begun


def send_held(conn: sqlite3.Connection, new: NewStep, step: int) -> Begun:
    """A question that waited is about to be sent."""
    row = conn.execute(_SQL["send_held"], {"step": step, "stream": shape_code(new.call.shape)}).fetchone()
    if row is None:
        raise StepTaken("the step was taken up by another request meanwhile; ask again")
    attempt, number = row
    now = clock.now()
    values = {"step": step, "n": attempt, "run": new.run, "provider": new.provider, "now": now}
    conn.execute(_SQL["set_provider"], values)
    served = {"run": new.run, "outcome": new.outcome, "match": "strict", "now": now}
    conn.execute(_SQL["serve"], {**served, "step": step, "hint": new.hint})
    note_run(conn, new, now)
    changed(conn, changes.STEP_BEGAN, new.session, step, new.run)
    return Begun(step, number, attempt)


def refuse_step(conn: sqlite3.Connection, counters: Counters, ending: Ending, mode: Release, said: str) -> None:
    """A question that waited is not sent: the refusal is its answer."""
    if conn.execute(_SQL["send_held"], {"step": ending.step, "stream": 0}).fetchone() is None:
        raise StepTaken("the step was taken up by another request meanwhile; ask again")
    end_step(conn, counters, ending)
    values = {"step": ending.step, "mode": mode.value, "said": said, "now": clock.now()}
    conn.execute(_SQL["refuse"], values)


def finish_job(conn: sqlite3.Connection, counters: Counters, job: FinishedJob) -> None:
    """A job ended; the first news of that stays, and only then are people asked about its calls."""
    codec, head = bodies.packed(job.head)
    values = {
        "session": job.session, "id": job.answer_id, "status": job.status, "head": bytes([codec]) + head,
        "body": bodies.put_body(conn, counters, job.body), "now": clock.now(),
    }  # fmt: skip
    row = conn.execute(_SQL["finish_job"], values).fetchone()
    if row is None:
        return
    step = row[0]
    price = {"step": step, "model": job.model, "usage": job.usage, "cost": job.cost, "prices": job.prices}
    conn.execute(_SQL["price_job"], price)
    counters.spent.clear()
    state = State.FAILED if job.failed else State.COMPLETED
    changed(conn, changes.STEP_ENDED, job.session, step, state=state.value)
    if job.failed:  # a later run asks anew, as after any failed attempt
        conn.execute(_SQL["fail_job"], {"step": step})
        return
    for call in job.calls:
        conn.execute(_SQL["add_call"], (step, call.choice, call.index, call.call_id, call.name))
    decisions.add_invocations(conn, counters, step, job.invoked)
    if job.asked:
        conn.execute(_SQL["withhold_job"], {"step": step, "id": job.answer_id, "now": clock.now()})
        ask_people(conn, counters, step, job)
    decisions.tell(conn, job.messages, clock.now())
