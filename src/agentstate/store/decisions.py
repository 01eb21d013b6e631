"""Owns what the facts about decisions write: approvals, votes, releases, results, the audit log, and the messages that
go into the outbox with a fact. Must not open, commit or wait, nor decide: ``core.approval`` does.

Invariant: a decision, its audit entry and what it changes are written together; an audit entry is sealed with the one
before, so that none can be changed, left out or moved without its being seen.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from agentstate import clock
from agentstate.core import approval, lifecycle
from agentstate.core.approval import Decision, Vote
from agentstate.core.model import ApprovalKind, ApprovalState, SessionStatus
from agentstate.errors import NotFound
from agentstate.store import bodies, changes
from agentstate.store.changes import changed
from agentstate.store.counters import Counters
from agentstate.store.reader import Reader
from agentstate.store.rows import (
    ApprovalRow,
    Invoked,
    Message,
    NewApproval,
    Released,
    Reopened,
    RevisedResult,
    SessionRow,
)
from agentstate.store.sqlite import named

_SQL = named("write.sql")
AUDIT_HEAD = "audit_head"


def add_invocations(conn: sqlite3.Connection, counters: Counters, step: int, calls: tuple[Invoked, ...]) -> None:
    for call in calls:
        kept = bodies.put_body(conn, counters, call.arguments)
        conn.execute(_SQL["add_invocation"], (step, call.choice, call.place, kept, call.digest))


def tell(conn: sqlite3.Connection, messages: Sequence[Message], now: float) -> None:
    """Put messages into the outbox."""
    for message in messages:
        conn.execute(
            _SQL["post"],
            (
                message.alert, message.target, message.event, message.session, message.subject, message.payload, now,
                now,
            ),
        )  # fmt: skip


def set_status(
    conn: sqlite3.Connection, session: int, status: SessionStatus, note: str, told: Sequence[Message]
) -> None:
    """The status of a session; ``told`` only where that changes it."""
    now = clock.now()
    is_new = conn.execute(_SQL["has_other_status"], (session, status.value)).fetchone() is not None
    conn.execute(_SQL["set_status"], {"session": session, "status": status.value, "note": note, "now": now})
    changed(conn, changes.SESSION, session, state=status.value)
    if is_new:
        tell(conn, told, now)


def report_divergence(conn: sqlite3.Connection, run: int, report: str, told: Sequence[Message]) -> None:
    """The first divergence of a run; ``told`` only of that one."""
    if conn.execute(_SQL["set_divergence"], {"run": run, "report": report}).rowcount == 1:
        row = conn.execute(_SQL["session_of_run"], (run,)).fetchone()
        changed(conn, changes.DIVERGED, row[0], run=run)
        tell(conn, told, clock.now())


def ask(conn: sqlite3.Connection, counters: Counters, session: int, step: int, asked: NewApproval) -> None:
    """Put a question to a person; or keep what a policy says to it at once."""
    now, decided = clock.now(), asked.state is not ApprovalState.PENDING
    schema = bodies.put_body(conn, counters, asked.schema) if asked.schema else None
    conn.execute(
        _SQL["ask"],
        (
            asked.id, session, step, asked.kind.value, asked.choice, asked.place, asked.call_id, asked.tool,
            bodies.put_body(conn, counters, asked.arguments), schema, asked.digest, asked.rule,
            asked.on_reject.value, asked.quorum, json.dumps(asked.approvers), now, asked.expires_at, asked.state.value,
            "policy" if decided else "", asked.reason, now if decided else None,
        ),
    )  # fmt: skip
    detail = {"step": step, "tool": asked.tool, "digest": asked.digest.hex(), "rule": json.loads(asked.rule)}
    audit(conn, "agentstate", "approval.denied" if decided else "approval.asked", asked.id, detail)


def release(conn: sqlite3.Connection, counters: Counters, released: Released) -> bool:
    """Say what agents are given of a step that was held; false: it was said already, and that stays."""
    body = None if released.body is None else bodies.put_body(conn, counters, released.body)
    values = {
        "step": released.step, "mode": released.mode.value, "body": body, "said": released.said, "now": clock.now(),
    }  # fmt: skip
    if conn.execute(_SQL["release_job" if released.job else "release"], values).rowcount != 1:
        return False
    conn.execute(_SQL["drop_invocations"], (released.step,))
    add_invocations(conn, counters, released.step, released.invoked)
    changed(conn, changes.STEP_CHANGED, step=released.step, state=released.mode.value)
    audit(conn, "agentstate", "step.released", str(released.step), {"mode": released.mode.value})
    return True


def audit(conn: sqlite3.Connection, actor: str, action: str, subject: str, detail: Mapping[str, Any]) -> None:
    """Add an entry to the audit log, sealed with the one before."""
    last = conn.execute(_SQL["last_audit"]).fetchone()
    number, previous = (last[0] + 1, last[1]) if last else (1, b"")
    text = json.dumps(detail, sort_keys=True)
    at = clock.now()
    seal = audit_seal(bytes(previous), number, at, actor, action, subject, text)
    conn.execute(_SQL["add_audit"], (number, at, actor, action, subject, text, previous, seal))
    conn.execute(_SQL["set_meta"], {"key": AUDIT_HEAD, "value": spelled_head(number, seal)})
    counted = detail.get("outcome") == approval.Verdict.COUNTED.value
    kind = changes.VOTED if counted else changes.ACTS.get(action, changes.AUDITED)
    changed(conn, kind, subject=subject, state=action)


def spelled_head(number: int, seal: bytes) -> str:
    """How the last entry is remembered beside the log, so that one cut off at its end is seen."""
    return f"{number}:{seal.hex()}"


def audit_seal(previous: bytes, number: int, at: float, actor: str, action: str, subject: str, detail: str) -> bytes:
    """The hash of an entry: of the entry before it and of all that it says."""
    whole = json.dumps([number, repr(at), actor, action, subject, detail])
    return sha256(b"agentstate/audit/1\0" + previous + b"\0" + whole.encode()).digest()


def decide(
    conn: sqlite3.Connection, counters: Counters, read: Reader, key: str, vote: Vote, reason: str
) -> tuple[approval.Verdict, bool]:
    """Count a vote and, where it decides, decide; see ``Journal.decide``."""
    now = clock.now()
    row = read.approval(key, conn)
    if row is None:
        raise NotFound(f"there is no approval {key}")
    asked = approval.Asked(row.kind, row.state, row.quorum, row.approvers, row.expires_at, row.effective)
    # The word of somebody whose authority was taken away since does not count.
    gone = {row[0] for row in conn.execute(_SQL["disabled_approvers"])}
    votes = [
        Vote(who, Decision(action), arguments) for who, action, arguments, _, _ in read.votes(key, conn)
        if who not in gone
    ]  # fmt: skip
    verdict = approval.tally(asked, votes, vote, now)
    if verdict is approval.Verdict.EXPIRED:
        expire(conn, key)
    if verdict in (approval.Verdict.TAKEN, approval.Verdict.COUNTED):
        edited = bodies.put_body(conn, counters, vote.arguments.encode()) if vote.arguments else None
        conn.execute(_SQL["vote"], (key, vote.approver, vote.action.value, edited, reason, now))
        detail = {
            "action": vote.action.value, "reason": reason, "digest": row.digest.hex(), "arguments": vote.arguments,
            "outcome": verdict.value,
        }  # fmt: skip
        audit(conn, vote.approver, "approval.decided", key, detail)
        if verdict is approval.Verdict.TAKEN:
            state = lifecycle.move_approval(row.state, approval.state_of(vote.action))
            values = {
                "id": key, "state": state.value, "effective": edited, "by": vote.approver, "reason": reason, "now": now,
            }  # fmt: skip
            conn.execute(_SQL["decide"], values)
            if row.kind is ApprovalKind.BUDGET:
                _decided_budget(conn, counters, row, state)
    return verdict, conn.execute(_SQL["pending_of"], (row.step,)).fetchone() is None


def _decided_budget(conn: sqlite3.Connection, counters: Counters, row: ApprovalRow, state: ApprovalState) -> None:
    """A limit was raised, for one call or by an amount; or the session is stopped, until somebody lets it go on."""
    counters.spent.clear()
    if state is ApprovalState.REJECTED:
        note = json.dumps({"reason": "budget", "text": f"approval {row.id} stopped it at its budget"})
        set_status(conn, row.session_id, SessionStatus.PAUSED, note, ())


def delete_job(conn: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    """A job was deleted at its provider."""
    conn.execute(_SQL["delete_job"], values)
    changed(conn, changes.SESSION, values["session"], state="job_deleted")


def expire(conn: sqlite3.Connection, key: str, reason: str = "nobody decided in time") -> None:
    """The time of a pending approval is over; one that was decided stays as it is."""
    values = {
        "id": key, "state": ApprovalState.EXPIRED.value, "effective": None, "by": "", "reason": reason,
        "now": clock.now(),
    }  # fmt: skip
    if conn.execute(_SQL["decide"], values).rowcount == 1:
        audit(conn, "agentstate", "approval.expired", key, {"reason": reason})


def supersede(conn: sqlite3.Connection, session: int, shown: Sequence[tuple[int, int]], reason: str) -> None:
    """What is asked about steps that the session does not show any more is asked no more."""
    for key, branch, number in conn.execute(_SQL["pending_in"], (session,)).fetchall():
        if not any(branch == known and number < upto for known, upto in shown):
            expire(conn, key, reason)


def reopen(conn: sqlite3.Connection, asked: Reopened) -> None:
    """A decision that was not used yet no longer suffices: it is asked again, and people are told."""
    values = {
        "id": asked.id, "rule": asked.rule, "quorum": asked.quorum, "approvers": json.dumps(asked.approvers),
        "expires": asked.expires_at,
    }  # fmt: skip
    if conn.execute(_SQL["reopen"], values).rowcount != 1:
        return
    if asked.anew:
        conn.execute(_SQL["drop_votes"], (asked.id,))
    audit(conn, "agentstate", "approval.reopened", asked.id, {"rule": json.loads(asked.rule), "reason": asked.reason})
    tell(conn, asked.messages, clock.now())


def set_labels(
    conn: sqlite3.Connection, session: SessionRow, add: Sequence[str], drop: Sequence[str], actor: str
) -> None:
    conn.executemany(_SQL["drop_label"], [(session.id, name) for name in drop])
    conn.executemany(_SQL["add_label"], [(session.id, name) for name in add])
    changed(conn, changes.SESSION, session.id, state="labelled")
    audit(conn, actor, "session.labelled", session.key, {"added": list(add), "removed": list(drop)})


def note_results(
    conn: sqlite3.Connection, counters: Counters, results: Sequence[tuple[int, int, int, bytes, bool]],
    revised: Sequence[RevisedResult] = (),
) -> None:  # fmt: skip
    now = clock.now()
    for step, choice, place, content, failed in results:
        values = {
            "step": step, "choice": choice, "place": place, "failed": int(failed), "now": now,
            "result": bodies.put_body(conn, counters, content),
        }  # fmt: skip
        if conn.execute(_SQL["set_result"], values).rowcount:
            changed(conn, changes.STEP_CHANGED, step=step, state="result")
    for branch, step, choice, place, content, failed in revised:
        values = {
            "branch": branch, "step": step, "choice": choice, "place": place, "failed": int(failed), "now": now,
            "result": bodies.put_body(conn, counters, content),
        }  # fmt: skip
        if conn.execute(_SQL["set_revised_result"], values).rowcount:
            changed(conn, changes.STEP_CHANGED, step=step, state="result")
