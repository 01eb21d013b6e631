"""Owns the one task that reads an answer from upstream and writes it down. Nobody else reads upstream.

Must not know the agent's connection: if the agent leaves, the answer is finished and recorded all the same (bounded).
Invariant: the finishing event and every byte of a tool call are shown only after the whole answer is committed; what
is not a finished answer is a failed attempt, and readers are told so.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from agentstate import clock
from agentstate.core.model import Call, Shape, State, Verdict
from agentstate.core.policy import Place
from agentstate.core.routing import Candidate
from agentstate.dialects import stream_usage
from agentstate.dialects.base import Dialect, Gate
from agentstate.dialects.concealing import scrubbed
from agentstate.dialects.lookups import names
from agentstate.engine import attempts, context, costs, draining, finishing, held, jobs, looks, waiting
from agentstate.engine.candidates import Foreign
from agentstate.engine.core import Parts
from agentstate.engine.gate import Judged
from agentstate.engine.headers import packed_headers
from agentstate.engine.insight import Try
from agentstate.engine.opening import Opening
from agentstate.engine.request import Request
from agentstate.engine.secrets import secrets_of
from agentstate.engine.state import Live
from agentstate.errors import (
    AgentStateError,
    ShuttingDown,
    UpstreamCut,
    UpstreamFault,
    UpstreamInvalid,
)
from agentstate.providers.client import Headers, Question, Reply
from agentstate.providers.provider import Provider
from agentstate.store.detours import Detour
from agentstate.store.rows import Begun, Ending, NewStep

log = logging.getLogger("agentstate")
AFTER_DONE_S = 2.0  # how long the end of a stream is waited for after its [DONE]
_BLANK = b"\xef\xbb\xbf \t\r\n"


@dataclass(slots=True)
class Job:
    """What the task works on. ``again``: the step that is tried again; ``begun``: else, the new step on its way into
    the journal; ``drain``: whether to go on without readers; ``place``: for the policies; ``uncounted``: the question
    asks for the stream's usage and the agent does not; ``held``: the step waits for a person; ``heard``: of an answer
    that came to an end. ``started``, ``course``, ``detour``, ``foreign``, ``lost``, ``trials``: see ``attempts``;
    ``between``: one attempt is over, and the next has not begun; ``limit``: of the whole attempt. ``answered``,
    ``over``: when the present attempt's first and last byte came, on the clock of durations; ``ended``: how it was
    kept; ``fault``: why it was not answered, a code."""

    parts: Parts
    live: Live
    call: Call
    dialect: Dialect
    provider: Provider
    question: Question
    new: NewStep
    again: int | None
    begun: asyncio.Future[Begun] | None
    drain: bool
    place: Place
    request: Request
    uncounted: bool = False
    held: bool = False
    received: list[bytes] = field(default_factory=list)
    size: int = 0
    deserted_size: int | None = None
    gave_up: str = ""
    restored: bool = False
    status: int = 0
    gate: Gate | None = None
    heard: Verdict | None = None
    headers: Headers = field(default_factory=list)
    started: float = 0.0
    between: bool = False
    limit: asyncio.Timeout | None = None
    course: attempts.Course | None = None
    detour: Detour | None = None
    foreign: Foreign | None = None
    lost: tuple[str, ...] = ()
    trials: list[Candidate] = field(default_factory=list)
    answered: float = 0.0
    over: float = 0.0
    ended: tuple[State, Verdict, float | None] | None = None
    fault: str = ""
    tries: tuple[Try, ...] = ()


async def record(job: Job) -> None:
    """Write the question down, ask the provider, and keep what it says."""
    task = asyncio.current_task()
    try:
        await _begin(job)
    except BaseException as error:
        ours = error if isinstance(error, AgentStateError) else ShuttingDown("the call was given up before it was sent")
        job.live.recording.fail(ours)
        job.parts.floating.drop(job.live)
        if not isinstance(error, AgentStateError):
            raise
        return
    try:
        if not await waiting.approved(job):
            return
        job.live.recording.on_deserted(lambda: draining.deserted(job, task))
        if job.live.recording.readers == 0:
            draining.deserted(job, task)
        if context.may_differ(job):
            await context.correct(job)
        await attempts.run(job, _attempt)
    except AgentStateError as error:
        await _failed(job, error)
    except asyncio.CancelledError:
        await asyncio.shield(_cancelled(job))
    except Exception as error:  # a fault of ours must not leave readers waiting
        log.exception("recording a step failed")
        await _failed(job, AgentStateError(f"the proxy failed while recording the answer ({type(error).__name__})"))
    finally:
        if not job.live.recording.held:  # the gate has it then
            job.live.recording.on_deserted(lambda: None)
        job.parts.floating.drop(job.live)
        job.parts.insight.ended(job)


async def _begin(job: Job) -> None:
    """Commit the question before a byte of it leaves."""
    if job.begun is not None:
        begun = await job.begun
    elif job.again is None:
        begun = await job.parts.budgets.begin(job, None)
    else:
        begun = await waiting.begun_again(job, job.again)
    if job.begun is None or job.new.asked is not None:
        job.held = job.parts.journal.read.answer(begun.step).state is State.HELD
    job.parts.floating.begun(job.live, begun.step, begun.number, begun.attempt)


async def _attempt(job: Job) -> None:
    began = clock.monotonic()
    job.answered, job.over, job.ended, job.fault = began, 0.0, None, ""
    fault: BaseException | None = None
    try:
        async with job.parts.client.attempt(job.provider, job.question) as reply:
            job.answered = clock.monotonic()
            job.status, job.headers = reply.status, reply.headers
            if 200 <= reply.status < 300:
                if job.call.shape.stream and job.foreign is None:
                    await _stream(job, reply)
                else:
                    await _plain(job, reply)
            else:
                await _refusal(job, reply)
    except BaseException as error:
        fault = error
        raise
    finally:
        job.parts.insight.attempted(job, began, fault)


def _received(job: Job) -> None:
    """The provider has said all; what follows is ours."""
    job.over = clock.monotonic()
    job.live.recording.waited_s = job.over - job.started


async def _plain(job: Job, reply: Reply) -> None:
    async for chunk in reply.chunks:
        draining.take(job, chunk)
    await _plain_end(job, b"".join(job.received))


async def _plain_end(job: Job, body: bytes) -> None:
    _received(job)
    if job.foreign is not None:
        body, verdict = attempts.translated(job, body)
    else:
        verdict = job.dialect.judge(job.call, body)
    job.heard = verdict
    if verdict.fault:
        raise UpstreamInvalid(f"provider {job.provider.name}: {verdict.fault}")
    if verdict.failed:
        await attempts.said_failed(job, verdict.failed)
    body, held = await _finish(job, body, verdict, Shape())
    recording = job.live.recording
    recording.model = verdict.model or recording.model
    recording.begin(job.status, job.headers, Shape())
    if held:
        job.parts.gate.keep(job.live.step, recording)
    else:
        recording.end(body)


async def _stream(job: Job, reply: Reply) -> None:
    """Show text as it comes; keep back everything from the first finish reason or tool call on."""
    gate = job.gate = job.dialect.gate(job.call)
    recording = job.live.recording
    recording.heartbeat = gate.heartbeat
    recording.failure = getattr(gate, "failure", None)
    loop = asyncio.get_running_loop()
    shown = 0
    sniffed = False
    opening = Opening(job)
    try:
        async with asyncio.timeout(None) as limit:
            async for chunk in reply.chunks:
                draining.take(job, chunk)
                if not sniffed and (start := b"".join(job.received).lstrip(_BLANK)):
                    sniffed = True
                    if not job.dialect.is_stream(job.call, start):
                        async for more in reply.chunks:
                            draining.take(job, more)
                        await _plain_end(job, b"".join(job.received))
                        return
                free = gate.feed(chunk)
                if opening.over:
                    shown += len(free)
                    recording.append(free)
                elif free:
                    opening.add(free)
                if gate.done:
                    limit.reschedule(loop.time() + AFTER_DONE_S)
    except (TimeoutError, UpstreamFault):
        if not gate.done:
            raise
    finally:
        opening.close()
    await _stream_end(job, gate, opening, shown + opening.shown)


async def _stream_end(job: Job, gate: Gate, opening: Opening, shown: int) -> None:
    _received(job)
    verdict = job.heard = gate.finish()
    if verdict.fault:
        raise UpstreamCut(f"provider {job.provider.name}: {verdict.fault}")
    if verdict.failed and not shown:
        await attempts.said_failed(job, verdict.failed)
    body = b"".join(job.received)
    if job.uncounted:
        body = body[:shown] + stream_usage.without(body[shown:])
    body, held = await _finish(job, body, verdict, job.call.shape, shown)
    if not shown:
        job.live.recording.begin(job.status, job.headers, job.call.shape)
    if held:
        opening.hold()
        job.parts.gate.keep(job.live.step, job.live.recording)
    else:
        job.live.recording.end(body[shown:])


async def _refusal(job: Job, reply: Reply) -> None:
    """An error status is the provider's answer; it is given on and kept as a failed attempt."""
    async for chunk in reply.chunks:
        draining.take(job, chunk)
    _received(job)
    body = b"".join(job.received)
    error = f"HTTP {reply.status}: {body[:500].decode('utf-8', 'replace')}"
    if not job.restored:
        lost, sent = job.call.previous, job.question.body
        whole = held.restored(job.parts, job.live.session, lost, sent, reply.status, body)
        if whole is not None:
            job.restored = True
            await _otherwise(job, context.retold(job, whole), error, "with the whole transcript in place of a pointer")
            return
    if job.uncounted and stream_usage.was_refused(reply.status, body):
        job.parts.uncounting.add(job.provider.name)
        job.uncounted = False
        plainer = stream_usage.not_asking(job.question.body, job.call.body)
        await _otherwise(job, plainer, error, "without an option of ours that it does not take")
        return
    body = await attempts.refused(job, body)
    if body.lstrip()[:1] == b"<":
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        told = UpstreamInvalid(f"provider {job.provider.name} answered status {job.status} with an HTML page: {text}")
        body = job.dialect.error(told)
        job.headers = [(name, value) for name, value in job.headers if name.lower() != "content-type"]
        job.headers.append(("content-type", job.dialect.content_type(Shape())))
    await _commit(job, State.FAILED, body, Verdict(), Shape(), error=error)
    job.live.recording.begin(job.status, job.headers, Shape())
    job.live.recording.end(body)


