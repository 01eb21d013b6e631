"""Owns the attempts at one step, in the recorder's task: the first, retries, other candidates. Must not read an answer
(the recorder does) nor hold the rules (``core.routing`` does).

Invariant: nothing is asked again once a byte of an answer was shown; every attempt is in the journal, with its reason,
before a byte of it leaves; a call that is answered at once costs no more than a look at what has failed lately.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core import routing
from agentstate.core.model import Verdict
from agentstate.core.routing import Candidate, Failure, Fault, GiveUp, History, Limits, Next, Planned, Retry
from agentstate.dialects import faults
from agentstate.dialects.concealing import scrubbed
from agentstate.engine import candidates, context, costs, waiting
from agentstate.engine.candidates import Asking, Switch, Unfit
from agentstate.engine.headers import packed_headers
from agentstate.engine.request import Request
from agentstate.engine.secrets import secrets_of
from agentstate.errors import (
    BreakerOpen,
    CandidatesFailed,
    UpstreamBusy,
    UpstreamCut,
    UpstreamFault,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamUnreachable,
    final,
)
from agentstate.providers.client import Headers, Question
from agentstate.providers.provider import Provider
from agentstate.settings import RetrySettings
from agentstate.store.detours import Detour, Failed

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job

log = logging.getLogger("agentstate")
_PATIENCE = 15.0  # of clients that do not tell a short read timeout: see ``server.address``
_OF_TIMEOUT = 2.4  # a client's read timeout is three times its patience; the last attempt needs a part of it
_MOST_WAIT = 60.0  # a longer Retry-After of ours is ignored by several SDKs


class Again(Exception):
    """The attempt failed, and another one follows."""

    def __init__(self, failure: Failure, decision: Retry | Next) -> None:
        super().__init__(failure.text)
        self.failure = failure
        self.decision = decision


@dataclass(slots=True)
class Course:
    """What was done for a call whose first attempt failed, and what may still be done. ``asked``, ``provider``,
    ``question``: as the agent asked; ``refusal``: its own provider's last word, (status, headers, body); ``story``:
    what happened, in words; ``why``: what the present candidate is there for."""

    asked: Candidate
    provider: Provider
    question: Question
    limits: Limits
    planned: Planned
    acts: bool
    at: Candidate
    history: History = field(default_factory=History)
    switch: Switch | None = None
    refusal: tuple[int, Headers, bytes] | None = None
    story: list[str] = field(default_factory=list)
    why: str = ""
    noted: bool = False


async def run(job: Job, attempt: Callable[[Job], Awaitable[None]]) -> None:
    """Make attempts until one is answered or nobody is left to ask. Raises ``AgentStateError`` in the latter case."""
    breakers = job.parts.breakers
    job.started = clock.monotonic()
    if job.parts.routes.any or job.request.fallback:
        job.parts.foresight.look(job)
    try:
        if breakers.known:
            await _around(job)
        while True:
            try:
                if job.parts.bounded:
                    await _bounded(job, attempt)
                else:
                    await attempt(job)
            except Again as again:
                await _go_on(job, again.failure, again.decision)
            except UpstreamFault as fault:
                if fault.final:
                    raise
                failure = failure_of(fault)
                decision = await _decided(job, failure)
                if isinstance(decision, GiveUp):
                    told = _told(job, fault, decision)
                    if told is fault:
                        raise
                    raise told from fault
                await _go_on(job, failure, decision)
            else:
                if breakers.known and not (job.course is not None and job.course.noted):
                    await breakers.answered(_present(job))
                return
    finally:
        if breakers.known:
            breakers.left(_present(job))


async def _bounded(job: Job, attempt: Callable[[Job], Awaitable[None]]) -> None:
    """An attempt within the limits of the settings: in its turn, and in time."""
    limit = job.parts.settings.retry.attempt_timeout_s
    queue = job.parts.queues.get(job.provider.name)
    if queue is None:
        await _timed(job, attempt, limit)
    else:
        async with queue.turn(job.live.session):
            await _timed(job, attempt, limit)


async def _timed(job: Job, attempt: Callable[[Job], Awaitable[None]], limit: float | None) -> None:
    try:
        async with asyncio.timeout(limit) as job.limit:
            await attempt(job)
    except TimeoutError as error:
        raise UpstreamTimeout(
            f"provider {job.provider.name} took longer than {limit:g} s for its answer (retry.attempt_timeout_s)"
        ) from error
    finally:
        job.limit = None


# --- what failed ---


async def refused(job: Job, body: bytes) -> bytes:
    """The provider answered an error status: the body that is given on, with ``job.status`` and ``job.headers``. Raises
    ``Again`` where another attempt follows, ``CandidatesFailed``."""
    failure = faults.of_answer(job.status, job.headers, body, clock.now())
    course = job.course or begin(job)
    if course.at == course.asked:
        course.refusal = (job.status, job.headers, body)
    decision = await _decided(job, failure)
    if not isinstance(decision, GiveUp):
        raise Again(failure, decision)
    if course.at == course.asked and job.foreign is None:
        return body
    log.warning("nobody answered a call for %s; the last one was %s: %s", course.asked, course.at, short(failure))
    if course.refusal is None:
        raise _all_failed(course)
    job.status, job.headers, given = course.refusal
    return given


async def said_failed(job: Job, said: str) -> None:
    """The provider says, within an answer, that it failed. Raises ``Again`` where another attempt follows."""
    failure = faults.of_words(said, clock.now())
    decision = await _decided(job, failure)
    if not isinstance(decision, GiveUp):
        raise Again(failure, decision)
    if job.foreign is not None:
        raise final(UpstreamInvalid(f"provider {job.provider.name} says that it failed: {said[:300]}"))


def failure_of(fault: UpstreamFault) -> Failure:
    """What a fault of ours says of the attempt."""
    kind = (
        Fault.BUSY
        if isinstance(fault, UpstreamBusy)
        else Fault.UNREACHABLE
        if isinstance(fault, UpstreamUnreachable)
        else Fault.TIMEOUT
        if isinstance(fault, UpstreamTimeout)
        else Fault.CUT
        if isinstance(fault, UpstreamCut)
        else Fault.INVALID
    )
    text = f"{fault.code}: {fault.message}"
    if kind in (Fault.CUT, Fault.INVALID) and faults.is_told(fault.message):
        return faults.of_words(fault.message, clock.now())._replace(text=text)
    return Failure(kind, text=text)


async def _decided(job: Job, failure: Failure) -> routing.Decision:
    """What follows; a candidate that is to be asked next stands ready in ``course.switch``."""
    course = job.course or begin(job)
    breakers = job.parts.breakers
    failure = failure._replace(text=_clean(job, failure.text))
    if failure.fault in routing.DOWN:
        await breakers.failed(course.at, failure)
    elif breakers.known and failure.fault is not Fault.BUSY:
        await breakers.answered(course.at)
    course.noted = True
    course.story.append(f"{course.at}: {failure.text}")
    if job.live.recording.shown:
        return GiveUp("a part of its answer was given already")
    if job.parts.closing:
        return GiveUp("the proxy is stopping")
    history = _since(job, course)
    decision = routing.after_failure(failure, history, course.limits, course.planned, course.acts, clock.jitter())
    if isinstance(decision, Retry) and breakers.is_open(course.at):
        decision = Next() if failure.fault in course.planned.on else GiveUp("its breaker is open")
    if isinstance(decision, Next) and not _found(job, course):
        decision = GiveUp("nobody else can be asked")
    return decision


def _clean(job: Job, text: str) -> str:
    """What a provider said, less the credentials that it may have repeated."""
    return scrubbed(text.encode(), secrets_of(job.question, job.call)).decode("utf-8", "replace")


def _since(job: Job, course: Course) -> History:
    made = course.history
    return History(made.tried, made.waited, made.lost, clock.monotonic() - job.started)


def begin(job: Job) -> Course:
    """Think about a call for the first time beyond its first attempt."""
    asked = Candidate(job.provider.name, job.call.model)
    planned = Planned()
    # Vectors of another model mean something else, a job stays where it runs, what a person approved is not changed.
    if not (job.call.pure or job.call.background or not waiting.must_ask(job.parts, job.live.step)):
        planned = job.parts.routes.planned(asked, job.request.fallback)
    acts = faults.acts(job.question.body)
    found = limits(job.parts.settings.retry, job.request)
    job.course = Course(asked, job.provider, job.question, found, planned, acts, asked)
    return job.course


def limits(settings: RetrySettings, request: Request) -> Limits:
    """What may be tried for a request."""
    # A client that tries again by itself multiplies what is done here.
    attempts = 1 if request.retry else settings.attempts
    patience = request.patience * _OF_TIMEOUT if request.patience < _PATIENCE else math.inf
    return Limits(
        attempts, settings.base_s, settings.cap_s, frozenset(settings.statuses), settings.total_s,
        settings.lost_answers, patience,
    )  # fmt: skip


def _found(job: Job, course: Course) -> bool:
    """Look for the next candidate that can be asked; the ones that cannot are told of, with the reason."""
    course.switch = None
    asking = Asking(job.parts, job.dialect, job.call, job.live.session, lambda whole: context.retold(job, whole))
    while course.planned.candidates and course.switch is None:
        candidate, *rest = course.planned.candidates
        course.planned = course.planned._replace(candidates=tuple(rest))
        shut = job.parts.breakers.shut(candidate)
        try:
            if shut:
                raise Unfit("its breaker is open")
            course.switch = candidates.switch_to(
                asking, candidate, course.provider, course.question, course.planned.strict
            )
        except Unfit as unfit:
            job.parts.breakers.left(candidate)
            course.story.append(f"{candidate} was left out: {unfit}")
            log.info("%s is no candidate for a call of %s: %s", candidate, course.asked, unfit)
    return course.switch is not None


# --- going on ---


async def _around(job: Job) -> None:
    """Before the first attempt: a provider whose breaker is open is not asked where there is another way."""
    shut = job.parts.breakers.shut(Candidate(job.provider.name, job.call.model))
    if not shut:
        return
    course = begin(job)
    failure = Failure(Fault.LEFT_ALONE, text="breaker_open: nothing was sent, as its breaker is open")
    if Fault.LEFT_ALONE in course.planned.on and _found(job, course):
        course.story.append(f"{course.at}: {failure.text}")
        await _go_on(job, failure, Next())
    elif job.parts.settings.breaker.alone == "refuse":
        raise BreakerOpen(
            f"provider {course.asked.provider} failed again and again for {course.asked.model} and is left alone; ask "
            f"again in {shut:.0f} s, or give it a route to another model ([[routes]])",
            min(shut, _MOST_WAIT),
        )
    else:
        course.limits = replace(course.limits, attempts=1)


async def _go_on(job: Job, failure: Failure, decision: Retry | Next) -> None:
    """Write down how the attempt failed, wait or switch, and write down that another one begins."""
    course, live = job.course, job.live
    assert course is not None
    journal, secrets = job.parts.journal, secrets_of(job.question, job.call)
    error = _clean(job, failure.text)[:2000]
    head = scrubbed(packed_headers(job.headers), secrets)
    body = scrubbed(b"".join(job.received), secrets)
    found = costs.heard(job)
    cost, prices = None, ""
    if found.usage:
        cost, prices = await costs.priced(job.parts, job.provider, course.at.model, found)
    spent = (live.session, found.model, found.usage, cost, prices)
    await journal.end_attempt(Failed(live.step, live.attempt, job.status, head, body, error, *spent))
    job.between = True
    log.info("attempt %d of step %d at %s failed: %s", live.attempt, live.number, course.at, short(failure))
    if isinstance(decision, Retry):
        because = f"{course.why}, then {short(failure)}" if course.why else short(failure)
        lost_before = job.foreign.losses if job.foreign is not None else ()
        text = f"{because}: {error[:300]}; tried again after {decision.delay:.2f} s"
        detour = Detour(text, _elsewhere(course), lost_before)
        await asyncio.sleep(decision.delay)
        course.history = course.history.after(decision.delay, failure)
    else:
        detour = _switched(job, course, failure, error)
    job.received.clear()
    job.gate = job.heard = None
    job.size, job.status, job.headers = 0, 0, []
    job.deserted_size = None if job.deserted_size is None else 0
    course.noted = False
    begun = await journal.next_attempt(live.step, live.attempt, job.new, detour)
    live.attempt, job.detour = begun.attempt, detour
    live.recording.model, live.recording.detour = course.at.model if detour.candidate else "", told_detour(detour)
    job.between = False


def _switched(job: Job, course: Course, failure: Failure, error: str) -> Detour:
    """Point the job at the next candidate."""
    switch = course.switch
    assert switch is not None
    course.at, course.switch = switch.candidate, None
    course.history = History(lost=course.history.lost)
    course.why = short(failure)
    job.provider, job.question, job.foreign = switch.provider, switch.question, switch.foreign
    job.new = job.new._replace(provider=switch.provider.name)
    log.warning("a call for %s goes to %s: %s", course.asked, course.at, course.why)
    if candidates.warned(switch.losses):
        log.warning("%s is asked without %s", course.at, ", ".join(switch.losses))
    return Detour(f"{course.why}: {error[:300]}; {course.at} is asked instead", str(course.at), switch.losses)


def short(failure: Failure) -> str:
    """A failure in a word and a number."""
    return failure.fault + (f" {failure.status}" if failure.status else "")


def told_detour(detour: Detour | None) -> str:
    """What agents are told of an answer that comes from elsewhere, live and replayed; empty: it does not."""
    if detour is None or not detour.candidate:
        return ""
    return routing.told(detour.candidate, detour.why.partition(":")[0], detour.lost)


def translated(job: Job, body: bytes) -> tuple[bytes, Verdict]:
    """A foreign answer in the agent's wire format, plain, and what it says. Raises ``UpstreamInvalid``."""
    assert job.foreign is not None
    try:
        body, verdict, job.lost = candidates.answered(job.dialect, job.call, job.foreign, body)
    except Unfit as unfit:
        raise UpstreamInvalid(f"the answer of provider {job.provider.name} cannot be carried over: {unfit}") from unfit
    assert job.detour is not None
    job.live.recording.detour = told_detour(job.detour._replace(lost=job.lost))
    job.live.recording.translated = True
    job.headers = [("content-type", job.dialect.content_type(type(job.call.shape)()))]
    return body, verdict


def _elsewhere(course: Course) -> str:
    return str(course.at) if course.at != course.asked else ""


def _present(job: Job) -> Candidate:
    return job.course.at if job.course is not None else Candidate(job.provider.name, job.call.model)


# --- what is told in the end ---


def _told(job: Job, fault: UpstreamFault, decision: GiveUp) -> UpstreamFault:
    course = job.course
    if course is None or len(course.story) < 2 or job.live.recording.shown:
        return fault
    if course.at == course.asked and not any("was left out" in part for part in course.story):
        fault.message += f" ({decision.reason})"
        return fault
    return _all_failed(course)


def _all_failed(course: Course) -> CandidatesFailed:
    story = "; ".join(part[:300] for part in course.story)
    return CandidatesFailed(f"nobody answered: {story}"[:2000])
