"""Owns answers that a provider works on in the background: following them to their end, and answering polls.

Must not start one: the call that did is a step like any other. Invariant: a job is followed whether or not its agent
lives; once its end is in the journal, every poll gets those bytes and the provider is not asked again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from agentstate import clock
from agentstate.core import replay
from agentstate.core.model import Call, Outcome, State, Verdict
from agentstate.dialects import registry
from agentstate.dialects.base import UNREADABLE, Dialect
from agentstate.dialects.concealing import MARK, scrubbed
from agentstate.engine import identity
from agentstate.engine.core import Parts
from agentstate.engine.headers import forwarded, kept_headers, packed_headers
from agentstate.engine.request import Answer, Request, Told
from agentstate.engine.secrets import credentials
from agentstate.errors import AgentStateError, ApprovalUnavailable, UpstreamInvalid
from agentstate.providers.client import Headers, Question, Reply
from agentstate.providers.provider import Provider
from agentstate.store.rows import FinishedJob, HeldRow, SessionRow

log = logging.getLogger("agentstate")
GONE = (404, 410)  # statuses by which a provider says that there is no such answer
QUEUED = ("queued",)  # the finish of an answer that says that the provider works on it
_FIRST_LOOK_S, _LONGEST_WAIT_S = 2.0, 30.0  # between looks at a job; each wait is half as long again as the one before
_POLL = re.compile(r"(?:.*/)?responses/([\w-]{1,256})")
_CANCEL = re.compile(r"(?:.*/)?responses/([\w-]{1,256})/cancel")


@dataclass(frozen=True, slots=True)
class Followed:
    """A job, and how to ask for it: ``headers`` hold credentials and are never stored."""

    session: int
    session_key: str
    answer_id: str
    call: Call
    dialect: Dialect
    provider: Provider
    path: str
    headers: Headers


def polled(request: Request) -> str:
    """The name of the answer that a request asks for, or cancels; empty: it does not, or as a stream."""
    if request.method == "POST":
        found = _CANCEL.fullmatch(request.normal) if request.session else None
        return found[1] if found else ""
    return "" if request.method != "GET" or _streams(request) else _named(request)


def _streams(request: Request) -> bool:
    """Whether a look at an answer may ask for a stream of it."""
    return "stream" in unquote(request.query).lower()


def _named(request: Request) -> str:
    found = _POLL.fullmatch(request.normal) if request.session else None
    return found[1] if found else ""


async def follow(parts: Parts, job: Followed) -> None:
    """Look at a job until it has ended, and keep its end. Gives up where it was deleted, where the provider does not
    know it any more, and after ``replay.follow_jobs_s``."""
    until = clock.monotonic() + parts.settings.replay.follow_jobs_s
    wait = _FIRST_LOOK_S
    while not parts.closing and clock.monotonic() + wait < until:
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT_S)
        try:
            deletion = parts.journal.read.deletion(job.session, job.answer_id)
            if deletion is not None and deletion.done:
                return
            status, headers, body = await _look(parts, job)
        except AgentStateError as error:
            log.info("job %s could not be looked at: %s", job.answer_id, error)
            continue
        if status in GONE:
            log.warning("job %s is gone at provider %s", job.answer_id, job.provider.name)
            return
        if status < 300 and _has_ended(job, body):
            try:
                await _kept(parts, job, status, headers, body)
            except ApprovalUnavailable as error:
                log.warning("the end of job %s is not kept: %s", job.answer_id, error)
            return


async def _look(parts: Parts, job: Followed) -> tuple[int, Headers, bytes]:
    question = Question("GET", f"{job.path}/{job.answer_id}", "", job.headers, b"")
    async with parts.client.attempt(job.provider, question) as reply:
        return reply.status, reply.headers, await _whole(parts, reply)


async def _whole(parts: Parts, reply: Reply) -> bytes:
    most = parts.settings.server.max_answer_bytes
    body = bytearray()
    async for chunk in reply.chunks:
        body += chunk
        if len(body) > most:
            raise UpstreamInvalid(f"the provider's answer is larger than {most} bytes (server.max_answer_bytes)")
    return bytes(body)


async def _kept(parts: Parts, job: Followed, status: int, headers: Headers, body: bytes, keep: bool = True) -> bytes:
    """What agents are given of a look at a job: at its end less the calls that policies do not let pass, since a poll
    cannot wait for a person; the end is kept in the journal, if ``keep``. Raises ``ApprovalUnavailable`` where such a
    call cannot be taken out, ``UpstreamInvalid`` where it cannot be told what the answer holds."""
    verdict = job.dialect.judge(job.call, body)
    if verdict.fault and not verdict.calls and not _is_object(body):
        raise UpstreamInvalid(f"provider {job.provider.name}: {verdict.fault}")
    session = parts.journal.read.session(job.session_key)
    assert session is not None
    body = parts.gate.passed(parts.gate.place_of(session), job.dialect, job.call, verdict, body)
    if not keep or verdict.finish == QUEUED or verdict.fault:
        return body
    cost, prices = None, ""
    if verdict.usage:
        if not parts.pricing.ready:
            await asyncio.wrap_future(parts.pricing.warm())
        model = verdict.model or job.call.model
        cost, prices = parts.pricing.priced(job.provider, model, verdict.usage, clock.now(), verdict.tier)
    secrets = [*credentials(job.headers), *job.call.secrets]
    head, kept = scrubbed(packed_headers(headers), secrets), scrubbed(body, secrets)
    await parts.journal.finish_job(
        FinishedJob(
            job.session,
            job.answer_id,
            status,
            head,
            kept,
            verdict.model,
            verdict.usage,
            cost,
            bool(verdict.failed),
            prices,
        )
    )
    return body


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except UNREADABLE:
        return False


def _has_ended(job: Followed, body: bytes) -> bool:
    verdict = job.dialect.judge(job.call, body)
    return verdict.finish != QUEUED and not verdict.fault


def is_job(call: Call, verdict: Verdict, state: State) -> bool:
    """Whether an answer says that the provider works on it."""
    return call.background and state is State.COMPLETED and verdict.finish == QUEUED


async def poll(parts: Parts, request: Request, answer_id: str) -> Answer | None:
    """The answer to a poll, or to a cancellation; ``None``: this session knows no such job, and the request is passed
    through.

    Once the end of the job is recorded that is the answer; until then, and after it was deleted, the provider is asked,
    and its answer kept if it is the end. Where credentials were taken out of the job's request it is left to ``follow``
    to keep it, which knows what to take out of the end. A query may ask for another form, and a cancellation is for the
    provider: neither is answered by the journal, nor kept there.
    """
    found = _known(parts, request, answer_id)
    if found is None:
        return None
    session, held = found
    plain = request.method == "GET" and not request.query
    if plain and held.body and await _may_tell(parts, request, session, held, answer_id):
        return _told(held.status, kept_headers(held.head), held.body, held, Outcome.REPLAY)
    dialect, method, path, body = parts.journal.read.request(held.step)
    known = registry.BY_NAME[dialect]
    kind = registry.provider_kind(path.partition("?")[0], request.headers)
    provider = parts.providers.for_dialect(kind)
    question = forwarded(request, kind, provider)
    job = Followed(
        session.id, session.key,
        answer_id, known.parse(method, path, body), known, provider, request.path.rpartition("/")[0],
        question.headers,
    )  # fmt: skip
    async with parts.client.attempt(provider, question) as reply:
        answer = await _whole(parts, reply)
        if reply.status < 300:
            keep = plain and MARK.encode() not in body
            answer = await _kept(parts, job, reply.status, reply.headers, answer, keep)
        return _told(reply.status, reply.headers, answer, held, Outcome.LIVE)


def _known(parts: Parts, request: Request, answer_id: str) -> tuple[SessionRow, HeldRow] | None:
    """The session and the job that a request names; ``None``: there is no such job."""
    session = parts.journal.facts.session(request.session)
    held = parts.journal.read.held(session.id, answer_id) if session is not None else None
    return (session, held) if session is not None and held is not None and held.job else None


async def _may_tell(parts: Parts, request: Request, session: SessionRow, held: HeldRow, answer_id: str) -> bool:
    """Whether the recorded end may answer this poll."""
    read = parts.journal.read
    if read.deletion(session.id, answer_id) is None:
        return True
    run = await identity.present(parts, request, session)
    if run is None:
        return False
    return replay.tells_end(read.deletion(session.id, answer_id, run.name), run.id, read.was_given(run.id, held.step))


def check_stream(parts: Parts, request: Request) -> None:
    """A stream of a job's answer cannot be held: refuse it where the job may call a tool that policies name. Raises
    ``ApprovalUnavailable``."""
    answer_id = _named(request) if request.method == "GET" and _streams(request) else ""
    found = _known(parts, request, answer_id) if answer_id else None
    if found is None:
        return
    session, held = found
    name, method, path, body = parts.journal.read.request(held.step)
    dialect = registry.BY_NAME[name]
    place = parts.gate.place_of(session)
    watched = [
        tool for tool in parts.gate.tools(dialect, dialect.parse(method, path, body))
        if parts.gate.policies.may_hold(tool, place)
    ]  # fmt: skip
    if watched:
        raise ApprovalUnavailable(
            f"this job may call {', '.join(watched[:5])}, which policies hold, and a stream of it cannot be held: "
            "look at the job without stream=true, or run it without background"
        )


async def note_deletion(parts: Parts, request: Request, status: int) -> None:
    """Keep that a job was deleted, before the agent is told; nothing where the request deletes none. ``status``: what
    the provider said. Raises ``StoreError``.

    That there is no such answer (any more) counts too: the proxy may have died over the news that it was deleted, and a
    restarted agent comes to its deletion again.
    """
    answer_id = _named(request) if request.method == "DELETE" else ""
    if not answer_id or not (status < 300 or status in GONE):
        return
    found = _known(parts, request, answer_id)
    if found is not None:
        session, _ = found
        run = await identity.present(parts, request, session)
        name = run.name if run is not None else request.run
        await parts.journal.delete_job(session.id, answer_id, name, status)


def _told(status: int, headers: Headers, body: bytes, held: HeldRow, outcome: Outcome) -> Answer:
    shown = [pair for pair in headers if pair[0].lower() != "content-length"]
    told = Told(outcome, held.number, replayed=outcome is Outcome.REPLAY)
    return Answer(status, shown + told.headers(), body)
