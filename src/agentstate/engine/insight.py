"""Owns what a serving process tells of its work: it counts, and where the settings ask for it, a span or a line of the
log follows. Must not change what happens, nor look into a body.

Invariant: what is told are names, numbers, ids and codes; no text of a request, an answer or an error of a provider. A
call of which nothing is to be told but the counts costs no more than those.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from agentstate import clock
from agentstate.core.model import Outcome, State
from agentstate.core.usage import Tokens
from agentstate.dialects import usage
from agentstate.engine.metrics import Metrics
from agentstate.engine.request import Answer, Request, printable
from agentstate.errors import AgentStateError
from agentstate.providers.client import Headers
from agentstate.settings import Settings

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job
    from agentstate.engine.telemetry import Telemetry

log = logging.getLogger("agentstate")
_LIVE = (Outcome.LIVE, Outcome.DIVERGED)
_REPLAYED = (Outcome.REPLAY, Outcome.MEMO)
_REQUEST_IDS = ("x-request-id", "request-id")  # as providers call them in answers
_MOST_CLAIMS = 10_000


class Try(NamedTuple):
    """One attempt, as a span tells it. ``began``: seconds since the epoch; ``error``: a code; empty: it
    was answered."""

    provider: str
    model: str
    status: int
    began: float
    seconds: float
    error: str


class Fact(NamedTuple):
    """What is told of a step, or of its being given again. ``name``: the model that was asked, or the tool;
    ``answered``: the model that answered; ``provider``: empty where it is not known; ``began``: seconds since the
    epoch; ``error``: a code; ``request_id``: the provider's; ``parent``: the agent's ``traceparent``."""

    session: str
    run: str
    step: int | None
    dialect: str
    path: str
    name: str
    outcome: str
    began: float
    seconds: float
    status: int = 200
    is_tool: bool = False
    provider: str = ""
    answered: str = ""
    tokens: Tokens = usage.NONE
    usd: float | None = None
    finish: tuple[str, ...] = ()
    error: str = ""
    request_id: str = ""
    parent: str = ""
    attempts: int = 0
    tries: tuple[Try, ...] = ()


class Insight:
    """One for each serving process."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        self.telemetry: Telemetry | None = None
        if settings.telemetry.otlp_url:
            from agentstate.engine.telemetry import Telemetry

            self.telemetry = Telemetry(settings.telemetry.otlp_url)
        steps = settings.log.steps if log.isEnabledFor(logging.INFO) else "none"
        self._logs_live, self._logs_all, self._logs_failed = steps in ("live", "all"), steps == "all", steps != "none"
        self._tells_live = self._logs_live or self.telemetry is not None
        self._tells_others = self._tells_live or self._logs_all
        self._claims: dict[int, tuple[float, Headers]] = {}

    # --- on the way of every call: counts first ---

    def answered(self, request: Request, dialect: str, answer: Answer, began: float) -> None:
        """An answer was given. ``began``: when its request was there, on the clock of durations."""
        told = answer.told
        if told is None:
            return
        seconds, outcome, metrics = clock.monotonic() - began, told.outcome, self.metrics
        key = (dialect, outcome._value_)
        metrics.requests[key] = metrics.requests.get(key, 0) + 1
        recording = answer.recording
        if outcome in _LIVE:
            if answer.waited_s:
                metrics.added.add(seconds - answer.waited_s)
            elif recording is not None and recording.waited_s and recording.done:
                metrics.added.add(seconds - recording.waited_s)
        elif outcome in _REPLAYED and not told.tool:
            metrics.replays.add(seconds)
            if answer.saved is not None:
                metrics.saved += answer.saved
            else:
                metrics.unpriced += 1
        if recording is not None and recording.error is not None:
            metrics.error(recording.error.code)
        if self._tells_others:
            self._given(request, dialect, answer, seconds)

    def attempted(self, job: Job, began: float, fault: BaseException | None) -> None:
        """An attempt at a provider is over. ``began``: as above; ``fault``: what it ended by, if it was not
        answered."""
        seconds = (job.over or clock.monotonic()) - began
        state, verdict, usd = job.ended or (State.FAILED, None, None)
        follows = getattr(fault, "failure", None)  # the provider answered, and another attempt follows
        status = job.status if fault is None or follows is not None else 0
        asked = job.course.at.model if job.course is not None else job.call.model
        model = (verdict.model if verdict is not None else "") or asked
        told = verdict.usage if verdict is not None else ""
        self.metrics.attempt(job.provider.name, model, status, job.answered - began, seconds, told, usd)
        if fault is not None or state is State.FAILED or self.telemetry is not None:
            if follows is not None:
                job.fault = str(follows.fault)
            elif fault is not None:
                job.fault = fault.code if isinstance(fault, AgentStateError) else "given_up"
            else:
                job.fault = "" if state is State.COMPLETED else f"http_{status}" if status >= 300 else "provider_failed"
            at = clock.now() - (clock.monotonic() - began)
            job.tries = (*job.tries, Try(job.provider.name, model, status, at, seconds, job.fault))

    def refused(self, error: AgentStateError) -> None:
        """A request was answered by an error of ours."""
        self.metrics.error(error.code)

    def relayed(self, provider: str, status: int, began: float, heard: float) -> None:
        """A call that is passed through was answered, or not (status 0)."""
        key = ("passthrough", "live")
        self.metrics.requests[key] = self.metrics.requests.get(key, 0) + 1
        self.metrics.attempt(provider, "", status, heard - began, clock.monotonic() - began, "", None)

    # --- what is told beside the counts ---

    def ended(self, job: Job) -> None:
        """A live step is over, whoever reads it."""
        failed = bool(job.fault)
        if not (self._tells_live or (failed and self._logs_failed)) or not job.started:
            return
        _, verdict, usd = job.ended or (State.FAILED, None, None)
        answered = verdict.model if verdict is not None else ""
        began = job.started
        fact = Fact(
            job.place.session, self._run(job), job.live.number, job.dialect.name, job.call.path, job.call.model,
            job.new.outcome, clock.now() - (clock.monotonic() - began), (job.over or clock.monotonic()) - began,
            job.status, False, job.provider.name, answered,
            usage.tokens(verdict.usage) if verdict is not None else usage.NONE, usd,
            verdict.finish if verdict is not None else (), job.fault, _request_id(job.headers),
            _parent(job.question.headers), job.live.attempt, job.tries,
        )  # fmt: skip
        self._tell(fact, self._logs_live or (failed and self._logs_failed))

    def _tell(self, fact: Fact, line: bool) -> None:
        try:
            if line:
                _line(fact)
            if self.telemetry is not None:
                self.telemetry.step(fact)
        except Exception:  # whatever a name holds, an answer is not lost over what is told of it
            log.exception("step %s of session %s could not be told", fact.step, printable(fact.session))

    def _run(self, job: Job) -> str:
        rows = job.parts.journal.facts.runs(job.live.session)
        return next((row.name for row in rows if row.id == job.live.run), "")

    def _given(self, request: Request, dialect: str, answer: Answer, seconds: float) -> None:
        """What was not asked of a provider, or is no model's: of the others the recorder tells."""
        told = answer.told
        assert told is not None
        live = told.outcome in _LIVE
        if not request.session or (live and (not told.tool or request.normal.endswith("/claim"))):
            return  # the recorder tells of it, or who makes the call will report
        error = "" if answer.recording is None or answer.recording.error is None else answer.recording.error.code
        fact = Fact(
            request.session, told.run, told.step, dialect, request.normal, told.tool or told.model,
            told.outcome._value_, clock.now() - seconds, seconds, answer.status, bool(told.tool),
            answered="" if told.tool else told.model, error=error, parent=_parent(request.headers),
        )  # fmt: skip
        self._tell(fact, self._logs_all or (self._logs_live and told.outcome not in (*_REPLAYED, Outcome.JOINED)))

    # --- calls that agents make themselves under a claim ---

    def claimed(self, step: int, headers: Headers) -> None:
        """A process was given leave to make a call; it will say what came of it."""
        if self._tells_live and len(self._claims) < _MOST_CLAIMS:
            self._claims[step] = (clock.now(), headers)

    def reported(self, request: Request, step: int, number: int, tool: str, failed: bool) -> None:
        """It has said so."""
        if not self._tells_live:
            return
        now = clock.now()
        began, headers = self._claims.pop(step, (now, request.headers))
        fact = Fact(
            request.session, request.run, number, "function", request.normal, tool, Outcome.LIVE.value, began,
            now - began, 200, True, error="tool_failed" if failed else "", parent=_parent(headers),
        )  # fmt: skip
        self._tell(fact, self._logs_live)

    async def close(self) -> None:
        """Send what is not sent yet, within a bound."""
        if self.telemetry is not None:
            await self.telemetry.close()


def _line(fact: Fact) -> None:
    """One line of the log. Errors are told by their code: what a provider says in one may repeat a credential."""
    fields: dict[str, object] = {"session": fact.session, "run": fact.run, "step": fact.step, "outcome": fact.outcome}
    fields["tool" if fact.is_tool else "model"] = printable(fact.answered or fact.name)
    if fact.provider:
        fields["provider"] = fact.provider
    fields |= {"status": fact.status, "ms": round(fact.seconds * 1000, 1)}
    if fact.tokens != usage.NONE:
        fields |= {"tokens_in": fact.tokens.input, "tokens_out": fact.tokens.output, "cost_usd": fact.usd}
    if fact.attempts > 1:
        fields["attempts"] = fact.attempts
    if fact.request_id:
        fields["request_id"] = fact.request_id
    if fact.error:
        fields["error"] = fact.error
    log.info("step", extra={"fields": fields})


def _request_id(headers: Headers) -> str:
    return next((printable(value) for name, value in headers if name.lower() in _REQUEST_IDS), "")


def _parent(headers: Headers) -> str:
    return next((value.strip() for name, value in headers if name.lower() == "traceparent"), "")
