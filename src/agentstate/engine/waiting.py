"""Owns questions that wait for a person before they are sent. Must not send them.

Invariant: such a question is in the journal, and on disk, before anybody is asked about it; it is sent once, after an
approval of that very question, and its refusal is its answer for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core import budget
from agentstate.core.model import ApprovalKind, ApprovalState, Release, SessionStatus, Shape, State, Verdict
from agentstate.core.pausing import Handling
from agentstate.dialects import refusal
from agentstate.dialects.concealing import MARK
from agentstate.engine import budgets, pausing
from agentstate.engine.reopening import check_shown
from agentstate.errors import Conflict, HumanRejection, NotFound, ShuttingDown
from agentstate.store.branches import is_in
from agentstate.store.rows import ApprovalRow, Begun, Ending

if TYPE_CHECKING:
    from agentstate.engine.core import Parts
    from agentstate.engine.recorder import Job


# What people are asked about a question before it is sent, and what of it keeps it from being sent at all.
_QUESTIONS = (ApprovalKind.REQUEST, ApprovalKind.BUDGET)
_REFUSED = (ApprovalState.REJECTED, ApprovalState.EXPIRED)


async def begun_again(job: Job, step: int) -> Begun:
    """Begin a further attempt of a step, or wait on with one that is held."""
    journal = job.parts.journal
    found = journal.read.answer(step)
    state = found.state
    if state is State.IN_FLIGHT:  # its end could not be recorded: nobody works on it any more
        await journal.interrupt_step(step)
        state = State.INTERRUPTED
    if state is State.HELD:
        return Begun(step, found.number, 1)
    if job.parts.budgets.on:
        return await job.parts.budgets.begin(job, state)
    return await journal.begin_attempt(step, state, job.new)


async def approved(job: Job) -> bool:
    """Wait until the question may be sent; false: it may not, its readers are told, or there are none any more."""
    if not job.held:
        return True
    step, recording, gate = job.live.step, job.live.recording, job.parts.gate
    news = gate.requests.setdefault(step, asyncio.Event())
    recording.on_deserted(news.set)
    recording.hold()
    try:
        while True:
            news.clear()
            if recording.readers == 0:
                return False  # it stays held; whoever asks again waits on
            if job.parts.closing:
                recording.fail(ShuttingDown("the proxy is stopping; ask again"))
                return False
            rows = [row for row in job.parts.journal.read.approvals_of(step) if row.kind in _QUESTIONS]
            refused = next((row for row in rows if row.state in _REFUSED), None)
            if refused is not None:
                await _refuse(job, refused)
                return False
            if not any(row.kind is ApprovalKind.REQUEST and row.state is ApprovalState.PENDING for row in rows):
                sent = await _sent(job, rows)
                if sent is not None:
                    return sent
            with contextlib.suppress(TimeoutError):  # a budget of the day has room again tomorrow
                async with asyncio.timeout(budget.until_tomorrow(clock.now())):
                    await news.wait()
    finally:
        gate.requests.pop(step, None)


async def _sent(job: Job, rows: list[ApprovalRow]) -> bool | None:
    """Send a question that people have let pass; false: it cannot be sent, and readers are told; ``None``: there is no
    room in the budget yet."""
    step, recording = job.live.step, job.live.recording
    session = job.parts.journal.read.session(job.place.session)
    if session is None or session.status is SessionStatus.PAUSED:
        if job.parts.pauses.waits(job.place.session):
            return None  # its end is news
        recording.fail(pausing.refusal(session) if session is not None else NotFound("the session is gone"))
        return False
    check_shown(job.parts, session, step)
    _approved_body(job)
    if job.parts.budgets.on or any(row.kind is ApprovalKind.BUDGET for row in rows):
        begun = await job.parts.budgets.send(job)
        if not isinstance(begun, Begun):
            if job.parts.budgets.denies(begun):
                recording.fail(budgets.exceeded(begun, job.place.session))
                return False
            return None
    else:
        begun = await job.parts.journal.send_held(step, job.new)
    job.live.attempt = begun.attempt
    recording.held = False
    return True


async def goes_on(job: Job) -> None:
    """Nothing is sent while the session is paused: its readers are kept waiting until a person lets it go on. Raises
    ``SessionPaused`` where they are not to wait, or have waited long enough, and ``Conflict`` for a step that was
    rolled back: between two attempts is time enough for people to stop it."""
    key, recording = job.place.session, job.live.recording
    if job.parts.pauses.waits(key):
        recording.hold()
        try:
            await job.parts.pauses.rested(key)
        finally:
            recording.held = False
    job.parts.pauses.check(key)
    if not _is_shown(job):
        raise Conflict("the step was rolled back before it was sent; ask again")


def is_stopped(job: Job) -> bool:
    """Whether people have stopped since what is about to be sent: see ``goes_on``."""
    return job.parts.pauses.handling(job.place.session) is not Handling.GO or not _is_shown(job)


def _is_shown(job: Job) -> bool:
    """Whether the session shows the step. Raises ``NotFound``."""
    session = job.parts.journal.facts.session(job.place.session)
    if session is None:
        raise NotFound(f"session {job.place.session} is gone")
    shown, _ = job.parts.head(session)
    return is_in(shown, job.live.branch, job.live.number)


def _approved_body(job: Job) -> None:
    """What is sent is what was approved, to the letter: a request that is equal for replay may differ in what cannot
    change the answer. Raises ``HumanRejection`` where it cannot be sent, as it held credentials that are not kept."""
    *_, body = job.parts.journal.read.request(job.live.step)
    if body == job.call.body:
        return
    if MARK.encode() in body:
        raise HumanRejection("this is not the very request that was approved; ask with that, or for another approval")
    job.question = job.question._replace(body=body)


async def _refuse(job: Job, question: ApprovalRow) -> None:
    """The refusal is the answer: an error, or, where a status is out already, a text in the place of the model's."""
    by = f" by {question.decided_by}" if question.decided_by else ""
    reason = f": {question.reason}" if question.reason else ""
    error = HumanRejection(f"the request was refused{by}{reason}")
    recording = job.live.recording
    said = json.dumps({"text": error.message, "told": []})
    if recording.flushed and not job.call.shape.stream and job.call.dialect in refusal.SPOKEN:
        status, body, mode = 200, refusal.completion(job.call, error.message, clock.call_id()), Release.MESSAGE
    else:
        status, body, mode = error.status, job.dialect.error(error), Release.ERROR
    ending = Ending(
        job.live.session, job.live.step, job.live.attempt, State.COMPLETED, status, b"", body, True, Shape(),
        Verdict(),
    )  # fmt: skip
    await job.parts.journal.refuse_step(ending, mode, said)
    if mode is Release.ERROR:
        recording.fail(error)
    else:
        recording.begin(status, [("content-type", job.dialect.content_type(Shape()))], Shape())
        recording.end(body)


def must_ask(parts: Parts, step: int) -> bool:
    """Whether a step that was asked without approval is to be held now that its agent asks for one."""
    rows = parts.journal.read.approvals_of(step)
    return not any(row.kind is ApprovalKind.REQUEST for row in rows)
