"""Owns ``agentstate policy``: trying policies on what is recorded. Must not write, and needs no running proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentstate.core.visible import visible
from agentstate.settings import load, store_path

if TYPE_CHECKING:
    from agentstate.engine.rehearsal import Met

policy = typer.Typer(no_args_is_help=True, help="Policies on tool calls.")


@policy.callback()
def _group() -> None:
    """Policies on tool calls."""


@policy.command("test")
def test(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")],
    step: Annotated[int | None, typer.Argument(metavar="STEP", help="Only this step.")] = None,
    db: Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Show what the calls of a recorded session would meet under the policies of the settings."""
    # No other command waits for what this one needs.
    from agentstate.engine.policies import Policies
    from agentstate.engine.rehearsal import rehearsed
    from agentstate.store.reader import Reader

    settings = load(config, {"store": {"url": db}} if db is not None else None)
    policies = Policies(settings.policies)
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        met = rehearsed(reader, session, policies, step)
    finally:
        reader.close()
    if as_json:
        print(json.dumps([_view(one) for one in met], indent=2, ensure_ascii=False))
        return
    if not met:
        print("no recorded answer proposes a tool call")
        return
    table = Table("step", "tool", "arguments", "meets", "because", box=None, pad_edge=False)
    for one in met:
        name, text = (one.call.name, one.call.arguments) if one.call is not None else ("", "")
        action, why = (one.ruling.action.value, one.ruling.why) if one.ruling is not None else ("unknown", one.fault)
        style = {"hold": "yellow", "deny": "red", "unknown": "red"}.get(action, "")
        table.add_row(str(one.number), _text(name), _text(text), action, _text(why), style=style)
    Console().print(table)


def _view(one: Met) -> dict[str, object]:
    return {
        "step_number": one.number,
        "tool_name": one.call.name if one.call is not None else None,
        "arguments_text": one.call.arguments if one.call is not None else None,
        "action": one.ruling.action.value if one.ruling is not None else None,
        "policy": one.ruling.rule.number if one.ruling is not None and one.ruling.rule is not None else None,
        "why": one.ruling.why if one.ruling is not None else one.fault,
    }


def _text(text: str) -> str:
    return str(escape(visible(text).replace("\n", " ")))
