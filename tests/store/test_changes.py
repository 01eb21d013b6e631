"""What a transaction tells of itself: after its commit, once, and nothing of one that was rolled back."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from agentstate.store import changes
from agentstate.store.changes import Change, changed
from agentstate.store.writer import Writer
from tests.support.crashing_server import written_names

# What each named write tells of, at least when it changes anything.
TELLS = {
    "open_session": changes.SESSION,
    "begin_run": changes.RUN_BEGAN,
    "end_run": changes.RUN_ENDED,
    "report_divergence": changes.DIVERGED,
    "set_status": changes.SESSION,
    "roll_back": changes.SESSION,
    "fork": changes.SESSION,
    "edit": changes.SESSION,
    "set_labels": changes.SESSION,
    "pin": changes.SESSION,
    "unpin": changes.SESSION,
    "doom_session": changes.SESSION,
    "drop_superseded": changes.SESSION,
    "begin_step": changes.STEP_BEGAN,
    "begin_attempt": changes.STEP_BEGAN,
    "begin_budgeted": changes.STEP_BEGAN,
    "send_budgeted": changes.STEP_BEGAN,
    "hold_step": changes.STEP_BEGAN,
    "send_held": changes.STEP_BEGAN,
    "claim": changes.STEP_BEGAN,
    "hold_call": changes.STEP_BEGAN,
    "next_attempt": changes.STEP_CHANGED,
    "note_results": changes.STEP_CHANGED,
    "release": changes.STEP_CHANGED,
    "end_step": changes.STEP_ENDED,
    "fail_step": changes.STEP_ENDED,
    "refuse_step": changes.STEP_ENDED,
    "finish_job": changes.STEP_ENDED,
    "interrupt_step": changes.STEP_ENDED,
    "abandon": changes.STEP_ENDED,
    "keep_result": changes.STEP_ENDED,
    "delete_job": changes.SESSION,
    "pause_session": changes.SESSION,
    "resume_session": changes.SESSION,
    "rate": changes.RATED,
    "label_step": changes.STEP_CHANGED,
    "serve": changes.REPLAYED,
    "decide": changes.DECIDED,
    "expire": changes.EXPIRED,
    "reopen": changes.ASKED,
    "doubt": changes.ASKED,
    "set_breaker": changes.BREAKER,
    "deliver_message": changes.ALERT,
    "postpone_message": changes.ALERT,
    "revive_message": changes.ALERT,
    "bury_message": changes.ALERT_DEAD,
    "add_approver": changes.AUDITED,
    "disable_approver": changes.AUDITED,
    "rotate_approver": changes.AUDITED,
}


def test_every_named_write_tells_of_something_or_says_why_not() -> None:
    assert written_names() == {*TELLS, *changes.SILENT}
    assert not set(TELLS) & set(changes.SILENT)
    assert set(TELLS.values()) <= changes.ALL and set(changes.ACTS.values()) <= changes.ALL


@pytest.fixture
def told() -> list[list[Change]]:
    return []


def run(path: Path, told: list[list[Change]], *works: tuple[str, bool, bool], alone: bool = False) -> list[object]:
    """Writes of (subject, durable, whether it fails) in one group; what each came to."""
    writer = Writer(path / "journal.db", 5.0)
    writer.told = lambda found: told.append(found)
    writer.start()

    def work(conn: sqlite3.Connection, subject: str, fails: bool) -> str:
        changed(conn, changes.ALERT, subject=subject)
        if fails:
            raise ValueError(subject)
        return subject

    async def submit() -> list[object]:
        futures = [
            writer.submit(
                subject, lambda conn, subject=subject, fails=fails: work(conn, subject, fails), durable, alone=alone
            )
            for subject, durable, fails in works
        ]
        return await asyncio.gather(*futures, return_exceptions=True)

    try:
        return asyncio.run(submit())
    finally:
        writer.stop()


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_a_change_is_told_once(tmp_path: Path, told: list[list[Change]], durable: bool, alone: bool) -> None:
    run(tmp_path, told, ("a", durable, False), alone=alone)
    assert [[change[4] for change in found] for found in told] == [["a"]]


def test_a_write_that_fails_tells_nothing_and_the_others_of_its_group_do(
    tmp_path: Path, told: list[list[Change]]
) -> None:
    found = run(tmp_path, told, ("a", True, False), ("b", False, True), ("c", False, False))
    assert isinstance(found[1], ValueError) and (found[0], found[2]) == ("a", "c")
    assert sorted(change[4] for found in told for change in found) == ["a", "c"]
