"""Owns the second part of ``agentstate demo``: a mail that an agent proposes is held, edited and let through, once.

Must not send the mail, nor decide by any other way than the control plane, as a person would. Invariant: what it shows
of the approval is what the control plane says, and the effects are counted in the file that the agent writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from agentstate import clock
from agentstate.cli.control import Control
from agentstate.cli.demo_mailer import CALLS, PROPOSED
from agentstate.cli.demo_stage import LIFE_S, agent, exit_code, limit, until

SESSION = "demo-mail"
EDITED = "kim@example.com"
_HELD_S = 15.0  # until an agent that was just started has asked and is held


@dataclass
class Held:
    """What came of it. ``approvals``: all that was asked, as the control plane shows it in the end; ``waited``: whether
    the second life waited for the approval of the first; ``early``: mails sent before the decision; ``sent``: all."""

    killed: bool = False
    waited: bool = False
    done: bool = False
    early: int = 0
    approvals: list[dict[str, Any]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    paid: int = 0


def held(console: Console, control: Control, folder: Path) -> Held:
    """Have it happen, and tell it as it does. Raises ``AgentStateError``."""
    outbox = folder / "outbox.jsonl"
    found = Held()
    console.print("Another agent wants to send a mail. The call is held until a person decides:\n")
    first = _life(control, outbox, None)
    with first.process, limit(first.process, LIFE_S):
        try:
            until(lambda: _pending(control) != [] or first.process.poll() is not None, _HELD_S)
        finally:
            first.process.kill()
    asked = [approval["id"] for approval in _pending(control)]
    found.killed = exit_code(first.process) == 128 + signal.SIGKILL and asked != []
    control.end(SESSION, first.run, exit_code(first.process))
    console.print(f"  life 1: {'killed while its call is held' if found.killed else '[red]nothing was held'}")

    second = _life(control, outbox, first.run)
    with second.process, limit(second.process, LIFE_S):
        try:
            waits = until(lambda: _waits(control, second.run) or second.process.poll() is not None, _HELD_S)
            found.waited = waits and len(asked) == 1 and [one["id"] for one in _pending(control)] == asked
            told = "asks again, and waits for the same approval" if found.waited else "[red]does not wait for it"
            console.print(f"  life 2: {told}\n")
            found.early = len(_sent(outbox))
            for approval in _pending(control):
                _decide(console, control, approval)
            found.done = _to_the_end(second.process)
        finally:
            if not found.done:
                second.process.kill()
    control.end(SESSION, second.run, exit_code(second.process))
    found.approvals = list(control.call("GET", f"/api/approvals?session={SESSION}"))
    found.sent = _sent(outbox)
    found.paid = sum(int(control.run(SESSION, run)["live"]) for run in (first.run, second.run))
    return found


@dataclass(frozen=True)
class _Life:
    run: str
    process: subprocess.Popen[str]


def _life(control: Control, outbox: Path, previous: str | None) -> _Life:
    run = clock.run_id()
    control.register(SESSION, run, replaces=previous, supervisor=os.getpid())
    return _Life(run, agent("demo_mailer", [str(outbox)], control.url, SESSION, run))


def _pending(control: Control) -> list[dict[str, Any]]:
    return list(control.call("GET", f"/api/approvals/pending?session={SESSION}"))


def _waits(control: Control, run: str) -> bool:
    """Whether the run has been told to wait at a step: it is given it, and nothing of it is released."""
    return any(
        step["release"] == "held" and any(given["run"] == run for given in step["served"])
        for step in control.session(SESSION)["steps"]
    )


def _decide(console: Console, control: Control, approval: dict[str, Any]) -> None:
    """Show an approval as its approver sees it, and let the call through with another recipient."""
    console.print(f"  [bold]approval {approval['id']}[/]", highlight=False)
    console.print(f"    {'tool':<8} {approval['tool_name']}", highlight=False, markup=False)
    for name, value in approval["arguments"].items():
        console.print(f"    {name:<8} {value}", highlight=False, markup=False)
    decision = {
        "action": "EDITED",
        "arguments": approval["arguments"] | {"to": EDITED},
        "reason": "it concerns one customer",
        "digest": approval["digest"],
    }
    decided = control.call("POST", f"/api/approvals/{approval['id']}/action", decision)["approval"]
    console.print(
        f"    edited by {decided['decided_by']}: to {decided['effective']['to']} ({decided['reason']})\n",
        highlight=False, markup=False,
    )  # fmt: skip


def _to_the_end(process: subprocess.Popen[str]) -> bool:
    """Read what the agent reports; whether it says that it is done."""
    assert process.stdout is not None
    return "done" in [json.loads(line)["event"] for line in process.stdout]


def _sent(outbox: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in outbox.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        return []


def sum_up(console: Console, found: Held) -> None:
    """The numbers."""
    recipients = ", ".join(str(mail["to"]) for mail in found.sent) or "nobody"
    console.print(f"sent to         [bold]{recipients}[/]; the model wanted {PROPOSED}", highlight=False)
    console.print(f"effects         [bold]{len(found.sent)}[/]", highlight=False)
    console.print(f"approvals asked [bold]{len(found.approvals)}[/]", highlight=False)
    console.print(f"calls paid      [bold]{found.paid}[/] of {CALLS} needed\n", highlight=False)


def broken_promises(found: Held) -> list[str]:
    """What is not as promised, in words."""
    broken = []
    if not found.killed or not found.done:
        broken.append("the mailing agent was not killed while its call was held, or did not finish its work in the end")
    if not found.waited:
        broken.append("the agent that was started again did not wait for the approval that was asked for already")
    if found.early:
        broken.append(f"{found.early} mails were sent before anybody had decided")
    if [mail["to"] for mail in found.sent] != [EDITED]:
        broken.append(f"one mail to {EDITED} was to be sent; sent were {found.sent}")
    if [approval["status"] for approval in found.approvals] != ["EDITED"]:
        broken.append(f"one approval was to be asked for and edited; there are {len(found.approvals)}")
    if found.paid != CALLS:
        broken.append(f"{found.paid} calls of the mailing agent were paid, {CALLS} were needed")
    return broken
