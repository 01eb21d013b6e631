"""The parts of supervision that systems without Linux's ways rely on, and how a command is looked up."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from agentstate.cli.supervise import CannotRun, Inbox, Stopped, _marked, executable


def to_this_thread(number: int) -> None:
    """Other threads of the test runner block nothing, and a signal to the whole process would end it there."""
    signal.pthread_kill(threading.get_ident(), number)


def test_inbox_hands_out_a_signal_instead_of_letting_it_interrupt() -> None:
    with Inbox() as inbox:
        to_this_thread(signal.SIGTERM)
        caught = inbox.get(5.0)
        assert caught is not None and caught.number == signal.SIGTERM and not caught.terminal
        assert inbox.get(0.0) is None


def test_inbox_without_timed_waiting_hands_out_the_same() -> None:
    with Inbox() as inbox:
        to_this_thread(signal.SIGHUP)
        caught = inbox._polled(5.0)
        assert caught is not None and caught.number == signal.SIGHUP
        assert inbox._polled(0.0) is None


def test_pause_ends_early_when_told_to_stop_and_the_signals_mask_is_restored() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Inbox() as inbox:
        to_this_thread(signal.SIGINT)
        with pytest.raises(Stopped) as stop:
            inbox.pause(600.0)
        assert stop.value.number == signal.SIGINT
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_signal_that_our_parent_had_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Inbox() as inbox:
            os.kill(os.getpid(), signal.SIGHUP)
            assert inbox.get(0.05) is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_leftovers_are_found_by_the_run_id_where_the_system_keeps_no_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps = tmp_path / "ps"
    ps.write_text(
        "#!/bin/sh\n"
        "echo '  100 python agent.py HOME=/x AGENTSTATE_RUN_ID=run_a PATH=/bin'\n"
        "echo '  101 python agent.py AGENTSTATE_RUN_ID=run_b'\n"
        f"echo '  {os.getpid()} AGENTSTATE_RUN_ID=run_a'\n"
    )
    ps.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert _marked("run_a") == {100}


def test_command_is_looked_up_as_a_shell_does(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    with pytest.raises(CannotRun) as plain:
        executable("tool", str(tmp_path))
    assert plain.value.exit_code == 126
    (tmp_path / "tool").chmod(0o755)
    assert executable("tool", str(tmp_path)) == str(tmp_path / "tool")
    with pytest.raises(CannotRun) as folder:
        executable(str(tmp_path), None)
    assert folder.value.exit_code == 126
    with pytest.raises(CannotRun) as missing:
        executable("no-such-tool-\udcff", str(tmp_path))
    assert missing.value.exit_code == 127
    str(missing.value).encode("utf-8")
