"""Owns what a message to people says: title, sentences, fields, link. Must not know how any target spells it.

Invariant: prompts, arguments and what is derived from them are in a message only where its target shows content; what
an agent or a model named is shown so that no character of it is invisible or moves others about.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TEST = "alert.test"  # the event of a message that only tries whether its target can be reached

# Facts that people are shown, in this order. A fact that stands neither here nor below is not told at all.
LABELS = {
    "tool": "Tool",
    "run": "Run",
    "exit_code": "Exit code",
    "policy": "Policy",
    "provider": "Provider",
    "model": "Model",
    "spent": "Spent",
    "limit": "Limit",
    "decided_by": "Decided by",
    "by": "By",
    "reason": "Reason",
}
# Facts that programs are told too; sentences say what they mean to people.
_PLAIN = ("approval", "kind", "state")
# Facts that quote prompts or arguments: told only where the target shows content.
CONTENT = ("arguments", "text")

_PENDING = "pending"
_QUESTIONS = ("approval.required", "call.in_doubt")
# Letters, marks and symbols that show nothing: fillers, joiners, variation selectors, the blank of Braille.
_BLANKS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
)


@dataclass(frozen=True, slots=True)
class Alert:
    """What happened. ``at``: seconds since the epoch; ``subject``: the id of an approval, the name of a run;
    ``link``: where a person goes from here; ``facts``: see ``LABELS`` and ``CONTENT``. An ``approval.required`` has
    the fact ``state`` as it is when the message is sent."""

    id: str
    event: str
    at: float
    session: str = ""
    subject: str = ""
    link: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


class Button(NamedTuple):
    """``name``: by which a press is known again; ``good``: it lets something happen, ``None``: neither that nor the
    opposite."""

    name: str
    label: str
    good: bool | None


_OF_HOLD = (Button("approve", "Approve", True), Button("reject", "Reject", False))
_OF_DOUBT = (
    Button("ran", "It ran", None),
    Button("resend", "It did not run: send it again", True),
    Button("abort", "Give it up", False),
)


class Message(NamedTuple):
    """What is told, in plain text. ``fields``: (label, value); ``content``: prompt or arguments, empty where they are
    not shown; ``approval``: its id where it can be decided with buttons; ``data``: the facts for programs; ``doubt``:
    the question is what became of a call."""

    id: str
    event: str
    at: float
    title: str
    text: str
    fields: tuple[tuple[str, str], ...]
    content: str
    link: str
    link_label: str
    approval: str
    data: Mapping[str, Any]
    doubt: bool = False

    @property
    def buttons(self) -> tuple[Button, ...]:
        """Those that decide; none where there is nothing to decide."""
        if not self.approval:
            return ()
        return _OF_DOUBT if self.doubt else _OF_HOLD


def compose(alert: Alert, show_content: bool = False) -> Message:
    """The message of an alert, for a target that shows content or does not."""
    facts = alert.facts
    title, text = _words(alert)
    fields = [("Session", visible(alert.session))] if alert.session else []
    fields += [(label, visible(_spelled(facts[name]))) for name, label in LABELS.items() if _told(facts, name)]
    content = ""
    if show_content:
        content = visible(next((str(facts[name]) for name in CONTENT if _told(facts, name)), ""), lines=True)
    names = (*LABELS, *_PLAIN, *(CONTENT if show_content else ()))
    decidable = alert.event in _QUESTIONS and _is_open(facts)
    return Message(
        alert.id, alert.event, alert.at, title, text, tuple(fields), content, alert.link,
        "Open the approval" if alert.event in _QUESTIONS else "Open",
        alert.subject if decidable else "",
        {"session": alert.session, "subject": alert.subject}
        | {name: facts[name] for name in names if _told(facts, name)},
        alert.event == "call.in_doubt" or facts.get("kind") == "doubt",
    )  # fmt: skip


def test(alert_id: str, at: float) -> Alert:
    """A message that says nothing but that it arrived."""
    return Alert(alert_id, TEST, at)


def _told(facts: Mapping[str, Any], name: str) -> bool:
    return facts.get(name) not in (None, "")


def _is_open(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("state", _PENDING) == _PENDING)


def _words(alert: Alert) -> tuple[str, str]:
    """(title, sentences)."""
    facts, session = alert.facts, visible(alert.session)
    tool = visible(_spelled(facts.get("tool", ""))) or "a tool"
    match alert.event:
        case event if event in _QUESTIONS and not _is_open(facts):
            return (
                f"Nothing to decide any more: {'a budget' if facts.get('kind') == 'budget' else tool}",
                f"The approval is {visible(_spelled(facts['state']))} already.",
            )
        case "approval.required":
            return _question(_spelled(facts.get("kind", "")), tool)
        case "call.in_doubt":
            return f"In doubt: {tool}", _DOUBT
        case "session.failed":
            return (
                f"Session failed: {session}",
                "What was paid is kept: mend the agent and run it again under the same session id.",
            )
        case "session.paused":
            return f"Session paused: {session}", "Nothing of it is sent until somebody resumes it."
        case "session.resumed":
            return f"Session resumed: {session}", "Requests that waited go on."
        case "run.diverged":
            return (
                f"Run diverged: {session}",
                "The run asked what the journal does not hold while recorded answers were unread. "
                + ("It went on as a fork." if facts.get("policy") == "fork" else "It does not go on by itself."),
            )
        case "budget.reached":
            return (
                f"Budget reached: {session}",
                "A limit on money, steps or tokens has no room for another call, which was held or denied.",
            )
        case "provider.down":
            provider = visible(_spelled(facts.get("provider", ""))) or "a provider"
            return f"Provider down: {provider}", "Calls to it fail, and it is left alone for a while."
        case event if event == TEST:
            return "Test message", "AgentState can reach this place. There is nothing to do."
    return f"Alert: {visible(alert.event)}", "See the session for what happened."


_DOUBT = "It is not known whether the call was made. It is not made again before a person says what happened."


def _question(kind: str, tool: str) -> tuple[str, str]:
    match kind:
        case "request":
            return (
                "Approval required: a request",
                "An agent wants its request held until a person has seen it. It has not been sent to the provider.",
            )
        case "duplicate":
            return (
                f"Approval required: {tool}, once more",
                "An equal call was made before. It is kept back until a person says whether to make it again.",
            )
        case "doubt":
            return f"In doubt: {tool}", _DOUBT
        case "budget":
            return (
                "Approval required: a budget is reached",
                "An agent's call is kept back. Approve it to let this one call through, reject it to stop the session, "
                "or open the approval to raise the limit.",
            )
    return (
        f"Approval required: {tool}",
        "An agent wants to make this call. Nothing of it is released before a person decides.",
    )


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def visible(text: str, lines: bool = False) -> str:
    """The text with every character that shows nothing, or changes how others are shown, spelled as its code point:
    ``[U+202E]``. ``lines``: line breaks and tabs are let through."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if (lines and char in "\n\t") or _shows(char) else f"[U+{ord(char):04X}]" for char in text)


def _shows(char: str) -> bool:
    category = unicodedata.category(char)
    return char == " " or not (category[0] in "CZ" or char in _BLANKS)


def clipped(text: str, most: int) -> str:
    """At most so many characters; a text that was cut ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"
