"""Owns the commands about how the proxy runs: a test call, budgets, diagnostics, policies tried on the last calls.

Must not decide anything. Invariant: names that agents chose are printed as text; what costs money says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentstate.cli.people import Config, Url, connected, part

if TYPE_CHECKING:
    from agentstate.engine.rehearsal import Rehearsal

Db = Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def test(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="Its name in the settings.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model that is asked.")],
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Ask a provider's model for one token, with the proxy's own key. Exit code 1 if it does not answer."""
    found = connected(config, url).call("POST", f"/api/providers/{part(provider)}/test", {"model": model})
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(_tested(found))
    raise typer.Exit(0 if found["answered"] else 1)


def _tested(found: dict[str, Any]) -> str:
    from agentstate.cli.show import _money
    from agentstate.core.visible import visible

    kept = f"step {found['step_number']} of session {found['session_id']}"
    if not found["answered"]:
        return visible(f"not answered ({found['status_code']}): {found['error']}; {kept}")
    cost = "price unknown" if found["cost"] is None else _money(found["cost"])
    return visible(f"answered in {found['latency']:.3f} s, {found['tokens']} tokens, {cost}; {kept}")


def budgets(as_json: Json = False, url: Url = None, config: Config = None) -> None:
    """Show what is used of each budget, today and by the sessions that have used most of theirs."""
    found = connected(config, url).call("GET", "/api/budgets")
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not found["limits"]:
        print("no budget is set; [budget] in the settings limits money, steps or tokens")
        return
    from rich.console import Console
    from rich.table import Table

    from agentstate.cli.show import _text
    from agentstate.core.budget import spelled

    table = Table("limit", "whose", box=None, pad_edge=False)
    for name in ("used", "in flight", "of", "%"):
        table.add_column(name, justify="right")
    for row in found["limits"]:
        name, most = row["limit"], row["most"]
        share = (row["used"] + row["reserved"]) / most * 100
        figures = [spelled(name, row[figure]) for figure in ("used", "reserved", "most")]
        style = "red" if share >= 100 else "yellow" if share >= 80 else ""
        table.add_row(name, _text(row["session_id"] or "today"), *figures, f"{share:.0f}", style=style)
    Console().print(table)
    print(f"at the limit: {'a person is asked' if found['at_limit'] == 'hold' else 'the call is refused'}")


def diagnostics(url: Url = None, config: Config = None) -> None:
    """Print what helps whoever helps you, as JSON: versions, settings without secrets, sizes and counts."""
    print(json.dumps(connected(config, url).call("GET", "/api/diagnostics"), indent=2, ensure_ascii=False))


def last(
    policies: Annotated[
        Path | None, typer.Option("--policies", help="File of [[policies]] to try; default: those of the settings.")
    ] = None,
    calls: Annotated[int, typer.Option("--calls", min=1, max=10_000, help="How many calls, the last ones.")] = 1000,
    db: Db = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what the last calls that models proposed, in any session, would meet under policies."""
    from agentstate.engine.policies import Policies
    from agentstate.engine.rehearsal import rehearsed_last
    from agentstate.errors import SettingsError
    from agentstate.settings import load, policies_of, store_path
    from agentstate.store.reader import Reader

    settings = load(config, {"store": {"url": db}} if db is not None else {})
    given = settings.policies
    if policies is not None:
        try:
            given = policies_of(policies.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{policies} cannot be read: {error}") from error
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        found = rehearsed_last(reader, Policies(given), calls)
    finally:
        reader.close()
    if as_json:
        print(json.dumps(_rehearsal(found), indent=2, ensure_ascii=False))
    else:
        _print(found)


def _rehearsal(found: Rehearsal) -> dict[str, Any]:
    return {
        "looked": found.looked,
        "unread": found.unread,
        "whole": found.whole,
        "counts": {action.value: count for action, count in found.counts.items()},
        "policies": [
            {"policy": number or None, "action": action.value, "calls": count}
            for (number, action), count in sorted(found.by_rule.items())
        ],
    }


def _print(found: Rehearsal) -> None:
    from rich.console import Console
    from rich.table import Table

    from agentstate.cli.show import _text
    from agentstate.core.model import Action

    if not found.looked:
        print("no recorded answer proposes a tool call")
        return
    held, denied = found.counts.get(Action.HOLD, 0), found.counts.get(Action.DENY, 0)
    print(
        f"of the last {found.looked} calls: {held} would be held, {denied} denied, {found.looked - held - denied} pass"
    )
    table = Table("session", "step", "tool", "meets", "because", box=None, pad_edge=False)
    for session, met in found.kept:
        assert met.call is not None and met.ruling is not None
        table.add_row(
            _text(session), str(met.number), _text(met.call.name), met.ruling.action.value, _text(met.ruling.why)
        )
    if found.kept:
        Console().print(table)
