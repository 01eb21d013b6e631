"""Wrong input to a command is answered with what to do instead, and the exit code that the reference page gives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentstate.cli import main as cli
from agentstate.cli.approvals import ID_CHARACTERS, _print
from agentstate.clock import approval_id


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """(exit code, what stands on stderr) of a command line in this process."""
    monkeypatch.setattr(sys, "argv", ["agentstate", *words])
    monkeypatch.setattr(cli, "_add_commands", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.fixture(autouse=True)
def _commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not any(command.name == "run" for command in cli.app.registered_commands):
        cli._add_commands()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTSTATE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("sessions", "--status", "foo"), "completed"),
        (("stats", "--by", "foo"), "provider"),
        (("alerts", "list", "--state", "foo"), "delivered"),
        (("approvers", "add", "ann", "--role", "foo"), "viewer"),
        (("settle", "apr_1", "foo"), "did-not-run"),
    ],
)
def test_a_value_that_is_none_of_the_choices_is_wrong_use_and_names_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], named: str
) -> None:
    code, said = run(capsys, monkeypatch, *words)
    assert code == 2 and "'foo'" in said and named in said


@pytest.mark.parametrize("words", [("sessions",), ("show", "s"), ("doctor",), ("stats",), ("policy", "test", "s")])
def test_where_no_journal_is_yet_it_is_said_what_begins_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    code, said = run(capsys, monkeypatch, *words)
    assert code == 3 and "there is no journal at" in said and "`agentstate serve`" in said and "--db" in said


def test_trying_alerts_without_a_target_says_how_to_add_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = run(capsys, monkeypatch, "alerts", "test")
    assert code == 1 and said.startswith("agentstate: ") and "[[alerts]]" in said


def test_the_id_of_an_approval_is_whole_however_narrow_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    key = approval_id()
    assert len(key) == ID_CHARACTERS
    one = {
        "id": key, "session_id": "a-session-with-a-long-name", "step_number": 12, "tool_name": "execute_command",
        "kind": "call", "arguments_text": '{"command": "rm -r build"}', "status": "PENDING", "decided_by": None,
        "votes": [], "quorum": 2, "created_at": "2026-11-30T19:38:44.267241Z",
    }  # fmt: skip
    _print([one], False, False)
    assert key in capsys.readouterr().out
