"""Owns what the Approvals pages show: the inbox, the card of one approval, what was decided. Must not decide.

Invariant: what a card shows is all that a decision is bound to, whole, with the digest that says so; the list shortens,
the card never does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentstate import clock
from agentstate.core import effects
from agentstate.core.approval import LINK, Person, may_decide
from agentstate.core.differing import Line, differing
from agentstate.core.effects import Patterns
from agentstate.core.forms import Field, fields_of, spelled
from agentstate.core.model import ApprovalKind, ApprovalState
from agentstate.core.policy import arguments_of
from agentstate.core.visible import laid_out, visible
from agentstate.dashboard import approval_words as words
from agentstate.dashboard.approval_words import Choice
from agentstate.dashboard.messages import Told, last_messages
from agentstate.engine.core import Parts
from agentstate.store.reader import Reader
from agentstate.store.rows import ApprovalRow

_MOST_GLIMPSE = 90  # characters of the arguments in a row of a list
MOST_ROWS = 100
_DAY_S = 86_400
_ENDS = re.compile(r"(?<!\\)((?:\\\\)*\\n)(?!\")")  # a line's end within a JSON text
_LINE = r"\1\n      "
_EDITABLE = (ApprovalKind.CALL, ApprovalKind.DUPLICATE)
DECIDED = tuple(state.value for state in ApprovalState if state is not ApprovalState.PENDING)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the inbox or of what was decided. Times are seconds since the epoch; ``glimpse``: the beginning of the
    arguments; ``votes``: how many people have said yes already, where ``quorum`` of them must."""

    id: str
    kind: str
    what: str
    title: str
    session: str
    step: int
    why: str
    glimpse: str
    state: str
    asked_at: float
    expires_at: float | None
    quorum: int
    votes: int
    decided_by: str
    decided_at: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One argument for a person to read. ``text``: as it is where it is a text, else JSON; ``plain``: it is a text."""

    name: str
    text: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Other:
    """Another call of the same answer."""

    id: str
    title: str
    arguments: str
    state: str


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody said already. ``arguments``: laid out, of an edit."""

    who: str
    action: str
    reason: str
    arguments: str
    at: float


@dataclass(frozen=True, slots=True)
class Card:
    """One approval, whole. ``arguments``: laid out, or to the letter where ``note`` says why; ``pairs``: the same by
    name, empty where they are no object; ``fields``: the form to edit them, empty: as JSON, which is ``to_edit``;
    ``refusal``: why who looks
    may not decide, empty: they may; ``outcome``, ``afterwards``: what was decided and came of it; ``effective``: what
    was decided in the place of the arguments, ``changes``: as a difference; ``waiting``: an agent waits for it with an
    open connection; ``again``: the number of the step to roll back to, to have an expired or rejected call proposed
    anew."""

    row: Row
    digest: str
    risk: str
    note: str
    arguments: str
    pairs: tuple[Pair, ...]
    schema: str
    fields: tuple[Field, ...]
    editable: bool
    to_edit: str
    approvers: tuple[str, ...]
    others: tuple[Other, ...]
    messages: tuple[Told, ...]
    votes: tuple[Said, ...]
    choices: tuple[Choice, ...]
    refusal: str
    outcome: str
    reason: str
    afterwards: str
    effective: str
    changes: tuple[Line, ...]
    waiting: bool
    again: int | None
    show_command: str


@dataclass(frozen=True, slots=True)
class Inbox:
    """``waiting``: oldest first, at most ``MOST_ROWS``; ``count``: all that wait; ``today``: how many were decided
    since midnight (UTC), by state; ``session``: only what belongs to that one; ``held_tools``: what policies hold."""

    waiting: tuple[Row, ...]
    count: int
    today: dict[str, int]
    session: str
    held_tools: tuple[str, ...]
    card: Card | None

    @property
    def decided_today(self) -> int:
        return sum(self.today.values())


@dataclass(frozen=True, slots=True)
class Decided:
    """A page of what was decided, latest first. ``state``, ``session``: the filter; ``next``: the id to go on after."""

    rows: tuple[Row, ...]
    state: str
    session: str
    next: str


def inbox(parts: Parts, reader: Reader, person: Person, session: str = "", key: str = "") -> Inbox:
    """What waits, and the card of ``key``, or of the oldest where that is empty."""
    rows = reader.approvals(ApprovalState.PENDING.value, session, MOST_ROWS)
    chosen = reader.approval(key) if key else rows[0] if rows else None
    counts = reader.approval_states()
    held = sorted({tool for rule in parts.gate.policies.rules if rule.action != "allow" for tool in rule.tools})
    midnight = clock.now() // _DAY_S * _DAY_S
    return Inbox(
        tuple(row_of(reader, row) for row in rows),
        len(rows) if session else counts.get(ApprovalState.PENDING.value, 0),
        reader.decided_since(midnight),
        session,
        tuple(held),
        None if chosen is None else card(parts, reader, chosen, person),
    )


