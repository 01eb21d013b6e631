"""Owns the commands with which people see and decide approvals. Must not decide: the proxy does.

Invariant: what is shown of a call is whole, or says how much is left out; an edit says which call was seen.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agentstate.cli.control import Control
from agentstate.cli.people import Config, Url, all_of, connected, part
from agentstate.core.budget import RAISE
from agentstate.core.visible import laid_out, visible
from agentstate.errors import AgentStateError, BadRequest

POLL_S = 2.0
ID_CHARACTERS = 28  # of an approval
_MOST_SHOWN = 60  # characters of arguments in a table

# What can be said of an approval: (its kind, the decision that it is).
_OUTCOMES = {
    "ran": ("doubt", "REUSED"),
    "did-not-run": ("doubt", "APPROVED"),
    "abort": ("doubt", "REJECTED"),
    "reuse": ("duplicate", "REUSED"),
}

Id = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, as `agentstate approvals` shows it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; the agent or the model may be told.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def approvals(
    key: Annotated[str | None, typer.Argument(metavar="ID", help="One approval, with its arguments in full.")] = None,
    session: Annotated[str, typer.Option(help="Only those of this session.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="The decided ones too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Arguments in full.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking; a bell rings when new ones come.")] = False,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """List what waits for a decision."""
    control = connected(config, url)
    if key is not None:
        found = [control.call("GET", f"/api/approvals/{part(key)}")]
        _print(found[0] if as_json else found, True, as_json)
        return
    query = {"session": session} if session else {}
    if not everything:
        query["state"] = "pending"
    if not watch:
        _print(all_of(control, "/api/approvals", **query), full, as_json)
        return
    _follow(control, query, full, as_json)


def _follow(control: Control, query: dict[str, str], full: bool, as_json: bool) -> None:
    """Look again and again, until interrupted. A proxy that does not answer is told of once and waited for."""
    known: set[tuple[str, str]] | None = None
    lost = False
    wait = threading.Event().wait
    while True:
        try:
            found = all_of(control, "/api/approvals", **query)
        except AgentStateError as error:
            if known is None:
                raise
            if not lost:
                print(f"agentstate: {error}", file=sys.stderr, flush=True)
            lost = True
        else:
            lost = False
            now = {(one["id"], one["status"]) for one in found}
            new = {key for key, _ in now} - {key for key, _ in known or now}
            if now != known:
                _print(found, full, as_json)
            if new and not as_json:
                print("\a", end="", flush=True)
            known = now
        wait(POLL_S)


def approve(
    key: Id,
    reason: Reason = "",
    more: Annotated[
        float | None,
        typer.Option("--raise", help="Of a reached budget: raise the limit by so much, instead of once only."),
    ] = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Approve a held call: it is given to the agent as it is. At a budget: let this one call through."""
    control = connected(config, url)
    _refuse_doubt(control, key)
    decision: dict[str, Any] = {"action": "APPROVED"}
    if more is not None:
        seen = control.call("GET", f"/api/approvals/{part(key)}")
        if seen["kind"] != "budget":
            raise BadRequest(f"{key} asks about no budget, so there is nothing to raise; it is as it was")
        decision = {"action": "EDITED", "arguments": {RAISE: more}, "digest": seen["digest"]}
    _say(_decided(control, key, {**decision, "reason": reason}))


def reject(
    key: Id,
    reason: Annotated[str, typer.Option("--reason", help="Why; the agent or the model is told.")],
    url: Url = None,
    config: Config = None,
) -> None:
    """Reject a held call: the agent never sees it."""
    control = connected(config, url)
    _refuse_doubt(control, key)
    _say(_decided(control, key, {"action": "REJECTED", "reason": reason}))


def _refuse_doubt(control: Control, key: str) -> None:
    """Raises ``BadRequest``: whether a call ran is no question of yes and no."""
    if control.call("GET", f"/api/approvals/{part(key)}")["kind"] == "doubt":
        raise BadRequest(
            f"approval {key} is about a call in doubt: look what became of it, then say so with "
            f"`agentstate settle {key}` and ran, did-not-run (it is sent again) or abort"
        )


def settle(
    key: Id,
    outcome: Annotated[
        Literal["ran", "did-not-run", "abort", "reuse"],
        typer.Argument(metavar="OUTCOME", help="ran, did-not-run, abort; of a duplicate: reuse."),
    ],
    result: Annotated[str | None, typer.Option("--result", help="What a call that ran came to: JSON, or text.")] = None,
    reason: Reason = "",
    url: Url = None,
    config: Config = None,
) -> None:
    """Say what became of a call in doubt, or give the recorded result of a suspected duplicate."""
    if result is not None and outcome != "ran":
        raise BadRequest("--result goes with the outcome ran only; nothing was decided")
    control = connected(config, url)
    seen = control.call("GET", f"/api/approvals/{part(key)}")
    kind, action = _OUTCOMES[outcome]
    if seen["kind"] != kind:
        raise BadRequest(f"approval {key} is of the kind {seen['kind']}; {outcome} can be said of a {kind} only")
    body: dict[str, Any] = {"action": action, "reason": reason, "digest": seen["digest"]}
    if result is not None:
        body["arguments"] = _value(result)
    _say(_decided(control, key, body))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def edit(
    key: Id,
    arguments: Annotated[str | None, typer.Option("--arguments", help="The edited arguments, a JSON object.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file that holds them; - for standard input.")] = None,
    reason: Reason = "",
    url: Url = None,
    config: Config = None,
) -> None:
    """Approve a held call with other arguments; with neither option, in the editor that VISUAL or EDITOR names."""
    if arguments is not None and file is not None:
        raise BadRequest("give the arguments with --arguments or with --file, not with both")
    control = connected(config, url)
    body: dict[str, Any] = {"action": "EDITED", "reason": reason}
    if file is not None:
        arguments = sys.stdin.read() if str(file) == "-" else read_file(file)
    if arguments is None:
        seen = control.call("GET", f"/api/approvals/{part(key)}")
        arguments = _edited(seen)
        body["digest"] = seen["digest"]
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the arguments are not JSON ({error}); the approval is still pending") from None
    _say(_decided(control, key, {**body, "arguments": value}))


