"""The audit log cannot be changed, cut, moved or added to without doctor's seeing it, nor can what it is about."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentstate.core.approval import Decision, Role, Vote
from agentstate.engine.approvers import digest
from agentstate.errors import Conflict, NotFound
from agentstate.store import audit, doctor
from agentstate.store.journal import Journal
from agentstate.store.people_rows import ApproverRow
from agentstate.store.reader import Reader
from agentstate.store.rows import Reopened
from tests.store.kit import opened, parse
from tests.support.approvals import Held, ask

YES, NO, EDIT = Decision.APPROVED, Decision.REJECTED, Decision.EDITED


def approver(name: str, token: str = "") -> ApproverRow:
    return ApproverRow(name, Role.APPROVER, digest(token or f"sk-test-{name}"), "", "", 1.0, None)


async def _fill(path: Path) -> list[str]:
    """Approvals in every state, people who came and went."""
    journal = opened(path)
    try:
        ids = await ask(journal, [Held(), Held(), Held(), Held(expires_at=1.0), Held(), Held(quorum=2)])
        for name in ("ann", "bob", "eve"):
            await journal.add_approver(approver(name), "admin")
        await journal.decide(ids[0], Vote("ann", YES), "")
        await journal.decide(ids[1], Vote("ann", EDIT, '{"to": "x"}'), "safer")
        await journal.decide(ids[2], Vote("bob", NO), "no")
        await journal.expire([ids[3]])
        await journal.decide(ids[4], Vote("bob", YES), "")
        await journal.reopen(Reopened(ids[4], "{}", quorum=2))
        await journal.decide(ids[5], Vote("bob", YES), "")
        await journal.disable_approver("eve", "admin")
        await journal.rotate_approver("bob", digest("sk-test-other"), "admin")
    finally:
        journal.close()
    return ids


def found(path: Path) -> list[str]:
    reader = Reader(path)
    try:
        return [f"{fault.where}: {fault.what}" for fault in audit.faults(reader)]
    finally:
        reader.close()


def change(path: Path, sql: str) -> None:
    conn = sqlite3.connect(path, isolation_level=None)
    before = conn.total_changes
    conn.executescript("drop trigger audit_stays; drop trigger audit_keeps;" + sql)
    assert conn.total_changes > before, "nothing was changed"
    conn.close()


async def test_a_log_as_it_was_written_has_no_faults(path: Path) -> None:
    await _fill(path)
    assert found(path) == []


async def test_the_file_itself_refuses_to_change_or_delete_an_entry(path: Path) -> None:
    await _fill(path)
    conn = sqlite3.connect(path)
    for sql in ("update audit set actor = 'x' where id = 3", "delete from audit where id = 3"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            conn.execute(sql)
    conn.close()


@pytest.mark.parametrize("column", ["at", "actor", "action", "subject", "detail", "previous", "hash"])
@pytest.mark.parametrize("entry", [1, 10, "(select max(id) from audit)"])
async def test_any_changed_entry_is_found_and_named(path: Path, column: str, entry: object) -> None:
    await _fill(path)
    value = {"at": "at + 0.001", "previous": "x'00'", "hash": "zeroblob(32)"}.get(column, f"{column} || ' '")
    number = sqlite3.connect(path).execute(f"select {entry}").fetchone()[0]
    change(path, f"update audit set {column} = {value} where id = {number}")
    assert any(f"audit entry {number}:" in fault for fault in found(path))


async def test_every_missing_entry_is_found(path: Path, tmp_path: Path) -> None:
    await _fill(path)
    content, [count] = path.read_bytes(), sqlite3.connect(path).execute("select max(id) from audit").fetchone()
    assert count > 15
    for number in range(1, count + 1):
        copy = tmp_path / f"without-{number}.db"
        copy.write_bytes(content)
        change(copy, f"delete from audit where id = {number}")
        said = found(copy)
        expected = "its end was changed" if number == count else f"audit entry {number}: is missing"
        assert any(expected in fault for fault in said), said


DAMAGE = {
    "two entries exchanged": (
        "update audit set id = -1 where id = 4; update audit set id = 4 where id = 5; "
        "update audit set id = 5 where id = -1",
        "audit entry 4",
    ),
    "an entry put in": (
        "insert into audit select max(id) + 1, 1.0, 'eve', 'approval.decided', 'x', '{}', x'', zeroblob(32) from audit",
        "audit entry",
    ),
    "all entries gone": ("delete from audit", "its end was changed"),
    "an entry before the first": ("insert into audit values (0, 1.0, 'a', 'b', 'c', '{}', x'', x'')", "audit entry"),
    "a decision that nobody made": (
        "update approval set state = 'approved', decided_by = 'ann' where state = 'pending'",
        "is approved, not pending",
    ),
    "another decision": ("update approval set state = 'approved' where state = 'rejected'", "not REJECTED by bob"),
    "another approver": ("update approval set decided_by = 'eve' where state = 'approved'", "not APPROVED by ann"),
    "a decision taken back": ("update approval set state = 'pending' where state = 'rejected'", "is pending by bob"),
    "other edited arguments": (
        "update approval set effective = arguments where state = 'edited'",
        "has other edited arguments",
    ),
    "an expired one opened": ("update approval set state = 'pending' where state = 'expired'", "not expired"),
    "another call": ("update approval set digest = zeroblob(32) where state = 'edited'", "is about another call"),
    "an approval gone": ("delete from approval where state = 'expired'", "is missing: audit entry"),
    "an approval that was never asked": (
        "insert into approval (id, session, step, kind, choice, arguments, digest, on_reject, created_at) "
        "select 'apr_x', session, step, kind, 7, arguments, digest, on_reject, created_at from approval limit 1",
        "approval apr_x: has no entry",
    ),
    "an approver smuggled in": (
        "insert into approver (name, role, token, created_at) values ('mallory', 'admin', zeroblob(32), 1)",
        "approver mallory: is not in the audit log",
    ),
    "an approver gone": ("delete from approver where name = 'ann'", "approver ann: is missing"),
    "a disabled approver enabled": ("update approver set disabled_at = null", "approver eve: is disabled"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
async def test_tampering_is_found(name: str, path: Path) -> None:
    await _fill(path)
    sql, said = DAMAGE[name]
    change(path, sql)
    faults = found(path)
    assert any(said in fault for fault in faults), faults


async def test_a_name_is_somebody_s_for_ever(journal: Journal) -> None:
    await journal.add_approver(approver("ann"), "admin")
    await journal.disable_approver("ann", "admin")
    with pytest.raises(Conflict):
        await journal.add_approver(approver("ann", "sk-test-new"), "admin")
    with pytest.raises(NotFound):
        await journal.rotate_approver("ann", digest("sk-test-newer"), "admin")
    assert journal.read.approver_by_token(digest("sk-test-ann")) is None


async def test_a_vote_that_was_said_already_is_not_written_again(journal: Journal) -> None:
    [key] = await ask(journal, [Held(quorum=2)])
    for _ in range(3):
        await journal.decide(key, Vote("ann", YES), "")
    decided = [row for row in journal.read.audit() if row.action == "approval.decided"]
    assert len(decided) == 1 and len(journal.read.votes(key)) == 1


async def test_doctor_tells_of_the_audit_log(path: Path) -> None:
    await _fill(path)
    change(path, "update audit set actor = 'eve' where id = 3")
    reader = Reader(path)
    try:
        found_by_doctor = [finding.where for finding in doctor.examine(reader, parse)]
    finally:
        reader.close()
    assert found_by_doctor == ["audit entry 3"]
