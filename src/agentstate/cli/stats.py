"""Owns ``agentstate stats``. Must not count: it shows the figures of the journal as a table or as JSON.

Invariant: an amount of which a part is unknown says so; names that agents chose are printed as text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from agentstate.engine.stats import Row, Stats

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
]
Db = Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")]


def stats(
    by: Annotated[
        Literal["day", "model", "provider", "session", "label"],
        typer.Option(help="A row for each day, model, provider, session or label."),
    ] = "day",
    since: Annotated[str, typer.Option(help="The first day that counts (UTC), as 2026-01-31.")] = "",
    until: Annotated[str, typer.Option(help="The last one.")] = "",
    session: Annotated[str, typer.Option(help="Only this session.")] = "",
    db: Db = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table for spreadsheets.")] = False,
) -> None:
    """Show calls, replays, tokens, what they cost and what replay saved."""
    from agentstate.cli.show import _json
    from agentstate.engine.stats import as_csv as table_of
    from agentstate.engine.stats import stats as figures
    from agentstate.errors import BadRequest
    from agentstate.server.api_stats import stats_view
    from agentstate.settings import load, store_path
    from agentstate.store.reader import Reader

    settings = load(config, {"store": {"url": db}} if db is not None else {})
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        found = figures(reader, by, since, until, session)
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None
    finally:
        reader.close()
    if as_csv:
        print(table_of(found), end="")
    elif as_json:
        _json(stats_view(found))
    else:
        _print(found)


def _print(found: Stats) -> None:
    from rich.console import Console
    from rich.table import Table

    from agentstate.cli.show import _text

    table = Table(found.by, box=None, pad_edge=False)
    for name in ("calls", "failed", "replays", "input", "cached", "output", "cost", "saved"):
        table.add_column(name, justify="right")
    for row in found.rows:
        table.add_row(_text(row.name), *_cells(row))
    table.add_row("all", *_cells(found.total), style="bold")
    Console().print(table)
    if found.total.sent.unpriced or found.total.spared.unpriced:
        Console().print("+ ?N: and N calls whose cost is unknown; [[prices]] in the settings can give it", markup=False)


def _cells(row: Row) -> list[str]:
    tokens = row.sent.tokens
    return [
        str(row.sent.calls), str(row.sent.failed), str(row.spared.replays), f"{tokens.input:,}",
        f"{tokens.cache_read:,}", f"{tokens.output:,}", _amount(row.sent.cost, row.sent.unpriced),
        _amount(row.spared.saved, row.spared.unpriced),
    ]  # fmt: skip


def _amount(known: float, unknown: int) -> str:
    from agentstate.cli.show import _money

    return _money(known) + (f" + ?{unknown}" if unknown else "")
