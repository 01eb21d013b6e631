"""Owns what is given of an answer that a person edited, wherever the answer of a step is asked for. Must not edit one.

Invariant: on a branch that shows an edit, whoever goes on from the answer, agent, provider or another check, has it as
it was edited; where nothing was edited this costs one look into memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentstate.core.approval import may_decide
from agentstate.core.divergence import Unread
from agentstate.core.model import Action, Shape, ToolCall
from agentstate.engine.reopening import person
from agentstate.errors import HumanRejection
from agentstate.store.branches import RevisionRow
from agentstate.store.reader import Reader
from agentstate.store.rows import AnswerRow, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Head, Parts


def as_edited(reader: Reader, recorded: AnswerRow, edit: RevisionRow) -> AnswerRow:
    """An answer with its edited body, which is plain."""
    return recorded._replace(body=reader.blob(edit.body), shape=Shape())


def answer(parts: Parts, session: SessionRow | None, step: int) -> AnswerRow:
    """The answer of a step as the session's branch gives it; ``None``: as every branch without an edit does."""
    recorded = parts.journal.read.answer(step)
    edit = edit_of(parts, session, step)
    return recorded if edit is None else as_edited(parts.journal.read, recorded, edit)


def edit_of(parts: Parts, session: SessionRow | None, step: int) -> RevisionRow | None:
    """The edit of a step's answer that the session's branch shows."""
    return None if session is None else parts.view(session).edits.get(step)


def call_of(parts: Parts, view: Head, step: int, place: tuple[int, int]) -> ToolCall | None:
    """A call of a step's answer as a person edited it on the branch; ``None``: nobody did. ``place``: its choice, and
    its place there."""
    if step not in view.edits:
        return None
    for branch, _ in view.shown:  # the nearest edit comes first
        for call in parts.journal.read.revised_calls(branch, step):
            if (call.choice, call.index) == place:
                return call
    return None


def apart(parts: Parts, view: Head, run: int, unread: Sequence[Unread]) -> tuple[Sequence[Unread], Sequence[Unread]]:
    """(Steps that may answer a request though it is not equal, steps that the run is to have read before it asks what
    is not recorded), of those that it has not read. What was recorded behind an answer that was edited is expected to
    be left behind, once the run was given that."""
    if not view.edits:
        return unread, unread
    read, claimed = parts.journal.read, parts.floating.claimed
    given = read.served_among(run, view.edits) | {step for step in view.edits if claimed(run, step)}
    if not given:
        return [one for one in unread if one.step not in view.barred], unread
    first = min(read.received(step).number for step in given)
    return (
        [one for one in unread if one.step not in view.left],
        [one for one in unread if one.number < first],
    )


def check_grounds(parts: Parts, session: SessionRow, edit: RevisionRow) -> None:
    """Raises ``HumanRejection`` where an edit was given to no run yet and its calls are not any more what the policies
    leave to who made it: as with any decision, what counts is what governs a call as it is given first."""
    read = parts.journal.read
    calls = [] if not json.loads(edit.changed)["calls"] else read.revised_calls(edit.branch, edit.step)
    if not calls or read.was_given_edited(edit):
        return
    place, actor = parts.gate.place_of(session), person(parts, edit.made_by)
    for call in calls:
        ruling = parts.gate.policies.ruling(call, place)
        if ruling.action is Action.ALLOW:
            continue
        approvers, quorum = (ruling.rule.approvers, ruling.rule.quorum) if ruling.rule is not None else ((), 1)
        if ruling.action is Action.DENY or quorum > 1 or actor is None or not may_decide(actor, approvers):
            raise HumanRejection(
                f"the call of {call.name} as {edit.made_by} edited it is not given, as it is not theirs to decide any "
                f"more: {ruling.why}; edit it again, or go back to the branch before"
            )
