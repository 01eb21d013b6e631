"""Owns the sentences of an approval's card: what is asked, what each answer does, what became of it. Must not query.

Invariant: what is said of a choice is what the engine does with it, and nothing more; what has not happened yet is
never said to have happened.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from agentstate.core.approval import Decision, fits
from agentstate.core.effects import ToolClass
from agentstate.core.model import ApprovalKind, ApprovalState, OnReject, Release
from agentstate.store.rows import ApprovalRow

KINDS = {
    ApprovalKind.CALL: "tool call",
    ApprovalKind.REQUEST: "request",
    ApprovalKind.DUPLICATE: "suspected duplicate",
    ApprovalKind.DOUBT: "call in doubt",
    ApprovalKind.BUDGET: "budget",
}
_CLASSES = {
    ToolClass.ONCE: "It acts each time it is called; what it does cannot be taken back from here.",
    ToolClass.IDEMPOTENT: "Calling it again does nothing more (idempotent, by the settings).",
    ToolClass.READ: "It only reads (by the settings).",
}
_REJECTED = {
    OnReject.MESSAGE: "The call is taken out of the answer. In its place the agent gets a text that says who refused "
    "it and why, and goes on from there.",
    OnReject.CONTINUE: "The model is told that it was refused and why, and is asked once more, which costs one call. "
    "The agent gets that next answer.",
    OnReject.ERROR: "The agent gets the error human_rejection (403) with your reason, and is told not to try again.",
}
_RELEASED = {
    Release.ANSWER: "The agent was given the answer as decided.",
    Release.MESSAGE: "The agent was given a text in the place of the refused call.",
    Release.CONTINUE: "The model was told of the refusal; the agent gets its next answer.",
    Release.ERROR: "The agent was given an error.",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to decide. ``effect``: what happens then; ``key``: the letter that leads there; ``look``: ``yes``, ``no``
    or empty; ``command``: the same on the command line."""

    action: str
    label: str
    effect: str
    key: str = ""
    look: str = ""
    command: str = ""


def title(row: ApprovalRow) -> str:
    """What it is about, in the words of a heading."""
    if row.kind is ApprovalKind.REQUEST:
        return "A request"
    return "A budget" if row.kind is ApprovalKind.BUDGET else row.tool or "a tool without a name"


def rule_of(row: ApprovalRow) -> dict[str, Any]:
    """The policy that asks, as it was kept."""
    found = json.loads(row.rule)
    return found if isinstance(found, dict) else {}


def why(row: ApprovalRow) -> str:
    return str(rule_of(row).get("why", ""))


def risk(row: ApprovalRow, kind: ToolClass) -> str:
    """What is at stake, in a sentence. ``kind``: the tool's class by the settings."""
    if row.kind is ApprovalKind.REQUEST:
        return "Nothing is sent to the provider, and nothing is paid, before it is approved."
    if row.kind is ApprovalKind.BUDGET:
        return "The call is not sent, and nothing is paid, before somebody decides."
    if row.kind is ApprovalKind.DOUBT:
        return "It may have acted already: look at what it acts on before you say so."
    if row.kind is ApprovalKind.DUPLICATE:
        return "An equal call was made already. Made again, it acts a second time."
    return _CLASSES[kind]


