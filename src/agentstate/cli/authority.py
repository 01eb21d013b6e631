"""Owns the commands about people and what they did: approvers, the audit log, labels. Must not print a token twice.

Invariant: a token that the proxy makes is shown once, on standard output, and kept nowhere.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentstate.cli.people import Config, Url, connected, part
from agentstate.core.visible import visible

approvers = typer.Typer(no_args_is_help=True, help="People who may see, decide or administer, each with a token.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The approver's name.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@approvers.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What they are called: letters, digits, . _ @ + -")],
    role: Annotated[
        Literal["viewer", "approver", "admin"],
        typer.Option("--role", help="viewer (sees), approver (decides too) or admin (everything)."),
    ],
    slack: Annotated[str, typer.Option("--slack", help="Their user id in Slack, as U024BE7LH.")] = "",
    discord: Annotated[str, typer.Option("--discord", help="Their user id in Discord, a number.")] = "",
    url: Url = None,
    config: Config = None,
) -> None:
    """Add an approver, and show their token, once."""
    body = {"name": name, "role": role, "slack": slack, "discord": discord}
    _token(connected(config, url).call("POST", "/api/approvers", body))


@approvers.command("list")
def list_(as_json: Json = False, url: Url = None, config: Config = None) -> None:
    """List approvers, the disabled ones too."""
    rows = connected(config, url).call("GET", "/api/approvers")
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print("no approvers yet; add one with `agentstate approvers add NAME --role approver`")
        return
    table = Table("name", "role", "Slack", "Discord", "since", "disabled", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row["name"],
            row["role"],
            row["slack"],
            row["discord"],
            row["created_at"][:19],
            (row["disabled_at"] or "")[:19],
        )
    Console().print(table)


@approvers.command("disable")
def disable(name: Name, url: Url = None, config: Config = None) -> None:
    """Take an approver's authority away, for good; what they decided stays."""
    connected(config, url).call("POST", f"/api/approvers/{part(name)}/disable")
    print(f"{name} is disabled")


@approvers.command("rotate")
def rotate(name: Name, url: Url = None, config: Config = None) -> None:
    """Replace an approver's token, and show the new one, once."""
    _token(connected(config, url).call("POST", f"/api/approvers/{part(name)}/rotate"))


def _token(made: dict[str, Any]) -> None:
    print(f"{made['name']} is {made['role']}. Their token, which is shown this once (for AGENTSTATE_TOKEN):")
    print(made["token"])


def audit(
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, oldest first.")] = 100,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Show the audit log: who decided what, and when. `agentstate doctor` checks that nobody changed it."""
    rows = connected(config, url).call("GET", f"/api/audit?after={after}&limit={limit}")
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table("entry", "at", "who", "what", "about", "detail", box=None, pad_edge=False)
    for row in rows:
        detail = json.dumps(row["detail"], ensure_ascii=False) if row["detail"] else ""
        cells = (str(row["id"]), row["at"][:19], row["actor"], row["action"], row["subject"], detail)
        table.add_row(*(str(escape(visible(cell).replace("\n", " "))) for cell in cells))
    Console().print(table)
    if len(rows) == limit:
        print(f"there may be more: --after {rows[-1]['id']}")


def label(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")],
    add: Annotated[list[str] | None, typer.Argument(metavar="LABEL", help="Labels to add.")] = None,
    more: Annotated[list[str] | None, typer.Option("--add", help="The same; may be repeated.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A label to remove; may be repeated.")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Labels of this step, by which exports can go.")] = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Show or change the labels of a session, by which policies and exports can go, or of a step."""
    where = "" if step is None else f"/steps/{step}"
    control, path = connected(config, url), f"/api/sessions/{part(session)}{where}/labels"
    added = [*(add or []), *(more or [])]
    if added or remove or step is not None:
        found = control.call("POST", path, {"add": added, "remove": remove or []})
    else:
        found = control.call("GET", path)
    print(", ".join(visible(name) for name in found["labels"]) or "no labels")
