"""Owns the commands that show how things stand: providers, settings, policies, runs of a session, whose token is used.

Must not decide anything. Invariant: texts from agents and providers are printed as text, and no secret is shown.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from agentstate.cli.people import Config, Url, connected, part

Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
_PAGE = 100


def providers(as_json: Json = False, url: Url = None, config: Config = None) -> None:
    """Show how providers and routes stood in the last 24 hours."""
    found = connected(config, url).call("GET", "/api/providers")
    if as_json:
        _print_json(found)
        return
    from rich.console import Console
    from rich.table import Table

    from agentstate.cli.show import _text

    table = Table(
        "provider", "model", "state", "calls", "failed", "p50", "p95", "prices", "shutdown", box=None, pad_edge=False
    )
    for provider in found["providers"]:
        for model in provider["models"] or [None]:
            table.add_row(_text(provider["name"]), *([""] * 8 if model is None else _cells(model)))
    Console().print(table)
    for route in found["routes"]:
        ways = [f"{one['provider']}/{one['model']}" for one in route["candidates"]]
        Console().print(f"route {_text(route['model'])}: {_text(' → '.join(ways))}")
    for warning in found["warnings"]:
        Console().print(_text(f"warning: {warning}"), style="yellow")


def _cells(model: dict[str, Any]) -> list[str]:
    from agentstate.cli.show import _seconds, _text

    failing = "" if model["failing"] is None else f"{model['failing']:.0%}"
    return [
        _text(model["model"]), model["state"], str(model["calls"]), failing, _seconds(model["p50"]),
        _seconds(model["p95"]), _text(model["prices"] or "unknown"), model["shutdown"] or "",
    ]  # fmt: skip


def settings(
    every: Annotated[bool, typer.Option("--all", help="Those that nobody set too.")] = False,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Show the settings that the running proxy was given, without secrets."""
    found = connected(config, url).call("GET", "/api/settings")
    if as_json:
        _print_json(found)
        return
    from agentstate.cli.show import _plain

    lines = [
        f"{name} = {_plain(json.dumps(value, ensure_ascii=False))}"
        for name, value in _flat(found["settings"])
        if every or any(name == given or name.startswith(f"{given}.") for given in found["set"])
    ]
    print("\n".join(lines) if lines else "all settings are as they come; --all shows them")


def _flat(given: dict[str, Any]) -> list[tuple[str, Any]]:
    """``(section.name, value)`` of each."""
    found = []
    for section, part_ in given.items():
        if isinstance(part_, dict):
            found += [(f"{section}.{name}", value) for name, value in part_.items()]
        else:
            found.append((section, part_))
    return found


def policies(as_json: Json = False, url: Url = None, config: Config = None) -> None:
    """List the policies in force in the running proxy."""
    found = connected(config, url).call("GET", "/api/policies")
    if as_json:
        _print_json(found)
        return
    from rich.console import Console
    from rich.table import Table

    from agentstate.cli.show import _text

    table = Table("number", "does", "tools", "when", "sessions", "labels", "quorum", box=None, pad_edge=False)
    for one in found:
        table.add_row(
            str(one["number"]), one["action"], _text(", ".join(one["tools"])), _text(one["when"] or "always"),
            _text(", ".join(one["sessions"]) or "all"), _text(", ".join(one["labels"]) or "any"), str(one["quorum"]),
        )  # fmt: skip
    Console().print(table)


def runs(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")],
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """List the runs of a session: what each replayed, asked anew, cost and saved."""
    control = connected(config, url)
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        wanted = min(_PAGE, limit - len(found))
        after = f"&after={part(found[-1]['run'])}" if found else ""
        page = control.call("GET", f"/api/sessions/{part(session)}/runs?limit={wanted}{after}")
        found += page
        if len(page) < wanted:
            break
    if as_json:
        _print_json(found)
        return
    from rich.console import Console
    from rich.table import Column, Table

    from agentstate.cli.show import _money, _text

    table = Table(
        Column("run", overflow="fold"), "state", "exit", "replayed", "joined", "live", "cost", "saved", "began",
        box=None, pad_edge=False,
    )  # fmt: skip
    for one in found:
        code = "" if one["exit_code"] is None else str(one["exit_code"])
        table.add_row(
            _text(one["run"]), one["state"] + (" (diverged)" if one["diverged"] else ""), code, str(one["replayed"]),
            str(one["joined"]), str(one["live"]), _money(one["cost"]), _money(one["saved"]), one["started_at"],
        )  # fmt: skip
    Console().print(table)


def whoami(as_json: Json = False, url: Url = None, config: Config = None) -> None:
    """Say whose token is used, and what it may do."""
    found = connected(config, url).call("GET", "/api/whoami")
    if as_json:
        _print_json(found)
    else:
        print(f"{found['name']}, {found['role']}")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
