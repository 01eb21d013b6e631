"""Owns what a transaction says of itself: which sessions, runs, steps, approvals it changed. Must not write, nor read.

Invariant: a change is told after the commit of the transaction that made it, and only then; one that is rolled back was
never said. Every named write either tells of what it changed or stands in ``SILENT`` with the reason.
"""

from __future__ import annotations

import sqlite3

Change = tuple[str, int, int, int, str, str]
"""(kind, session, step, run, subject, state): ids of rows, 0 where there is none; ``subject``: an approval's id, the
name of what is no row, or empty; ``state``: what it has become."""

SESSION = "session.changed"
RUN_BEGAN, RUN_ENDED, DIVERGED = "run.began", "run.ended", "run.diverged"
STEP_BEGAN, STEP_ENDED, STEP_CHANGED, REPLAYED = "step.began", "step.ended", "step.changed", "step.replayed"
ASKED, DECIDED, EXPIRED, VOTED = "approval.asked", "approval.decided", "approval.expired", "approval.voted"
BREAKER, BUDGET = "breaker.changed", "budget.reached"
ALERT_DEAD, ALERT = "alert.dead", "alert.changed"
AUDITED = "audit.added"
RATED = "step.rated"
ALL = frozenset(
    {
        SESSION, RUN_BEGAN, RUN_ENDED, DIVERGED, STEP_BEGAN, STEP_ENDED, STEP_CHANGED, REPLAYED, RATED, ASKED, DECIDED,
        EXPIRED, VOTED, BREAKER, BUDGET, ALERT_DEAD, ALERT, AUDITED,
    }
)  # fmt: skip

# Which kind an act is that is told by its entry in the audit log; those that are not here are ``audit.added``.
ACTS = {
    "approval.asked": ASKED,
    "approval.reopened": ASKED,
    "approval.denied": DECIDED,
    "approval.overtaken": DECIDED,
    "approval.decided": DECIDED,
    "approval.expired": EXPIRED,
}

# Writes that change nothing that a page shows, or that only precede one that tells.
SILENT = {
    "interrupt_steps": "a start: nobody listens yet",
    "close": "a stop: nobody listens any more",
    "claim_cuts": "evidence about a run that begins, which is told",
    "set_owner": "which process a run is: for telling runs apart",
    "cut": "a reader left early: evidence, shown with the next look",
    "delivered": "a reader had its last byte: evidence, shown with the next look",
    "try_message": "a try begins; how it ends is told",
    "drop_steps": "of a session that is gone, which was told",
    "drop_hand_outs": "of a session that is gone, which was told",
    "forget_session": "of a session that is gone, which was told",
    "watch_references": "garbage is about to be swept",
    "sweep_nodes": "garbage, which nothing shows",
    "sweep_blobs": "garbage, which nothing shows",
    "end_watch": "garbage was swept",
    "give_back": "space within the file",
    "fold_log": "space within the file",
    "end_attempt": "another attempt follows at once, which is told",
}


class Telling(sqlite3.Connection):
    """A connection that keeps what its transaction has changed until the writer takes it."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.changes: list[Change] = []


def changed(
    conn: sqlite3.Connection,
    kind: str,
    session: int = 0,
    step: int = 0,
    run: int = 0,
    subject: str = "",
    state: str = "",
) -> None:
    """Say what the transaction of ``conn`` changes."""
    if isinstance(conn, Telling):
        conn.changes.append((kind, session, step, run, subject, state))
