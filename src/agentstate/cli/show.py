"""Owns how the terminal shows sessions, steps, and what stands beside them: tool calls, approvals. Must not write.

Invariant: texts from agents and models are printed as text, never as markup or terminal codes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agentstate.core.replay import DEADLY
from agentstate.engine import overview
from agentstate.engine.sessions import found
from agentstate.errors import NotFound
from agentstate.server.views import detail_view, session_view
from agentstate.settings import Settings, store_path
from agentstate.store.overview_reader import Wanted
from agentstate.store.reader import Reader

_PAGE = 10_000
_WIDE = 40  # characters of a text in a table
_BODIES = ("prompt", "response", "proposed")


def sessions(settings: Settings, asked: Wanted, limit: int, as_json: bool) -> None:
    """List sessions. Raises ``StoreError``."""
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        rows = [session_view(reader, listed.row) for listed in overview.rows(reader, asked, limit)]
    finally:
        reader.close()
    if as_json:
        _json(rows)
        return
    if not rows and asked != Wanted():
        Console().print("no session is like that; leave an option out")
        return
    if not rows:
        Console().print("no sessions yet; point an agent's base URL at the proxy, or try `agentstate demo`")
        return
    table = Table(
        Column("session", overflow="fold"), "status", "steps", "runs", "cost", "last change", box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(
            _text(row["id"]), row["status"], str(row["steps"]), str(row["runs"]), _money(row["cost"]), row["updated_at"]
        )
    Console().print(table)


def show(settings: Settings, key: str, step: int | None, as_json: bool) -> None:
    """Show one session or one step of it. Raises ``NotFound``, ``StoreError``."""
    reader = Reader(store_path(settings), settings.store.busy_s)
    try:
        row = found(reader, key)
        view = detail_view(reader, row, step or 0, 1 if step is not None else _PAGE)
    finally:
        reader.close()
    if step is not None:
        view["steps"] = [part for part in view["steps"] if part["step_number"] == step]
        if not view["steps"]:
            there = f"it has the steps 0 to {row.steps - 1}" if row.steps else "it has none yet"
            raise NotFound(f"session {key!r} has no step {step}; {there}")
    if as_json:
        _json(view if step is None else view["steps"][0])
    elif step is not None:
        _one(view["steps"][0])
    else:
        _all(view)


def _all(view: dict[str, Any]) -> None:
    console = Console()
    session = view["session"]
    console.print(
        f"[bold]{_text(session['id'])}[/bold]  {session['status']}  {session['steps']} steps, {session['runs']} runs, "
        f"cost {_money(session['cost'])}",
        highlight=False,
    )
    if session["note"]:
        note = session["note"]
        console.print(_text(note.get("text", "") if isinstance(note, dict) else str(note)), style="yellow")
    steps = Table("step", "state", "model", "asks", "answer", "cost", "seconds", "given to", box=None, pad_edge=False)
    for step in view["steps"]:
        given = ", ".join(f"{part['outcome']}{' (cut)' if part['cut'] else ''}" for part in step["served"])
        steps.add_row(
            str(step["step_number"]), _state(step) + _marks(step),
            _text(step["model"]), _text(_last_message(step["prompt"])), _text(_answer(step)),
            _money(step["token_cost"]), _seconds(step["latency"]), given,
            style="dim" if step["superseded"] else ("red" if step["state"] == "failed" else ""),
        )  # fmt: skip
        for name, tool, arguments, became in _beside(step):
            style = "dim" if step["superseded"] else ("yellow" if became == "pending" else "")
            steps.add_row("", name, _text(tool), _text(_short(arguments)), _text(_short(became)), style=style)
    console.print(steps)
    for step in view["steps"]:
        if step["deaths"] >= DEADLY and session["status"] != "COMPLETED" and not step["superseded"]:
            console.print(
                f"{step['deaths']} runs ended right after they were given step {step['step_number']}: its answer may "
                f"be what kills them. To ask anew from there: agentstate rollback {session['id']} "
                f"{step['step_number']}",
                style="yellow", highlight=False, markup=False,
            )  # fmt: skip
    runs = Table("run", "known by", "state", "replayed", "paid", "joined", "saved", box=None, pad_edge=False)
    for run in view["runs"]:
        runs.add_row(
            _text(run["run"]), run["evidence"], run["state"] + (", diverged" if run["diverged"] else ""),
            str(run["replayed"]), str(run["live"]), str(run["joined"]), _money(run["saved"]),
        )  # fmt: skip
    console.print(runs)


def _one(step: dict[str, Any]) -> None:
    console = Console()
    for name, value in step.items():
        if name in (*_BODIES, "calls", "approvals", "tries"):
            continue
        console.print(f"[dim]{name:>14}[/dim]  {_text(str(value))}", highlight=False)
    for row in step["tries"]:
        where = row["candidate"] or row["provider"]
        told = [part for part in (row["why"], row["error"], ", ".join(row["lost"])) if part]
        line = f"{row['attempt']}: {where} {row['status']} {' → '.join(told)}"
        console.print(f"[dim]{'attempt':>14}[/dim]  {_text(line)}", highlight=False)
    for name, tool, arguments, became in _beside(step):
        console.print(f"[dim]{name:>14}[/dim]  {_text(tool)} {_text(arguments)}: {_text(became)}", highlight=False)
    for name in _BODIES:
        if name == "proposed" and step[name] is None:
            continue
        console.rule(name)
        console.print(_pretty(step[name]), markup=False, highlight=False)


def _state(step: dict[str, Any]) -> str:
    """An answer that is complete and waits for people is held, for whoever looks."""
    return "held" if step["release"] == "held" else str(step["state"])


def _marks(step: dict[str, Any]) -> str:
    """What else is to be known of a step: another session's, not shown any more, edited."""
    marks = [name for name in ("shared", "superseded", "edited") if step[name]]
    return f" ({', '.join(marks)})" if marks else ""


