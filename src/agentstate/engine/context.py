"""Owns making what a provider is sent the transcript of our branch, where what the agent sends, or what the provider
holds, is not: after edits and refusals, and after a rollback of what a conversation holds.

Must not change what is journaled. Invariant: a call of a session in which nothing of that kind happened is sent as it
came, and asking so costs it one look into memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentstate.dialects.responses_context import conversation_of
from agentstate.engine import conversations, held
from agentstate.engine.looks import whole_of
from agentstate.providers.client import Question

if TYPE_CHECKING:
    from agentstate.engine.recorder import Job


def may_differ(job: Job) -> bool:
    """Whether what is sent may have to be another request than the agent's."""
    return (
        job.call.previous != ""
        or job.parts.overlays.concern(job.live.session)
        or (job.call.dialect == "openai_responses" and b'"conversation"' in job.call.body)
    )


async def correct(job: Job) -> None:
    """Send what the branch of a job says. Raises ``ApprovalUnavailable`` where it cannot be known."""
    session = job.parts.journal.facts.session(job.place.session)
    assert session is not None
    sent = job.question.body
    found: held.Whole | None = None
    if job.call.previous:
        found = held.amended(job.parts, session.id, job.call.previous, sent)
    elif job.call.dialect == "openai_responses" and (name := conversation_of(sent)):

        async def look(last: str) -> tuple[int, bytes]:
            return await _look(job, name, last)

        found = await conversations.whole(job.parts, session, job.live.step, sent, look)
    overlay(job, found or held.Whole(sent))


def overlay(job: Job, whole: held.Whole) -> None:
    """Send this request, and in it what the model is to be told beside what the agent says."""
    job.question = job.question._replace(body=retold(job, whole))


def retold(job: Job, whole: held.Whole) -> bytes:
    """The request with what the model is to be told beside what the agent says."""
    session = job.parts.journal.facts.session(job.place.session)
    assert session is not None
    shown, _ = job.parts.head(session)
    overlays = job.parts.overlays
    return overlays.applied(session.id, shown, job.new.run, job.dialect, job.call, whole.body, whole.answers)


async def _look(job: Job, name: str, last: str) -> tuple[int, bytes]:
    """(status, body) of the next page of a conversation's items, oldest first."""
    base = job.question.path.rstrip("/").removesuffix("responses")
    query = f"limit=100&order=asc{f'&after={last}' if last else ''}"
    if job.question.query:
        query = f"{job.question.query}&{query}"
    question = Question("GET", f"{base}conversations/{name}/items", query, job.question.headers, b"")
    async with job.parts.client.attempt(job.provider, question) as reply:
        return reply.status, await whole_of(job.parts, reply)
