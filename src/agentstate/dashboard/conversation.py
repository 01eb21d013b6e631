"""Owns a step as a conversation: what its request says for the first time, and what was answered. Must not decide.

Invariant: what is folded is counted; what cannot be read as a conversation is said to be so, and stands under Raw.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentstate.core.model import State
from agentstate.core.transcript import Dialogue, Document, Picture, Spoken, chain
from agentstate.dashboard import summaries
from agentstate.dashboard.rendering import pretty
from agentstate.dialects import sse, transcripts
from agentstate.errors import AgentStateError
from agentstate.store.reader import Reader
from agentstate.store.rows import AnswerRow, InvocationRow, SessionRow, StepRow

MOST_TEXT = 60_000  # characters of a message that are shown, unless all is asked for


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call of a tool. ``result``: what came back, as far as the journal knows; ``made_at``: the step that made it."""

    tool: str
    arguments: str
    id: str = ""
    result: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class MessageItem:
    """``role``: system, user, assistant or tool; ``answers``: the call whose result it is; ``pictures``: pictures and
    files, by where they are; ``cut``: characters that are left out."""

    role: str
    text: str
    thinking: str = ""
    calls: tuple[CallItem, ...] = ()
    pictures: tuple[str, ...] = ()
    answers: str = ""
    failed: bool = False
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """``earlier``: messages before these that an earlier step showed already; ``given``: the choices that agents were
    given; ``received``: the same as the provider sent them, where that is something else; ``fault``: why there is no
    conversation; ``partial``: the text so far of an answer that grows."""

    earlier: int
    messages: tuple[MessageItem, ...]
    given: tuple[MessageItem, ...]
    received: tuple[MessageItem, ...]
    fault: str = ""
    partial: str = ""


def conversation(
    reader: Reader, session: SessionRow, step: StepRow, whole: bool, answers: summaries.Answers, partial: bytes
) -> Conversation:
    """A step of a model. ``whole``: with all messages of its request; ``partial``: what has come of its answer."""
    try:
        asked, _ = transcripts.dialogue(step.dialect, reader.request(step.id)[3])
    except (AgentStateError, KeyError) as error:
        said = error.message if isinstance(error, AgentStateError) else "it is no conversation"
        return Conversation(0, (), (), (), f"This request is shown under Request: {said}")
    earlier = 0 if whole else _known(reader, session, step, asked)
    given, received = _told(answers.given, asked), _told(answers.received, asked)
    results = {call.call_id: call for call in reader.invocations([step.id])}
    names = {call.id: call.name for message in asked.messages for call in message.calls}
    text = streamed(step.dialect, partial) if partial else ""
    return Conversation(
        earlier, tuple(_item(one, whole, {}, names) for one in asked.messages[earlier:]),
        tuple(_item(one, whole, results, names) for one in given),
        tuple(_item(one, whole, {}, names) for one in received), "", text,
    )  # fmt: skip


def _known(reader: Reader, session: SessionRow, step: StepRow, asked: Dialogue) -> int:
    """How many of the first messages a step before this one showed, its answer included."""
    before = _before(reader, session, step)
    if before is None:
        return 0
    try:
        other, _ = transcripts.dialogue(before.dialect, reader.request(before.id)[3])
    except (AgentStateError, KeyError):
        return 0
    try:
        edit = reader.revisions(reader.shown(session)).get(before.id)
        given = _told(summaries.answers(reader, before, edit).given, other)
    except AgentStateError:
        given = []
    mine, theirs = chain(asked.messages), chain([*other.messages, *given[:1]])
    same = 0
    for left, right in zip(mine, theirs, strict=False):
        if left != right:
            break
        same += 1
    return min(same, len(asked.messages) - 1)


def _before(reader: Reader, session: SessionRow, step: StepRow) -> StepRow | None:
    start = max(0, step.number - 20)
    near = [one for one in reader.all_steps(session.id, start, 20) if one.number < step.number]
    like = [one for one in near if (one.kind, one.dialect, one.state) == (step.kind, step.dialect, State.COMPLETED)]
    return like[-1] if like else None


def _told(answer: AnswerRow | None, asked: Dialogue) -> list[Spoken]:
    """The choices of an answer; none where it is a failure, or cannot be read."""
    if answer is None or answer.state is not State.COMPLETED or answer.status >= 300:
        return []
    return [one.message for one in summaries.answered(answer, asked)]


def _item(said: Spoken, whole: bool, results: dict[str, InvocationRow], names: dict[str, str]) -> MessageItem:
    text = said.text or said.refusal
    cut = 0 if whole else max(0, len(text) - MOST_TEXT)
    calls = []
    for call in said.calls:
        result = results.get(call.id)
        calls.append(
            CallItem(
                call.name, pretty(call.arguments), call.id,
                None if result is None or result.result is None else pretty(result.result)[:MOST_TEXT],
                result is not None and result.failed,
            )
        )  # fmt: skip
    return MessageItem(
        said.role, text[: len(text) - cut], said.reasoning, tuple(calls),
        tuple(_where(piece) for piece in said.pieces if not isinstance(piece, str)),
        names.get(said.answers, said.answers), said.failed, cut,
    )  # fmt: skip


def _where(piece: Picture | Document) -> str:
    if piece.url.startswith("data:"):
        kind = piece.url[5:60].partition(";")[0] or "file"
        return f"{kind}, {len(piece.url) * 3 // 4 // 1000} kB, embedded"
    return piece.url


# --- what has come of an answer that grows ---


def streamed(dialect: str, sent: bytes) -> str:
    """The text in the part of a stream that has come."""
    if dialect == "ollama_chat":
        lines: Sequence[str | bytes] = sent.splitlines()
    else:
        lines = [data for event in sse.Parser().feed(sent) if (data := sse.data_of(event)) is not None]
    return "".join(_delta(line) for line in lines)


def _delta(line: str | bytes) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return ""
    return _text_of(value) if isinstance(value, dict) else ""


def _text_of(value: dict[str, Any]) -> str:
    """What an event adds to the text: each wire format has its own place for it."""
    delta = value.get("delta")
    if isinstance(delta, str):
        return delta if value.get("type") == "response.output_text.delta" else ""
    if isinstance(delta, dict):
        return str(delta.get("text") or "")
    for choice in value.get("choices") or value.get("candidates") or ():
        if not isinstance(choice, dict):
            continue
        inner = choice.get("delta")
        if isinstance(inner, dict):
            return str(inner.get("content") or "")
        content = choice.get("content")
        if isinstance(content, dict):
            return "".join(str(part.get("text") or "") for part in content.get("parts") or () if isinstance(part, dict))
    message = value.get("message")
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        return str(message["content"])
    return str(value.get("response") or "") if isinstance(value.get("response"), str) else ""
