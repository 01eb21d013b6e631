"""Owns a client from npm at work: its variables, and that a life ends with all its processes.

Must not judge. Invariant: SIGKILL reaches every process of a life, whatever group or session it is in, and none that
another life or anybody else started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from tests.clients.lives import BOUND_S
from tests.clients.matrix.node_environments import packages
from tests.clients.matrix.work import RUN, Work

# Variables of the surroundings that would change what a CLI asks or where it keeps its state.
_OUTSIDE = ("AI_", "CLAUDE", "CODEX_", "DISABLE_", "GIT_", "NODE_", "OPENCODE_", "XDG_", "npm_")


class NodeWork(Work):
    """A ``Work`` whose lives are trees of processes. ``client`` is a row of `node_clients`.

    ``keep``: a coding CLI finds its home and the project folder as the life before has left them.
    """

    keep = False

    def kill(self) -> None:
        """SIGKILL the present life, all its processes at once."""
        end_tree(self.pid)
        if self.form != RUN:
            super().kill()

    def close(self) -> None:
        """End what still runs, under the supervisor as well: both are of one tree."""
        for process in self._processes:
            if process.alive:
                end_tree(process._process.pid)
            process.kill()

    def _variables(self) -> dict[str, str]:
        made = {name: value for name, value in super()._variables().items() if not name.startswith(_OUTSIDE)}
        quiet = {"NO_PROXY": "127.0.0.1,localhost", "AI_SDK_LOG_WARNINGS": "false"}
        kept = {"MATRIX_KEEP": "1"} if self.keep else {}
        return made | quiet | kept | {"MATRIX_PACKAGES": str(packages(self.client))}


def end_tree(root: int) -> None:
    """SIGKILL a process and all below it. Each is stopped before its children are listed, so that none is missed."""
    found: set[int] = set()
    while new := {root, *_below(found)} - found:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        found |= new
    for pid in found:
        _send(pid, signal.SIGKILL)


def _below(parents: set[int]) -> set[int]:
    """The children of these processes that have not ended."""
    if not parents:
        return set()
    listed = subprocess.run(
        ["ps", "-Ao", "pid=,ppid=,stat="], check=True, capture_output=True, text=True, timeout=BOUND_S
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return {int(pid) for pid, parent, state in rows if int(parent) in parents and not state.startswith("Z")}


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
