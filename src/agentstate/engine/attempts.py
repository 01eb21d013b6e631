"""Owns the attempts at one step, in the recorder's task: the first, retries, other candidates. Must not read an answer
(the recorder does) nor hold the rules (``core.routing`` does).

Invariant: nothing is asked again once a byte of an answer was shown; every attempt is in the journal, with its reason,
before a byte of it leaves; a call that is answered at once costs no more than a look at what has failed lately.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core import budget, routing
from agentstate.core.budget import Ruling
from agentstate.core.model import Verdict
from agentstate.core.routing import Candidate, Failure, Fault, GiveUp, History, Limits, Next, Planned, Retry
from agentstate.dialects import faults, stream_usage
from agentstate.dialects.concealing import scrubbed
from agentstate.engine import candidates, context, costs, waiting
from agentstate.engine.budgets import exceeded
from agentstate.engine.candidates import Asking, Switch, Unfit
from agentstate.engine.failing import all_failed, failure_of, left_alone, limits, short, told_detour
from agentstate.engine.headers import packed_headers
from agentstate.engine.secrets import secrets_of
from agentstate.engine.turns import bounded
from agentstate.errors import (
    AgentStateError,
    UpstreamFault,
    UpstreamInvalid,
    final,
)
from agentstate.providers.client import Headers, Question
from agentstate.providers.provider import Provider
from agentstate.store.detours import Detour, Failed
from agentstate.store.rows import Begun

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job

log = logging.getLogger("agentstate")


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
    job.parts.foresight.look(job)
    try:
        if breakers.known:
            await _around(job)
        while True:
            try:
                if job.parts.bounded:
                    await bounded(job, attempt)
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
                    await breakers.answered(present(job))
                return
    finally:
        for candidate in job.trials:
            breakers.left(candidate)


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
        raise all_failed(course.story)
    job.status, job.headers, given = course.refusal
    job.live.recording.model = job.live.recording.detour = ""  # nobody else has answered
    return given


async def said_failed(job: Job, said: str) -> None:
    """The provider says, within an answer, that it failed. Raises ``Again`` where another attempt follows."""
    failure = faults.of_words(said, clock.now())
    decision = await _decided(job, failure)
    if not isinstance(decision, GiveUp):
        raise Again(failure, decision)
    if job.foreign is not None:
        raise final(UpstreamInvalid(f"provider {job.provider.name} says that it failed: {said[:300]}"))


async def _decided(job: Job, failure: Failure) -> routing.Decision:
    """What follows; a candidate that is to be asked next stands ready in ``course.switch``."""
    course = job.course or begin(job)
    breakers = job.parts.breakers
    failure = failure._replace(text=_clean(job, failure.text))
    _let_go(job, course.at)
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
    question = job.question
    acts = faults.acts(question.body)
    if job.uncounted and planned.candidates:  # whether another one is asked for it is to be seen then
        question = question._replace(body=stream_usage.not_asking(question.body, job.call.body))
    found = limits(job.parts.settings.retry, job.request)
    job.course = Course(asked, job.provider, question, found, planned, acts, asked)
    return job.course


def _found(job: Job, course: Course) -> bool:
    """Look for the next candidate that can be asked; the ones that cannot are told of, with the reason."""
    course.switch = None
    asking = Asking(job.parts, job.dialect, job.call, job.live.session, lambda whole: context.retold(job, whole))
    while course.planned.candidates and course.switch is None:
        candidate, *rest = course.planned.candidates
        course.planned = course.planned._replace(candidates=tuple(rest))
        try:
            if _shut(job, candidate):
                raise Unfit("its breaker is open")
            course.switch = candidates.switch_to(
                asking, candidate, course.provider, course.question, course.planned.strict
            )
        except Unfit as unfit:
            _let_go(job, candidate)
            course.story.append(f"{candidate} was left out: {unfit}")
            log.info("%s is no candidate for a call of %s: %s", candidate, course.asked, unfit)
    return course.switch is not None


def _shut(job: Job, candidate: Candidate) -> float:
    """See ``Breakers.shut``; that this call is the trial is noted with it."""
    seconds, trial = job.parts.breakers.shut(candidate)
    if trial:
        job.trials.append(candidate)
    return seconds


def _let_go(job: Job, candidate: Candidate) -> None:
    if candidate in job.trials:
        job.trials.remove(candidate)
        job.parts.breakers.left(candidate)


# --- going on ---


async def _around(job: Job) -> None:
    """Before the first attempt: a provider whose breaker is open is not asked where there is another way."""
    shut = _shut(job, Candidate(job.provider.name, job.call.model))
    if not shut:
        return
    course = begin(job)
    failure = Failure(Fault.LEFT_ALONE, text="breaker_open: nothing was sent, as its breaker is open")
    if Fault.LEFT_ALONE in course.planned.on and _found(job, course):
        course.story.append(f"{course.at}: {failure.text}")
        await _go_on(job, failure, Next())
    elif job.parts.settings.breaker.alone == "refuse":
        raise left_alone(course.asked, shut)
    else:
        course.limits = replace(course.limits, attempts=1)


async def _go_on(job: Job, failure: Failure, decision: Retry | Next) -> None:
    """Write down how the attempt failed, wait or switch, and write down that another one begins."""
    course, live = job.course, job.live
    assert course is not None
    error = _clean(job, failure.text)[:2000]
    await end(job, error)
    log.info("attempt %d of step %d at %s failed: %s", live.attempt, live.number, course.at, short(failure))
    if isinstance(decision, Retry):
        because = f"{course.why}, then {short(failure)}" if course.why else short(failure)
        text = f"{because}: {error[:300]}; tried again after {decision.delay:.2f} s"
        detour = Detour(text, _elsewhere(course), _lost_before(job))
        await job.parts.rest(decision.delay)
        course.history = course.history.after(decision.delay, failure)
    else:
        detour = _switched(job, course, failure, error)
    course.noted = False
    await _next(job, detour)


async def otherwise(job: Job, body: bytes, refusal: str, why: str) -> None:
    """The one who refused is asked at once with another ``body``, which says the same: ``why``, in words."""
    course = job.course
    job.question = job.question._replace(body=body)
    error = _clean(job, refusal)[:2000]
    await end(job, error)
    because, at = (course.why, _elsewhere(course)) if course is not None and course.why else ("refused", "")
    await _next(job, Detour(f"{because}: {error[:300]}; asked again {why}", at, _lost_before(job)))


async def end(job: Job, error: str) -> None:
    """Write down how the attempt failed, with what it cost."""
    live, secrets = job.live, secrets_of(job.question, job.call)
    head = scrubbed(packed_headers(job.headers), secrets)
    body = scrubbed(b"".join(job.received), secrets)
    found = costs.heard(job)
    cost, prices = None, ""
    if found.usage:
        cost, prices = await costs.priced(job.parts, job.provider, present(job).model, found)
    spent = (live.session, found.model, found.usage, cost, prices)
    job.between = True  # whether or not it is written down before the task is ended
    await job.parts.journal.end_attempt(Failed(live.step, live.attempt, job.status, head, body, error, *spent))


async def _next(job: Job, detour: Detour) -> None:
    """Write down that another attempt begins. Raises ``SessionPaused``, and ``Conflict`` where the step was rolled
    back: what people stopped meanwhile is not sent."""
    live, course = job.live, job.course
    await waiting.goes_on(job)
    job.received.clear()
    job.gate = job.heard = None
    job.size, job.status, job.headers = 0, 0, []
    job.deserted_size = None if job.deserted_size is None else 0
    budgets = job.parts.budgets
    plan = await budgets.further(job, present(job).model) if budgets.on else None
    begun = await job.parts.journal.next_attempt(live.step, live.attempt, job.new, detour, plan)
    if not isinstance(begun, Begun):
        raise _no_room(job, begun)
    live.attempt, job.detour = begun.attempt, detour
    live.recording.model = course.at.model if course is not None and detour.candidate else ""
    live.recording.detour = told_detour(detour)
    job.between = False


def _no_room(job: Job, ruling: Ruling) -> AgentStateError:
    """A budget has no room for one more attempt. Where people are asked, they are when the agent asks again."""
    if job.parts.budgets.denies(ruling):
        return exceeded(ruling, job.place.session)
    story = job.course.story if job.course is not None else []
    return all_failed([*story, f"{present(job)} was left out: {budget.sentence(ruling, job.place.session)}"])


def _switched(job: Job, course: Course, failure: Failure, error: str) -> Detour:
    """Point the job at the next candidate."""
    switch = course.switch
    assert switch is not None
    course.at, course.switch = switch.candidate, None
    course.history = History(lost=course.history.lost)
    course.why = short(failure)
    job.provider, job.question, job.foreign = switch.provider, switch.question, switch.foreign
    job.lost, job.live.recording.translating = switch.lost, switch.foreign is not None
    job.uncounted = job.foreign is None and stream_usage.is_uncounted(job.call) and job.parts.counts(job.provider)
    if job.uncounted:
        job.question = job.question._replace(body=stream_usage.asking(job.question.body, job.call))
    job.new = job.new._replace(provider=switch.provider.name)
    log.warning("a call for %s goes to %s: %s", course.asked, course.at, course.why)
    if candidates.warned(switch.losses):
        log.warning("%s is asked without %s", course.at, ", ".join(switch.losses))
    return Detour(f"{course.why}: {error[:300]}; {course.at} is asked instead", str(course.at), switch.losses)


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


def _lost_before(job: Job) -> tuple[str, ...]:
    return job.foreign.losses if job.foreign is not None else job.lost


def present(job: Job) -> Candidate:
    """Who is asked now."""
    return job.course.at if job.course is not None else Candidate(job.provider.name, job.call.model)


# --- what is told in the end ---


def _told(job: Job, fault: UpstreamFault, decision: GiveUp) -> UpstreamFault:
    course = job.course
    if course is None or len(course.story) < 2 or job.live.recording.shown:
        return fault
    if course.at == course.asked and not any("was left out" in part for part in course.story):
        fault.message += f" ({decision.reason})"
        return fault
    return all_failed(course.story)
