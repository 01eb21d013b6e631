"""Owns what an edited answer is: which answers can be edited, what an edit makes of one, and which recorded steps go on
from what it replaces. Must not write.

Invariant: tools, ids and places of calls stay; edited arguments fit the schema of the request and are what policies let
this person decide; no step that an edit makes untrue is taken for one that stays true.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentstate.core import approval, policy
from agentstate.core.approval import Person
from agentstate.core.model import Action, Call, Change, Release, Shape, State, ToolCall
from agentstate.dialects import registry, retext
from agentstate.dialects.base import UNREADABLE, Dialect
from agentstate.dialects.concealing import MARK
from agentstate.dialects.overlay_responses import ResponsesForm
from agentstate.dialects.responses_answer import loaded
from agentstate.dialects.responses_context import conversation_of, inputs, outputs_of
from agentstate.engine.arguments import checked
from agentstate.engine.core import Parts
from agentstate.engine.revised import as_edited
from agentstate.engine.settling import digest_of, schemas_of
from agentstate.errors import AgentStateError, Forbidden, NotFound, Unprocessable
from agentstate.store.branches import RevisionRow, Shown
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow
from agentstate.store.steering import RevisedCall

_GIVEN = (None, Release.ANSWER, Release.MESSAGE)  # releases of which the step's own answer is what agents are given
_UNCHANGED = "nothing was edited"
_STREAMS = (Shape(True), Shape(True, True))


class EditableCall(NamedTuple):
    """A call of an answer. ``arguments``: JSON text; ``schema``: that of the request, JSON text, empty: none."""

    choice: int
    place: int
    call_id: str
    tool: str
    arguments: str
    schema: str


class Version(NamedTuple):
    """An answer that a step has or had. ``branch``: on which it was edited, ``None``: as it was recorded; ``answer``:
    plain, JSON text; ``changed``: what was edited, as in ``RevisionRow``; ``shown``: it is given now."""

    who: str
    when: float
    why: str
    branch: int | None
    answer: str
    changed: dict[str, Any]
    shown: bool


class Editable(NamedTuple):
    """``text``: what the answer says, ``None``: that cannot be edited."""

    text: str | None
    calls: list[EditableCall]
    versions: list[Version]


class New(NamedTuple):
    """An edited answer; the parts as in ``NewRevision``."""

    body: bytes
    changed: str
    calls: tuple[RevisedCall, ...]


class _Present(NamedTuple):
    """An answer as it is given now, plain, with its question."""

    dialect: Dialect
    call: Call
    body: bytes
    calls: tuple[ToolCall, ...]


def step_of(read: Reader, session: SessionRow, shown: Shown, number: int) -> int:
    """The step of that number that the session shows. Raises ``NotFound``."""
    step = read.step_on(shown, number)
    if step is None:
        there = "" if read.step_by_number(session.id, number) is None else (
            " that it shows; it is on another branch: go back to that first (`agentstate branches`)"
        )  # fmt: skip
        raise NotFound(f"session {session.key!r} has no step {number}{there}")
    return step


def editable(read: Reader, session: SessionRow, shown: Shown, number: int) -> Editable:
    """See ``Steering.editable``."""
    step = step_of(read, session, shown, number)
    present = _present(read, shown, step, number)
    schemas = schemas_of(present.dialect, present.call)
    calls = [
        EditableCall(one.choice, one.index, one.call_id, one.name, one.arguments, schemas.get(one.name, ""))
        for one in present.calls
    ]
    try:
        text: str | None = retext.text_of(present.dialect.name, present.body)
        retext.with_text(present.dialect.name, present.body, f"{text}.")
    except ValueError:
        text = None
    return Editable(text, calls, versions(read, shown, step))


def versions(read: Reader, shown: Shown, step: int) -> list[Version]:
    """All that a step's answer has been, the recorded one first."""
    answer = read.answer(step)
    now = read.revisions(shown).get(step)
    plain = answer.body
    if answer.state is State.COMPLETED and answer.shape.stream:
        plain = registry.BY_NAME[answer.dialect].convert(answer.shape, Shape(), answer.body)
    first = Version("", read.ended_at(step) or 0.0, "", None, plain.decode("utf-8", "replace"), {}, now is None)
    return [first, *(_version(read, row, now) for row in read.revisions_of(step))]


