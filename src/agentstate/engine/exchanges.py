"""Owns reading a session's steps for exports: as what conversations they are, and what speaks against training on them.

Must not write, spell or choose lines. Invariant: one exchange is in memory at a time, however long the session is; what
is shown of an answer is what agents were given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from agentstate.core import dataset
from agentstate.core.branching import lineage
from agentstate.core.dataset import Facts
from agentstate.core.dataset_filter import Filters
from agentstate.core.dataset_formats import LeftOut
from agentstate.core.model import Release, Shape, State
from agentstate.core.transcript import Dialogue, Reply
from agentstate.dialects import registry, transcripts
from agentstate.dialects.responses_answer import loaded
from agentstate.dialects.responses_context import conversation_of, transcript
from agentstate.errors import BadRequest, NotFound, StoreCorrupt, Untranslatable
from agentstate.store.reader import Reader
from agentstate.store.rows import AnswerRow, SessionRow, StepRow

_PAGE = 500
_LONGEST = 10_000  # answers that point to each other


class Exchange(NamedTuple):
    """What a step asked and was given. ``release``: how, where it was held; ``other``: the answer as it was received,
    where that is another one."""

    row: StepRow
    asked: Dialogue
    replies: list[Reply]
    release: Release | None
    other: tuple[Reply, ...] = ()


class Steps:
    """The steps of one session on the branch that the filters ask for, and those that were superseded."""

    def __init__(self, reader: Reader, session: SessionRow, filters: Filters, lost: Counter[str]) -> None:
        """``lost``: counts what of the exchanges is left out though the lines stay. Raises ``NotFound`` for a branch
        that there is not, ``LeftOut`` where the session was deleted meanwhile, or is a trial and not asked for."""
        self.session = session
        self._reader = reader
        self._filters = filters
        self._lost = lost
        self._ratings = reader.ratings(session.id)
        self._labels = reader.step_labels(session.id)
        self._session_labels = reader.labels(session.id)
        if dataset.TRIAL_LABEL in self._session_labels and not self._asks_for_trials(session):
            raise LeftOut(dataset.TRIED)
        self._runs: dict[int, str] = {}
        rows = reader.branches(session.id)
        head = session.head if filters.branch is None else filters.branch
        if head not in rows and filters.branch is None:
            raise LeftOut(dataset.GONE)
        if head not in rows:
            raise NotFound(f"session {session.key!r} has no branch {head}; it has {', '.join(map(str, rows))}")
        shown = lineage({key: row.branch for key, row in rows.items()}, head)
        self._shown = dict(shown)
        self._shared = reader.shared(session.id)
        self._edits = reader.revisions(shown)
        self._left = {left.step for left in reader.left_behind(shown)} if self._edits else set[int]()
        # What a fork shares is trained where it was asked, unless only the fork is exported.
        self._elsewhere = {
            key for key, row in rows.items() if row.session != session.id and self._is_exported(row.session)
        }
        self._last: Exchange | None = None
        self._chain: tuple[str, list[tuple[bytes, bytes]]] = ("", [])

    def _asks_for_trials(self, session: SessionRow) -> bool:
        return session.key in self._filters.sessions or dataset.TRIAL_LABEL in self._filters.labels

    def _is_exported(self, owner: int) -> bool:
        row = self._reader.session_of(owner)
        return row is not None and (not self._filters.sessions or row.key in self._filters.sessions)

    def rows(self, superseded: bool = False) -> Iterator[StepRow]:
        """The steps that are calls of models in a wire format that is known; in order."""
        start = 0
        while page := self._reader.all_steps(self.session.id, start, _PAGE):
            for row in page:
                shown = row.number < self._shown.get(row.branch, 0) and row.id not in self._left
                if row.kind != "tool" and row.dialect in transcripts.DIALECTS and (shown or superseded):
                    yield row
            start = page[-1].number + 1

    def read(self, row: StepRow) -> Exchange:
        """The exchange of an answered step. Raises ``LeftOut`` with the reason where it cannot be told."""
        if self._last is None or self._last.row.id != row.id:
            try:
                self._last = self._read(row)
            except (TypeError, StoreCorrupt):
                # An export may take long, and what is not there any more cannot be read.
                if self._reader.step_by_number(self.session.id, row.number) == row.id:
                    raise
                raise LeftOut(dataset.GONE) from None
        return self._last

    def _read(self, row: StepRow) -> Exchange:
        if row.state is not State.COMPLETED or row.status >= 300:
            raise LeftOut(dataset.UNFINISHED)
        answer = self._reader.answer(row.id)
        if answer.release is Release.HELD:
            raise LeftOut(dataset.UNDECIDED)
        try:
            asked, lost = transcripts.dialogue(row.dialect, self._request(row))
            if answer.release is Release.ERROR:
                return Exchange(row, asked, [], answer.release)
            body = self._plain(row, answer.shape, answer.body)
            replies = transcripts.replies(row.dialect, asked, self._ended(body))
            other = self._other(row, asked, answer)
            edit = self._edits.get(row.id)
            if edit is not None:
                # What agents are given is plain; what it replaces is what they would be given without it.
                edited = transcripts.replies(row.dialect, asked, self._reader.blob(edit.body))
                return Exchange(row, asked, edited, Release.ANSWER, tuple(other or replies))
        except Untranslatable as error:
            raise LeftOut(dataset.UNREADABLE if "JSON" in error.message else dataset.FOREIGN) from None
        self._lost.update(lost)
        return Exchange(row, asked, replies, answer.release, tuple(other))

    def _other(self, row: StepRow, asked: Dialogue, answer: AnswerRow) -> list[Reply]:
        """The answer as it was received, where agents are given another one."""
        if answer.release is None:
            return []
        received = self._reader.received(row.id)
        if received.body == answer.body:
            return []
        return transcripts.replies(row.dialect, asked, self._plain(row, received.shape, received.body))

    def _plain(self, row: StepRow, shape: Shape, body: bytes) -> bytes:
        try:
            return registry.BY_NAME[row.dialect].convert(shape, Shape(), body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise LeftOut(dataset.UNREADABLE) from error

    def _ended(self, body: bytes) -> bytes:
        """The answer, or that of the job that it began. Raises ``LeftOut`` where the job has not ended."""
        job = transcripts.job_of(body)
        if not job:
            return body
        held = self._reader.held_shown(self.session.id, job, self._shared)
        if held is None or not held.body:
            raise LeftOut(dataset.UNFINISHED)
        if held.release in (Release.HELD, Release.ERROR):
            raise LeftOut(dataset.UNDECIDED if held.release is Release.HELD else dataset.REFUSED)
        return held.given

    def _request(self, row: StepRow) -> bytes:
        """The request with the whole conversation in it."""
        body = self._reader.request(row.id)[3]
        if row.dialect != "openai_responses":
            return body
        if conversation_of(body):
            raise LeftOut(dataset.HELD_ELSEWHERE)
        previous = _previous(body)
        if not previous:
            return body
        chain: list[tuple[bytes, bytes]] = []  # newest first
        last = previous
        while previous and len(chain) < _LONGEST:
            if previous == self._chain[0]:
                chain += self._chain[1]
                break
            held = self._reader.held_shown(self.session.id, previous, self._shared)
            if held is None:
                raise LeftOut(dataset.HELD_ELSEWHERE)
            answer = self._reader.answer(held.step)
            request = self._reader.request(held.step)[3]
            given = held.given if held.job else self._plain(row, answer.shape, answer.body)
            if held.step in self._edits:
                given = self._reader.blob(self._edits[held.step].body)
            chain.append((request, given))
            previous = _previous(request)
        self._chain = (last, chain)
        try:
            return transcript(chain[::-1], body).body
        except BadRequest as error:
            raise LeftOut(dataset.HELD_ELSEWHERE) from error

    def facts(self, exchange: Exchange, place: int = 0) -> Facts:
        """What is told of a step, and whether it may be trained. ``place``: of the choice that counts."""
        row, filters = exchange.row, self._filters
        rating, of_session = self._ratings.get(row.id), self._ratings.get(0)
        labels = self._labels.get(row.id, ())
        verdict = rating.verdict if rating is not None else ""
        whole = of_session.verdict if of_session is not None else ""
        model, run = row.model or row.asked_model, self._run_name(row.run)
        chosen = filters.takes_step(model, row.created_at, run) and filters.takes_marks(
            (whole, self._session_labels), (verdict, labels)
        )
        chosen = chosen and row.branch not in self._elsewhere
        why_not = _why_not(exchange, place)
        if not why_not and (verdict or whole) == "bad" and filters.rating != "bad":
            why_not = dataset.BAD
        told = verdict or whole
        return Facts(row.number, model, row.created_at, run, row.cost, told, labels, why_not, chosen)

    def _run_name(self, run: int) -> str:
        if run not in self._runs:
            self._runs |= {run: ""} | self._reader.run_names([run])
        return self._runs[run]


def _why_not(exchange: Exchange, place: int) -> str:
    if exchange.release in (Release.MESSAGE, Release.ERROR, Release.CONTINUE):
        return dataset.REFUSED
    if not exchange.replies:
        return dataset.SILENT
    reply = exchange.replies[place]
    if reply.end in ("length", "refusal"):
        return dataset.CUT if reply.end == "length" else dataset.DECLINED
    said = reply.message
    return "" if said.text or said.calls else dataset.SILENT


def _previous(body: bytes) -> str:
    if b'"previous_response_id"' not in body:
        return ""
    value = loaded(body)
    name = value.get("previous_response_id") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""