def _beside(step: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(kind of row, tool, arguments, what became of it) of what people were asked about a step, and of the tool calls
    that agents were given."""
    asked = [
        ("approval", row["tool_name"] or row["kind"], row["arguments"], _decided(row)) for row in step["approvals"]
    ]
    return asked + [("tool", row["tool"], row["arguments"], _result(row)) for row in step["calls"]]


def _decided(approval: dict[str, Any]) -> str:
    by = f" by {approval['decided_by']}" if approval["decided_by"] else ""
    return str(approval["status"]).lower() + by + (f": {approval['reason']}" if approval["reason"] else "")


def _result(call: dict[str, Any]) -> str:
    if call["made_at"] is not None:
        return f"made as step {call['made_at']}"
    if call["result"] is None:
        return "no result yet"
    return f"failed: {call['result']}" if call["failed"] else str(call["result"])


def _json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _pretty(text: str | None) -> str:
    try:
        shown: bytes = msgspec.json.format((text or "").encode(), indent=2)
        return str(_plain(shown.decode()))
    except msgspec.DecodeError:
        return _plain(text or "(none)")


def _plain(text: str) -> str:
    """Without terminal codes."""
    return "".join(char if char in "\n\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160) else "·" for char in text)


def _text(text: str) -> str:
    return str(escape(_plain(text).replace("\n", " ")))


def _money(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.6f}".rstrip("0").rstrip(".") if value else "$0"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else text[: _WIDE - 1] + "…"


def _last_message(prompt: str | None) -> str:
    try:
        messages = msgspec.json.decode(prompt or "{}").get("messages") or []
        last = messages[-1] if messages else {}
        content = last.get("content")
        text = content if isinstance(content, str) else ""
        if isinstance(content, list):
            text = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        text = f"{last.get('role', '')}: {text}" if last else ""
    except (msgspec.DecodeError, AttributeError, TypeError):
        return ""
    return _short(text)


def _answer(step: dict[str, Any]) -> str:
    if step["error"]:
        text = str(step["error"])
    else:
        try:
            choices = msgspec.json.decode(step["response"] or "{}").get("choices") or [{}]
            message = choices[0].get("message") or {}
            calls = ", ".join(call["function"]["name"] + "()" for call in message.get("tool_calls") or ())
            text = str(calls or message.get("content") or "")
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
            text = ""
    return _short(text)
