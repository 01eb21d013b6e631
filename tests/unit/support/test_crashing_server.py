"""The launcher of the crash tests kills at exactly the write it was told, and nowhere else."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import crashing_server
from tests.support.proxy import ROOT, clean_environment

SCRIPT = """
import pathlib, sys
from agentstate.store.writer import Writer
from tests.support import crashing_server
crashing_server.arm("begin_step", 2, sys.argv[2])
writer = Writer(pathlib.Path(sys.argv[1]), 1.0)
writer.start()
writer.write_now("end_step", lambda conn: conn.execute("create table t (n integer)") and None)
for n in range(3):
    writer.write_now("begin_step", lambda conn: conn.execute("insert into t values (?)", (n,)) and None)
    print(n, flush=True)
"""


@pytest.mark.parametrize(("when", "kept"), [("before", [0]), ("inside", [0]), ("after", [0, 1])])
def test_process_dies_at_the_chosen_write(tmp_path: Path, when: str, kept: list[int]) -> None:
    path = tmp_path / "journal.db"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), when],
        env=clean_environment(tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == ["0"], "the killed write must not have been announced"
    with sqlite3.connect(path) as conn:
        assert [n for (n,) in conn.execute("select n from t")] == kept


def test_name_that_the_journal_does_not_write_is_refused() -> None:
    with pytest.raises(AssertionError, match="no write named"):
        crashing_server.arm("nonsense", 1, "before")


def test_names_are_read_from_the_source_of_the_journal() -> None:
    assert {"begin_step", "end_step", "serve", "interrupt_steps"} <= crashing_server.written_names()
