"""Owns the agent plane's address ``/mcp/NAME``: calls of tools go to the engine, everything else to the MCP server as
it is. Must not decide anything.

Invariant: nothing that could be a tool call passes by the engine within a session, nor by the policies without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import unquote

from agentstate.core import effects
from agentstate.core.model import Action, Outcome, ToolCall
from agentstate.core.policy import Place
from agentstate.dialects import mcp, sse
from agentstate.engine.core import Parts
from agentstate.engine.headers import forwarded_to
from agentstate.engine.mcp import McpCalls
from agentstate.engine.request import Answer, Request, Told
from agentstate.engine.tools import Tools
from agentstate.errors import AgentStateError, BadRequest, NotFound, ShuttingDown
from agentstate.providers.client import Headers, Reply
from agentstate.providers.mcp import Server
from agentstate.server.errors import rendered

_PASSED = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
_MOST_LISTED = 8 * 1024 * 1024  # bytes of a list of tools that is looked into
_MOST_TOOLS = 20_000


def is_mcp(path: str) -> bool:
    """Whether a normalised path is ours."""
    return path == "mcp" or path.startswith("mcp/")


class McpPlane:
    """One for each serving process. ``answer`` gives what a request is answered with, or passes it on."""

    def __init__(self, parts: Parts, tools: Tools) -> None:
        self._parts = parts
        self._tools = tools
        self._calls = McpCalls(parts, tools)

    async def answer(self, request: Request, passed: Callable[[Reply], Awaitable[None]]) -> Answer | None:
        """The answer; ``None``: it was passed on to the server, whose reply ``passed`` has handed on. Errors of ours
        are answers here, as the clients of this protocol understand them."""
        message = None
        try:
            server = self._server(request)
            if request.method not in _PASSED:
                raise BadRequest(f"{request.method} is not offered at /mcp/{server.name}")
            if request.method == "POST":
                mcp.check_encoding(request.headers)
                message = mcp.read(request.body)
                if message.is_call:
                    return await self._call(request, server, message, passed)
                if message.cancels is not None and request.session and self._calls.cancel(request, message.cancels):
                    return Answer(202, list(Told(Outcome.LIVE).headers()), b"")
            elif request.body:
                raise BadRequest(f"a {request.method} to an MCP server has no body")
            await self._pass(request, server, message, passed)
            return None
        except AgentStateError as error:
            self._parts.insight.refused(error)
            status, headers, _ = rendered(error)
            return Answer(status, headers, mcp.error(message.id if message is not None else None, error))

    def _server(self, request: Request) -> Server:
        name, _, rest = request.normal.partition("/")[2].partition("/")
        if rest or not name:
            raise NotFound(
                "an MCP server is at /mcp/NAME, with nothing behind its name; older transports are not taken"
            )
        return self._parts.mcp_servers.find(unquote(name))

    async def _call(
        self, request: Request, server: Server, message: mcp.Message, passed: Callable[[Reply], Awaitable[None]]
    ) -> Answer | None:
        streams = any(name.lower() == "accept" and "text/event-stream" in value for name, value in request.headers)
        request = request._replace(headers=_accepting_all(request.headers))
        if request.session:
            answer = await self._calls.answer(request, server, message, streams)
            if answer.rest is not None:
                answer.rest.again = lambda: self.answer(request, passed)
            return answer
        if self._parts.closing:
            raise ShuttingDown("the proxy is stopping; ask again")
        arguments = effects.readable(message.arguments)
        call = ToolCall(0, 0, "", message.name, arguments, effects.names(server.name, message.name)[1:])
        ruling = self._parts.gate.policies.ruling(call, Place(""))
        if ruling.action is Action.ALLOW and not request.needs_approval:
            await self._pass(request, server, message, passed)  # made as it is, and kept nowhere
            return None
        held = "denied" if ruling.action is Action.DENY else "held for a person"
        why = f"The call of {message.name} was refused: it is {held} ({ruling.why}), and this address names no session."
        headers: Headers = [("content-type", "application/json"), *Told(Outcome.LIVE).headers()]
        return Answer(200, headers, mcp.response(message, mcp.refusal(why)))

    async def _pass(
        self,
        request: Request,
        server: Server,
        message: mcp.Message | None,
        passed: Callable[[Reply], Awaitable[None]],
    ) -> None:
        if self._parts.closing:
            raise ShuttingDown("the proxy is stopping; ask again")
        if request.session:
            self._parts.presence.speaks_for(request.connection, request.session, None)
        question = forwarded_to(request, server, request.body)
        async with self._parts.http.attempt(server.provider, question) as reply:
            reply.headers = [*_theirs(reply), *Told(Outcome.LIVE).headers()]
            if request.method == "GET":
                reply.chunks = self._standing(reply.chunks)
            if message is None or message.method != mcp.LIST:
                await passed(reply)
                return
            # Noted before the client has it: it may call one of them at once.
            reply.chunks = self._noting(server, reply.headers, reply.chunks)
            await passed(reply)

    async def _standing(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The server's news for a client, which stand for as long as it likes; they end when the proxy stops."""
        standing, source = self._parts.standing, aiter(chunks)
        while True:
            try:
                async with asyncio.timeout(None) as patience:
                    standing.add(patience)
                    chunk = await anext(source, None)
            except TimeoutError:
                return
            finally:
                standing.discard(patience)
            if chunk is None:
                return
            yield chunk

    async def _noting(self, server: Server, headers: Headers, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A list of tools as it comes, event by event, or whole where it is no stream."""
        streamed = any(name.lower() == "content-type" and "event-stream" in value for name, value in headers)
        parser, kept, size = sse.Parser(), b"", 0
        async for chunk in chunks:
            size += len(chunk)
            if size > _MOST_LISTED:
                yield kept + chunk
                kept = b""
            elif streamed:
                for event in parser.feed(chunk):
                    self._note_tools(server, event, True)
                yield chunk
            else:
                kept += chunk
        if kept:
            self._note_tools(server, kept, False)
            yield kept

    def _note_tools(self, server: Server, answer: bytes, streamed: bool) -> None:
        """What the server says of its tools: their hints and schemas."""
        offered = self._tools.offered
        if len(offered) > _MOST_TOOLS:
            offered.clear()
        for tool in mcp.offered(answer, streamed):
            offered[(server.name, tool.name)] = tool


def _theirs(reply: Reply) -> Headers:
    return [pair for pair in reply.headers if not pair[0].lower().startswith("x-agentstate-")]


def _accepting_all(headers: Headers) -> Headers:
    """The server may answer a call in either form, as the protocol wants it."""
    kept = [pair for pair in headers if pair[0].lower() != "accept"]
    return [*kept, ("accept", "application/json, text/event-stream")]
