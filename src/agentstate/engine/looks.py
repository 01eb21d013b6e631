"""Owns what agents are given of a look at a job in the background, and keeping its end. Must not start or follow jobs.

Invariant: nothing of a call that policies hold is given before its release is in the journal; until then the job is
still under way, for whoever looks and however. What was released is given the same to every later look.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import NamedTuple

from agentstate.core.model import Call, Outcome, Release, ToolCall, Verdict
from agentstate.dialects.base import Dialect
from agentstate.dialects.concealing import scrubbed
from agentstate.dialects.lookups import names
from agentstate.dialects.responses_answer import loaded
from agentstate.engine import costs
from agentstate.engine.core import Parts
from agentstate.engine.gate import Judged
from agentstate.engine.headers import kept_headers, packed_headers
from agentstate.engine.releasing import release
from agentstate.engine.request import Answer, Told
from agentstate.engine.secrets import credentials
from agentstate.errors import AgentStateError, HumanRejection, UpstreamInvalid
from agentstate.providers.client import Headers, Question, Reply
from agentstate.providers.provider import Provider
from agentstate.store.rows import FinishedJob, HeldRow

log = logging.getLogger("agentstate")
QUEUED = ("queued",)  # the finish of an answer that says that the provider works on it


@dataclass(frozen=True, slots=True)
class Followed:
    """A job, and how to ask for it: ``path`` is that under which its name stands; ``headers`` hold credentials and are
    never stored."""

    session: int
    session_key: str
    answer_id: str
    call: Call
    dialect: Dialect
    provider: Provider
    path: str
    headers: Headers


class Look(NamedTuple):
    """What a provider said of a job, and what its dialect says of that. ``works``: the provider still does; ``ended``:
    it says that it is done with it, well or not."""

    status: int
    headers: Headers
    body: bytes
    verdict: Verdict = Verdict()

    @property
    def works(self) -> bool:
        return self.verdict.finish == QUEUED

    @property
    def ended(self) -> bool:
        return self.status < 300 and not self.works and not self.verdict.fault


async def look(parts: Parts, job: Followed) -> Look:
    """Ask the provider for a job. Raises ``UpstreamFault``."""
    question = Question("GET", f"{job.path}/{job.answer_id}", "", job.headers, b"")
    async with parts.client.attempt(job.provider, question) as reply:
        return await seen_in(parts, job, reply)


async def whole_of(parts: Parts, reply: Reply) -> bytes:
    """A reply's body. Raises ``UpstreamInvalid`` where it is larger than the settings allow."""
    most = parts.settings.server.max_answer_bytes
    body = bytearray()
    async for chunk in reply.chunks:
        body += chunk
        if len(body) > most:
            raise UpstreamInvalid(f"the provider's answer is larger than {most} bytes (server.max_answer_bytes)")
    return bytes(body)


async def seen_in(parts: Parts, job: Followed, reply: Reply) -> Look:
    """A provider's reply as a look. Raises ``UpstreamInvalid`` for one that is too large, or that cannot be read."""
    whole = await whole_of(parts, reply)
    if reply.status >= 300:
        return Look(reply.status, reply.headers, whole)
    verdict = job.dialect.judge(job.call, whole)
    if verdict.fault and not verdict.calls and not isinstance(loaded(whole), dict):
        raise UpstreamInvalid(f"provider {job.provider.name}: {verdict.fault}")
    return Look(reply.status, reply.headers, whole, verdict)


async def kept(parts: Parts, job: Followed, seen: Look, keep: bool = True) -> tuple[bytes, Judged]:
    """The end of a job as the journal has it, kept there if ``keep``, and what people are asked about it. A job that
    failed waits for nobody: the calls that policies do not let pass are taken out of it. Raises ``ApprovalUnavailable``
    where one cannot be."""
    body, judged = seen.body, Judged()
    if seen.verdict.failed:
        body = _passed(parts, job, seen)
    else:
        judged = _judged(parts, job, seen.verdict)
    if not keep:
        return body, judged
    verdict, cost, prices = seen.verdict, None, ""
    if verdict.usage:
        cost, prices = await costs.priced(parts, job.provider, job.call.model, verdict)
    secrets = [*credentials(job.headers), *job.call.secrets]
    head, stored = scrubbed(packed_headers(seen.headers), secrets), scrubbed(body, secrets)
    known = names(job.call.body, job.call.shape, body) if judged.asked else ()
    await parts.journal.finish_job(
        FinishedJob(
            job.session, job.answer_id, seen.status, head, stored, verdict.model, verdict.usage, cost,
            bool(verdict.failed), verdict.calls, judged.invoked, judged.asked, judged.messages, known, prices,
        )
    )  # fmt: skip
    return body, judged


