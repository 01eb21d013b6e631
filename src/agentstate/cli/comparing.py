"""Owns the commands that pause and resume sessions, compare them, and try a step with another model. Must not do the
work: the proxy does, and the comparison is the engine's.

Invariant: texts from agents and models are printed as text, never as markup or terminal codes.
"""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from agentstate.cli.people import Config, Url, connected, part
from agentstate.core.visible import visible
from agentstate.errors import BadRequest

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")]


def pause(
    session: Session,
    reason: Annotated[str, typer.Option("--reason", help="Why; whoever looks at the session is told.")] = "",
    url: Url = None,
    config: Config = None,
) -> None:
    """Pause a session: nothing of it is sent any more until it is resumed. Recorded answers are still given."""
    connected(config, url).call("POST", f"/api/sessions/{part(session)}/pause", {"reason": reason})
    print(f"{visible(session)} is paused; let it go on with: agentstate resume {visible(session)}")


def resume(session: Session, url: Url = None, config: Config = None) -> None:
    """Let a paused session go on. Requests that waited are judged anew, as if they came now."""
    connected(config, url).call("POST", f"/api/sessions/{part(session)}/resume", {})
    print(f"{visible(session)} goes on")


def attempt(
    session: Session,
    step: Annotated[int, typer.Argument(metavar="STEP", help="The step's number.")],
    model: Annotated[str, typer.Option("--model", help="Who is asked: a model, or PROVIDER/MODEL of the settings.")],
    key_env: Annotated[
        str, typer.Option("--key-env", help="Variable with a provider's key, for this call alone; it is not kept.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Ask another model what a recorded step asked, and compare the answers. It costs money; no agent is given it."""
    headers = {}
    if key_env:
        if not os.environ.get(key_env):
            raise BadRequest(f"the variable {key_env} is not set, so there is no key in it")
        headers["x-provider-key"] = os.environ[key_env]
    found = connected(config, url).call(
        "POST", f"/api/sessions/{part(session)}/steps/{step}/try", {"model": model}, timeout=_ANSWER_S,
        headers=headers,
    )  # fmt: skip
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _shown(found)


_ANSWER_S = 900.0  # longer than any answer is waited for


def _shown(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console, trial = Console(), found["trial"]
    for mark, side, style in (("-", found["left"], "red"), ("+", found["right"], "green")):
        console.print(Text(f"{mark} {_figures(side)}", style))
    if trial["lost"]:
        console.print(Text(visible(f"not carried over: {', '.join(trial['lost'])}"), "yellow"))
    if trial["error"]:
        console.print(Text(visible(trial["error"]), "red"), soft_wrap=True)
    for field in found["answer"]["fields"]:
        console.print(Text(f"  {visible(field['place'])}", "cyan"))
        for mark, name, style in (("-", "left", "red"), ("+", "right", "green")):
            if field["only"] in (None, name):
                value = field[name] if isinstance(field[name], str) else json.dumps(field[name], ensure_ascii=False)
                console.print(Text(f"    {mark} {visible(value)}", style), soft_wrap=True)
    if not found["answer"]["fields"]:
        console.print("  both say the same", style="dim")
    console.print(Text(f"{found['note']} It is kept as step {trial['step_number']} of {visible(trial['session'])}."))


def _figures(side: dict[str, Any]) -> str:
    cost = "?" if side["cost"] is None else f"${side['cost']:.4f}"
    seconds = "?" if side["latency"] is None else f"{side['latency']:.2f} s"
    return visible(f"{side['model']}  {side['tokens'] or '?'} tokens, {cost}, {seconds}")
