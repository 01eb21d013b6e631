"""Owns ``agentstate demo``: a real agent is killed three times in the worst moments and pays for nothing twice; then a
mail of another one is held, edited and sent once (``demo_gate``).

Must not pretend: the agents, the proxy and the kills are real, only the model is simulated, and every number shown
comes from the agents' own clocks and deeds or from the journal. Invariant: it leaves no process and no file behind, and
its exit code is 0 only if the numbers are as promised.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from agentstate import clock
from agentstate.cli import demo_gate
from agentstate.cli.control import Control
from agentstate.cli.demo_agent import STEPS, STEPS_A_TICKET
from agentstate.cli.demo_stage import LIFE_S, agent, exit_code, limit, proxy, until
from agentstate.cli.run import money
from agentstate.errors import AgentStateError

SESSION = "demo"
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
    """Kill an agent three times, and see that nothing is paid twice; hold a mail, edit it, and see it sent once.

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
    with tempfile.TemporaryDirectory(prefix="agentstate-demo-") as folder, proxy(Path(folder)) as control:
        lives: list[Life] = []
        for kill in (*KILLS, None):
            lives.append(_live(control, kill, lives[-1].run if lives else None))
            console.print(f"  life {len(lives)}: {_story(lives[-1])}", highlight=False)
        runs = [control.run(SESSION, life.run) for life in lives]
        steps = [step for step in control.session(SESSION)["steps"] if step.get("kind", "model") == "model"]
        console.print()
        console.print(_table(lives))
        _sum_up(console, lives, runs)
        mail = demo_gate.held(console, control, Path(folder))
    demo_gate.sum_up(console, mail)
    console.print(f"whole demo      {clock.monotonic() - started:.0f} s\n", highlight=False)
    broken = _broken_promises(lives, runs, steps) + demo_gate.broken_promises(mail)
    for promise in broken:
        console.print(f"[red]not as promised: {promise}", highlight=False)
    if not broken:
        _what_next(console)
    return 1 if broken else 0


# --- the proxy and the agent ---


def _live(control: Control, kill: Kill | None, previous: str | None) -> Life:
    """Start the agent, watch it, and kill it where ``kill`` says."""
    life = Life(clock.run_id(), kill)
    control.register(SESSION, life.run, replaces=previous, supervisor=os.getpid())
    pause = ["--pause-at", f"{kill.place}:{kill.step}"] if kill else []
    process = agent("demo_agent", pause, control.url, SESSION, life.run)
    with process, limit(process, LIFE_S):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "answered":
                    life.answered[event["step"]] = event
                life.done = life.done or event["event"] == "done"
                if kill is not None and _at_the_place(event, kill, control):
                    process.kill()
        finally:
            if not life.done:
                process.kill()
    control.end(SESSION, life.run, exit_code(process))
    return life


def _at_the_place(event: Mapping[str, Any], kill: Kill, control: Control) -> bool:
    if event.get("step") != kill.step:
        return False
    if kill.place != "flight":
        return bool(event["event"] == "paused")
    # The step is in the journal before its first byte goes to the provider: from then on it is in flight.
    return event["event"] == "asking" and until(lambda: _asked(control) > kill.step, 5.0)


def _asked(control: Control) -> int:
    return len(control.session(SESSION)["steps"])


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


def _sum_up(console: Console, lives: list[Life], runs: list[dict[str, Any]]) -> None:
    paid = sum(int(run["live"]) for run in runs)
    asked = sum(len(life.answered) for life in lives) + sum(life.kill.place != "after" for life in lives if life.kill)
    saved = [float(run["saved"]) for run in runs if run.get("saved") is not None]
    replays = _replays(lives)
    console.print(f"calls paid      [bold]{paid}[/] of {STEPS} needed; the agent asked {asked} times", highlight=False)
    if replays:
        console.print(f"replayed step   [bold]{statistics.median(replays):.1f} ms[/] (median)", highlight=False)
    console.print(
        f"money saved     [bold]{money(sum(saved)) if len(saved) == len(runs) else 'price unknown'}[/]\n",
        highlight=False,
    )


def _what_next(console: Console) -> None:
    console.print("Now your own agent, unchanged:\n")
    console.print("  agentstate run -- python my_agent.py", highlight=False)
    console.print("\nor keep a proxy running and point any client at it, one session a piece of work:\n")
    console.print("  agentstate serve", highlight=False)
    console.print("  OPENAI_BASE_URL=http://localhost:8080/s/my-first-job/v1 python my_agent.py", highlight=False)
