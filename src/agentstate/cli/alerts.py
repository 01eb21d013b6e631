"""Owns ``agentstate alerts``: what became of messages to people, trying targets, reviving dead messages.

Must not decide what follows from a failure.

Invariant: no line shows more of a target's address than scheme and host; texts from agents are printed as text.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agentstate.settings import Settings

app = typer.Typer(name="alerts", help="Messages to people: what became of them, try a target, send one again.")

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
]
Db = Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")]
_MOST_ERROR = 90  # characters of an error in the table; --json has all of it


@app.command("list")
def list_(
    state: Annotated[
        Literal["pending", "delivered", "dead"] | None,
        typer.Option(case_sensitive=False, help="Only pending, delivered or dead ones."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    db: Db = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List the messages of the outbox, with their age and what went wrong."""
    show_list(_settings(config, db), state or "", limit, as_json)


@app.command()
def test(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The target's name; default every target of the settings.")
    ] = "",
    config: Config = None,
) -> None:
    """Send a test message now, and say how each target took it. Exit code 1 if any did not."""
    raise typer.Exit(try_targets(_settings(config, None), name))


@app.command()
def retry(
    id_: Annotated[int, typer.Argument(metavar="ID", help="The message's number in the list.")],
    config: Config = None,
) -> None:
    """Send a dead message again, with all its tries."""
    revive(_settings(config, None), id_)


def _settings(config: Path | None, db: str | None) -> Settings:
    from agentstate import settings

    return settings.load(config, {"store": {"url": db}} if db is not None else {})


def show_list(settings: Settings, state: str, limit: int, as_json: bool) -> None:
    """Print the newest messages. Raises ``StoreError``."""
    from rich.console import Console
    from rich.table import Table

    from agentstate import clock
    from agentstate.alerts.message import clipped
    from agentstate.cli.show import _json, _text
    from agentstate.server.views import message_view
    from agentstate.settings import store_path
    from agentstate.store.reader import Reader

    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        rows = reader.messages(state, limit)
    finally:
        reader.close()
    if as_json:
        _json([message_view(row) for row in rows])
        return
    if not rows:
        Console().print("no messages" + (f" that are {state}" if state else " yet"))
        return
    table = Table("id", "state", "target", "event", "about", "age", "tries", "error", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            str(row.id), row.state, _text(row.target), row.event, _text(row.session),
            _age(clock.now() - row.created_at), str(row.attempts), _text(clipped(row.error, _MOST_ERROR)),
            style="red" if row.state == "dead" else "",
        )  # fmt: skip
    Console().print(table)


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def try_targets(settings: Settings, name: str) -> int:
    """Send a test message from here, so that it works without a proxy too; 0: all took it. Raises ``NotFound``,
    ``SettingsError``."""
    from agentstate.alerts.target import targets
    from agentstate.engine.delivery import chosen_targets
    from agentstate.errors import NotFound

    chosen = chosen_targets(targets(settings.alerts, settings.approvals), name)
    if not chosen:
        raise NotFound("the settings name no target: add an [[alerts]] table to agentstate.toml, with kind and url")
    failed = 0
    for target, sent in zip(chosen, asyncio.run(_tried(chosen)), strict=True):
        failed += bool(sent.error)
        print(f"{target.name} ({target.kind}, {target.shown}): {sent.error or 'delivered'}")
    return 1 if failed else 0


async def _tried(chosen: list[Any]) -> list[Any]:
    from agentstate.engine.sender import Sender, trial

    sender = Sender()
    try:
        return await asyncio.gather(*(trial(sender, target) for target in chosen))
    finally:
        await sender.close()


def revive(settings: Settings, key: int) -> None:
    """Through the proxy that runs, else in the journal itself. Raises ``AgentStateError``."""
    from agentstate.cli.control import Control, admin_token, find

    url = find(settings)
    if url is not None:
        Control(url, admin_token(settings)).call("POST", f"/api/alerts/{key}/retry")
        print(f"message {key} is on its way")
        return
    asyncio.run(_revived(settings, key))
    print(f"message {key} is due again; no proxy runs, so it is sent when one does")


async def _revived(settings: Settings, key: int) -> None:
    from agentstate.engine.core import Parts

    parts = Parts(settings)
    parts.open()
    try:
        await parts.delivery.retry(key)
    finally:
        await parts.close()
