"""Owns ``agentstate demo``: a real agent is killed three times in the worst moments and pays for nothing twice.

Must not pretend: the agent, the proxy and the kills are real, only the model is simulated, and every number shown comes
from the agent's own clock or from the journal. Invariant: it leaves no process and no file behind, and its exit code is
0 only if the numbers are as promised.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from agentstate import clock
from agentstate.cli.control import LISTENING, Control, ProxyUnreachable
from agentstate.cli.demo_agent import STEPS, STEPS_A_TICKET
from agentstate.cli.run import environment, money
from agentstate.errors import AgentStateError

SESSION = "demo"
LATENCY_S = 0.3  # before each simulated answer: long enough to be killed in
CHUNK_GAP_S = 0.02
LIFE_S = 25.0  # after which an agent that hangs is ended
START_S = 20.0
FAST_MS = 100.0  # a replayed step that takes longer is not what was promised; about 3 is usual
_SHOWN = {"live": "[yellow]paid[/]", "replay": "[green]replayed[/]", "joined": "[cyan]joined[/]"}


@dataclass(frozen=True, slots=True)
class Kill:
    """Where a life ends: at model call ``step``; ``place``: after it, in its stream, or while it is in flight."""

    place: str
    step: int
    text: str


KILLS = (
    Kill("after", 2, "between two steps"),
    Kill("stream", 5, "in the middle of a stream"),
    Kill("flight", 9, "while a call is in flight"),
)


@dataclass
class Life:
    """What one life of the agent reported. ``answered``: its events by step."""

    run: str
    kill: Kill | None
    answered: dict[int, dict[str, Any]] = field(default_factory=dict)
    done: bool = False


def command() -> None:
    """Kill an agent three times in the worst moments, and see that no model call is paid for twice.

    Needs no key and no network: the proxy simulates the model. Takes about 15 seconds.
    """
    console = Console()
    if importlib.util.find_spec("openai") is None:
        console.print("The demo's agent uses the OpenAI client: pip install 'agentstate-proxy\\[openai]'")
        raise typer.Exit(1)
    try:
        raise typer.Exit(demo(console))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except AgentStateError as error:
        console.print(f"[red]{error.message}", highlight=False)
        raise typer.Exit(error.exit_code) from None


def demo(console: Console) -> int:
    """Run it all; 0 when every promise held, else 1."""
    console.print(f"An agent works through {STEPS} model calls. It is killed (SIGKILL) three times:\n")
    started = clock.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentstate-demo-") as folder, _proxy(Path(folder)) as control:
        lives: list[Life] = []
        for kill in (*KILLS, None):
            lives.append(_live(control, kill, lives[-1].run if lives else None))
            console.print(f"  life {len(lives)}: {_story(lives[-1])}", highlight=False)
        runs = [control.run(SESSION, life.run) for life in lives]
        steps = [step for step in control.session(SESSION)["steps"] if step.get("kind", "model") == "model"]
    console.print()
    console.print(_table(lives))
    broken = _broken_promises(lives, runs, steps)
    _sum_up(console, lives, runs, clock.monotonic() - started)
    for promise in broken:
        console.print(f"[red]not as promised: {promise}", highlight=False)
    if not broken:
        _what_next(console)
    return 1 if broken else 0


# --- the proxy and the agent ---


@contextlib.contextmanager
def _proxy(folder: Path) -> Iterator[Control]:
    """A proxy of its own with the simulated model; ended and forgotten afterwards."""
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
    with _limit(process, START_S):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(LISTENING):
                return line.removeprefix(LISTENING).strip()
    return None


def _live(control: Control, kill: Kill | None, previous: str | None) -> Life:
    """Start the agent, watch it, and kill it where ``kill`` says."""
    life = Life(clock.run_id(), kill)
    control.register(SESSION, life.run, replaces=previous, supervisor=os.getpid())
    base = _without_ours() | {"OPENAI_API_KEY": "sk-test-demo"}
    pause = ["--pause-at", f"{kill.place}:{kill.step}"] if kill else []
    agent = subprocess.Popen(
        [sys.executable, "-m", "agentstate.cli.demo_agent", *pause],
        env=environment(base, control.url, SESSION, life.run),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with agent, _limit(agent, LIFE_S):
        try:
            assert agent.stdout is not None
            for line in agent.stdout:
                event = json.loads(line)
                if event["event"] == "answered":
                    life.answered[event["step"]] = event
                life.done = life.done or event["event"] == "done"
                if kill is not None and _at_the_place(event, kill, control):
                    agent.kill()
        finally:
            if not life.done:
                agent.kill()
    control.end(SESSION, life.run, 128 - agent.returncode if agent.returncode < 0 else agent.returncode)
    return life


def _at_the_place(event: Mapping[str, Any], kill: Kill, control: Control) -> bool:
    if event.get("step") != kill.step:
        return False
    if kill.place != "flight":
        return bool(event["event"] == "paused")
    # The step is in the journal before its first byte goes to the provider: from then on it is in flight.
    return event["event"] == "asking" and _until(lambda: _asked(control) > kill.step, 5.0)


def _asked(control: Control) -> int:
    return len(control.session(SESSION)["steps"])


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = clock.monotonic() + seconds
    while not condition():
        if clock.monotonic() >= deadline:
            return False
        threading.Event().wait(0.01)
    return True


@contextlib.contextmanager
def _limit(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
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


# --- what is shown ---


def _story(life: Life) -> str:
    if life.kill is None:
        return "lived to the end" if life.done else "[red]did not get to the end"
    return f"killed {life.kill.text} (step {life.kill.step})"


def _table(lives: list[Life]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for number in range(1, len(lives) + 1):
        table.add_column(f"life {number}", no_wrap=True)
    for step in range(STEPS):
        kind = "streamed" if step % STEPS_A_TICKET == STEPS_A_TICKET - 1 else "tool call"
        table.add_row(str(step), kind, *(_cell(life, step) for life in lives))
    return table


def _cell(life: Life, step: int) -> str:
    killed = life.kill is not None and life.kill.step == step
    if step not in life.answered:
        # It was sent, and the provider answers whether or not somebody is left to read it.
        return f"{_SHOWN['live']} [red]✗ killed[/]" if killed else ""
    outcome = str(life.answered[step]["outcome"])
    return _SHOWN.get(outcome, outcome) + (" [red]✗ killed[/]" if killed else "")


def _replays(lives: list[Life]) -> list[float]:
    """Milliseconds of each replayed step as the agent saw it. A life's first includes opening the connection."""
    events = [event for life in lives for event in life.answered.values() if event["step"] > 0]
    return [event["ms"] for event in events if event["outcome"] == "replay"]


