"""Owns reading what an MCP server answers to a call: JSON, or a stream that may be resumed. Must not keep it.

Invariant: what is given back is the server's own answer to this very request; a stream that ends without it is resumed
where its server offers that, and is an ``UpstreamFault`` otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from agentstate.core import effects
from agentstate.dialects import mcp, sse
from agentstate.errors import UpstreamCut, UpstreamFault, UpstreamInvalid, UpstreamUnreachable
from agentstate.providers.client import Headers, Question, Reply

_RESUMES = 5  # how often a stream is resumed without news
_LONGEST_PAUSE_S = 10.0


class Refused(NamedTuple):
    """The request was refused before the tool ran."""

    status: int
    body: bytes


class _Stream:
    """What was read of a stream so far, over all its connections."""

    def __init__(self, ident: Any, most: int, news: Callable[[bytes, Headers], None]) -> None:
        self._ident, self._most, self._news = ident, most, news
        self._size = 0
        self.last_id = ""
        self.pause_s = 1.0
        self.moved = False

    async def read(self, reply: Reply) -> bytes | None:
        """The outcome; ``None``: the stream ended before it. Raises ``UpstreamFault`` where it broke off."""
        parser = sse.Parser()
        async for chunk in reply.chunks:
            self._size += len(chunk)
            if self._size > self._most:
                raise UpstreamInvalid(f"the tool's answer is larger than {self._most} bytes (server.max_answer_bytes)")
            for event in parser.feed(chunk):
                if (outcome := self._event(event, reply.headers)) is not None:
                    return outcome
        return self._event(parser.rest(), reply.headers) if parser.rest().strip() else None

    def _event(self, event: bytes, headers: Headers) -> bytes | None:
        self.moved = True
        for line in event.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id" and "\0" not in value:
                self.last_id = value
            elif name == "retry" and value.isascii() and value.isdigit() and len(value) < 9:
                self.pause_s = min(int(value) / 1000, _LONGEST_PAUSE_S)
        data = sse.data_of(event)
        if data:
            try:
                outcome = mcp.outcome_of(data, self._ident)
            except ValueError as error:
                raise UpstreamInvalid(f"the MCP server sent what is no message: {error}") from None
            if outcome is not None:
                return outcome
        self._news(event, headers)
        return None


async def read_reply(
    reply: Reply, ident: Any, question: Question, attempt: Callable[[Question], Any], most: int,
    news: Callable[[bytes, Headers], None],
) -> bytes | Refused:  # fmt: skip
    """The outcome of the call ``ident`` (see ``dialects.mcp.outcome_of``), or that it was refused.

    ``attempt``: makes further requests to the same server; ``most``: bytes; ``news``: is given each event that is not
    the answer. Raises ``UpstreamFault`` where it is not known what the call came to.
    """
    kind = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
    if reply.status < 300 and kind.lower().startswith("text/event-stream"):
        return await _streamed(_Stream(ident, most, news), reply, question, attempt)
    grown = bytearray()
    async for chunk in reply.chunks:
        grown += chunk
        if len(grown) > most:
            raise UpstreamInvalid(f"the tool's answer is larger than {most} bytes (server.max_answer_bytes)")
    body = bytes(grown)
    if reply.status >= 300:
        if effects.did_not_run(reply.status):
            return Refused(reply.status, body)
        text = body[:300].decode("utf-8", "replace")
        raise UpstreamFault(f"the MCP server answered with status {reply.status}: {text}")
    try:
        outcome = mcp.outcome_of(body, ident)
    except ValueError as error:
        raise UpstreamInvalid(f"the MCP server answered with what is no JSON-RPC message: {error}") from None
    if outcome is None:
        raise UpstreamInvalid(f"the MCP server answered a call with status {reply.status} and no answer to it")
    return outcome


async def _streamed(stream: _Stream, reply: Reply, question: Question, attempt: Callable[[Question], Any]) -> bytes:
    try:
        outcome = await stream.read(reply)
        fault: UpstreamFault = UpstreamCut("the MCP server ended the stream before the answer")
    except UpstreamInvalid:
        raise
    except UpstreamFault as error:
        outcome, fault = None, error
    idle = 0
    while outcome is None:
        if not stream.last_id or idle >= _RESUMES:
            raise fault
        stream.moved = False
        await asyncio.sleep(stream.pause_s)
        try:
            async with attempt(_resumption(question, stream.last_id)) as more:
                kind = next((value for name, value in more.headers if name.lower() == "content-type"), "")
                if more.status != 200 or not kind.lower().startswith("text/event-stream"):
                    raise fault
                outcome = await stream.read(more)
        except UpstreamUnreachable as error:
            fault = UpstreamCut(str(error))  # the call itself was sent
        except UpstreamInvalid:
            raise
        except UpstreamFault as error:
            if error is fault:
                raise
            fault = error
        idle = 0 if stream.moved else idle + 1
    return outcome


def _resumption(question: Question, last_id: str) -> Question:
    """The request that goes on with a stream."""
    dropped = ("content-type", "accept", "last-event-id", "idempotency-key", "mcp-method", "mcp-name")
    kept = [
        pair for pair in question.headers
        if pair[0].lower() not in dropped and not pair[0].lower().startswith(mcp.PARAM_HEADER)
    ]  # fmt: skip
    headers = [*kept, ("accept", "text/event-stream"), ("last-event-id", last_id)]
    return question._replace(method="GET", headers=headers, body=b"")
