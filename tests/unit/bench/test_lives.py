"""Real processes: an agent that is killed pays twice without a proxy, and what a database takes is counted whole."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from bench import procs, recovery, storage
from bench.peers import Target


def test_agent_killed_at_step_45_pays_46_calls_twice_without_a_proxy(tmp_path: Path) -> None:
    with procs.upstream(None, tmp_path / "upstream.log") as port:
        found = recovery.measure(Target("direct", port), port, None, tmp_path, wait_ms=1)
    assert (found.paid, found.paid_twice) == (96, 46)
    assert found.outcomes == {"-": 50}
    assert 0.045 < found.back_s < found.start_s


def test_load_in_its_own_process_returns_its_samples(tmp_path: Path) -> None:
    with procs.upstream(None, tmp_path / "upstream.log") as port:
        tally = procs.volley({"port": port, "least": 3}, None, tmp_path / "load.log")
    assert (len(tally["whole"]), tally["errors"]) == (3, 0)


def test_load_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="nonsense"):
        procs.volley({"port": 1, "nonsense": 1}, None, tmp_path / "load.log")


def test_write_ahead_log_is_folded_in_before_the_size_is_taken(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "agentstate.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE kept (text)")
        database.execute("INSERT INTO kept VALUES (?)", ("x" * 100_000,))
        database.commit()
        (tmp_path / "agentstate.db.lock").write_text("{}" * 50_000)
        size = storage.database_size(tmp_path)
    assert 100_000 < size < 120_000 + 40_000  # the shared-memory index stays while a connection is open


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc whether a process lives")
def test_stopped_child_is_gone_with_its_own_children(tmp_path: Path) -> None:
    code = "import subprocess; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
    child = procs.start([sys.executable, "-c", code], core=None, log=tmp_path / "log", pipe=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    assert alive(grandchild)
    procs.stop(child)
    until = time.monotonic() + 10
    while alive(grandchild) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(child.pid)
    assert not alive(grandchild)
