"""Owns what the session verbs write: going back, forking, editing an answer. A part of ``Journal``; must not decide.

Invariant: as for ``Journal``; each verb is one transaction, which adds branches and takes no step, answer or branch
away, and says in the audit log who did it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from agentstate import clock
from agentstate.core.branching import lineage
from agentstate.core.model import SessionStatus
from agentstate.errors import Conflict
from agentstate.store import bodies, changes, decisions, transactions
from agentstate.store.branches import EDIT, FORK, BranchRow
from agentstate.store.changes import changed
from agentstate.store.counters import Counters
from agentstate.store.facts import Facts
from agentstate.store.outgoing import Outgoing
from agentstate.store.pausing import go_on
from agentstate.store.reader import Lineage, Reader
from agentstate.store.rows import Message, SessionRow
from agentstate.store.sqlite import named

T = TypeVar("T")
_SQL = named("write.sql")
# Why what is asked about a step is asked no more, for the time being.
ROLLED_BACK, LEFT_BEHIND = "the step was rolled back", "the answer that it goes on from was edited"


class RevisedCall(NamedTuple):
    """A call of an edited answer whose arguments are others; ``digest``: as in ``Invoked``."""

    choice: int
    place: int
    call_id: str
    name: str
    arguments: bytes
    digest: bytes


class NewRevision(NamedTuple):
    """An answer that a person edited. ``head``: the branch that was looked at, ``upto``: with the steps below this
    number; ``body``: the answer as it is given, plain; ``changed``: JSON; ``left``: the steps that go on from what is
    replaced, each with whether it does so by naming what the provider holds; ``withdrawn``: the approvals about those
    that are asked no more."""

    step: int
    number: int
    head: int
    upto: int
    body: bytes
    changed: str
    reason: str
    calls: tuple[RevisedCall, ...] = ()
    left: tuple[tuple[int, bool], ...] = ()
    withdrawn: tuple[str, ...] = ()


class Steering(Outgoing):
    """What ``Journal`` gives its part."""

    _counters: Counters
    read: Reader
    facts: Facts

    async def roll_back(
        self,
        session: SessionRow,
        step_number: int,
        *,
        branch: int | None = None,
        by: str = "",
        again: Mapping[str, Sequence[Message]] | None = None,
    ) -> int:
        """Steps from ``step_number`` on are superseded, not deleted: a new branch goes on before it, from ``branch``
        or from what the session shows. ``again``: approvals that its steps wait for once more, with who is told. Its
        id. Raises ``Conflict`` where the session goes on from elsewhere meanwhile."""
        asked = again or {}

        def work(conn: sqlite3.Connection) -> int:
            head = _checked_head(conn, session)
            now = clock.now()
            branches = self.read.branches_with(conn, session.id)
            parent = head if branch is None else branch
            shown = _below(branches, parent, step_number)
            opening = _opening(conn, self.read, shown)
            made = transactions.new_branch(conn, session.id, parent, step_number, "rollback", opening, now, by)
            go_on(conn, session.id, now)
            decisions.supersede(conn, session.id, shown, ROLLED_BACK)
            for key, messages in asked.items():
                if conn.execute(_SQL["ask_again"], {"id": key, "now": now}).fetchone() is not None:
                    decisions.audit(conn, by or "agentstate", "approval.reopened", key, {"reason": "its step is back"})
                    decisions.tell(conn, messages, now)
            detail = {"step_number": step_number, "from": head, "parent": parent, "branch": made}
            decisions.audit(conn, by or "agentstate", "session.rolled_back", session.key, detail)
            return made

        told = [message for messages in asked.values() for message in messages]
        return await self._write("roll_back", work, then=lambda: self._forget(session.id, told))

    async def fork(self, source: SessionRow, parent: int, step_number: int, key: str, by: str) -> int:
        """A new session that shares the steps below ``step_number`` of a branch; nothing is copied but the labels. Its
        id. Raises ``Conflict`` where there is a session of that name."""

        def work(conn: sqlite3.Connection) -> int:
            if conn.execute("select 1 from session where key = ?", (key,)).fetchone():
                raise Conflict(f"there is a session {key!r} already; give the fork another name")
            transactions.session_now(conn, source.id)
            now = clock.now()
            made = conn.execute(_SQL["add_session"], {"key": key, "now": now}).lastrowid or 0
            conn.execute(_SQL["set_numbers"], {"session": made, "steps": step_number, "source": source.id})
            conn.execute(_SQL["copy_labels"], {"session": made, "source": source.id})
            shown = _below(self.read.branches_with(conn, source.id), parent, step_number)
            opening = _opening(conn, self.read, shown)
            transactions.new_branch(conn, made, parent, step_number, FORK, opening, now, by)
            detail = {"source": source.key, "step_number": step_number, "parent": parent}
            decisions.audit(conn, by, "session.forked", key, detail)
            changed(conn, changes.SESSION, made)
            return made

        return await self._write("fork", work)

    async def edit(self, session: SessionRow, revision: NewRevision, by: str) -> int:
        """An answer is another from now on, on a new branch that shows all that was recorded until now. Its id. Raises
        ``Conflict`` where the session goes on from elsewhere meanwhile."""

        def work(conn: sqlite3.Connection) -> int:
            head = _checked_head(conn, session)
            if head != revision.head:
                raise Conflict("the session was changed by someone else meanwhile; look at it again")
            now = clock.now()
            # What has begun since was asked before the edit, and nobody has looked whether it goes on from the answer.
            shown = _below(self.read.branches_with(conn, session.id), head, revision.upto)
            opening = _opening(conn, self.read, shown)
            made = transactions.new_branch(conn, session.id, head, revision.upto, EDIT, opening, now, by)
            values = {
                "branch": made, "step": revision.step, "changed": revision.changed, "by": by, "now": now,
                "reason": revision.reason, "body": bodies.put_body(conn, self._counters, revision.body),
            }  # fmt: skip
            conn.execute(_SQL["add_revision"], values)
            for call in revision.calls:
                arguments = bodies.put_body(conn, self._counters, call.arguments)
                row = (made, revision.step, call.choice, call.place, call.call_id, call.name, arguments, call.digest)
                conn.execute(_SQL["add_revised_call"], row)
            rows = [(made, revision.step, step, int(held)) for step, held in revision.left]
            conn.executemany(_SQL["leave_behind"], rows)
            for key in revision.withdrawn:
                decisions.expire(conn, key, LEFT_BEHIND)
            status = conn.execute("select status from session where id = ?", (session.id,)).fetchone()[0]
            if status in (SessionStatus.COMPLETED.value, SessionStatus.FAILED.value):
                running = {"session": session.id, "status": SessionStatus.RUNNING.value, "note": "", "now": now}
                conn.execute(_SQL["set_status"], running)
            detail = {
                "step_number": revision.number, "branch": made, "reason": revision.reason,
                "calls": [
                    {"tool": call.name, "arguments": call.arguments.decode("utf-8", "replace")}
                    for call in revision.calls
                ],
            }  # fmt: skip
            decisions.audit(conn, by, "step.edited", session.key, detail)
            changed(conn, changes.SESSION, session.id)
            changed(conn, changes.STEP_CHANGED, session.id, revision.step, state="edited")
            return made

        return await self._write("edit", work, then=lambda: self._forget(session.id), size=len(revision.body))


def _checked_head(conn: sqlite3.Connection, session: SessionRow) -> int:
    transactions.session_now(conn, session.id)
    head = int(conn.execute("select head from session where id = ?", (session.id,)).fetchone()[0])
    if head != session.head:
        raise Conflict("the session was rolled back by someone else meanwhile; look at it again")
    return head


def _below(branches: Mapping[int, BranchRow], head: int, upto: int) -> list[tuple[int, int]]:
    """What a branch shows below a number."""
    rows = lineage({key: row.branch for key, row in branches.items()}, head)
    return [(branch, min(limit, upto)) for branch, limit in rows]


def _opening(conn: sqlite3.Connection, read: Reader, shown: Lineage) -> bytes | None:
    """The fingerprint of the first step that is shown."""
    opening: bytes | None = None
    for branch, upto in shown:
        row = conn.execute(read.sql["opening_after"], {"branch": branch, "upto": upto}).fetchone()
        opening = row[0] if row else opening
    return opening