async def given(parts: Parts, job: Followed, held: HeldRow, seen: Look, plain: bool, keepable: bool) -> Answer:
    """What is given of what the provider said. ``plain``: it was asked for nothing but the job as it is, so that its
    end may be kept; ``keepable``: what must be taken out of it first is known here."""
    if seen.status >= 300:
        return told(seen.status, seen.headers, seen.body, held, Outcome.LIVE)
    if seen.works and _judged(parts, job, seen.verdict).asked:
        return _working(job, held, seen)
    if not seen.works and (not seen.ended or held.body):
        return await _once_more(parts, job, held, seen)
    if seen.works:
        return told(seen.status, seen.headers, seen.body, held, Outcome.LIVE)
    body, judged = await kept(parts, job, seen, plain and keepable)
    if not judged.asked:
        return told(seen.status, seen.headers, body, held, Outcome.LIVE)
    if keepable and not plain:
        ended = await look(parts, job)
        if ended.ended:
            await kept(parts, job, ended)
    row = parts.journal.read.held(job.session, job.answer_id)
    if row is not None and row.body:
        return await end(parts, job, row)
    if keepable or (job.session, job.answer_id) in parts.floating.followed:
        return _working(job, held, seen)
    # Nobody is left who could keep it, so nobody can be asked.
    return told(seen.status, seen.headers, _passed(parts, job, seen), held, Outcome.LIVE)


async def end(parts: Parts, job: Followed, held: HeldRow) -> Answer:
    """The recorded end of a job: as it was released, or the job still under way. Raises ``HumanRejection`` where it was
    refused by an error."""
    held = await _settled(parts, job, held)
    headers = kept_headers(held.head)
    if held.release is Release.HELD:
        return told(held.status, headers, job.dialect.working(held.body), held, Outcome.HELD)  # type: ignore[attr-defined]
    if held.release is Release.ERROR:
        raise HumanRejection(json.loads(held.said)["text"])
    return told(held.status, headers, held.given, held, Outcome.REPLAY)


def told(status: int, headers: Headers, body: bytes, held: HeldRow, outcome: Outcome) -> Answer:
    shown = [pair for pair in headers if pair[0].lower() != "content-length"]
    ours = Told(outcome, held.number, replayed=outcome is Outcome.REPLAY)
    return Answer(status, shown + ours.headers(), body)


async def _once_more(parts: Parts, job: Followed, held: HeldRow, seen: Look) -> Answer:
    """A look about which nobody can be asked, as it is no end, or not the first look at it: what was released of the
    end, or the look less the calls that may not pass."""
    if seen.ended and held.release is not None:
        held = await _settled(parts, job, held)
        approved = held.release is Release.ANSWER and not held.amended
        if not approved:
            return await end(parts, job, held)
        known = {_spelled(call) for call in job.dialect.judge(job.call, held.body).calls}
        if all(_spelled(call) in known for call in seen.verdict.calls):
            return told(seen.status, seen.headers, seen.body, held, Outcome.LIVE)
    return told(seen.status, seen.headers, _passed(parts, job, seen), held, Outcome.LIVE)


async def _settled(parts: Parts, job: Followed, held: HeldRow) -> HeldRow:
    """The row of a job, released where all is decided by now."""
    if held.release is not Release.HELD:
        return held
    try:
        await release(parts, held.step, None)
    except AgentStateError:
        raise
    except Exception as error:  # whatever it is, nothing is given, and whoever looks hears of it
        log.exception("job %s stays held", job.answer_id)
        raise AgentStateError(
            f"the proxy failed while releasing the answer ({type(error).__name__}); it is still held, ask again"
        ) from error
    return parts.journal.read.held(job.session, job.answer_id) or held


def _working(job: Followed, held: HeldRow, seen: Look) -> Answer:
    body = job.dialect.working(seen.body)  # type: ignore[attr-defined]
    return told(seen.status, seen.headers, body, held, Outcome.HELD)


def _judged(parts: Parts, job: Followed, verdict: Verdict) -> Judged:
    read = parts.journal.read
    session, held = read.session(job.session_key), read.held(job.session, job.answer_id)
    assert session is not None and held is not None
    branch, run = read.received(held.step).branch, read.run_of(held.step)
    place = parts.gate.place_of(session)
    return parts.gate.judged(place, branch, run, held.step, job.dialect, job.call, verdict)


def _passed(parts: Parts, job: Followed, seen: Look) -> bytes:
    session = parts.journal.read.session(job.session_key)
    assert session is not None
    return parts.gate.passed(parts.gate.place_of(session), job.dialect, job.call, seen.verdict, seen.body)


def _spelled(call: ToolCall) -> tuple[int, int, str, str, str]:
    return call.choice, call.index, call.call_id, call.name, call.arguments
