"""Owns what is given for an answer that was held: while people decide, when it was refused, and when the model is told;
and to who waits for an answer that comes whole and late.

Must not decide anything. Invariant: nothing of a held call is in what it gives; what the model says to a refusal is a
step of its own, asked, recorded and held like any other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from agentstate.core.model import Call, Release, Shape, ToolResult
from agentstate.dialects.base import Dialect
from agentstate.engine.headers import live_headers
from agentstate.engine.pausing import heartbeats
from agentstate.engine.recording import Recording
from agentstate.engine.request import Answer, Request, Told
from agentstate.errors import AgentStateError, HumanRejection, UpstreamFault
from agentstate.store.rows import AnswerRow

if TYPE_CHECKING:
    from agentstate.engine.asked import Asked
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
# Releases that are given like any other recorded answer.
AS_IT_IS = frozenset({Release.ANSWER, Release.MESSAGE})


def rejection(recorded: AnswerRow) -> HumanRejection:
    return HumanRejection(json.loads(recorded.said)["text"])


def waiting(asked: Asked, told: Told, recording: Recording, close: Callable[[bool], None]) -> Answer:
    """An answer whose status is kept back until there is something to say, or the reader must be kept waiting."""
    dialect, call = asked.dialect, asked.call
    stream = call.shape.stream
    as_recorded = stream and recording.shape == call.shape
    if stream and not (as_recorded and recording.shown):
        heartbeat = heartbeats(dialect, call)
    else:
        heartbeat = recording.heartbeat if stream else heartbeats(dialect, call)
    return Answer(
        200,
        [("content-type", dialect.content_type(call.shape)), *told.headers()],
        None,
        recording,
        close,
        lambda error: (
            (recording.failure or dialect.stream_error)(error)
            if isinstance(error, AgentStateError)
            else dialect.stream_error(AgentStateError("the proxy failed while answering"))
        ),
        heartbeat,
        None if as_recorded else partial(_in_shape, dialect, recording, call.shape),
        # Who answers may be known only once it was let through.
        lambda: told._replace(model=recording.model or told.model, detour=recording.detour).headers(),
        told,
    )


def _in_shape(dialect: Dialect, recording: Recording, asked: Shape, body: bytes) -> bytes:
    return body if recording.status >= 300 else dialect.convert(recording.shape, asked, body)


def after_heartbeat(dialect: Dialect, call: Call, answer: Answer) -> bytes:
    """The body of a whole answer as it may follow heartbeats of the shape that was asked for. Raises ``UpstreamFault``
    for one with an error status, which cannot be told any more."""
    assert answer.body is not None
    if answer.status >= 300:
        raise UpstreamFault(f"the provider answered status {answer.status}")
    kind = next((value for name, value in answer.headers if name.lower() == "content-type"), "")
    if call.shape.stream and kind.partition(";")[0].strip() == "application/json":
        return dialect.convert(Shape(), call.shape, answer.body)
    return answer.body


def continued(parts: Parts, asked: Asked, step: int) -> Request:
    """The request with which the model is told of a refusal: a question of its own, of the same agent."""
    answer = parts.journal.read.received(step)
    said = json.loads(parts.journal.read.answer(step).said)
    results = [ToolResult(*told) for told in said["told"]]
    build = asked.dialect.continued  # type: ignore[attr-defined]
    body = build(asked.call, answer.shape, answer.body, results)
    return asked.request._replace(
        body=body, hint=None, retry=0, retry_key=b"", needs_approval=False, rounds=asked.request.rounds + 1
    )


async def go_on(
    parts: Parts, answer: Callable[[Request, Dialect], Awaitable[Answer]], asked: Asked, step: int, recording: Recording
) -> None:
    """Tell the model of a refusal, and end the recording that readers wait with by what it says."""
    if recording.readers == 0:
        recording.fail(AgentStateError("nobody was reading the answer any more; ask again"))
        return
    try:
        found = await answer(continued(parts, asked, step), asked.dialect)
        while found.rest is not None:
            await parts.pauses.rested(asked.session.key)
            found = await found.rest.again() or found
        try:
            body = found.body if found.body is not None else await _whole(found)
        finally:
            found.close(True)
        recording.begin(found.status, live_headers(found.headers), asked.call.shape)
        recording.end(body)
    except AgentStateError as error:
        recording.fail(error)
    except Exception:
        log.exception("the model could not be told of a refusal")
        recording.fail(AgentStateError("the proxy failed while telling the model of a refusal; ask again"))


async def _whole(found: Answer) -> bytes:
    assert found.recording is not None
    body = await found.recording.whole()
    return found.converted(body) if found.converted is not None else body


def as_ours(error: Exception) -> AgentStateError:
    return error if isinstance(error, AgentStateError) else AgentStateError("the proxy failed while answering")