def read_file(file: Path) -> str:
    """Raises ``BadRequest``."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{file} cannot be read: {error}") from error


def _edited(seen: dict[str, Any]) -> str:
    """What a person makes of the arguments in their editor. Raises ``BadRequest`` where that is nothing new."""
    before = json.dumps(seen["arguments"], indent=2, ensure_ascii=False) if seen["arguments"] is not None else (
        seen["arguments_text"]
    )  # fmt: skip
    return in_editor(before, "nothing was edited; the approval is still pending")


def in_editor(before: str, unchanged: str) -> str:
    """What a person makes of a text in the editor that VISUAL or EDITOR names. Raises ``BadRequest``, with
    ``unchanged`` where that is nothing new."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise BadRequest("set EDITOR, or give the edited arguments with --arguments or --file")
    with tempfile.TemporaryDirectory(prefix="agentstate-") as folder:
        path = Path(folder) / "arguments.json"
        path.write_text(before + "\n", "utf-8")
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)
        except (OSError, ValueError) as error:
            raise BadRequest(f"the editor {editor!r} cannot be started: {error}") from error
        after = read_file(path)
    if done.returncode != 0 or after.strip() == before.strip():
        raise BadRequest(unchanged)
    return after


def _decided(control: Control, key: str, body: dict[str, Any]) -> dict[str, Any]:
    return dict(control.call("POST", f"/api/approvals/{part(key)}/action", body)["approval"])


def _say(view: dict[str, Any]) -> None:
    if view["status"] == "PENDING":
        print(f"counted; approval {view['id']} waits for others: {view['quorum']} people must say the same")
    else:
        by = f" by {view['decided_by']}" if view["decided_by"] else ""
        print(f"approval {view['id']} is {view['status'].lower()}{by}")


def _print(found: Any, full: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False), flush=True)
        return
    console = Console()
    if not found:
        console.print("nothing waits for a decision")
        return
    if full:
        for one in found:
            _whole(console, one)
        return
    console.print(_table(found))


def _table(found: list[dict[str, Any]]) -> Table:
    """One line for each. Ids are never cut, since who decides has to type them."""
    several = any(one["quorum"] > 1 for one in found)
    table = Table(
        Column("id", no_wrap=True, min_width=ID_CHARACTERS), Column("session", overflow="fold", min_width=7), "step",
        Column("tool", overflow="fold", min_width=8), Column("arguments", overflow="fold"), "state",
        *(("people",) if several else ()), "since", box=None, pad_edge=False,
    )  # fmt: skip
    for one in found:
        voted = f"{len(one['votes'])}/{one['quorum']}" if one["quorum"] > 1 else ""
        table.add_row(
            one["id"], _text(one["session_id"]), str(one["step_number"]), _text(one["tool_name"] or one["kind"]),
            _cut(one["arguments_text"]), _state(one), *((voted,) if several else ()), one["created_at"][:16],
        )  # fmt: skip
    return table


def _state(one: dict[str, Any]) -> str:
    state = str(one["status"]).lower()
    return f"{state} by {one['decided_by']}" if one["decided_by"] else state


def _whole(console: Console, one: dict[str, Any]) -> None:
    text, note = laid_out(one["arguments_text"])
    facts = {
        "session": f"{one['session_id']}, step {one['step_number']}",
        "state": _state(one),
        "reason": one["reason"],
        "held by": (one["rule"] or {}).get("why", ""),
        "decided by": ", ".join(one["approvers"]) or "any approver",
        "votes": ", ".join(f"{vote['approver']} {vote['action'].lower()}" for vote in one["votes"]),
        "quorum": str(one["quorum"]),
        "expires": one["expires_at"] or "never",
    }
    console.rule(f"{one['id']}  {_text(one['tool_name'] or one['kind'])}", align="left")
    for name, value in facts.items():
        if value:
            console.print(f"[dim]{name:>10}[/dim]  {_text(value)}", highlight=False, soft_wrap=True)
    if note:
        console.print(f"arguments to the letter: {note}", style="yellow", markup=False, soft_wrap=True)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    if one["effective"] is not None:
        console.print("its result:" if one["kind"] == "doubt" else "as edited:", style="dim")
        shown = laid_out(json.dumps(one["effective"]))[0]
        console.print(shown, markup=False, highlight=False, soft_wrap=True)


def _text(text: str) -> str:
    return str(escape(visible(text).replace("\n", " ")))


def _cut(text: str) -> str:
    if len(text) <= _MOST_SHOWN:
        return _text(text)
    return _text(text[:_MOST_SHOWN]) + f"… (+{len(text) - _MOST_SHOWN} characters, see --full)"