def _version(read: Reader, row: RevisionRow, now: RevisionRow | None) -> Version:
    return Version(
        row.made_by, row.made_at, row.reason, row.branch, read.blob(row.body).decode("utf-8", "replace"),
        json.loads(row.changed), now is not None and row.branch == now.branch,
    )  # fmt: skip


def _present(read: Reader, shown: Shown, step: int, number: int) -> _Present:
    """Raises ``Unprocessable`` where an answer cannot be edited, and why."""
    answer = read.answer(step)
    name, method, path, asked = read.request(step)
    where = f"step {number}"
    if answer.dialect not in registry.BY_NAME or name.startswith("pure"):
        raise Unprocessable(f"{where} is no model's answer; only those can be edited. To ask it anew, roll back to it")
    if answer.state is not State.COMPLETED or answer.status >= 300:
        raise Unprocessable(f"{where} is {answer.state.value}; only a complete answer can be edited")
    if answer.release not in _GIVEN:
        raise Unprocessable(f"{where} was held, and no agent was given an answer of it that could be edited")
    if any(job for _, job in read.held_names(step)):
        raise Unprocessable(f"{where} is a job that its provider works on; its end cannot be edited")
    edit = read.revisions(shown).get(step)
    if edit is not None:
        answer = as_edited(read, answer, edit)
    if MARK.encode() in answer.body:
        raise Unprocessable(f"{where} held credentials, which are not kept; it cannot be edited")
    dialect = registry.BY_NAME[answer.dialect]
    call = dialect.parse(method, path, asked)
    body = dialect.convert(answer.shape, Shape(), answer.body)
    verdict = dialect.judge(call, body)
    if verdict.fault:
        raise Unprocessable(f"{where} cannot be edited, as its answer cannot be read: {verdict.fault}")
    return _Present(dialect, call, body, verdict.calls)


async def edited(
    parts: Parts, session: SessionRow, shown: Shown, step: int, actor: Person, text: str | None,
    arguments: Mapping[Any, Any],
) -> New:  # fmt: skip
    """The answer with what a person changes of it. Raises ``Unprocessable``, ``Forbidden``."""
    read = parts.journal.read
    present = _present(read, shown, step, read.received(step).number)
    schemas = schemas_of(present.dialect, present.call)
    changes: dict[tuple[int, int], ToolCall] = {}
    for key, value in arguments.items():
        was = _named(present.calls, key)
        spelled = await asyncio.to_thread(checked, value, schemas.get(was.name, ""), was.name, _UNCHANGED)
        if policy.call_digest(was.name, spelled) == digest_of(was):
            continue
        now = ToolCall(was.choice, was.index, was.call_id, was.name, spelled, was.also)
        _check_allowed(parts, session, now, actor)
        changes[was.choice, was.index] = now
    body = _rewritten(present, list(changes.values()), text)
    if body == present.body:
        raise Unprocessable("the answer says this already; nothing was edited")
    calls = tuple(
        RevisedCall(
            one.choice, one.index, one.call_id, one.name, one.arguments.encode("utf-8", "surrogatepass"), digest_of(one)
        )
        for one in changes.values()
    )
    changed = {
        "text": text is not None,
        "calls": [one.call_id or f"{one.choice}.{one.index}" for one in changes.values()],
    }
    return New(body, json.dumps(changed), calls)


def _named(calls: Sequence[ToolCall], key: Any) -> ToolCall:
    """The call that a person means, by its id or its place. Raises ``Unprocessable``."""
    same = [one for one in calls if one.call_id and one.call_id == key]
    if not same:
        same = [one for one in calls if str(key) in (str(one.index), f"{one.choice}.{one.index}")]
    if len(same) != 1:
        there = ", ".join(one.call_id or f"{one.choice}.{one.index}" for one in calls) or "none"
        raise Unprocessable(f"the answer has no call {str(key)[:80]!r}; its calls are {there}; {_UNCHANGED}")
    return same[0]


