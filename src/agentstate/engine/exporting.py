"""Owns exports: which lines the journal comes to under filters and a format, what was left out of them and why.

Must not keep lines: they go out one at a time, in the order of sessions and steps, so that memory does not grow with
the journal (but for eight bytes a line, by which duplicates are known). Invariant: a line that leaves here keeps to
the rules of its format and was redacted unless the filters say otherwise; each line left out is counted by its reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from agentstate.core import dataset
from agentstate.core.dataset import Example, Known, Pair, Transcripts, example, rated_pairs
from agentstate.core.dataset_filter import PAIRED, Filters, Format, in_validation
from agentstate.core.dataset_formats import LeftOut, spelled
from agentstate.core.dataset_redaction import redacted_example, redacted_pair
from agentstate.core.dataset_rules import faults
from agentstate.core.model import ApprovalKind, ApprovalState, Release
from agentstate.core.redaction import Redactor
from agentstate.core.transcript import chain
from agentstate.engine.exchanges import Exchange, Steps
from agentstate.errors import BadRequest, NotFound
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow, StepRow

__all__ = ["Export", "Filters", "Report", "report"]

BYTES_A_TOKEN = 4  # of English text, about; the trainer's own count is the one that counts
FEWEST_LINES = 10  # that OpenAI takes
_APPROVED = {ApprovalState.APPROVED, ApprovalState.EDITED, ApprovalState.REUSED}
_REFUSED = {ApprovalState.REJECTED, ApprovalState.EXPIRED}


class Line(NamedTuple):
    """A line as it is written, without its end. ``part``: ``train`` or ``validation``."""

    part: str
    value: dict[str, Any]
    text: bytes


@dataclass(slots=True)
class Report:
    """What an export came to. ``left_out``: lines by reason; ``losses``: what lines could not hold, by kind; ``parts``:
    lines in each part; ``tokens``: about how many the lines have; ``price``: what the answers in them cost, USD, as far
    as it is known; ``unpriced``: of how many answers it is not. ``redacted``: places by kind; ``preview``: the first
    lines."""

    lines: int = 0
    sessions: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    price: float = 0.0
    unpriced: int = 0
    preview: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.bytes // BYTES_A_TOKEN

    def told(self) -> str:
        """In one sentence: ``312 lines; 4 left out: unanswered tool call (3), unfinished answer (1)``."""
        said = f"{self.lines} line{'' if self.lines == 1 else 's'}"
        if self.left_out:
            reasons = sorted(self.left_out.items(), key=lambda item: (-item[1], item[0]))
            said += f"; {self.left_out.total()} left out: " + ", ".join(f"{why} ({count})" for why, count in reasons)
        return said

    def warnings(self, form: Format) -> list[str]:
        """What stands in the way of training on it."""
        found = []
        if form in ("openai", "openai-dpo") and self.lines < FEWEST_LINES:
            found.append(f"OpenAI asks for at least {FEWEST_LINES} lines")
        if form == "trl" and self.losses["answers that are context"]:
            found.append("TRL trains on every answer in a line, on those with weight 0 too")
        return found


class Export:
    """One export. ``lines`` gives its lines; ``report`` counts them as they are given."""

    def __init__(self, reader: Reader, filters: Filters, form: Format, patterns: Iterable[str] = ()) -> None:
        """``patterns``: the operator's own, which are redacted too. Raises ``NotFound`` for a session that is named and
        not there."""
        self.report = Report()
        self._reader = reader
        self._filters = filters
        self._form: Format = form
        self._redactor = Redactor(patterns) if filters.redact else None
        if self._redactor is not None:
            self.report.redacted = self._redactor.counts
        self._seen: set[int] = set()
        if filters.branch is not None and len(filters.sessions) != 1:
            raise BadRequest("a branch is one session's; name that session as well")
        for key in filters.sessions:
            if reader.session(key) is None:
                raise NotFound(f"there is no session {key!r}; `agentstate sessions` lists those there are")

    def lines(self) -> Iterator[Line]:
        for session in self._sessions():
            part = "validation" if in_validation(session.key, self._filters.split) else "train"
            if self._filters.part in ("", part):
                yield from self._session(session, part)

    def _sessions(self) -> Iterator[SessionRow]:
        if self._filters.sessions:
            rows = (self._reader.session(key) for key in dict.fromkeys(self._filters.sessions))
            wanted = self._filters.status
            yield from (row for row in rows if row is not None and wanted in ("", row.status.value))
            return
        after = 0
        while page := self._reader.sessions_in_order(after, self._filters.status):
            yield from page
            after = page[-1].id

    def _session(self, session: SessionRow, part: str) -> Iterator[Line]:
        try:
            steps = Steps(self._reader, session, self._filters, self.report.losses)
        except LeftOut as reason:
            self.report.left_out[str(reason)] += 1
            return
        found = self._pairs(steps) if self._form in PAIRED else self._examples(steps)
        some = False
        for line in found:
            written = self._written(line, part)
            if written is not None:
                self.report.sessions += not some
                some = True
                yield written

    # --- one transcript, one line -------------------------------------------------------------------------------------

    def _examples(self, steps: Steps) -> Iterator[Example]:
        transcripts, rows = self._known(steps)
        if not len(transcripts) and not self._has_steps(steps):
            self.report.left_out[dataset.NO_STEPS] += 1
        used: set[int] = set()
        alone = self._filters.per == "step"
        for last in transcripts.each() if alone else transcripts.longest():
            exchange = self._again(steps, rows[last.facts.number])
            if exchange is None:
                continue
            reply = exchange.replies[0] if exchange.replies else None
            line = example(steps.session.key, last, exchange.asked, reply, used, alone)
            if isinstance(line, str):
                if line:
                    self.report.left_out[line] += 1
            elif self._takes(line, last, exchange):
                yield line

    def _again(self, steps: Steps, row: StepRow) -> Exchange | None:
        """The exchange of a step that was read before; ``None``: it was deleted meanwhile, and is counted."""
        try:
            return steps.read(row)
        except LeftOut as reason:
            self.report.left_out[str(reason)] += 1
            return None

    def _has_steps(self, steps: Steps) -> bool:
        """Whether the session has steps at all, of which the report then says why none is in it."""
        return next(steps.rows(), None) is not None

    def _known(self, steps: Steps, superseded: bool = False) -> tuple[Transcripts, dict[int, StepRow]]:
        """The transcripts of a session, and the row of each step in them."""
        transcripts, rows = Transcripts(), dict[int, StepRow]()
        failed: list[tuple[bytes, str]] = []
        answered: set[bytes] = set()
        for row in steps.rows(superseded):
            try:
                exchange = steps.read(row)
            except LeftOut as reason:
                failed.append((row.fingerprint, str(reason)))
                continue
            transcripts.add(steps.facts(exchange), exchange.asked, exchange.replies)
            rows[row.number] = row
            answered.add(row.fingerprint)
        # What failed and was asked again is no loss.
        self.report.left_out.update(why for fingerprint, why in failed if fingerprint not in answered)
        return transcripts, rows

    def _takes(self, line: Example, last: Known, exchange: Exchange) -> bool:
        filters = self._filters
        if len(line.steps) < filters.min_steps or not filters.takes_cost(sum(step.cost or 0.0 for step in line.steps)):
            return False
        if filters.finished:
            ended = line.steps[-1].number == last.facts.number and exchange.replies[0].end == "stop"
            if not ended:
                return False
        return not filters.approved or self._approved(exchange, line)

    def _approved(self, exchange: Exchange, line: Example) -> bool:
        """Whether a person approved a call of the steps in a line, and refused none."""
        session = self._reader.session(line.session)
        if session is None:
            return False  # deleted meanwhile
        ids = [self._reader.step_by_number(session.id, step.number) for step in line.steps]
        asked = self._reader.asked_about(step for step in ids if step is not None)
        states = [row.state for row in asked if row.kind is not ApprovalKind.BUDGET]
        return any(state in _APPROVED for state in states) and not any(state in _REFUSED for state in states)

    # --- pairs --------------------------------------------------------------------------------------------------------

    def _pairs(self, steps: Steps) -> Iterator[Pair]:
        transcripts, rows = self._known(steps, superseded=True)
        for known in transcripts.each():
            if known.facts.chosen:
                yield from self._decided(steps, known, transcripts, rows)
        for better, worse in rated_pairs(transcripts.each()):
            if better.facts.chosen or worse.facts.chosen:
                other = self._again(steps, rows[worse.facts.number])
                exchange = self._again(steps, rows[better.facts.number])
                if other is not None and exchange is not None:
                    said, unsaid = exchange.replies[0].message, other.replies[0].message
                    yield Pair(steps.session.key, better.facts, exchange.asked, said, unsaid, "rated")

    def _decided(
        self, steps: Steps, known: Known, transcripts: Transcripts, rows: dict[int, StepRow]
    ) -> Iterator[Pair]:
        """What a person made of an answer: edited, or refused and answered anew."""
        exchange = self._again(steps, rows[known.facts.number])
        if exchange is None:
            return
        if exchange.release is Release.ANSWER and exchange.other and known.facts.why_not in ("", dataset.BAD):
            for given, came in zip(exchange.replies, exchange.other, strict=False):
                yield Pair(steps.session.key, known.facts, exchange.asked, given.message, came.message, "edited")
        elif exchange.release in (Release.MESSAGE, Release.ERROR):
            self.report.left_out[dataset.UNREPLACED] += 1
        elif exchange.release is Release.CONTINUE:
            onward = transcripts.onward(known)
            later = None if onward is None else self._again(steps, rows[onward.facts.number])
            replies = [] if later is None else later.replies
            if onward is None or not replies:
                self.report.left_out[dataset.UNREPLACED] += 1
            elif not onward.facts.why_not:
                refused = exchange.replies[0].message
                yield Pair(steps.session.key, known.facts, exchange.asked, replies[0].message, refused, "rejected")

    # --- written ------------------------------------------------------------------------------------------------------

    def _written(self, line: Example | Pair, part: str) -> Line | None:
        """A line as it is written; ``None``: it is left out, and counted."""
        if self._filters.dedupe and self._is_known(line):
            self.report.left_out[dataset.DUPLICATE] += 1
            return None
        costs = [step.cost for step in line.steps] if isinstance(line, Example) else [line.step.cost]
        told = line if self._redactor is None else _redacted(line, self._redactor)
        try:
            value = spelled(self._form, told)
            wrong = faults(self._form, value)
            text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except LeftOut as reason:
            self.report.left_out[str(reason)] += 1
            return None
        except (UnicodeEncodeError, ValueError, RecursionError):
            self.report.left_out[dataset.UNREADABLE] += 1
            return None
        if wrong:
            self.report.left_out[f"{dataset.INVALID}: {wrong[0]}"[:120]] += 1
            return None
        self._count(line, part, costs, text)
        return Line(part, value, text)

    def _count(self, line: Example | Pair, part: str, costs: Sequence[float | None], text: bytes) -> None:
        report = self.report
        report.lines += 1
        report.parts[part] += 1
        report.bytes += len(text) + 1
        report.price += sum(cost for cost in costs if cost is not None)
        report.unpriced += costs.count(None)
        if isinstance(line, Example):
            answers = sum(message.role == "assistant" for message in line.dialogue.messages)
            if answers > len(line.trained):
                report.losses["answers that are context"] += answers - len(line.trained)

    def _is_known(self, line: Example | Pair) -> bool:
        digests = chain(line.dialogue.messages)
        more: tuple[object, ...] = line.dialogue.tools
        if isinstance(line, Pair):
            digests += chain((line.preferred, line.other))
        else:
            more = (*more, sorted(line.trained))
        whole = sha256(digests[-1] if digests else b"")
        whole.update(repr(more).encode("utf-8", "replace"))
        key = int.from_bytes(whole.digest()[:8], "big")
        known = key in self._seen
        self._seen.add(key)
        return known


def _redacted(line: Example | Pair, redactor: Redactor) -> Example | Pair:
    return redacted_pair(line, redactor) if isinstance(line, Pair) else redacted_example(line, redactor)


def report(
    reader: Reader, filters: Filters, form: Format = "openai", preview: int = 3, patterns: Iterable[str] = ()
) -> Report:
    """What an export would come to, with its first lines. Takes as long as the export. Raises ``NotFound``."""
    export = Export(reader, filters, form, patterns)
    for line in export.lines():
        if len(export.report.preview) < preview:
            export.report.preview.append(line.text.decode())
    return export.report
