"""Owns answers that a provider works on in the background: following them to their end, and answering polls.

Must not start one: the call that did is a step like any other. Invariant: a job is followed whether or not its agent
lives; once its end is in the journal, every poll gets what was released of that, and the provider is not asked again.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import unquote

from agentstate import clock
from agentstate.core import replay
from agentstate.core.model import Call, State, Verdict
from agentstate.dialects import registry
from agentstate.dialects.concealing import MARK
from agentstate.dialects.lookups import RESPONSE, Lookup, lookup
from agentstate.engine import identity
from agentstate.engine.core import Parts
from agentstate.engine.found import SAYS_NOTHING
from agentstate.engine.headers import forwarded
from agentstate.engine.looks import QUEUED, Followed, end, given, kept, look, seen_in
from agentstate.engine.request import Answer, Request
from agentstate.errors import AgentStateError, ApprovalUnavailable
from agentstate.store.rows import HeldRow, RunRow, SessionRow

log = logging.getLogger("agentstate")
GONE = (404, 410)  # statuses by which a provider says that there is no such answer
_FIRST_LOOK_S, _LONGEST_WAIT_S = 2.0, 30.0  # between looks at a job; each wait is half as long again as the one before


def polled(request: Request) -> str:
    """The name of the answer that a request asks for, or cancels; empty: it does not, or as a stream."""
    found = _named(request)
    if found is None or _streams(request):
        return ""
    asks = (request.method, found.below) in (("GET", ""), ("POST", "cancel"))
    return found.name if asks else ""


def looks_up(request: Request) -> bool:
    """Whether a request of a session looks up, cancels or deletes an answer that its provider holds."""
    return _named(request) is not None


def _streams(request: Request) -> bool:
    """Whether a look at an answer may ask for a stream of it."""
    return request.method == "GET" and "stream" in unquote(request.query).lower()


def _named(request: Request) -> Lookup | None:
    """What a request of a session looks up of an answer."""
    found = lookup(request.normal) if request.session else None
    return found if found is not None and found.kind is RESPONSE else None


async def follow(parts: Parts, job: Followed) -> None:
    """Look at a job until it has ended, and keep its end. Gives up where it was deleted, where the provider does not
    know it any more, and after ``replay.follow_jobs_s``."""
    followed = parts.floating.followed
    followed.add((job.session, job.answer_id))
    try:
        await _followed(parts, job)
    finally:
        followed.discard((job.session, job.answer_id))


async def _followed(parts: Parts, job: Followed) -> None:
    until = clock.monotonic() + parts.settings.replay.follow_jobs_s
    wait = _FIRST_LOOK_S
    while not parts.closing and clock.monotonic() + wait < until:
        await asyncio.sleep(wait)
        wait = min(wait * 1.5, _LONGEST_WAIT_S)
        try:
            deletion = parts.journal.read.deletion(job.session, job.answer_id)
            if deletion is not None and deletion.done:
                return
            await parts.pauses.over(job.session_key)
            seen = await look(parts, job)
        except AgentStateError as error:
            log.info("job %s could not be looked at: %s", job.answer_id, error)
            continue
        if seen.status in GONE:
            log.warning("job %s is gone at provider %s", job.answer_id, job.provider.name)
            return
        if seen.ended:
            try:
                await kept(parts, job, seen)
            except ApprovalUnavailable as error:
                log.warning("the end of job %s is not kept: %s", job.answer_id, error)
            return


def is_job(call: Call, verdict: Verdict, state: State) -> bool:
    """Whether an answer says that the provider works on it."""
    return call.background and state is State.COMPLETED and verdict.finish == QUEUED


async def poll(parts: Parts, request: Request, answer_id: str) -> Answer | None:
    """The answer to a poll, or to a cancellation; ``None``: no session knows such a job, and the request is passed
    through. A job of another session is that session's, whose policies and decisions count.

    Once the end of the job is recorded that is the answer, as soon as it is released; until it is recorded, and after
    it was deleted, the provider is asked, and its answer kept if it is the end. Where credentials were taken out of the
    job's request it is left to ``follow`` to keep it, which knows what to take out of the end. A query may ask for
    another form, and a cancellation is for the provider: neither is answered by the journal, nor kept there.
    """
    found = _known(parts, request, answer_id)
    if found is None:
        return None
    session, held = found
    dialect, method, path, body = parts.journal.read.request(held.step)
    known = registry.BY_NAME[dialect]
    kind = registry.provider_kind(path.partition("?")[0], request.headers)
    provider = parts.providers.for_dialect(kind)
    question = forwarded(request, kind, provider)
    above = request.path[: max(request.path.rfind(answer_id), 0)].rstrip("/")
    job = Followed(
        session.id, session.key, answer_id, known.parse(method, path, body), known, provider, above, question.headers
    )
    plain = request.method == "GET" and not request.query
    if plain and held.body and await _may_tell(parts, request, session, held, answer_id):
        return await end(parts, job, held)
    await parts.pauses.allowed(session.key)
    async with parts.client.attempt(provider, question) as reply:
        seen = await seen_in(parts, job, reply)
    return await given(parts, job, held, seen, plain, MARK.encode() not in body)


def _known(parts: Parts, request: Request, answer_id: str) -> tuple[SessionRow, HeldRow] | None:
    """The session and the job that a request names, its own or another session's; ``None``: there is no such job."""
    read = parts.journal.read
    session = parts.journal.facts.session(request.session)
    held = read.held(session.id, answer_id) if session is not None else None
    if held is None and (owner := read.job_owner(answer_id)):
        session = parts.journal.facts.session(owner)
        held = read.held(session.id, answer_id) if session is not None else None
    return (session, held) if session is not None and held is not None and held.job else None


async def _present(parts: Parts, request: Request, session: SessionRow) -> RunRow | None:
    """The run of a job's session that asks; ``None``: it is nobody of that session."""
    return await identity.present(parts, request, session) if request.session == session.key else None


async def _may_tell(parts: Parts, request: Request, session: SessionRow, held: HeldRow, answer_id: str) -> bool:
    """Whether the recorded end may answer this poll."""
    read = parts.journal.read
    if read.deletion(session.id, answer_id) is None:
        return True
    run = await _present(parts, request, session)
    if run is None:
        return False
    return replay.tells_end(read.deletion(session.id, answer_id, run.name), run.id, read.was_given(run.id, held.step))


def check(parts: Parts, request: Request) -> None:
    """Refuse to look at a job in a way that cannot be held, as a stream, where it may call a tool that policies name.
    Raises ``ApprovalUnavailable``."""
    asked = _named(request)
    if asked is None or polled(request) or request.method in SAYS_NOTHING or asked.history:
        return
    found = _known(parts, request, asked.name)
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
    asked = _named(request) if request.method == "DELETE" else None
    if asked is None or asked.below or not (status < 300 or status in GONE):
        return
    found = _known(parts, request, answer_id := asked.name)
    if found is not None:
        session, _ = found
        run = await _present(parts, request, session)
        name = run.name if run is not None else request.run if request.session == session.key else ""
        await parts.journal.delete_job(session.id, answer_id, name, status)
