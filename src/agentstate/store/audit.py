"""Owns the check of the audit log: that no entry was changed, left out, moved or put in, and that approvals say what it
says. Must not mend or write anything.

Invariant: whoever changes the file without knowing how entries are sealed is found. Who knows it and writes the whole
log anew is not: for that, keep a copy of the last entry's hash elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from agentstate.core.approval import Decision, state_of
from agentstate.core.model import ApprovalState
from agentstate.errors import AgentStateError
from agentstate.store.decisions import AUDIT_HEAD, audit_seal, spelled_head
from agentstate.store.people_rows import AuditRow
from agentstate.store.reader import Reader
from agentstate.store.rows import ApprovalRow

_OF_APPROVALS = frozenset(
    {"approval.asked", "approval.denied", "approval.decided", "approval.expired", "approval.reopened"}
)
_PAGE = 1000


class Fault(NamedTuple):
    """``what`` is wrong with ``where``."""

    where: str
    what: str


def faults(reader: Reader) -> Iterator[Fault]:
    """What is wrong with the log itself, then with approvals that it contradicts."""
    last: dict[str, AuditRow] = {}
    gone: set[str] = set()
    yield from _chain(reader, last, gone)
    yield from _approvals(reader, last, gone)
    yield from _approvers(reader)


def _chain(reader: Reader, last: dict[str, AuditRow], gone: set[str]) -> Iterator[Fault]:
    """``last`` is filled with what the log says last of each approval, ``gone`` with those that were pruned."""
    number, sealed = 0, b""
    for row in _entries(reader):
        if row.id != number + 1:
            yield Fault(f"audit entry {number + 1}", f"is missing: after {number} comes {row.id}")
        elif row.previous != sealed:
            yield Fault(f"audit entry {row.id}", "does not go on from the entry before it")
        if audit_seal(row.previous, row.id, row.at, row.actor, row.action, row.subject, row.detail) != row.hash:
            yield Fault(f"audit entry {row.id}", "was changed: it does not match its hash")
        number, sealed = row.id, row.hash
        if row.action in _OF_APPROVALS and not (row.action == "approval.decided" and not _taken(row)):
            last[row.subject] = row
        elif row.action == "session.pruned" and isinstance(approvals := _detail(row).get("approvals"), list):
            gone.update(str(key) for key in approvals)
    found = reader.raw("select value from meta where key = ?", (AUDIT_HEAD,)).fetchone()
    wanted = spelled_head(number, sealed) if number else None
    if (found[0] if found else None) != wanted:
        yield Fault("audit log", f"its end was changed: it ends with entry {number}, which is not the last one written")


def _entries(reader: Reader) -> Iterator[AuditRow]:
    after = -(2**62)
    while page := reader.audit(after, _PAGE):
        yield from page
        after = page[-1].id


def _taken(row: AuditRow) -> bool:
    return bool(_detail(row).get("outcome") == "taken")


def _detail(row: AuditRow) -> dict[str, object]:
    try:
        value = json.loads(row.detail)
    except ValueError:
        return {}  # its hash has told already
    return value if isinstance(value, dict) else {}


def _approvals(reader: Reader, last: dict[str, AuditRow], gone: set[str]) -> Iterator[Fault]:
    """What was pruned may be there no more, or be about to go."""
    for key in gone:
        last.pop(key, None)
    for (key,) in reader.raw("select id from approval order by created_at, id"):
        if key in gone:
            continue
        entry = last.pop(key, None)
        try:
            row = reader.approval(key)
        except AgentStateError as error:
            yield Fault(f"approval {key}", f"cannot be read: {error}")
            continue
        if row is None:
            yield Fault(f"approval {key}", "belongs to no step, or its arguments are missing")
        elif entry is None:
            yield Fault(f"approval {key}", "has no entry in the audit log")
        elif fault := _contradiction(row, entry):
            yield Fault(f"approval {key}", f"{fault}, as audit entry {entry.id} says")
    for key, entry in last.items():
        yield Fault(f"approval {key}", f"is missing: audit entry {entry.id} is about it")


def _contradiction(row: ApprovalRow, entry: AuditRow) -> str:
    """What of an approval is not as the last entry about it says; empty: nothing."""
    detail = _detail(entry)
    if entry.action == "approval.decided":
        action = str(detail.get("action"))
        wanted = state_of(Decision(action)) if action in tuple(Decision) else None
        if row.state is not wanted or row.decided_by != entry.actor:
            return f"is {row.state.value} by {row.decided_by or 'nobody'}, not {action} by {entry.actor}"
        if row.effective != detail.get("arguments"):
            return "has other edited arguments"
    else:
        wanted = {"approval.denied": ApprovalState.REJECTED, "approval.expired": ApprovalState.EXPIRED}.get(
            entry.action, ApprovalState.PENDING
        )
        if row.state is not wanted:
            return f"is {row.state.value}, not {wanted.value}"
    if "digest" in detail and row.digest.hex() != detail["digest"]:
        return "is about another call"
    return ""


def _approvers(reader: Reader) -> Iterator[Fault]:
    named = {
        action: {row[0] for row in reader.raw("select subject from audit where action = ?", (action,))}
        for action in ("approver.added", "approver.disabled")
    }
    known = {row.name: row for row in reader.approvers()}
    for name in sorted(set(known) ^ named["approver.added"]):
        yield Fault(f"approver {name}", "is not in the audit log" if name in known else "is missing")
    for name in sorted({name for name, row in known.items() if row.disabled_at} ^ named["approver.disabled"]):
        yield Fault(f"approver {name}", "is disabled, or is not, otherwise than the audit log says")