async def _otherwise(job: Job, body: bytes, error: str, why: str) -> None:
    """Ask again, as a further attempt, with another body that says the same."""
    await attempts.otherwise(job, body, error, why)
    await _attempt(job)


async def _finish(job: Job, body: bytes, verdict: Verdict, shape: Shape, shown: int = 0) -> tuple[bytes, bool]:
    """Commit a whole answer, of which so many bytes were shown: (the bytes that may be released, whether they wait for
    a decision). One in which the provider says that it failed is given on, less the calls that may not pass, and is a
    failed attempt; one in which it says that it works on a job holds none of them yet."""
    if not all(call.call_id for call in verdict.calls) and (fill := getattr(job.dialect, "filled", None)) is not None:
        body, verdict = finishing.filled(job, fill(shape, body, clock.call_id), body, verdict, shape)
    state = State.FAILED if verdict.failed else State.COMPLETED
    judged = Judged()
    if state is State.FAILED:  # it does not wait for a person
        body, verdict = finishing.without_held(job, body, verdict, shape, shown), verdict._replace(calls=())
    else:
        judged = job.parts.gate.judged(
            job.place, job.new.branch, job.new.run, job.live.step, job.dialect, job.call, verdict, job.request.rounds
        )
    if jobs.is_job(job.call, verdict, state):
        if judged.asked:  # people are asked about the end of it
            body = job.dialect.working(body)  # type: ignore[attr-defined]
        judged, verdict = Judged(), verdict._replace(calls=())
    await _commit(job, state, body, verdict, shape, error=verdict.failed, judged=judged)
    if verdict.answer_id and jobs.is_job(job.call, verdict, state) and job.parts.settings.replay.follow_jobs_s:
        asked = looks.Followed(
            job.live.session, job.place.session, verdict.answer_id, job.call, job.dialect, job.provider,
            job.question.path, job.question.headers,
        )  # fmt: skip
        job.parts.followers.start(f"follow job {verdict.answer_id}", jobs.follow(job.parts, asked))
    return body, bool(judged.asked)


