"""Owns the processes the benchmark starts: where they run, what they use, and that they end with it.

Must not touch a process it did not start. Invariant: every child is in its own group, is told to die with its
starter, and is waited for.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
_DIE_WITH_STARTER = 1  # PR_SET_PDEATHSIG of prctl(2)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def cores() -> tuple[int | None, int | None]:
    """The core of upstream and load, and the core of each proxy; ``(None, None)`` where there is only one."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    usable = sorted(os.sched_getaffinity(0))
    return (usable[0], usable[1]) if len(usable) > 1 else (None, None)


def start(
    command: Sequence[str],
    *,
    core: int | None,
    log: Path,
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
    pipe: bool = False,
) -> subprocess.Popen[str]:
    """Starts ``command`` pinned to ``core``. Its stderr (and, without ``pipe``, stdout) goes to ``log``."""

    def prepare() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        if _LIBC is not None:
            _LIBC.prctl(_DIE_WITH_STARTER, signal.SIGKILL)

    with log.open("ab") as errors:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env={**_environment(), **(env or {})},
            stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else errors,
            stderr=errors,
            text=True,
            start_new_session=True,
            preexec_fn=prepare,
        )


def _environment() -> dict[str, str]:
    """Ours, less what would steer a program under test."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("AGENTSTATE_", "OPENAI_", "LITELLM_"))
    }


def stop(child: subprocess.Popen[str], patience_s: float = 30.0) -> int:
    """Asks the child's group to end, then makes it. Returns the exit code."""
    for demand, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, demand)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(wait_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what the group's leader left behind
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    return child.wait(1.0)


@contextlib.contextmanager
def upstream(core: int | None, log: Path) -> Iterator[int]:
    """The scripted provider on a free port; yields the port."""
    child = start([sys.executable, "-m", "bench.upstream"], core=core, log=log, pipe=True)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"the upstream did not start: {log.read_text()[-2000:]}")
        yield int(json.loads(line)["port"])
    finally:
        stop(child)


def volley(spec: dict[str, Any], core: int | None, log: Path) -> dict[str, Any]:
    """One run of ``bench.load`` in a process of its own: to a proxy that looks, it is an agent that came and went."""
    child = start([sys.executable, "-m", "bench.load"], core=core, log=log, pipe=True)
    try:
        answer, _ = child.communicate(json.dumps(spec), timeout=600)
    finally:
        stop(child, 0.1)
    if child.returncode != 0 or not answer:
        raise RuntimeError(f"the load failed with code {child.returncode}: {log.read_text()[-2000:]}")
    result: dict[str, Any] = json.loads(answer)
    return result


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and its descendants used: CPU seconds since their start, resident bytes now."""

    cpu_s: float
    rss: int


def usage(pid: int) -> Usage:
    """Read from ``/proc`` (CPU to 10 ms); zeros where there is none."""
    cpu, rss = 0.0, 0
    for one in _family(pid):
        fields = _stat(one)
        if fields:
            cpu += (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / TICK
            rss += int(fields[21]) * PAGE
    return Usage(cpu, rss)


def _stat(pid: int) -> list[str]:
    """The fields after the command's name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def filesystem(folder: Path) -> str:
    """The type of the file system ``folder`` is on (a journal on ``tmpfs`` pays nothing for an fsync)."""
    best, kind = "", "unknown"
    mounts = Path("/proc/mounts")
    for line in mounts.read_text().splitlines() if mounts.exists() else []:
        _, where, name, *_ = line.split()
        if folder.resolve().is_relative_to(where) and len(where) >= len(best):
            best, kind = where, name
    return kind


def machine() -> dict[str, str]:
    """What the figures were taken on, without naming the host."""
    model = "unknown"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "system": f"{os.uname().sysname} {os.uname().release}",
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
    }
