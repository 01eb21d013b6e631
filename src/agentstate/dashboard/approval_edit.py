"""Owns what the edit page of an approval shows: what was typed, what is wrong with it, how it differs. Must not decide.

Invariant: what is sent to be decided is read from a form here and nowhere else, so what is checked is what is decided;
whatever is wrong, what a person typed stays typed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentstate.core.approval import Person
from agentstate.core.differing import Line
from agentstate.core.forms import Field, fields_of, filled, refilled, spelled
from agentstate.core.model import ApprovalState
from agentstate.core.policy import arguments_of
from agentstate.dashboard.approvals import Card, change_of
from agentstate.engine.approvals import Approvals
from agentstate.errors import Unprocessable
from agentstate.store.rows import ApprovalRow

FORM, TEXT = "form", "json"
_OF_FIELD = "argument-"


@dataclass(frozen=True, slots=True)
class Typed:
    """What a person typed: ``mode`` is ``form`` or ``json``; ``by_place``: of a form, by the field's place; ``text``:
    of the other."""

    mode: str
    by_place: Mapping[int, str]
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """``mode``: ``form`` or ``json``; ``modes``: those that there are. ``fields``, ``text``: as typed; ``wrong``: what
    is wrong with the field at that place; ``faults``: what is wrong besides; ``changes``: how it differs from what the
    model proposed, empty: it does not, or cannot be read; ``checked``: somebody has asked."""

    card: Card
    mode: str
    modes: tuple[str, ...]
    fields: tuple[Field, ...]
    text: str
    wrong: dict[int, str]
    faults: tuple[str, ...]
    changes: tuple[Line, ...]
    checked: bool
    reason: str

    @property
    def valid(self) -> bool:
        return not self.wrong and not self.faults


def typed(fields: Mapping[str, str]) -> Typed:
    """What a sent form says. An address without a form says nothing, and everything stands as it was proposed."""
    by_place = {
        int(name.removeprefix(_OF_FIELD)): _lines(value) for name, value in fields.items()
        if name.startswith(_OF_FIELD) and name.removeprefix(_OF_FIELD).isdecimal() and len(name) < 20
    }  # fmt: skip
    return Typed(TEXT if fields.get("mode") == TEXT else FORM, by_place, _lines(fields.get("arguments", "")))


def _lines(text: str) -> str:
    """What was typed, whose lines browsers end in a way of their own."""
    return text.replace("\r\n", "\n")


def arguments(row: ApprovalRow, given: Typed) -> Any:
    """The arguments that were typed. Raises ``Unprocessable``, which says what cannot be read."""
    fields = fields_of(row.schema, row.arguments) if given.mode == FORM else None
    if fields is not None:
        found, faults = filled(fields, given.by_place)
        if faults:
            at, message = faults[0]
            raise Unprocessable(f"{fields[at].name}: {message}; the approval is still pending")
        return found
    try:
        return json.loads(given.text)
    except (ValueError, RecursionError) as error:
        raise Unprocessable(f"the edited arguments are not JSON: {error}; the approval is still pending") from None


async def edit(approvals: Approvals, row: ApprovalRow, card: Card, person: Person, given: Typed, checked: bool,
               reason: str = "") -> Edit:  # fmt: skip
    """The page. ``checked``: what was typed is to be judged."""
    fields = fields_of(row.schema, row.arguments)
    modes = (FORM, TEXT) if fields is not None else (TEXT,)
    mode = given.mode if given.mode in modes else TEXT
    text = given.text or spelled(arguments_of(row.arguments)[0])
    wrong: dict[int, str] = {}
    faults: list[str] = []
    changes: tuple[Line, ...] = ()
    if checked and row.state is ApprovalState.PENDING:
        try:
            value = arguments(row, replace(given, mode=mode, text=text))
        except Unprocessable as error:
            wrong = dict(filled(fields, given.by_place)[1]) if fields is not None and mode == FORM else {}
            faults = [] if wrong else [error.message]
        else:
            changes = await asyncio.to_thread(change_of, row, value)
            places = {field.name: at for at, field in enumerate(fields or ())} if mode == FORM else {}
            for where, message in await approvals.faults(row.id, value, person):
                at = places.get(where.split("/")[0])
                if at is None:
                    faults.append(f"{where}: {message}" if where else message)
                else:
                    wrong.setdefault(at, message)
    shown = refilled(fields, given.by_place) if fields is not None else ()
    return Edit(card, mode, modes, shown, text, wrong, tuple(faults), changes, checked, reason)


def refused(page: Edit, why: str) -> Edit:
    """The page with the reason for which it was not decided."""
    return replace(page, faults=(*page.faults, why))
