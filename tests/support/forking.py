"""Owns starting Python modules as processes of their own in a twentieth of the time: each is forked from a server that
has loaded the package already. What runs in it is what ``python -m MODULE`` runs.

Must not be used where the start itself is tested. Invariant: a process begins with the environment, folder and output
that it was given, and ends like any other: by itself, or by the signals of its pid.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).parents[2]
LOADED = [
    "agentstate.cli.main",
    "agentstate.server.app",
    "agentstate.server.api",
    "agentstate.providers.http",
    "agentstate.engine.tools",
]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(LOADED)
_starting = threading.Lock()
_count = 0


class Forked:
    """The part of ``subprocess.Popen`` that tests use; ``stdout``: everything that it writes there."""

    def __init__(self, module: str, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], stderr: Path) -> None:
        global _count
        with _starting:
            _count += 1
            pipe = cwd / f".stdout-{os.getpid()}-{_count}"
        os.mkfifo(pipe)
        self._process: ForkServerProcess = _context.Process(
            target=_run, args=(module, list(arguments), str(cwd), dict(env), str(pipe), str(stderr)), daemon=True
        )
        with _starting, _as_a_stranger():
            self._process.start()
        self.stdout: BinaryIO = pipe.open("rb")  # waits for its other end
        pipe.unlink()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def _as_a_stranger() -> Iterator[None]:
    """The new process must not load pytest's main module, and its server finds the code beside these tests."""
    main, path = sys.modules["__main__"], os.environ.get("PYTHONPATH")
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path


def _run(module: str, arguments: list[str], cwd: str, env: dict[str, str], stdout: str, stderr: str) -> None:
    """In the new process."""
    out = os.open(stdout, os.O_WRONLY)
    err = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    sys.stdout = TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
    sys.stderr = TextIOWrapper(os.fdopen(2, "wb", 0), write_through=True)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