def _check_allowed(parts: Parts, session: SessionRow, call: ToolCall, actor: Person) -> None:
    """Who edits a call approves of it: that is for whom the policies name. Raises ``Unprocessable``, ``Forbidden``."""
    ruling = parts.gate.policies.ruling(call, parts.gate.place_of(session))
    if ruling.action is Action.DENY:
        raise Unprocessable(f"the edited call is not allowed: {ruling.why}; {_UNCHANGED}")
    if ruling.action is not Action.HOLD:
        return
    approvers, quorum = (ruling.rule.approvers, ruling.rule.quorum) if ruling.rule is not None else ((), 1)
    if not approval.may_decide(actor, approvers):
        asks = ", ".join(approvers) or "an approver"
        raise Forbidden(f"{ruling.why}, and it asks for {asks}, not {actor.name}; {_UNCHANGED}")
    if quorum > 1:
        raise Unprocessable(
            f"{ruling.why}, and {quorum} people must agree to such a call, so that one cannot edit it in; {_UNCHANGED}"
        )


def _rewritten(present: _Present, calls: Sequence[ToolCall], text: str | None) -> bytes:
    """The answer with other arguments and another text. Raises ``Unprocessable``."""
    dialect, call, body = present.dialect, present.call, present.body
    try:
        if calls:
            if not hasattr(dialect, "amended"):
                raise ValueError(f"calls in answers of {dialect.name} cannot be edited")
            changes = [Change(one.choice, one.index, one.arguments) for one in calls]
            body = dialect.amended(call, Shape(), body, changes, "")
        if text is not None and text != retext.text_of(dialect.name, body):
            body = retext.with_text(dialect.name, body, text)
        if text is None and not calls:
            return body
        retext.text_of(dialect.name, body)  # what cannot be read so cannot be edited
        verdict = dialect.judge(call, body)
        for shape in _STREAMS:
            dialect.convert(Shape(), shape, body)
    except (ValueError, KeyError, TypeError, AttributeError, *UNREADABLE, AgentStateError) as error:
        raise Unprocessable(f"the answer cannot be edited like that: {error}; {_UNCHANGED}") from error
    same = [(one.choice, one.call_id, one.name) for one in verdict.calls]
    if verdict.fault or same != [(one.choice, one.call_id, one.name) for one in present.calls]:
        raise Unprocessable(
            f"the answer would not be complete then ({verdict.fault or 'its calls differ'}); {_UNCHANGED}"
        )
    return body


# --- what goes on from it ---------------------------------------------------------------------------------------------


def left_behind(read: Reader, shown: Shown, step: int, number: int) -> list[tuple[int, bool]]:
    """The steps on a lineage that go on from the answer of ``step``, each with whether it does so by naming what its
    provider holds. A long read.

    What a request carries is told by its transcript. What it only names is told by the answers, items and conversations
    that it names, and by those that the steps in between name.
    """
    points = read.points(shown)
    here = next((point for point in points if point.step == step), None)
    if here is None:
        return []
    names, talks = _names(read, step), {conversation_of(read.request(step)[3])} - {""}
    found: list[tuple[int, bool]] = []
    for point in points:
        if point.number <= number or point.kind != "model":
            continue
        if here.dialect == point.dialect == "openai_responses":
            body = read.request(point.step)[3]
            talk = conversation_of(body)
            if talk in talks or not names.isdisjoint(_referred(body)):
                found.append((point.step, True))
                names |= _names(read, point.step)
                talks |= {talk} - {""}
                continue
        if here.node is not None and point.node is not None and read.goes_on_from(point.node, here.node):
            found.append((point.step, False))
    return found


def _names(read: Reader, step: int) -> set[str]:
    """Under which the provider keeps a step's answer, and the items of it."""
    answer = read.answer(step)
    names = {name for name, _ in read.held_names(step)}
    if answer.dialect != "openai_responses" or answer.state is not State.COMPLETED or not answer.body:
        return names
    received = read.received(step)
    plain = registry.BY_NAME[answer.dialect].convert(received.shape, Shape(), received.body)
    return names | {name for raw in outputs_of(plain) if isinstance(name := loaded(raw).get("id"), str) and name}


def _referred(body: bytes) -> Iterator[str]:
    """What a request names of what its provider holds."""
    value = loaded(body)
    previous = value.get("previous_response_id") if isinstance(value, dict) else None
    if isinstance(previous, str):
        yield previous
    form = ResponsesForm()
    for raw in inputs(body):
        if name := form.name_of(raw):
            yield name
