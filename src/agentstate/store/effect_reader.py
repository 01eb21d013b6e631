"""Owns the questions that are asked of the journal about tool calls that are made under a claim. A part of ``Reader``;
must not write.

Invariant: as for ``Reader``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from agentstate.core.model import ApprovalKind, State
from agentstate.store.inbox_reader import InboxReader
from agentstate.store.rows import ApprovalRow, SessionRow


class EffectRow(NamedTuple):
    """A tool call and its step. ``kind``: its class; ``arguments``: as sent, JSON text; ``holder``: the process that
    executes it, empty: the proxy; ``owner``: pid:start of that process, where known; ``sending``: sha256 of what names
    the call in it; ``seen_at``: when its result came."""

    step: int
    server: str
    tool: str
    kind: str
    key: str
    occurrence: int
    arguments: str
    holder: str
    owner: str
    sending: bytes
    leave: str | None
    settled: str
    failed: bool
    seen_at: float | None
    state: State
    attempt: int
    number: int
    session: int
    branch: int
    dialect: str
    session_key: str


class MadeRow(NamedTuple):
    """A call that was made: its step, the branch that it is on."""

    step: int
    number: int
    branch: int
    state: State


class EffectReader(InboxReader):
    """What is known of effects."""

    def effect(self, step: int) -> EffectRow | None:
        row = self._one("effect", (step,))
        if row is None:
            return None
        return EffectRow._make(
            (
                *row[:6], self._text(*row[6:9]), row[9], row[10], bytes(row[11]), row[12], row[13], bool(row[14]),
                row[15], State(row[16]), *row[17:],
            )
        )  # fmt: skip

    def effects(self, session: int, limit: int = 10_000, after: int = -1) -> list[EffectRow]:
        """Of a session, by number of their steps; ``after``: only of later steps than that."""
        rows = self._all("effects", {"session": session, "limit": limit, "after": after})
        return [found for row in rows if (found := self.effect(row[0])) is not None]

    def left_in_doubt(self) -> list[int]:
        """Steps of calls that may have been made, that matter, and about which nobody is asked."""
        return [row[0] for row in self._all("left_in_doubt", ())]

    def holders(self, steps: Iterable[int]) -> dict[int, tuple[str, str, bytes]]:
        """(process, its pid:start, what names the call in it) of those steps that another process than the proxy
        executes."""
        rows = self._all("holders", {"steps": json.dumps(list(steps))})
        return {row[0]: (row[1], row[2], bytes(row[3])) for row in rows}

    def asked(self, step: int, kind: ApprovalKind, place: int) -> ApprovalRow | None:
        """The question of that kind about a step; ``place``: of a doubt, the attempt."""
        return next((row for row in self.approvals_of(step) if (row.kind, row.place) == (kind, place)), None)

    def leaves(self, session: int, digests: Iterable[bytes]) -> list[tuple[ApprovalRow, int]]:
        """Calls, by ``core.policy.call_digest``, that a model proposed, that a person let pass, that an agent was given
        and that no tool call has used up, oldest first; each with its branch."""
        keys = [key for digest in digests for key in self._all("leaves", {"session": session, "digest": digest})]
        found = [(self.approval(key), branch) for key, branch in keys]
        return [(row, branch) for row, branch in found if row is not None]

    def call_made_before(self, session: SessionRow, run: int, fingerprint: bytes) -> list[MadeRow]:
        """Equal calls of this generation of the session that were made, or may have been, in steps that the run was not
        given; newest first."""
        values = {"session": session.id, "head": session.head, "run": run, "fingerprint": fingerprint}
        return [MadeRow(row[0], row[1], row[2], State(row[3])) for row in self._all("call_made_before", values)]