async def _commit(
    job: Job,
    state: State,
    body: bytes,
    verdict: Verdict,
    shape: Shape,
    released: bool = True,
    error: str = "",
    judged: Judged = Judged(),  # noqa: B008 - it never changes
) -> None:
    """Write the end of the attempt down. Raises ``StoreError``: then nothing more may be shown."""
    if job.limit is not None:
        job.limit.reschedule(None)  # what is left to do is ours
    secrets = secrets_of(job.question, job.call)
    body, error = scrubbed(body, secrets), scrubbed(error.encode(), secrets).decode("utf-8", "replace")
    head = scrubbed(packed_headers(job.headers), secrets)
    cost, prices = None, ""
    asked = attempts.present(job).model
    if verdict.usage:
        cost, prices = await costs.priced(job.parts, job.provider, asked, verdict)
    if asked != job.call.model and not verdict.model:
        verdict = verdict._replace(model=asked)
    ending = Ending(
        job.live.session, job.live.step, job.live.attempt, state, job.status, head, body, released, shape, verdict,
        cost, error[:2000], jobs.is_job(job.call, verdict, state), judged.invoked, judged.asked, judged.messages,
        names(job.call.body, shape, body) if judged.asked else (), job.lost, prices, job.parts.budgets.on,
    )  # fmt: skip
    await job.parts.journal.end_step(ending, job.parts.floating.alone())
    job.ended = (state, verdict, cost)
    if job.parts.budgets.on:
        job.parts.budgets.settled()


