"""Measures what a restart costs: an agent is killed in the middle of a call, started again, and watched.

Owns the two lives of that agent. Invariant: "paid" is the provider's own count, not anything a proxy says.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench import procs
from bench.cells import count
from bench.peers import Target

STEPS, KILL_AT = 50, 45
LIFE_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """``back_s``: from the second life's first request until it holds every answer the first life held.

    ``start_s`` is the same from the start of its process. ``paid`` is how many calls the provider answered in both
    lives together, ``paid_twice`` how many of them were for a step that had been paid before. ``outcomes`` counts what
    the proxy said of the second life's steps.
    """

    back_s: float
    start_s: float
    paid: int
    paid_twice: int
    outcomes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Life:
    code: int
    started: int
    begun: int
    answers: dict[int, tuple[int, str]]


def measure(target: Target, upstream: int, core: int | None, folder: Path, wait_ms: int) -> Recovery:
    """Both lives through ``target``; the provider takes ``wait_ms`` for each answer. Raises ``RuntimeError``."""
    session = f"recovery-{time.monotonic_ns()}"
    start = count(upstream)
    first = _live(target, session, "a", core, folder, wait_ms, KILL_AT)
    if first.code != -signal.SIGKILL or len(first.answers) != KILL_AT:
        raise RuntimeError(f"the first life ended with {first.code} after {len(first.answers)} answers")
    second = _live(target, session, "b", core, folder, wait_ms, None)
    if second.code != 0 or len(second.answers) != STEPS:
        raise RuntimeError(f"the second life ended with {second.code} after {len(second.answers)} answers")
    paid = count(upstream) - start
    held, _ = second.answers[KILL_AT - 1]
    return Recovery(
        back_s=(held - second.begun) / 1e9,
        start_s=(held - second.started) / 1e9,
        paid=paid,
        paid_twice=paid - STEPS,
        outcomes=dict(Counter(outcome for _, outcome in second.answers.values())),
    )


def _live(
    target: Target, session: str, run: str, core: int | None, folder: Path, wait_ms: int, kill_at: int | None
) -> _Life:
    path = target.replay_path.replace("{session}", session).replace("{run}", run)
    spec = {"port": target.port, "path": path, "steps": STEPS, "wait_ms": wait_ms, "kill_at": kill_at}
    log = folder / "agent.log"
    started = time.monotonic_ns()
    child = procs.start([sys.executable, "-m", "bench.agent", json.dumps(spec)], core=core, log=log, pipe=True)
    try:
        said, _ = child.communicate(timeout=LIFE_LIMIT_S)
    finally:
        procs.stop(child, 0.1)
    if child.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the agent failed: {log.read_text()[-1000:]}")
    begun, answers = 0, {}
    for line in said.splitlines():
        words = line.split()
        if words[0] == "begin":
            begun = int(words[1])
        else:
            answers[int(words[0])] = (int(words[1]), words[2])
    return _Life(child.returncode, started, begun, answers)
