"""Owns ``agentstate diff``: two sessions, runs or branches side by side, for people and as JSON. Must not compare.

Exit codes are those of ``diff``: 0 the same, 1 different, 2 neither is known.
Invariant: texts from agents and models are printed as text, never as markup or terminal codes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from agentstate.core.comparing import Field, Fields, Kind
    from agentstate.engine.comparing import Comparison, Figures, Pair, PairDiff, Side

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
]
Db = Annotated[str | None, typer.Option("--db", help="Journal: sqlite:///path or a path.")]
_REFERENCE = "A session, SESSION#RUN or SESSION@BRANCH."
_NEAR = 120  # characters around a difference in a long text
_TROUBLE = 2


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_REFERENCE)],
    b: Annotated[str, typer.Argument(metavar="B", help=_REFERENCE)],
    step: Annotated[int | None, typer.Option("--step", help="Only A's step of that number, field by field.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many pairs are listed at most.")] = 200,
    db: Db = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Compare two sessions, runs or branches, step by step. Exit code 0: the same, 1: different, 2: trouble."""
    from agentstate.errors import AgentStateError

    try:
        raise typer.Exit(_diff(a, b, step, limit, db, config, as_json))
    except AgentStateError as error:
        print(f"agentstate: {error}", file=sys.stderr)
        raise typer.Exit(_TROUBLE) from None


def _diff(a: str, b: str, step: int | None, limit: int, db: str | None, config: Path | None, as_json: bool) -> int:
    from rich.console import Console

    from agentstate.core.comparing import Kind
    from agentstate.engine.comparing import compare, pair_of_step
    from agentstate.server.comparing_views import comparison_view, diff_view
    from agentstate.settings import load, store_path
    from agentstate.store.reader import Reader

    settings = load(config, {"store": {"url": db}} if db is not None else {})
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        if step is not None:
            found = pair_of_step(reader, a, b, step)
            _json(diff_view(found)) if as_json else print_pair(Console(), found)
            return int(found.pair.kind is not Kind.SAME)
        comparison = compare(reader, a, b, 0, limit)
        _json(comparison_view(comparison)) if as_json else _all(Console(), comparison)
        return int(not comparison.same)
    finally:
        reader.close()


def _json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _all(console: Console, found: Comparison) -> None:
    from rich.table import Column, Table

    for mark, side, style in (("-", found.left, "red"), ("+", found.right, "green")):
        console.print(_of_side(mark, side), style=style, highlight=False, markup=False)
    if found.same:
        console.print(f"the same: {found.total} steps", markup=False)
        return
    table = Table("pair", "left", "right", Column("how", overflow="fold"), "cost", "seconds", box=None, pad_edge=False)
    skipped = 0
    for pair in found.pairs:
        if pair.kind.value == "same":
            skipped += 1
            continue
        if skipped:
            table.add_row("", "", "", f"{skipped} the same", "", "", style="dim")
        skipped = 0
        table.add_row(*_row(pair), style=_style(pair.kind))
    if skipped:
        table.add_row("", "", "", f"{skipped} the same", "", "", style="dim")
    console.print(table)
    counts = ", ".join(f"{count} {kind.value}" for kind, count in found.counts.items())
    console.print(f"{found.total} pairs: {counts}", highlight=False, markup=False)
    if len(found.pairs) < found.total:
        console.print(f"the first {len(found.pairs)} are listed; --limit lists more", highlight=False)
    first = found.first.left or found.first.right if found.first is not None else None
    if first is not None:
        console.print(f"field by field: --step {first.number}", style="dim", highlight=False)


def _of_side(mark: str, side: Side) -> str:
    from agentstate.core.visible import visible

    unknown = f" + ?{side.cost_unknown}" if side.cost_unknown else ""
    models = ", ".join(visible(name) for name in side.models[:3])
    return (
        f"{mark} {visible(side.reference)}  {side.steps} steps, {side.tokens:,} tokens, ${side.cost:.4f}{unknown}, "
        f"{side.latency:.1f} s  {models}"
    )


def _row(pair: Pair) -> list[str]:
    from rich.markup import escape

    from agentstate.core.visible import visible

    how = pair.kind.value + (f": {', '.join(pair.differs)}" if pair.differs and pair.differs != ("request",) else "")
    models = [side.model for side in (pair.left, pair.right) if side is not None]
    if len(set(models)) > 1:
        how += f" ({visible(models[0])} → {visible(models[1])})"
    numbers = ["" if side is None else str(side.number) for side in (pair.left, pair.right)]
    return [str(pair.index), *numbers, escape(how), _both(pair, "cost"), _both(pair, "latency")]


def _both(pair: Pair, name: str) -> str:
    shown = [_figure(side, name) for side in (pair.left, pair.right) if side is not None]
    return " → ".join(dict.fromkeys(shown))


def _figure(side: Figures, name: str) -> str:
    value = getattr(side, name)
    if value is None:
        return "?"
    return f"${value:.4f}" if name == "cost" else f"{value:.2f}"


def _style(kind: Kind) -> str:
    return {"only left": "red", "only right": "green", "answer differs": "yellow"}.get(kind.value, "magenta")


def print_pair(console: Console, found: PairDiff) -> None:
    """One pair, field by field."""
    pair = found.pair
    console.print("  ".join(part for part in _row(pair) if part), style=_style(pair.kind), highlight=False)
    for title, fields in (("request", found.request), ("answer", found.answer), ("given to the agent", found.released)):
        if fields:
            console.print(title, style="bold")
            _fields(console, fields)
    if not (found.request or found.answer or found.released) and pair.left and pair.right:
        console.print("nothing differs but figures", style="dim")
    for mark, text, side in (("-", found.left_text, pair.left), ("+", found.right_text, pair.right)):
        if side is not None and (pair.left is None or pair.right is None):
            console.print(_plain(f"{mark} {text}"))


def _fields(console: Console, fields: Fields) -> None:
    from rich.text import Text

    for field in fields.found:
        console.print(Text(f"  {_clean(field.path)}", "cyan") + Text(f"  {_clean(field.place)}", "dim"))
        console.print(_change(field), soft_wrap=True)
    if fields.more:
        console.print("  and more", style="dim")


def _change(field: Field) -> Text:
    from rich.text import Text

    shown = Text("    ")
    if field.text:
        for segment in field.text:
            style = {"left": "red", "right": "green"}.get(segment.side, "")
            text = _near(segment.text) if segment.side == "both" else segment.text
            marks = {"left": ("[-", "-]"), "right": ("{+", "+}")}.get(segment.side, ("", ""))
            shown.append(marks[0] + _clean(text) + marks[1], style)
        return shown
    if field.only != "right":
        shown.append(f"- {_value(field.left)}", "red")
    if field.only != "left":
        shown.append("" if field.only else "\n    ")
        shown.append(f"+ {_value(field.right)}", "green")
    return shown


def _near(text: str) -> str:
    """What both sides have in common, cut in the middle where it is long."""
    return text if len(text) <= 2 * _NEAR else f"{text[:_NEAR]} … {text[-_NEAR:]}"


def _value(value: Any) -> str:
    return _clean(json.dumps(value, ensure_ascii=False))


def _clean(text: str) -> str:
    from agentstate.core.visible import visible

    return visible(text)


def _plain(text: str) -> Text:
    from rich.text import Text

    return Text(_clean(text))