def choices(row: ApprovalRow, others: int) -> tuple[Choice, ...]:
    """The ways to decide a pending approval. ``others``: how many more calls of the same answer wait."""
    line = f"agentstate {{}} {row.id}".format
    if row.kind is ApprovalKind.DOUBT:
        return (
            Choice("REUSED", "It ran", "The agent is given the result that you say; the tool is not called again.",
                   "", "yes", f"agentstate settle {row.id} ran --result '…'"),
            Choice("APPROVED", "It did not run: send it again", "The call is sent again, under the same idempotency "
                   "key, when its agent asks for it.", "a", "", f"agentstate settle {row.id} did-not-run"),
            Choice("REJECTED", "Give it up", "The tool is not called again; the agent is told that the call was given "
                   "up, and why.", "r", "no", f"agentstate settle {row.id} abort --reason '…'"),
        )  # fmt: skip
    if row.kind is ApprovalKind.BUDGET:
        limit = rule_of(row).get("limit", "limit")
        return (
            Choice("APPROVED", "Let this call through", "This one call is sent; the next one that does not fit is "
                   "asked about again.", "a", "yes", line("approve")),
            Choice("EDITED", "Raise the limit", f"The limit budget.{limit} is raised by what you enter, and the call "
                   "is sent.", "e", "", line("approve") + " --raise 1"),
            Choice("REJECTED", "Reject and pause", "The call is refused and its session is paused until somebody "
                   "resumes it.", "r", "no", line("reject") + " --reason '…'"),
        )  # fmt: skip
    if row.kind is ApprovalKind.REQUEST:
        return (
            Choice("APPROVED", "Approve", "The request is sent to the provider, and paid.", "a", "yes",
                   line("approve")),
            Choice("REJECTED", "Reject", "The request is never sent. " + _REJECTED[OnReject.ERROR], "r", "no",
                   line("reject") + " --reason '…'"),
        )  # fmt: skip
    found = [
        Choice("APPROVED", "Approve", "The agent gets the call exactly as it is shown" + _with_others(others), "a",
               "yes", line("approve")),
        Choice("EDITED", "Edit & approve", "The agent gets the call with your arguments; what the model proposed stays "
               "in the journal" + _with_others(others), "e", "", line("edit")),
    ]  # fmt: skip
    if not fits(row.kind, Decision.REUSED):
        found.append(
            Choice("REUSED", "Reuse the recorded result", "The tool is not called; the agent is given what the equal "
                   "call came to.", "", "", line("settle") + " reuse")
        )  # fmt: skip
    found.append(Choice("REJECTED", "Reject", _REJECTED[row.on_reject], "r", "no", line("reject") + " --reason '…'"))
    return tuple(found)


def _with_others(others: int) -> str:
    if not others:
        return "."
    calls = "the other call" if others == 1 else f"the {others} other calls"
    return f", as soon as {calls} of the same answer {'is' if others == 1 else 'are'} decided too."


def outcome(row: ApprovalRow) -> str:
    """Who decided what; empty while it is pending."""
    if row.state is ApprovalState.PENDING:
        return ""
    if row.state is ApprovalState.EXPIRED:
        return f"Expired: {row.reason or 'nobody decided in time'}. That counts as a rejection."
    said = {
        ApprovalState.APPROVED: "Approved",
        ApprovalState.EDITED: "Limit raised" if row.kind is ApprovalKind.BUDGET else "Approved with edits",
        ApprovalState.REJECTED: "Given up" if row.kind is ApprovalKind.DOUBT else "Rejected",
        ApprovalState.REUSED: "Said to have run" if row.kind is ApprovalKind.DOUBT else "Recorded result reused",
    }[row.state]
    if row.kind is ApprovalKind.DOUBT and row.state is ApprovalState.APPROVED:
        said = "Said not to have run"
    return f"{said} by {'a policy' if row.decided_by == 'policy' else row.decided_by}"


def afterwards(row: ApprovalRow, release: Release | None, waiting: bool, open_others: int) -> str:
    """What became of a decision. ``release``: how the step's answer was given, ``None``: it is none that was held;
    ``waiting``: whether an agent waits for it with an open connection; ``open_others``: other calls of the same answer
    that are undecided."""
    if row.state is ApprovalState.PENDING:
        if waiting:
            return "Its agent waits for it now."
        return "No agent waits with an open connection; the decision is kept, and given when it asks again."
    if row.kind in (ApprovalKind.REQUEST, ApprovalKind.BUDGET):
        if row.state in (ApprovalState.APPROVED, ApprovalState.EDITED):
            return "The call is sent as soon as its agent asks for it, at once where it waits."
        return "It was not sent."
    if row.kind is ApprovalKind.DOUBT:
        return "Its agent gets that when it asks for the call."
    if release is Release.HELD:
        if open_others:
            calls = "another call" if open_others == 1 else f"{open_others} other calls"
            return f"Nothing is released yet: {calls} of the same answer {'waits' if open_others == 1 else 'wait'}."
        return "Nothing is released yet: it is given when the agent asks again."
    if release is None:
        return ""
    return _RELEASED[release] + " That cannot be undone; a rollback has the step asked anew."


def command_line(*parts: object) -> str:
    """``agentstate …`` as a shell takes it."""
    return shlex.join(["agentstate", *(str(part) for part in parts)])