def _broken_promises(lives: list[Life], runs: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[str]:
    broken = []
    paid = sum(int(run["live"]) for run in runs)
    if [life.done for life in lives] != [life.kill is None for life in lives]:
        broken.append("the agent was not killed each time, or did not finish its work in the end")
    if paid != STEPS:
        broken.append(f"{paid} calls were paid, {STEPS} were needed")
    if len(steps) != STEPS or any(step["state"] != "completed" for step in steps):
        broken.append(f"the journal holds {len(steps)} steps, not all of them completed")
    broken += [
        f"step {step} was answered differently in different lives" for step in range(STEPS) if _differs(lives, step)
    ]
    replays = _replays(lives)
    if not replays or statistics.median(replays) > FAST_MS:
        broken.append(f"replayed steps were not fast: {replays}")
    return broken


def _differs(lives: list[Life], step: int) -> bool:
    return len({life.answered[step]["digest"] for life in lives if step in life.answered}) > 1


def _sum_up(console: Console, lives: list[Life], runs: list[dict[str, Any]], seconds: float) -> None:
    paid = sum(int(run["live"]) for run in runs)
    asked = sum(len(life.answered) for life in lives) + sum(life.kill.place != "after" for life in lives if life.kill)
    saved = [float(run["saved"]) for run in runs if run.get("saved") is not None]
    replays = _replays(lives)
    console.print(f"calls paid      [bold]{paid}[/] of {STEPS} needed; the agent asked {asked} times", highlight=False)
    if replays:
        console.print(f"replayed step   [bold]{statistics.median(replays):.1f} ms[/] (median)", highlight=False)
    console.print(
        f"money saved     [bold]{money(sum(saved)) if len(saved) == len(runs) else 'price unknown'}[/]", highlight=False
    )
    console.print(f"whole demo      {seconds:.0f} s\n", highlight=False)


def _what_next(console: Console) -> None:
    console.print("Now your own agent, unchanged:\n")
    console.print("  agentstate run -- python my_agent.py", highlight=False)
    console.print("\nor keep a proxy running and point any client at it, one session a piece of work:\n")
    console.print("  agentstate serve", highlight=False)
    console.print("  OPENAI_BASE_URL=http://localhost:8080/s/my-first-job/v1 python my_agent.py", highlight=False)
