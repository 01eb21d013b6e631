"""Owns what the model is told in later requests of what its agent was not shown: rounds in which it was told of a
refusal, refused calls beside others that were given, and that a person edited a call.

Must not send, nor change what is journaled: the agent's own question counts, for replay too. Invariant: something is
put in only before or into an answer that the request carries just as this branch gave it, behind the same question.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agentstate.core import fingerprint
from agentstate.core.model import ApprovalKind, ApprovalState, Call, Item, Release, Shape, State, ToolResult, Verdict
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.concealing import MARK
from agentstate.dialects.overlay import Fate, Form, Heard, listed_raws, merged, placed, same
from agentstate.dialects.overlay_blocks import AnthropicForm, GeminiForm
from agentstate.dialects.overlay_openai import ChatForm
from agentstate.dialects.overlay_responses import ResponsesForm
from agentstate.dialects.responses_context import conversation_of
from agentstate.engine.revised import as_edited
from agentstate.engine.settling import verdict_of
from agentstate.errors import AgentStateError
from agentstate.store.branches import RevisionRow
from agentstate.store.rows import AnswerRow, ApprovalRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts, Shown

log = logging.getLogger("agentstate")
FORMS: dict[str, Form] = {
    "openai_chat": ChatForm(),
    "openai_responses": ResponsesForm(),
    "anthropic_messages": AnthropicForm(),
    "gemini": GeminiForm(),
    "ollama_chat": ChatForm(ollama=True),
}
_MOST_SESSIONS = 20_000
_MOST_BYTES = 16 * 1024 * 1024
_MOST_ROUNDS = 8  # more than a model is told of refusals in a row


class _Given(NamedTuple):
    """An answer as agents were given it; ``rounds``: the messages that stand before it for the model; ``named``: its
    parts by the names under which requests may name them; ``amended``: its provider holds others."""

    heard: Heard
    fates: tuple[Fate, ...]
    rounds: tuple[bytes, ...] = ()
    named: Mapping[str, bytes] = {}
    amended: bool = False

    @property
    def changes(self) -> bool:
        told = any(fate.refused is not None or fate.note for fate in self.fates)
        return told or bool(self.rounds) or bool(self.named)

    @property
    def size(self) -> int:
        raws = (*self.rounds, *(fate.raw for fate in self.fates), *self.named.values())
        return 400 + len(self.heard.text) + sum(map(len, raws))


@dataclass(slots=True)
class _Retold:
    """A step of which more is told. ``count`` and ``tip``: how many messages its question has, and the digest of them
    all; none where it goes on from what its provider holds. ``given``: once it was looked at, and cannot change."""

    step: int
    branch: int
    number: int
    mode: Release
    dialect: str
    count: int = 0
    tip: bytes = b""
    given: _Given | None = field(default=None)


class Overlays:
    """One for each serving process. ``concern`` is asked with each call, and is one look into memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[int, tuple[_Retold, ...]] = {}
        self._size = 0  # of the answers in it, in bytes
        self._edits: Mapping[int, RevisionRow] = {}  # of the branch whose request is looked at

    def concern(self, session: int) -> bool:
        """Whether there is anything in a session that its model may have to be told."""
        row = self._parts.journal.facts.session_of(session)
        return bool(self._of(session)) or (row is not None and bool(self._parts.view(row).edits))

    def forget(self, session: int) -> None:
        """An answer of the session was released."""
        self._known.pop(session, None)

    def _of(self, session: int) -> tuple[_Retold, ...]:
        known = self._known.get(session)
        if known is None:
            if len(self._known) >= _MOST_SESSIONS:
                self._known.clear()
            row = self._parts.journal.facts.session_of(session)
            rows = self._parts.journal.read.retold(session, self._parts.view(row).shared if row is not None else ())
            known = self._known[session] = tuple(self._retold(*row) for row in rows)
        return known

    def _retold(self, step: int, branch: int, number: int, mode: Release) -> _Retold:
        found = _Retold(step, branch, number, mode, "")
        dialect, call = self._question(step)
        if dialect.name in FORMS:
            found.dialect = dialect.name
            if call.items and not call.previous and not conversation_of(call.body):
                found.count, found.tip = len(call.items), fingerprint.of(call).tip
        return found

    def _edited(self, edit: RevisionRow) -> _Retold:
        """An answer that a person edited, which its provider holds as it came."""
        read = self._parts.journal.read
        answer = read.answer(edit.step)
        found = self._retold(edit.step, answer.branch, answer.number, Release.ANSWER)
        if found.dialect:
            form = FORMS[found.dialect]
            plain = read.blob(edit.body)
            named = form.named(plain) if isinstance(form, ResponsesForm) else {}
            found.given = _Given(form.heard(form.said(plain)), (), (), named, True)
        return found

    def _question(self, step: int) -> tuple[Dialect, Call]:
        name, method, path, body = self._parts.journal.read.request(step)
        dialect = registry.BY_NAME[name]
        return dialect, dialect.parse(method, path, body)

    def applied(
        self, session: int, shown: Shown, run: int, dialect: Dialect, call: Call, body: bytes,
        answers: Mapping[int, int] | None = None,
    ) -> bytes:  # fmt: skip
        """The request that the model is sent for ``body``, of which ``call`` says where and how it is asked.

        ``answers``: of a body that was made whole, where in it the answers of which steps begin.
        """
        row = self._parts.journal.facts.session_of(session)
        edits = self._parts.view(row).edits if row is not None else {}
        self._edits = edits
        told_of = [one for one in self._of(session) if one.step not in edits]
        told_of += [self._edited(edit) for edit in edits.values()]
        retold = [one for one in told_of if one.dialect == dialect.name and _is_shown(one, shown)]
        if not retold:
            return body
        asked = dialect.parse(call.method, call.path, body)
        form = FORMS[dialect.name]
        raws = listed_raws(body, form.field)
        if len(raws) != len(asked.items):
            return body
        told = _Told(form, asked, raws, {})
        for one in retold:
            try:
                self._tell(one, told, answers or {}, shown, run, dialect)
            except (ValueError, AgentStateError) as error:
                log.warning("the model cannot be told what became of step %d: %s", one.number, error)
            except Exception:  # a request that nobody foresaw is sent as it is
                log.exception("the model cannot be told what became of step %d", one.number)
        return placed(body, form.field, told.changes) if told.changes else body

    def _tell(
        self, one: _Retold, told: _Told, answers: Mapping[int, int], shown: Shown, run: int, dialect: Dialect
    ) -> None:
        starts = [start for start, step in answers.items() if step == one.step]
        items = told.asked.items
        sure = bool(starts)
        if not starts and 0 < one.count < len(items):
            starts = [one.count]
            sure = told.chain[one.count - 1] == one.tip
        for start in starts:
            if told.form.end(items, start, ()) == start:
                continue
            for given in self._given(one, shown, run):
                ids = [call_id for call_id, _ in given.heard.calls if call_id]
                end = told.form.end(items, start, ids)
                raws = told.view(given.named)
                if not same(told.form.heard(raws[start:end]), given.heard):
                    continue
                if not sure and not self._alike(one, items, dialect):
                    return
                if any(MARK.encode() in raw for raw in (*given.rounds, *(fate.raw for fate in given.fates))):
                    raise ValueError("credentials were taken out of it")
                changes = told.form.told(raws if given.amended else told.raws, start, end, given.fates)
                for at in range(start, end) if given.amended else ():
                    if raws[at] is not told.raws[at]:  # named, and its provider has another under that name
                        changes[at] = told.written(changes.get(at, [raws[at]]), raws[at])
                if given.rounds:
                    changes[start] = [*given.rounds, *changes.get(start, [told.raws[start]])]
                told.changes = merged(told.changes, changes)
                break

    def _alike(self, one: _Retold, items: Sequence[Item], dialect: Dialect) -> bool:
        """Whether a question is the recorded one but for what replay bears: volatile text, other results of tools."""
        _, recorded = self._question(one.step)
        user = self._parts.settings.replay.masked_user_text
        return all(
            asked.digest == known.digest
            or dialect.scrubbed(asked, user).digest == dialect.scrubbed(known, user).digest
            or dialect.blanked(asked).digest == dialect.blanked(known).digest
            for asked, known in zip(items, recorded.items, strict=False)
        )

    # --- what agents were given ---

    def _given(self, one: _Retold, shown: Shown, run: int) -> Iterator[_Given]:
        if one.mode is Release.CONTINUE:
            yield from self._after_rounds(one.step, (), shown, run)
            return
        given = one.given
        if given is None:
            given = one.given = self._as_given(one.step, ())
            self._size += given.size
            if self._size > _MOST_BYTES:
                self._known.clear()
                self._size = 0
        if given.changes:
            yield given

    def _after_rounds(
        self, step: int, rounds: tuple[bytes, ...], shown: Shown, run: int, depth: int = 0
    ) -> Iterator[_Given]:
        """What agents may have been given in the end of an answer about whose refusal the model was told."""
        read = self._parts.journal.read
        dialect, call = self._question(step)
        if depth >= _MOST_ROUNDS or conversation_of(call.body):  # which holds the rounds itself
            return
        received = read.received(step)
        results = [ToolResult(*told) for told in json.loads(read.answer(step).said)["told"]]
        body = dialect.continued(call, received.shape, received.body, results)  # type: ignore[attr-defined]
        onward = dialect.parse(call.method, call.path, body)
        rounds += tuple(listed_raws(body, FORMS[dialect.name].field)[len(call.items) :])
        for entry in read.entries(shown, fingerprint.of(onward).key, run):
            if entry.state is not State.COMPLETED:
                continue
            release = read.answer(entry.step).release
            if release is Release.CONTINUE:
                yield from self._after_rounds(entry.step, rounds, shown, run, depth + 1)
            elif release in (None, Release.ANSWER, Release.MESSAGE):
                yield self._as_given(entry.step, rounds)

    def _as_given(self, step: int, rounds: tuple[bytes, ...]) -> _Given:
        read = self._parts.journal.read
        dialect, call = self._question(step)
        form = FORMS[dialect.name]
        answer, edit = read.answer(step), self._edits.get(step)
        if edit is not None:
            answer = as_edited(read, answer, edit)
        plain = dialect.convert(answer.shape, Shape(), answer.body)
        heard = form.heard(form.said(plain))
        fates = self._fates(step, dialect, call, answer.release, answer.said) if answer.release is not None else ()
        amended = answer.release is not None and answer.body != read.received(step).body
        named = form.named(plain) if isinstance(form, ResponsesForm) and (amended or rounds) else {}
        return _Given(heard, fates, rounds, named, amended)

    def _fates(self, step: int, dialect: Dialect, call: Call, mode: Release, said: str) -> tuple[Fate, ...]:
        read = self._parts.journal.read
        received = read.received(step)
        calls = verdict_of(dialect, call, received).calls
        if any(one.choice for one in calls):
            return ()  # it cannot be told which of them the agent went on with
        raws = FORMS[dialect.name].pieces(dialect.convert(received.shape, Shape(), received.body))
        if len(raws) != len(calls):
            return ()
        rows = {row.place: row for row in read.approvals_of(step) if row.kind is not ApprovalKind.REQUEST}
        left = {row.place for row in read.invocations([step])}
        told = iter(json.loads(said)["told"])
        fates = []
        for one, raw in zip(calls, raws, strict=True):
            if one.index in left:
                fates.append(Fate(one, raw, note=note_of(rows.get(one.index))))
            else:
                fates.append(Fate(one, raw, ToolResult(*next(told))))
        if mode is Release.MESSAGE:  # the text in their place says it
            fates = [fate for fate in fates if fate.refused is None]
        return tuple(fates)


