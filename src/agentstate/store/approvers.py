"""Owns what the facts about approvers write. Must not open, commit or wait, and never sees a token: only its hash.

Invariant: who is added, disabled or given a new token stands in the audit log in the same transaction.
"""

from __future__ import annotations

import sqlite3

from agentstate import clock
from agentstate.errors import Conflict, NotFound
from agentstate.store import decisions
from agentstate.store.people_rows import ApproverRow
from agentstate.store.sqlite import named

_SQL = named("write.sql")


def add(conn: sqlite3.Connection, new: ApproverRow, actor: str) -> None:
    """Raises ``Conflict`` for a name that is or was somebody's."""
    values = {
        "name": new.name, "role": new.role.value, "token": new.token, "slack": new.slack, "discord": new.discord,
        "now": new.created_at,
    }  # fmt: skip
    try:
        conn.execute(_SQL["add_approver"], values)
    except sqlite3.IntegrityError:
        raise Conflict(f"there is, or was, an approver {new.name}; take another name, or rotate the token") from None
    told = {"role": new.role.value, "slack": new.slack, "discord": new.discord}
    decisions.audit(conn, actor, "approver.added", new.name, told)


def disable(conn: sqlite3.Connection, name: str, actor: str) -> None:
    """Raises ``NotFound``."""
    _changed(conn, "disable_approver", {"name": name, "now": clock.now()})
    decisions.audit(conn, actor, "approver.disabled", name, {})


def rotate(conn: sqlite3.Connection, name: str, token: bytes, actor: str) -> None:
    """Raises ``NotFound``."""
    _changed(conn, "rotate_approver", {"name": name, "token": token})
    decisions.audit(conn, actor, "approver.rotated", name, {})


def _changed(conn: sqlite3.Connection, statement: str, values: dict[str, object]) -> None:
    if conn.execute(_SQL[statement], values).rowcount != 1:
        raise NotFound(f"there is no approver {values['name']} who is not disabled; see `agentstate approvers list`")
