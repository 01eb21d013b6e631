"""Owns what the dialogs of the session verbs show: rollback, fork, edit, and those that ask one thing. Must not do any.

Invariant: the effect that a dialog states is the engine's own preview of that verb at that point; the command line that
it ends with does the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from agentstate.core import pausing
from agentstate.core.differing import Line, differing
from agentstate.core.forms import spelled
from agentstate.core.model import SessionStatus, State
from agentstate.core.visible import laid_out
from agentstate.dashboard.approval_words import command_line
from agentstate.dashboard.compare import Part, parts_of
from agentstate.dashboard.frame import session_path
from agentstate.dashboard.step_list import StepList, step_list
from agentstate.dashboard.verb_words import Effect, of_preview
from agentstate.engine.comparing import Figures, between
from agentstate.engine.core import Parts
from agentstate.engine.sessions import found
from agentstate.engine.steering import Steering
from agentstate.errors import AgentStateError, NotFound, Unprocessable
from agentstate.store.reader import Reader

PLACE = "arguments-"  # the field of a call's arguments, with its choice and place


@dataclass(frozen=True, slots=True)
class BranchLine:
    """A branch to go back to. ``reason``: why it was made; ``head``: the session goes on with it."""

    id: int
    reason: str
    steps: int
    made_at: float
    made_by: str
    head: bool


@dataclass(frozen=True, slots=True)
class Point:
    """The dialog of a rollback or a fork. ``step``: the chosen one, ``None``: none yet; ``effect``: what would happen
    there, ``None``: ``refusal`` says why nothing can; ``name``: of a fork, as typed; ``branch``: to go back to or to
    fork from, ``None``: what is shown; ``edits``: the answer of the step before is edited next."""

    template: ClassVar[str] = "dialog_point.html"
    verb: str
    session: str
    step: int | None
    steps: StepList
    branches: tuple[BranchLine, ...]
    branch: int | None
    effect: Effect | None
    refusal: str
    name: str
    command: str
    back: str


@dataclass(frozen=True, slots=True)
class EditedCall:
    """A call whose arguments can be edited. ``field``: its name in the form; ``text``: as typed; ``recorded``: as it
    is now; ``changes``: how they differ; ``schema``: laid out."""

    field: str
    tool: str
    call_id: str
    text: str
    recorded: str
    changes: tuple[Line, ...]
    schema: str


@dataclass(frozen=True, slots=True)
class VersionLine:
    """An answer that the step has or had."""

    who: str
    at: float
    why: str
    branch: int | None
    answer: str
    shown: bool


@dataclass(frozen=True, slots=True)
class EditPoint:
    """The dialog of an edit. ``text``: as typed, ``None``: the answer's text cannot be edited; ``recorded``: as it is
    now; ``refusal``: why the step cannot be edited, ``fault``: why what was typed was not taken; ``touched``: it
    differs from what is recorded."""

    template: ClassVar[str] = "dialog_edit.html"
    verb: ClassVar[str] = "edit"
    session: str
    step: int | None
    steps: StepList
    text: str | None
    recorded: str
    changes: tuple[Line, ...]
    calls: tuple[EditedCall, ...]
    versions: tuple[VersionLine, ...]
    effect: Effect | None
    refusal: str
    fault: str
    reason: str
    touched: bool
    command: str
    back: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A dialog that asks one thing: pause, resume, delete, rate. ``sentences``: what happens; ``able``: it can be done;
    ``button``: what pressing it does; ``step``: of a rating, ``None``: the whole session; ``note``: what was said
    before; ``rating``: the one there is."""

    template: ClassVar[str] = "dialog_ask.html"
    verb: str
    title: str
    session: str
    step: int | None
    sentences: tuple[str, ...]
    button: str
    able: bool
    note: str
    rating: str
    command: str
    back: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a trial. ``session``, ``number``: where it is kept; ``left``: the recorded step, ``right``: the
    trial; ``parts``: in what they differ; ``error``: why there is no answer, or empty."""

    session: str
    number: int
    left: Figures | None
    right: Figures | None
    parts: tuple[Part, ...]
    error: str


@dataclass(frozen=True, slots=True)
class Trying:
    """The dialog that tries a step with another model. ``asked``: the one that was asked; ``models``: some that the
    settings name; ``tried``: what came of it."""

    template: ClassVar[str] = "dialog_try.html"
    verb: ClassVar[str] = "try"
    session: str
    step: int | None
    steps: StepList
    asked: str
    models: tuple[str, ...]
    tried: Tried | None
    command: str
    back: str


# --- points ---


def point(parts: Parts, reader: Reader, verb: str, key: str, step: int | None, branch: int | None = None,
          start: int | None = None, name: str = "") -> Point:  # fmt: skip
    """``verb``: ``rollback`` or ``fork``. Raises ``NotFound``."""
    assert verb in ("rollback", "fork")
    session = found(reader, key)
    steering = Steering(parts, reader)
    lines = tuple(
        BranchLine(one.id, one.reason, one.steps, one.made_at, one.made_by, one.head)
        for one in steering.branches(key) if one.session == key
    )  # fmt: skip
    effect, refusal = None, ""
    if step is not None or branch is not None:
        try:
            preview = steering.preview(key, step, branch=branch, verb="rollback" if verb == "rollback" else "fork")
            effect = of_preview(preview)
        except AgentStateError as error:
            refusal = error.message
    words: list[object] = [verb, key]
    words += [] if step is None else [step]
    words += [] if branch is None else ["--branch", branch]
    words += ["--name", name] if name else []
    return Point(
        verb, key, step, step_list(reader, session, step, start), lines if len(lines) > 1 else (), branch, effect,
        refusal, name, command_line(*words), _back(key, step),
    )  # fmt: skip


# --- editing ---


def edit_point(parts: Parts, reader: Reader, key: str, step: int | None, given: Mapping[str, str],
               start: int | None = None, fault: str = "") -> EditPoint:  # fmt: skip
    """``given``: what was typed, by field; the rest is as it is recorded; ``fault``: why it was not taken. Raises
    ``NotFound``."""
    session = found(reader, key)
    steering = Steering(parts, reader)
    steps = step_list(reader, session, step, start, "model")
    empty = EditPoint(
        key, step, steps, None, "", (), (), (), None, "", fault, given.get("reason", ""), False,
        command_line("edit", key, *([] if step is None else [step])), _back(key, step),
    )  # fmt: skip
    if step is None:
        return empty
    try:
        now = steering.editable(key, step)
        effect = of_preview(steering.preview(key, step, verb="edit"))
    except AgentStateError as error:
        return replace(empty, refusal=error.message)
    calls = tuple(
        _call(f"{PLACE}{one.choice}.{one.place}", one.tool, one.call_id, one.arguments, one.schema, given)
        for one in now.calls
    )
    text = None if now.text is None else _typed(given, "text", now.text)
    changes = differing(now.text, text) if text is not None and now.text is not None else ()
    return replace(
        empty,
        text=text,
        recorded=now.text or "",
        changes=changes,
        calls=calls,
        versions=tuple(
            VersionLine(one.who, one.when, one.why, one.branch, laid_out(one.answer)[0], one.shown)
            for one in now.versions
        ),
        effect=effect,
        touched=bool(changes) or any(one.changes for one in calls),
    )


def _call(field: str, tool: str, call_id: str, arguments: str, schema: str, given: Mapping[str, str]) -> EditedCall:
    text = _typed(given, field, _to_edit(arguments))
    try:
        after = laid_out(json.dumps(json.loads(text)))[0]
    except (ValueError, RecursionError):
        after = text
    before = laid_out(arguments)[0]
    return EditedCall(
        field, tool, call_id, text, before, differing(before, after), laid_out(schema)[0] if schema else ""
    )


def _to_edit(arguments: str) -> str:
    try:
        return spelled(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _typed(given: Mapping[str, str], field: str, recorded: str) -> str:
    return given.get(field, recorded).replace("\r\n", "\n")


def edits_of(given: Mapping[str, str]) -> tuple[str | None, dict[str, Any]]:
    """(text, arguments by ``choice.place``) as ``Steering.edit`` takes them. Raises ``Unprocessable``."""
    arguments: dict[str, Any] = {}
    for name, text in given.items():
        if name.startswith(PLACE):
            try:
                arguments[name.removeprefix(PLACE)] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise Unprocessable(f"the arguments of a call are not JSON: {error}; nothing was edited") from None
    said = given.get("text")
    return (None if said is None else said.replace("\r\n", "\n")), arguments


# --- one thing ---


def ask_pause(reader: Reader, key: str) -> Ask:
    session = found(reader, key)
    over = session.status in (SessionStatus.COMPLETED, SessionStatus.FAILED)
    paused = session.status is SessionStatus.PAUSED
    sentences = [
        "Nothing more of this session is sent: requests wait, with heartbeats, until somebody resumes it (or are "
        "refused, where pause.requests says so).",
        "What is in flight comes to its end. Recorded answers are still given: they cost nothing.",
    ]
    if over:
        sentences = [f"The session is {session.status.value}; there is nothing to pause."]
    elif paused:
        sentences.insert(0, _paused(session.note) or "It is paused already; another reason takes the place of its own.")
    command = command_line("pause", key, "--reason", "…")
    return Ask("pause", "Pause", key, None, tuple(sentences), "Pause", not over, "", "", command, _back(key, None))


def ask_resume(reader: Reader, key: str) -> Ask:
    session = found(reader, key)
    paused = session.status is SessionStatus.PAUSED
    sentences = [f"The session is {session.status.value}, not paused."]
    if paused:
        sentences = [
            _paused(session.note),
            "Requests that wait are judged anew, as if they came now: one may be a replay by then, or meet a budget.",
        ]
    said = tuple(one for one in sentences if one)
    command = command_line("resume", key)
    return Ask("resume", "Resume", key, None, said, "Resume", paused, "", "", command, _back(key, None))


def _paused(note: str) -> str:
    by = pausing.read(note)
    if not by.by:
        return ""
    return f"Paused by {by.by}" + (f": {by.text}." if by.text else ".")


def ask_delete(reader: Reader, key: str) -> Ask:
    session = found(reader, key)
    steps, _, _, runs = reader.session_totals(session.id)
    flying = sum(step.state is State.IN_FLIGHT for step in reader.steps(session.id, max(0, session.steps - 50)))
    sentences = [
        f"{_many(steps, 'step')} and {_many(runs, 'run')} go for good: they cannot be shown, replayed or exported any "
        "more. What they cost stays in the sums, and decisions stay in the audit log.",
        "A request that comes for this id later begins a new session.",
    ]
    if flying:
        sentences.insert(0, f"{_many(flying, 'call')} of it {'is' if flying == 1 else 'are'} in flight.")
    forks = reader.forks_of(session.id)
    if forks:
        sentences = [f"It stays: it shares its steps with {', '.join(forks[:10])}. Delete these first."]
    command = command_line("delete", key)
    return Ask(
        "delete", "Delete", key, None, tuple(sentences), f"Delete {_many(steps, 'step')} for good", not forks, "", "",
        command, session_path(key),
    )  # fmt: skip


def ask_rating(reader: Reader, key: str, step: int | None) -> Ask:
    session = found(reader, key)
    at = 0 if step is None else reader.step_by_number(session.id, step)
    said = None if at is None else reader.ratings(session.id).get(at)
    about = "the session as a whole" if step is None else f"step {step}"
    words: list[object] = ["rate", key, said.verdict if said is not None else "good"]
    words += [] if step is None else ["--step", step]
    return Ask(
        "rate", f"Rate {about}", key, step, ("Exports can go by it.",), "Say so", at is not None,
        "" if said is None else said.note, "" if said is None else said.verdict, command_line(*words), _back(key, step),
    )  # fmt: skip


def trying(
    parts: Parts, reader: Reader, key: str, step: int | None, start: int | None = None, kept: str = "", number: int = 0
) -> Trying:
    """``kept``, ``number``: the session and step of a trial that was made. Raises ``NotFound``."""
    session = found(reader, key)
    row = next(iter(reader.all_steps(session.id, step, 1)), None) if step is not None else None
    asked = row.asked_model if row is not None and row.number == step else ""
    known = {model for route in parts.settings.routes for model in (route.model, *route.fallback) if "*" not in model}
    command = command_line("try", key, "N" if step is None else step, "--model", "MODEL")
    tried = _tried(reader, row.id, kept, number) if row is not None and kept else None
    return Trying(
        key, step, step_list(reader, session, step, start, "model"), asked, tuple(sorted(known - {asked})), tried,
        command, _back(key, step),
    )  # fmt: skip


def _tried(reader: Reader, original: int, kept: str, number: int) -> Tried:
    row = next(iter(reader.all_steps(found(reader, kept).id, number, 1)), None)
    if row is None or row.number != number:
        raise NotFound(f"session {kept!r} has no step {number}")
    full = between(reader, original, row.id)
    return Tried(kept, number, full.pair.left, full.pair.right, parts_of(full), row.error)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _back(key: str, step: int | None) -> str:
    return session_path(key) + ("" if step is None else f"?step={step}")