def can_retell(dialect: Dialect, call: Call, verdict: Verdict, answer: AnswerRow) -> bool:
    """Whether calls can be taken out of an answer and put back for the model: one choice, a question that is known
    again, and nothing in the answer that is not kept."""
    return (
        dialect.name in FORMS
        and bool(call.items)
        and call.choices == 1
        and not any(one.choice for one in verdict.calls)
        and MARK.encode() not in answer.body
    )


@dataclass(slots=True)
class _Told:
    form: Form
    asked: Call
    raws: list[bytes]
    changes: dict[int, list[bytes]]
    chain: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        self.chain = fingerprint.of(self.asked).chain

    def view(self, named: Mapping[str, bytes]) -> list[bytes]:
        """The messages, with the parts of an answer in the places where they are only named."""
        if not named or not isinstance(self.form, ResponsesForm):
            return self.raws
        return [named.get(self.form.name_of(raw), raw) for raw in self.raws]

    def written(self, change: list[bytes], own: bytes) -> list[bytes]:
        """A change in whose place a name stood, its ``own`` part as it may be sent."""
        assert isinstance(self.form, ResponsesForm)
        return [raw for one in change for raw in (self.form.written(one) if one is own else [one])]


def _is_shown(one: _Retold, shown: Shown) -> bool:
    return any(branch == one.branch and one.number < upto for branch, upto in shown)


def note_of(row: ApprovalRow | None) -> str:
    """What the model is told of a call that was given; empty: nothing."""
    if row is None or row.state is not ApprovalState.EDITED:
        return ""
    why = f" ({row.reason})" if row.reason else ""
    by = row.decided_by or "a person"
    return (
        f"Note: {by} changed the arguments of this call before it was made{why}. It was made with the arguments that "
        "stand in the call, not with those that were proposed first."
    )
