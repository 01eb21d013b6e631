"""Owns how those who wait with a call that is held hear of it. Must not decide.

Invariant: whoever waits is told so once, however often it is looked whether it is decided.
"""

from __future__ import annotations

from collections.abc import Callable

from agentstate.store.rows import ApprovalRow


class Waiting:
    """``row``: the question that is waited for, as soon as there is one."""

    def __init__(self, told: Callable[[ApprovalRow], None] = lambda row: None) -> None:
        self.row: ApprovalRow | None = None
        self._told = told

    def begin(self, row: ApprovalRow) -> None:
        if self.row is None or self.row.id != row.id:
            self.row = row
            self._told(row)
