"""Owns what a step says on one line: the first words of its answer, or the call that it makes. Must not show a body.

Invariant: an answer that cannot be read says so on its line, and spoils no other line.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from agentstate.core.model import Release, Shape, State
from agentstate.core.transcript import Dialogue, Reply
from agentstate.core.usage import counted
from agentstate.dialects import registry, transcripts
from agentstate.errors import AgentStateError
from agentstate.store.branches import RevisionRow
from agentstate.store.journal_reader import ToolStep
from agentstate.store.reader import Reader
from agentstate.store.rows import AnswerRow, StepRow

MOST = 160  # characters of a line
_LARGEST = 512 * 1024  # bytes of an answer that is read for one line


class Line(NamedTuple):
    """``tokens``: of the answer's usage, ``None``: not told; ``release``: as of its answer; ``altered``: what agents
    are given is not what was received."""

    text: str
    tokens: int | None = None
    release: Release | None = None
    altered: bool = False


class Answers(NamedTuple):
    """``given``: as agents are given it on this branch; ``received``: as it came, where that is another."""

    given: AnswerRow | None = None
    received: AnswerRow | None = None


def answers(reader: Reader, step: StepRow, edit: RevisionRow | None) -> Answers:
    """The recorded answer of a step, and the one that a person or a decision put in its place.

    Raises ``StoreCorrupt``.
    """
    if not step.has_body:
        return Answers()
    answer = reader.answer(step.id)
    if edit is not None:
        return Answers(answer._replace(body=reader.blob(edit.body), shape=Shape()), answer)
    if answer.release is None:
        return Answers(answer)
    received = reader.received(step.id)
    return Answers(answer, received if received.body != answer.body else None)


def line(
    reader: Reader, step: StepRow, effect: ToolStep | None, tools: tuple[str, ...], edit: RevisionRow | None = None
) -> Line:
    """One line for a step; ``edit``: of its answer."""
    tokens = _tokens(step)
    if effect is not None:
        return Line(called(effect.tool, effect.arguments), tokens)
    if step.state is State.IN_FLIGHT:
        return Line("", tokens)
    if not step.has_body:
        return Line(_short(step.error or "no answer"), tokens)
    try:
        answer, other = answers(reader, step, edit)
        assert answer is not None
        altered = edit is not None or (other is not None and answer.release is Release.ANSWER)
        return Line(_said(step, answer, tools), tokens, answer.release, altered)
    except AgentStateError as error:
        return Line(_short(str(error)), tokens)


def _said(step: StepRow, answer: AnswerRow, tools: tuple[str, ...]) -> str:
    if step.status >= 300 or step.state is not State.COMPLETED:
        return _short(step.error or answer.body[:2000].decode("utf-8", "replace"))
    if len(answer.body) > _LARGEST:
        return _short(", ".join(f"{name}(…)" for name in tools) or "a large answer")
    found = answered(answer)
    if not found:
        return _short(answer.body[:600].decode("utf-8", "replace"))
    message = found[0].message
    parts = [_short(message.text or message.refusal)] if message.text or message.refusal else []
    parts += [called(call.name, call.arguments) for call in message.calls]
    return _short(" · ".join(parts)) if parts else "an empty answer"


def answered(answer: AnswerRow, asked: Dialogue | None = None) -> list[Reply]:
    """The choices of a recorded answer, as a conversation tells them; none where it is none."""
    if answer.dialect not in transcripts.DIALECTS:
        return []
    try:
        plain = registry.BY_NAME[answer.dialect].convert(answer.shape, Shape(), answer.body)
        return transcripts.replies(answer.dialect, asked or Dialogue(()), plain)
    except (AgentStateError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return []


def called(tool: str, arguments: str) -> str:
    """``send_email(to=ann@example.test, subject=Hello)``, cut to a line."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = arguments
    if isinstance(value, dict):
        inside = ", ".join(f"{name}={_flat(one)}" for name, one in list(value.items())[:8])
    else:
        inside = _flat(value)
    return _short(f"{tool}({inside})")


def _flat(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _short(text, 60)


def _short(text: str, most: int = MOST) -> str:
    """The text on one line, cut where it is longer."""
    flat = " ".join(text[: most * 8].split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _tokens(step: StepRow) -> int | None:
    if not step.usage:
        return None
    try:
        found = counted(json.loads(step.usage))
    except ValueError:
        return None
    return None if found is None else found.total
