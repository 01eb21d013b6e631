"""Owns what both parts of ``agentstate demo`` stand on: a proxy of their own, agents to kill, bounded waiting.

Must not know what is shown or promised. Invariant: what is started here ends here, whatever happens meanwhile, and
nothing of the user's own settings reaches it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from agentstate import clock
from agentstate.cli.control import LISTENING, Control, ProxyUnreachable
from agentstate.cli.run import environment

LATENCY_S = 0.3  # before each simulated answer: long enough to be killed in
CHUNK_GAP_S = 0.02
LIFE_S = 25.0  # after which an agent that hangs is ended
START_S = 20.0
POLL_S = 0.01


@contextlib.contextmanager
def proxy(folder: Path) -> Iterator[Control]:
    """A proxy of its own with the simulated model; ended and forgotten afterwards. Raises ``ProxyUnreachable``."""
    settings = folder / "agentstate.toml"
    settings.write_text("")  # so that no settings file of the user counts
    token = clock.token()
    variables = _without_ours() | {
        "AGENTSTATE_DATA": str(folder),
        "AGENTSTATE_CONFIG": str(settings),
        "AGENTSTATE_ADMIN_TOKEN": token,
        "AGENTSTATE_SIMULATE__CHUNK_GAP_S": str(CHUNK_GAP_S),
    }
    serve = [sys.executable, "-m", "agentstate", "serve", "--port", "0", "--simulate", "--simulate-latency"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*serve, str(LATENCY_S)], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        url = _listening(process)
        if url is None:
            raise ProxyUnreachable(f"the demo's proxy did not start:\n{(folder / 'log').read_text()[-2000:]}")
        yield Control(url, token)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listening(process: subprocess.Popen[str]) -> str | None:
    with limit(process, START_S):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(LISTENING):
                return line.removeprefix(LISTENING).strip()
    return None


def agent(module: str, arguments: Sequence[str], url: str, session: str, run: str) -> subprocess.Popen[str]:
    """Start one of the demo's agents, its client pointed at the proxy; it reports on stdout, a JSON object a line."""
    base = _without_ours() | {"OPENAI_API_KEY": "sk-test-demo"}
    return subprocess.Popen(
        [sys.executable, "-m", f"agentstate.cli.{module}", *arguments],
        env=environment(base, url, session, run),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def exit_code(process: subprocess.Popen[str]) -> int:
    """As a shell tells it: 128 and the signal's number where one ended it."""
    return 128 - process.returncode if process.returncode < 0 else process.returncode


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition, at most so long; whether it holds."""
    deadline = clock.monotonic() + seconds
    while not condition():
        if clock.monotonic() >= deadline:
            return False
        threading.Event().wait(POLL_S)
    return True


@contextlib.contextmanager
def limit(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill the process if this takes longer, so that reading its output ends."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _without_ours() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("AGENTSTATE_", "OPENAI_"))}
