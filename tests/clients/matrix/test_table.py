"""The page of clients says what the committed outcomes say, no more and no less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.matrix import results, table
from tests.clients.matrix.results import Outcome

GOOD = Outcome("openai", "3.57.0", "plain", "path", ("1 before", "2 during"), 3, True)
BAD = Outcome("openai", "3.57.0", "stream", "header", ("3 after",), 4, False, "AssertionError: paid | twice")


def test_the_page_is_the_one_that_the_committed_outcomes_make() -> None:
    told = "run: python -m tests.clients.matrix.table"
    assert table.PAGE.read_text() == table.page(results.committed()), told


def test_every_client_has_outcomes_in_every_mode_and_no_unknown_client_has_any() -> None:
    found = {(outcome.client, outcome.mode) for outcome in results.committed()}
    assert found == {(client.name, mode) for client in table.ALL for mode in client.modes}


def test_every_client_was_undisturbed_once_and_killed_at_every_point() -> None:
    points = {f"{call} {when}" for call in (1, 2, 3) for when in ("before", "during", "after")}
    for client in table.ALL:
        for mode in client.modes:
            tried = [each for each in results.committed() if (each.client, each.mode) == (client.name, mode)]
            assert any(not outcome.kills for outcome in tried), client.name
            assert {kill for outcome in tried for kill in outcome.kills} == points, client.name


def test_a_failure_stands_on_the_page_with_its_reason_and_does_not_count_as_survived() -> None:
    made = table.page([GOOD, BAD])
    assert "| openai | 3.57.0 | chat completions | 2 of 2 | 0 of 1 | path | 3, 4 |" in made
    assert "| openai | stream | header | 3 after | AssertionError: paid \\| twice |" in made
    assert "## What fails" not in table.page([GOOD])


def test_a_client_that_fails_undisturbed_does_not_work() -> None:
    alone = Outcome("openai", "3.57.0", "plain", "path", (), 0, False, "exit code 1")
    assert "| does not work |" in table.page([GOOD, alone])


def test_the_latest_outcome_of_a_test_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    results.write(BAD)
    results.write(GOOD)
    mended = Outcome(BAD.client, BAD.version, BAD.mode, BAD.form, BAD.kills, 3, True)
    results.write(mended)
    assert results.collected(tmp_path) == [GOOD, mended]


def test_outcomes_of_clients_that_were_not_tested_this_time_are_kept() -> None:
    other = Outcome("agno", "3.1.10", "plain", "path", (), 3, True)
    assert results.taken_over([BAD, other], [GOOD]) == [other, GOOD]
