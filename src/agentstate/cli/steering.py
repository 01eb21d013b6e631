"""Owns the commands that choose where a session goes on: rollback, fork, edit, branches. Must not do the work: the
proxy does.

Invariant: before anything is superseded or left behind it is shown what that means, and asked; where nobody can be
asked, nothing is done without ``--yes``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentstate.cli import approvals
from agentstate.cli.approvals import in_editor, read_file
from agentstate.cli.control import Control
from agentstate.cli.people import Config, Url, connected, part
from agentstate.core.visible import visible
from agentstate.errors import BadRequest

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")]
Branch = Annotated[int | None, typer.Option("--branch", help="A branch of the session, as `branches` shows it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what it would mean.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
_MOST_NUMBERS = 20  # of steps in one line


def rollback(
    session: Session,
    step: Annotated[
        int | None, typer.Argument(metavar="[STEP]", help="Steps from here on are superseded; or give --branch.")
    ] = None,
    branch: Branch = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Go back to before a step, or to another branch. Nothing is deleted: the old branch can be gone back to."""
    control = connected(config, url)
    preview = _preview(control, session, "rollback", step, branch)
    if dry_run:
        _tell(preview, as_json)
        return
    _ask(preview, yes, "go back")
    body = {"step_number": preview["step_number"], **({} if branch is None else {"branch": branch})}
    done = control.call("POST", f"/api/sessions/{part(session)}/rollback", body)
    if as_json:
        _json(done)
        return
    print(f"session {session} goes on at step {preview['step_number']}, on branch {done['branch']}")
    _standing(done)


