"""Owns what the panel of one step shows, a tab at a time. Must not decide or write.

Invariant: bodies are read for the tab that shows them, and cut where they are long unless all of them is asked for; no
credential is in them, for none is in the journal.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from agentstate.core.model import ApprovalState, Release, Shape, State
from agentstate.core.usage import Tokens, counted
from agentstate.dashboard import summaries
from agentstate.dashboard.conversation import Conversation, conversation
from agentstate.dashboard.rendering import pretty
from agentstate.dialects import registry
from agentstate.engine.core import Parts
from agentstate.engine.recording import Recording
from agentstate.errors import AgentStateError, NotFound
from agentstate.store.journal_reader import ToolStep
from agentstate.store.reader import Reader
from agentstate.store.rows import AnswerRow, SessionRow, StepRow

TABS = ("conversation", "request", "response", "attempts", "timing", "raw")
MOST_BODY = 1_000_000  # characters of a body, unless all of it is asked for
_MOST_CURL = 100_000  # bytes of a request that fit a line to copy
_KEYS = {
    "anthropic_messages": ("x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"),
    "gemini": ("x-goog-api-key: $GEMINI_API_KEY",),
    "ollama_chat": (),
}
_OPENAI_KEY = ("authorization: Bearer $OPENAI_API_KEY",)


@dataclass(frozen=True, slots=True)
class Body:
    """A body as text. ``size``: of all of it, in bytes; ``cut``: not all of it is here; ``json``: it is JSON."""

    text: str
    size: int
    cut: bool
    json: bool


@dataclass(frozen=True, slots=True)
class Hand:
    """A step given to a run: how, how surely it matched, and whether the reader left before the end."""

    run: str
    outcome: str
    match: str
    cut: bool
    again: int
    at: float


@dataclass(frozen=True, slots=True)
class AskedItem:
    """An approval about this step."""

    id: str
    kind: str
    tool: str
    state: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class TryItem:
    """An attempt. ``wait``: seconds between the one before and this one; ``took``: seconds, ``None``: under way."""

    n: int
    provider: str
    model: str
    candidate: str
    status: int
    error: str
    why: str
    lost: tuple[str, ...]
    cost: float | None
    wait: float | None
    took: float | None
    started_at: float


@dataclass(frozen=True, slots=True)
class StepPanel:
    """``tab``: which of ``TABS`` is filled; ``queued``: seconds from the request to the first attempt; ``latency``:
    from the last attempt's start to its end; ``growing``: it is in flight, ``gone``: and nobody reads it any more;
    ``tool``: what a tool's step is about; ``edited_by``: who edited its answer; ``given``, ``received``: the answer as
    agents are given it, and as it came where that is something else; ``curl``: the request as a command line, without
    keys; ``previous``, ``next``: steps beside it."""

    number: int
    tab: str
    whole: bool
    kind: str
    state: str
    model: str
    asked_model: str
    provider: str
    path: str
    dialect: str
    stream: bool
    run: str
    status: int
    error: str
    created_at: float
    queued: float | None
    latency: float | None
    tokens: Tokens | None
    cost: float | None
    prices: str
    attempts: int
    fingerprint: str
    superseded: bool
    release: str
    edited_by: str
    edit_reason: str
    rating: str
    rating_note: str
    labels: tuple[str, ...]
    growing: bool
    gone: bool
    sent_bytes: int
    served: tuple[Hand, ...]
    asked: tuple[AskedItem, ...]
    tool: ToolStep | None
    conversation: Conversation | None
    request: Body | None
    given: Body | None
    received: Body | None
    head: tuple[tuple[str, str], ...]
    tries: tuple[TryItem, ...]
    curl: str
    previous: int | None
    next: int | None


def step_panel(
    reader: Reader, parts: Parts, session: SessionRow, number: int, tab: str = "", whole: bool = False
) -> StepPanel:
    """Raises ``NotFound``."""
    found = [one for one in reader.all_steps(session.id, number, 1) if one.number == number]
    if not found:
        there = f"it has the steps 0 to {session.steps - 1}" if session.steps else "it has none yet"
        raise NotFound(f"session {session.key!r} has no step {number}; {there}")
    return _Panel(reader, parts, session, found[0], tab if tab in TABS else TABS[0], whole).made()


class _Panel:
    """Fills one."""

    def __init__(self, reader: Reader, parts: Parts, session: SessionRow, step: StepRow, tab: str, whole: bool) -> None:
        self._reader, self._session, self._step, self._tab, self._whole = reader, session, step, tab, whole
        self._address = parts.delivery.address
        live = parts.floating.live.get(step.id)
        self._recording: Recording | None = live.recording if live is not None else None
        self._sent = self._recording.so_far() if self._recording is not None else b""
        self._edit = reader.revisions(reader.shown(session)).get(step.id)
        self._answers, self._fault = summaries.Answers(), ""
        try:
            self._answers = summaries.answers(reader, step, self._edit)
        except AgentStateError as error:
            self._fault = str(error)
        self._answer, self._received = self._answers

    def made(self) -> StepPanel:
        step, reader, tab = self._step, self._reader, self._tab
        runs = reader.run_names([step.run])
        edit = self._edit
        shown = dict(reader.shown(self._session))
        tries = self._tries()
        rating = reader.ratings(self._session.id).get(step.id)
        tool = reader.tool_steps([step.id]).get(step.id)
        bodies = tab in ("request", "raw") or (tab == "conversation" and tool is not None)
        answers = tab in ("response", "raw") or (tab == "conversation" and tool is not None)
        return StepPanel(
            step.number, tab, self._whole, step.kind, self._state(), step.model or step.asked_model, step.asked_model,
            step.provider, step.path, step.dialect, step.shape.stream, runs.get(step.run, ""), step.status,
            self._fault or step.error, step.created_at, tries[0].started_at - step.created_at if tries else None,
            None if step.finished_at is None else max(0.0, step.finished_at - step.started_at), _tokens(step),
            step.cost, step.prices, step.attempts, step.fingerprint.hex(),
            step.branch not in shown or step.number >= shown[step.branch],
            self._answer.release.value if self._answer is not None and self._answer.release is not None else "",
            edit.made_by if edit is not None else "", edit.reason if edit is not None else "",
            rating.verdict if rating is not None else "", rating.note if rating is not None else "",
            reader.step_labels(self._session.id).get(step.id, ()), self._recording is not None,
            self._recording is not None and not self._recording.readers, len(self._sent), self._hands(), self._asked(),
            tool, self._conversation() if tab == "conversation" and tool is None else None,
            self._request() if bodies else None, self._body(self._answer) if answers else None,
            self._body(self._received) if answers else None, self._head() if tab == "raw" else (), tries,
            self._curl() if tab == "request" and tool is None else "",
            step.number - 1 if step.number else None,
            step.number + 1 if step.number + 1 < self._session.steps else None,
        )  # fmt: skip

    def _conversation(self) -> Conversation:
        return conversation(self._reader, self._session, self._step, self._whole, self._answers, self._sent)

    def _state(self) -> str:
        asked = any(row.state is ApprovalState.PENDING for row in self._reader.approvals_of(self._step.id))
        if asked or (self._answer is not None and self._answer.release is Release.HELD):
            return "held"
        return "done" if self._step.state is State.COMPLETED else str(self._step.state.value)

    def _hands(self) -> tuple[Hand, ...]:
        return tuple(
            Hand(run, outcome, match, cut, again, at)
            for _, run, outcome, match, cut, again, at in self._reader.served_of([self._step.id])
        )

    def _asked(self) -> tuple[AskedItem, ...]:
        return tuple(
            AskedItem(row.id, row.kind.value, row.tool, row.state.value, row.decided_by, row.reason)
            for row in self._reader.approvals_of(self._step.id)
        )

    def _tries(self) -> tuple[TryItem, ...]:
        found: list[TryItem] = []
        ended: float | None = None
        for row in self._reader.attempts(self._step.id):
            wait = None if ended is None else max(0.0, row.started_at - ended)
            ended = row.finished_at
            found.append(
                TryItem(
                    row.n, row.provider, row.model, row.detour.candidate, row.status, row.error, row.detour.why,
                    row.detour.lost, row.cost, wait, None if ended is None else max(0.0, ended - row.started_at),
                    row.started_at,
                )
            )  # fmt: skip
        return tuple(found)

    # --- bodies ---

    def _request(self) -> Body:
        try:
            return self._text(self._reader.request(self._step.id)[3])
        except AgentStateError as error:
            return Body(str(error), 0, False, False)

    def _body(self, answer: AnswerRow | None) -> Body | None:
        """An answer; but under Raw, a stream added up."""
        if answer is None:
            return None
        body = answer.body
        if self._tab != "raw" and answer.state is State.COMPLETED and answer.shape.stream:
            try:
                body = registry.BY_NAME[answer.dialect].convert(answer.shape, Shape(), body)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                return self._text(answer.body)
        return self._text(body)

    def _text(self, body: bytes) -> Body:
        text = body.decode("utf-8", "replace")
        is_json = text[:1] in "{[" and bool(text)
        if is_json and self._tab != "raw" and (self._whole or len(text) <= MOST_BODY):
            text = pretty(text)
        cut = len(text) > MOST_BODY and not self._whole
        return Body(text[:MOST_BODY] if cut else text, len(body), cut, is_json)

    def _head(self) -> tuple[tuple[str, str], ...]:
        """The headers that came with the answer, as they are kept."""
        if self._received is None and self._answer is None:
            return ()
        try:
            found = json.loads((self._received or self._answer).head or b"[]")  # type: ignore[union-attr]
        except ValueError:
            return ()
        return tuple((str(pair[0]), str(pair[1])) for pair in found if isinstance(pair, list) and len(pair) == 2)

    def _curl(self) -> str:
        _, method, path, body = self._reader.request(self._step.id)
        if len(body) > _MOST_CURL:
            return ""
        keys = _KEYS.get(self._step.dialect, _OPENAI_KEY)
        base = self._address + ("/" if self._step.dialect == "ollama_chat" else "/v1/")
        headers = "".join(f' \\\n  -H "{header}"' for header in ("content-type: application/json", *keys))
        data = shlex.quote(body.decode("utf-8", "replace"))
        return f'curl -X {method} "{base}{path}"{headers} \\\n  --data-binary {data}'


def _tokens(step: StepRow) -> Tokens | None:
    try:
        return counted(json.loads(step.usage)) if step.usage else None
    except ValueError:
        return None
