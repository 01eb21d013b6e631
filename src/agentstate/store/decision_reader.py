"""Owns the questions that are asked of the journal about decisions: approvals, votes, results, the audit log. A part of
``Reader``; must not write.

Invariant: as for ``Reader``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from agentstate.core import policy
from agentstate.core.approval import Role
from agentstate.core.model import ApprovalKind, ApprovalState, OnReject, Release
from agentstate.store.asking import Asking
from agentstate.store.people_rows import ApproverRow, AuditRow
from agentstate.store.rows import ApprovalRow, InvocationRow, SessionRow


def _approver(row: Any) -> ApproverRow:
    return ApproverRow(row[0], Role(row[1]), bytes(row[2]), *row[3:])


class DecisionReader(Asking):
    """A part of ``Reader``."""

    def run_of(self, step: int) -> int:
        """The run that asked first."""
        return int(self._one("run_of", (step,))[0])

    def retold(self, session: int, shared: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int, int, Release]]:
        """(step, branch, number, how it was given) of answers of which the model is told what agents were not shown.
        ``shared``: what the session shares with another, see ``BranchReader.shared``."""
        rows = self._all("retold", (session,))
        for branch, upto in shared:
            rows += self._all("retold_on", {"branch": branch, "upto": upto})
        return [(row[0], row[1], row[2], Release(row[3])) for row in rows]

    def approval_states(self) -> dict[str, int]:
        """How many approvals are in each state."""
        return {row[0]: row[1] for row in self._all("approval_states", ())}

    def has_withheld(self, session: int, shared: Sequence[tuple[int, int]] = ()) -> bool:
        """Whether some answer of the session, or of what it shares with another, is held, or was given otherwise than
        it came, or not at all."""
        return self._one("has_withheld", (session,)) is not None or any(
            self._one("has_withheld_on", {"branch": branch, "upto": upto}) is not None for branch, upto in shared
        )

    def withholds_in(self, dialect: str) -> bool:
        """The same of all sessions, in one dialect."""
        return self._one("withholds_in", {"dialect": dialect}) is not None

    def was_withheld(self, name: str) -> bool:
        """Whether a provider keeps an answer under that name that was held, whatever became of it."""
        return self._one("was_withheld", (name,)) is not None

    def withheld_as(self, name: str) -> bool:
        """The same of what a provider keeps under that name, whichever session it is of."""
        return self._one("withheld_as", {"name": name}) is not None

    def labels(self, session: int) -> tuple[str, ...]:
        return tuple(row[0] for row in self._all("labels", (session,)))

    def approval(self, key: str, within: sqlite3.Connection | None = None) -> ApprovalRow | None:
        """``within``: a writer's transaction, whose view of it is wanted."""
        if within is None:
            row = self._one("approval", (key,))
        else:
            row = within.execute(self.sql["approval"], (key,)).fetchone()
        if row is None:
            return None
        return ApprovalRow(
            row[0], row[1], row[2], row[3], row[4], ApprovalKind(row[5]), row[6], row[7], row[8], row[9],
            self._text(*row[10:13]), self._text(*row[13:16]), bytes(row[16]), row[17], OnReject(row[18]), row[19],
            tuple(json.loads(row[20])), ApprovalState(row[21]), self._text(*row[22:25]), *row[25:],
        )  # fmt: skip

    def _text(self, codec: int | None, size: int, data: bytes) -> str:
        """A content as text; empty where there is none."""
        return "" if codec is None else self._content(codec, size, data).decode("utf-8", "replace")

    def approvals_of(self, step: int) -> list[ApprovalRow]:
        """What people were asked about a step, by the call's place."""
        return self._approvals(self._all("approvals_of", (step,)))

    def asked_about(self, steps: Iterable[int]) -> list[ApprovalRow]:
        """The same about many steps, step by step."""
        return self._approvals(self._all("asked_about", {"steps": json.dumps(list(steps))}))

    def refused(self, run: int) -> dict[bytes, str]:
        """What people refused this run: by the digest of the call, see ``core.policy.call_digest``, what they said."""
        return {
            policy.call_digest(row[0], self._text(*row[1:4])): row[4] or f"by {row[5]}"
            for row in self._all("refused", (run,))
        }

    def approvals(
        self, state: str = "", session: str = "", limit: int = 100, after: ApprovalRow | None = None
    ) -> list[ApprovalRow]:
        """Oldest first; ``after``: the last row of the page before."""
        values = {
            "state": state, "session": session, "limit": limit,
            "created": after.created_at if after else None, "id": after.id if after else "",
        }  # fmt: skip
        return self._approvals(self._all("approvals", values))

    def _approvals(self, rows: Iterable[Any]) -> list[ApprovalRow]:
        return [found for row in rows if (found := self.approval(row[0])) is not None]

    def expired(self, now: float) -> list[tuple[str, int]]:
        """(id, step) of pending approvals whose time is over."""
        return [(row[0], row[1]) for row in self._all("expired", (now,))]

    def next_expiry(self) -> float | None:
        value = self._one("next_expiry", ())[0]
        return None if value is None else float(value)

    def votes(self, approval: str, within: sqlite3.Connection | None = None) -> list[tuple[str, str, str, str, float]]:
        """(approver, action, arguments, reason, time) of each; ``within`` as for ``approval``."""
        if within is None:
            rows = self._all("votes", (approval,))
        else:
            rows = within.execute(self.sql["votes"], (approval,)).fetchall()
        return [(row[0], row[1], self._text(*row[2:5]), row[5], row[6]) for row in rows]

    def approver(self, name: str) -> ApproverRow | None:
        row = self._one("approver", (name,))
        return None if row is None else _approver(row)

    def approvers(self) -> list[ApproverRow]:
        """All of them by name, those who are disabled too."""
        return [_approver(row) for row in self._all("approvers", ())]

    def approver_by_token(self, digest: bytes) -> ApproverRow | None:
        """Whose token has that sha256, if they are not disabled."""
        row = self._one("approver_by_token", (digest,))
        return None if row is None else _approver(row)

    def approver_by_chat(self, place: Literal["slack", "discord"], user: str) -> ApproverRow | None:
        """Who a user there is; nobody where no approver, or more than one, has that id."""
        rows = self._all(f"approvers_by_{place}", (user,)) if user else []
        return _approver(rows[0]) if len(rows) == 1 else None

    def audit(self, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Entries of the audit log, oldest first."""
        values = {"after": after, "limit": limit}
        return [
            AuditRow(row[0], row[1], row[2], row[3], row[4], row[5], bytes(row[6]), bytes(row[7]))
            for row in self._all("audit", values)
        ]

    def open_invocations(self, session: int, run: int, ids: Iterable[str]) -> dict[str, tuple[int, int, int]]:
        """By call id: (step, choice, place) of the last call of that id that the run was given and has no result."""
        values = {"session": session, "run": run, "ids": json.dumps(list(ids))}
        return {row[0]: (row[1], row[2], row[3]) for row in self._all("open_invocations", values)}

    def answered(self, run: int, fingerprint: bytes, limit: int) -> list[int]:
        """The last steps of the run with that fingerprint that were answered, newest first."""
        return [row[0] for row in self._all("answered", (run, fingerprint, run, limit))]

    def last_calls(self, run: int, limit: int, after: int) -> list[tuple[int, bytes, int | None]]:
        """(step, digest, content of the result, ``None``: there is none yet) of the last calls that the run was given
        in steps after that one, newest first. Equal contents are one."""
        values = {"run": run, "limit": limit, "after": after}
        return [(row[0], bytes(row[1]), row[2]) for row in self._all("last_calls", values)]

    def made_before(self, session: SessionRow, run: int, digest: bytes) -> tuple[int, str] | None:
        """(step number, result) of an equal call that was made elsewhere in this generation of the session: in a step
        that the run was not given."""
        values = {"session": session.id, "head": session.head, "run": run, "digest": digest}
        row = self._one("made_before", values)
        return None if row is None else (row[0], self._text(*row[1:4]))

    def invocations(self, steps: Iterable[int]) -> list[InvocationRow]:
        """What became of the calls that the answers of these steps propose, less those that were refused."""
        rows = self._all("invocations_of", {"steps": json.dumps(list(steps))})
        return [
            InvocationRow(
                row[0], row[1], row[2], row[3], row[4], self._text(*row[5:8]),
                None if row[8] is None else self._text(*row[8:11]), bool(row[11]), row[12],
            )
            for row in rows
        ]  # fmt: skip