async def _failed(job: Job, error: AgentStateError) -> None:
    """Keep what came as a failed attempt, and tell the readers. The journal may be what failed."""
    body = b"".join(job.received)
    try:
        if job.between:
            raise error
        job.status = 0
        told = f"{error.code}: {error}"
        await _commit(job, State.FAILED, body, costs.heard(job), Shape(), released=False, error=told)
    except AgentStateError as worse:
        if worse is not error:
            log.error("the end of a step could not be recorded: %s", worse)
        try:
            await job.parts.journal.interrupt_step(job.live.step)
        except AgentStateError as last:
            log.error("step %d stays in flight until the next start: %s", job.live.step, last)
    job.live.recording.fail(error)


async def _cancelled(job: Job) -> None:
    if job.gave_up:
        await _failed(job, UpstreamCut(job.gave_up))
        return
    try:
        if not job.between and costs.heard(job).usage:  # what had come of it was paid
            await attempts.end(job, "the proxy stopped before the answer was complete")
    except AgentStateError as error:
        log.warning("what step %d cost is not kept: %s", job.live.number, error)
    try:
        await job.parts.journal.interrupt_step(job.live.step)
    except AgentStateError as error:
        log.error("step %d stays in flight until the next start: %s", job.live.step, error)
    job.live.recording.fail(ShuttingDown("the proxy is stopping; ask again"))