def decided(reader: Reader, state: str, session: str, after: str, limit: int = 50) -> Decided:
    """``state``: empty: all. An unknown ``after`` begins anew."""
    last = reader.approval(after) if after else None
    rows = reader.decided(state, session, limit + 1, last)
    return Decided(
        tuple(row_of(reader, row) for row in rows[:limit]),
        state,
        session,
        rows[limit - 1].id if len(rows) > limit else "",
    )


def row_of(reader: Reader, row: ApprovalRow) -> Row:
    votes = reader.votes(row.id) if row.quorum > 1 else []
    glimpse = "" if row.kind is ApprovalKind.REQUEST else visible(" ".join(row.arguments.split()))
    cut = len(glimpse) > _MOST_GLIMPSE
    return Row(
        row.id, row.kind.value, words.KINDS[row.kind], words.title(row), row.session, row.number, words.why(row),
        glimpse[:_MOST_GLIMPSE] + ("…" if cut else ""), row.state.value, row.created_at, row.expires_at, row.quorum,
        sum(action != "REJECTED" for _, action, *_ in votes), row.decided_by, row.decided_at,
    )  # fmt: skip


def card(parts: Parts, reader: Reader, row: ApprovalRow, person: Person) -> Card:
    """For a thread with a ``Reader`` of its own."""
    pending = row.state is ApprovalState.PENDING
    text, note = laid_out(row.arguments)
    others = [one for one in reader.approvals_of(row.step) if one.id != row.id]
    undecided = sum(one.state is ApprovalState.PENDING for one in others)
    release = reader.released_as(row.step)
    waiting = row.step in parts.floating.holding or row.step in parts.gate.requests
    fault = arguments_of(row.arguments)[1]
    editable = pending and row.kind in _EDITABLE and not fault
    effective = laid_out(row.effective)[0] if row.effective else ""
    patterns = Patterns(tuple(parts.settings.tools.read), tuple(parts.settings.tools.idempotent))
    choices = words.choices(row, undecided) if pending else ()
    return Card(
        row_of(reader, row),
        row.digest.hex(),
        words.risk(row, effects.class_of(row.tool, patterns)),
        note,
        text,
        () if note else _pairs(row.arguments),
        laid_out(row.schema)[0] if row.schema else "",
        (fields_of(row.schema, row.arguments) or ()) if editable and row.schema else (),
        editable,
        spelled(arguments_of(row.arguments)[0]) if editable else "",
        row.approvers,
        tuple(Other(one.id, words.title(one), laid_out(one.arguments)[0], one.state.value) for one in others),
        last_messages(reader, row.step) if row.kind is not ApprovalKind.REQUEST else (),
        tuple(_said(vote) for vote in reader.votes(row.id)),
        choices if editable or row.kind is ApprovalKind.BUDGET else tuple(one for one in choices if one.key != "e"),
        _refusal(row, person) if pending else "",
        words.outcome(row),
        row.reason,
        words.afterwards(row, release[0] if release else None, waiting, undecided),
        effective,
        _changes(text, effective) if row.state is ApprovalState.EDITED and row.kind in _EDITABLE else (),
        waiting,
        row.number if row.state in (ApprovalState.EXPIRED, ApprovalState.REJECTED) and _is_of_answer(row) else None,
        words.command_line("approvals", row.id),
    )


def change_of(row: ApprovalRow, arguments: Any) -> tuple[Line, ...]:
    """How edited arguments differ from what was proposed."""
    return _changes(laid_out(row.arguments)[0], laid_out(json.dumps(arguments))[0])


def _changes(before: str, after: str) -> tuple[Line, ...]:
    """The difference of two laid out JSON texts. Lines within a text are lines of their own, else the whole text would
    differ for a word of it."""
    return differing(_ENDS.sub(_LINE, before), _ENDS.sub(_LINE, after))


def _is_of_answer(row: ApprovalRow) -> bool:
    return row.kind in _EDITABLE


def _pairs(arguments: str) -> tuple[Pair, ...]:
    value, fault = arguments_of(arguments)
    if fault:
        return ()
    return tuple(
        Pair(name, one, True)
        if isinstance(one, str)
        else Pair(name, json.dumps(one, indent=2, ensure_ascii=False), False)
        for name, one in value.items()
    )


def _said(vote: Sequence[Any]) -> Said:
    who, action, arguments, reason, at = vote
    return Said(who, action.lower(), reason, laid_out(arguments)[0] if arguments else "", at)


def _refusal(row: ApprovalRow, person: Person) -> str:
    """Why a person may not decide; empty: they may."""
    if may_decide(person, row.approvers):
        return ""
    if person.name.startswith(LINK):
        return f"This link may not decide it: it asks for {', '.join(row.approvers)}."
    if row.approvers:
        return f"It asks for {', '.join(row.approvers)}; you are {person.name} ({person.role})."
    return f"You are {person.name}, a {person.role}: approvers and admins decide."