def fork(
    session: Session,
    step: Annotated[int, typer.Argument(metavar="STEP", help="Steps before this one are shared.")],
    name: Annotated[str | None, typer.Option("--name", help="The new session's id; default: SESSION-fork-N.")] = None,
    branch: Branch = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Make a session that shares the steps before a point; nothing is copied, and the session stays as it is."""
    control = connected(config, url)
    if dry_run:
        _tell(_preview(control, session, "fork", step, branch), as_json)
        return
    body: dict[str, Any] = {"step_number": step}
    body |= {key: value for key, value in (("name", name), ("branch", branch)) if value is not None}
    done = control.call("POST", f"/api/sessions/{part(session)}/fork", body)
    if as_json:
        _json(done)
        return
    print(f"session {done['session']['id']} shares the steps of {session} before {step}; run your agent with that id")
    _standing(done)


def edit(
    target: Annotated[str, typer.Argument(metavar="ID|SESSION", help="An approval's id; or a session's, with STEP.")],
    step: Annotated[
        int | None, typer.Argument(metavar="[STEP]", help="The step whose recorded answer is edited.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="Of an answer: the text it is to say.")] = None,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", help="The edited arguments, a JSON object; of several calls, one by call id."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file that holds them; - for standard input.")] = None,
    reason: approvals.Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Approve a held call with other arguments, or give a recorded answer otherwise; without options in the editor."""
    if step is None:
        if text is not None or dry_run or as_json:
            raise BadRequest("--text, --dry-run and --json are for a recorded answer: name SESSION and STEP")
        approvals.edit(target, arguments, file, reason, url, config)
        return
    if arguments is not None and file is not None:
        raise BadRequest("give the arguments with --arguments or with --file, not with both")
    control = connected(config, url)
    preview = _preview(control, target, "edit", step, None)
    if dry_run:
        _tell(preview, as_json)
        return
    at = f"/api/sessions/{part(target)}/steps/{step}"
    now = control.call("GET", f"{at}/editable")
    if file is not None:
        arguments = sys.stdin.read() if str(file) == "-" else read_file(file)
    if text is None and arguments is None:
        body = _in_editor(now)
    else:
        body = {} if text is None else {"text": text}
        body |= {} if arguments is None else {"arguments": _by_call(now["calls"], _parsed(arguments))}
    _ask(preview, yes, "edit it")
    done = control.call("POST", f"{at}/edit", {**body, "reason": reason})
    if as_json:
        _json(done)
        return
    print(f"step {step} of session {target} is given as edited, on branch {done['branch']}")
    _standing(done)


def branches(session: Session, as_json: Json = False, url: Url = None, config: Config = None) -> None:
    """List the branches of a session: where it went on after it was rolled back, forked or edited."""
    found = connected(config, url).call("GET", f"/api/sessions/{part(session)}/branches")
    if as_json:
        _json(found)
        return
    table = Table("branch", "why", "of", "below", "steps", "made", "by", "", box=None, pad_edge=False)
    for row in found:
        mark = "goes on here" if row["head"] else ("" if row["shown"] else "superseded")
        of = "" if row["parent"] is None else str(row["parent"])
        foreign = "" if row["session"] == session else f" of {row['session']}"
        table.add_row(
            str(row["id"]), row["reason"] + _text(foreign), of, "" if row["upto"] is None else str(row["upto"]),
            str(row["steps"]), row["created_at"][:16], _text(row["made_by"] or ""), mark,
            style="" if row["shown"] else "dim",
        )  # fmt: skip
    Console().print(table)


def _preview(control: Control, session: str, verb: str, step: int | None, branch: int | None) -> dict[str, Any]:
    given = {"verb": verb, "step_number": step, "branch": branch}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return dict(control.call("GET", f"/api/sessions/{part(session)}/preview?{query}"))


def _ask(preview: dict[str, Any], yes: bool, what: str) -> None:
    """Raises ``BadRequest`` where there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadRequest(f"nothing was done: say --yes to {what} without being asked (--dry-run shows what it means)")
    _tell(preview, False)
    typer.confirm(f"{what}?", abort=True)


def _tell(preview: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _json(preview)
        return
    gone = {"rollback": "superseded", "fork": "not shared", "edit": "left behind"}[preview["verb"]]
    cost = "nothing" if preview["cost"] == 0 else "unknown" if preview["cost"] is None else f"${preview['cost']:.6f}"
    unknown = f", and {preview['cost_unknown']} of unknown cost" if preview["cost_unknown"] else ""
    print(f"{gone}: {_numbers(preview['superseded'])} (paid for them: {cost}{unknown})")
    if preview["restored"]:
        print(f"shown again: {_numbers(preview['restored'])}")
    print(f"the next run finds {preview['replays']} recorded answers")
    for one in preview["pending"]:
        print(f"asked no more: approval {one['id']} of step {one['step_number']}, {one['tool_name'] or one['kind']}")
    _standing(preview)


def _numbers(numbers: list[int]) -> str:
    if not numbers:
        return "no step"
    shown = ", ".join(str(number) for number in numbers[:_MOST_NUMBERS])
    more = len(numbers) - _MOST_NUMBERS
    return f"{'step' if len(numbers) == 1 else 'steps'} {shown}" + (f" and {more} more" if more > 0 else "")


def _standing(found: dict[str, Any]) -> None:
    if found["standing"] or found["made"]:
        print("these calls were made, and are not undone:")
    for call in found["standing"]:
        server = f"{call['server']}/" if call["server"] else ""
        arguments = json.dumps(call["arguments"], ensure_ascii=False)
        print(visible(f"  step {call['step_number']}: {server}{call['tool']} {arguments} ({call['state']})"))
    for call in found["made"]:
        state = "by the agent" if call["result_seen"] else "by the agent, if it came to it"
        print(visible(f"  step {call['step_number']}: {call['tool']} {call['arguments']} ({state})"))


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the arguments are not JSON ({error}); nothing was edited") from None
    if not isinstance(value, dict):
        raise BadRequest("the arguments must be a JSON object; nothing was edited")
    return value


def _key(call: dict[str, Any]) -> str:
    return str(call["call_id"] or f"{call['choice']}.{call['place']}")


def _by_call(calls: list[dict[str, Any]], value: dict[str, Any]) -> dict[str, Any]:
    """Arguments by call; of an answer with one call they may stand alone."""
    keys = {_key(call) for call in calls}
    return {next(iter(keys)): value} if len(keys) == 1 and not keys & value.keys() else value


def _in_editor(now: dict[str, Any]) -> dict[str, Any]:
    """What a person changes of an answer in their editor. Raises ``BadRequest`` where that is nothing."""
    before: dict[str, Any] = {} if now["text"] is None else {"text": now["text"]}
    if now["calls"]:
        before["arguments"] = {_key(call): json.loads(call["arguments"] or "{}") for call in now["calls"]}
    after = _parsed(in_editor(json.dumps(before, indent=2, ensure_ascii=False), "nothing was edited"))
    changed = {name: value for name, value in after.items() if value != before.get(name)}
    if "arguments" in changed:
        was = before.get("arguments", {})
        changed["arguments"] = {key: value for key, value in changed["arguments"].items() if value != was.get(key)}
    if not changed:
        raise BadRequest("nothing was edited")
    return changed


def _json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _text(text: str) -> str:
    return str(escape(visible(text).replace("\n", " ")))
