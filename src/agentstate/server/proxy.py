"""Owns the agent plane: reading a request once, sending its answer as it may be shown. Must not decide anything.

Invariant: an answer counts as delivered only when its last byte was handed to an open socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agentstate import clock
from agentstate.dialects import registry
from agentstate.engine import jobs, kept
from agentstate.engine.answer import Answering
from agentstate.engine.core import Parts
from agentstate.engine.pausing import Rest
from agentstate.engine.presence import Connection
from agentstate.engine.relay import relay
from agentstate.engine.request import Answer, Request
from agentstate.engine.tools import Tools
from agentstate.errors import AgentStateError, ApprovalUnavailable, BodyTooLarge, Refused, ShuttingDown
from agentstate.providers.client import Headers, Reply
from agentstate.server import auth, held, hints
from agentstate.server.address import bare_path, read_path, read_request
from agentstate.server.claims import ClaimPlane, is_claim
from agentstate.server.errors import rendered
from agentstate.server.mcp import McpPlane, is_mcp
from agentstate.server.protocol import send_whole
from agentstate.server.resting import Resting

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

log = logging.getLogger("agentstate")
HEARTBEAT_S = 15.0  # the shortest default read timeout seen in clients is 60 s


class _Gone(Exception):
    """The client left before its request was read."""


class Proxy:
    """A raw ASGI application for everything that agents send."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._answering = Answering(parts)
        self._tools = Tools(parts)
        self._mcp = McpPlane(parts, self._tools)
        self._claims = ClaimPlane(self._tools)
        self._keys = tuple(key.get_secret_value() for key in parts.settings.server.agent_keys)
        self._most = parts.settings.server.max_body_bytes
        self._known = hints.enabled(parts.settings.hints)
        self._insight = parts.insight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["agentstate.connection"]
        try:
            await self._handle(scope, receive, send, connection)
        except AgentStateError as error:
            self._insight.refused(error)
            await _send_error(scope, send, error)
        except (_Gone, ConnectionAbortedError):
            return  # where an answer had begun, its socket is closed: the client sees that it is unfinished
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if connection.closed and task is not None:
                task.uncancel()  # it was the socket's end that cancelled us
                return
            if self._parts.closing and task is not None:
                task.uncancel()
                with contextlib.suppress(RuntimeError):  # an answer had begun: its socket is closed instead
                    await _send_error(scope, send, ShuttingDown("the proxy is stopping; ask again"))
                return
            raise

    async def _handle(self, scope: Scope, receive: Receive, send: Send, connection: Connection) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        address = read_path(scope["raw_path"].decode("latin-1"))
        if self._keys:
            given = next((value for name, value in headers if name == b"x-agentstate-key"), b"").decode("latin-1")
            auth.check_agent(address.key or given, self._keys)
        if early := _without_body(scope, address.path):
            await _send(send, *early)
            return
        body = await self._body(headers, receive)
        began = clock.monotonic()
        request = read_request(
            scope["method"], address, scope["query_string"].decode("latin-1"), headers, body, connection, self._known
        )
        if is_claim(request):
            answer = await _while_connected(request.connection, self._claims.answer(request))
            await _deliver(scope, send, connection, answer)
            self._insight.answered(request, "mcp" if is_mcp(request.normal) else "function", answer, began)
            return
        if is_mcp(request.normal):
            await self._answer_mcp(scope, request, send, began)
            return
        dialect = registry.for_path(request.method, request.normal)
        if request.needs_approval and (dialect is None or not request.session):
            raise ApprovalUnavailable(
                "x-agent-require-approval: only calls of a session that the journal knows can be held; name a session "
                "(x-agent-session-id, or /s/<session>/ in the address), or leave the header out to send it"
            )
        if dialect is None or not request.session:
            kept.check(self._parts, request)
            jobs.check(self._parts, request)
            job = jobs.polled(request)
            known = await _while_connected(connection, jobs.poll(self._parts, request, job)) if job else None
            if known is not None:
                await _deliver(scope, send, connection, known)
            else:
                await self._relay(request, send)
            return
        answer = await _while_connected(connection, self._answering.answer(request, dialect))
        if answer.rest is not None:
            await self._after_pause(request, send, answer.rest, dialect.name)
            return
        try:
            await _deliver(scope, send, connection, answer, min(HEARTBEAT_S, request.patience))
        except AgentStateError:
            answer.told = None  # the error is the answer, and is counted as one
            raise
        finally:
            self._insight.answered(request, dialect.name, answer, began)

    async def _body(self, headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
        """The whole body. Raises ``BodyTooLarge`` as soon as that is known."""
        for name, value in headers:
            if name == b"content-length" and value.isdigit() and int(value) > self._most:
                raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            part = message.get("body", b"")
            size += len(part)
            if size > self._most:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(
            f"the request body is larger than {self._most} bytes; raise server.max_body_bytes to allow it"
        )

    async def _answer_mcp(self, scope: Scope, request: Request, send: Send, began: float) -> None:
        async def passed(reply: Reply) -> None:
            await _pass_on(send, reply, request.method)

        answer = await _while_connected(request.connection, self._mcp.answer(request, passed))
        if answer is not None and answer.rest is not None:
            await self._after_pause(request, send, answer.rest, "mcp")
        elif answer is not None:
            await _deliver(scope, send, request.connection, answer)
            self._insight.answered(request, "mcp", answer, began)

    async def _after_pause(self, request: Request, send: Send, rest: Rest, name: str) -> None:
        """Keep a client waiting whose session is paused, then answer it. ``name``: of its wire format."""
        patience = min(HEARTBEAT_S, request.patience)
        resting = Resting(send, rest, patience)
        answer = await _while_connected(request.connection, resting.over())
        if answer is None:
            return
        began = clock.monotonic()
        try:
            await _deliver({}, resting.sent, request.connection, answer, patience)
        except AgentStateError as error:
            answer.told = None  # the error is the answer, and is counted as one
            if not resting.begun:
                raise
            self._insight.refused(error)
            await resting.break_off(error)
        finally:
            self._insight.answered(request, name, answer, began)

    async def _relay(self, request: Request, send: Send) -> None:
        """Pass it through; when the client leaves, so do we."""

        async def work() -> None:
            async with relay(self._parts, request) as reply:
                await _pass_on(send, reply, request.method)

        await _while_connected(request.connection, work())


async def _while_connected(connection: Connection, work: Any) -> Any:
    """Run ``work``; cancel it when the socket closes."""
    if connection.closed:
        work.close()
        raise _Gone
    task = asyncio.current_task()
    assert task is not None

    def lost() -> None:
        task.cancel()

    connection.watch(lost)
    try:
        return await work
    except asyncio.CancelledError:
        if connection.closed:
            task.uncancel()
            raise _Gone from None
        raise
    finally:
        connection.unwatch(lost)


async def _pass_on(send: Send, reply: Reply, method: str) -> None:
    started = False
    try:
        chunks = aiter(reply.chunks)
        # The first piece decides whether there is still a status to be honest with.
        first = await anext(chunks, b"")
        await send({"type": "http.response.start", "status": reply.status, "headers": _encoded(reply.headers)})
        started = True
        if first:
            await send({"type": "http.response.body", "body": first, "more_body": True})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except AgentStateError as error:
        if not started:
            raise
        log.warning("a relayed answer broke off: %s", error)
        raise ConnectionAbortedError from error  # an unfinished body: the client must see that it is one
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _deliver(
    scope: Scope, send: Send, connection: Connection, answer: Answer, patience: float = HEARTBEAT_S
) -> None:
    """Send an answer; say whether its last byte was handed over. ``patience``: after how many seconds of silence the
    client is told to wait on."""
    delivered = False
    try:
        if answer.body is not None and (cycle := scope.get("agentstate.cycle")) is not None:
            await send_whole(cycle, answer.status, _encoded(answer.headers), answer.body)
            delivered = not connection.closed
            return
        if answer.body is not None:
            headers = [*answer.headers, ("content-length", str(len(answer.body)))]
            await send({"type": "http.response.start", "status": answer.status, "headers": _encoded(headers)})
            if connection.closed:
                return
            await send({"type": "http.response.body", "body": answer.body, "more_body": False})
            delivered = not connection.closed
            return
        if answer.heartbeat is not None:
            waiting = held.Waiting(send, answer, answer.heartbeat, patience)
            delivered = await _while_connected(connection, waiting.give()) and not connection.closed
            return
        delivered = await _stream(send, connection, answer, patience)
    finally:
        answer.close(delivered)


async def _stream(send: Send, connection: Connection, answer: Answer, patience: float) -> bool:
    recording = answer.recording
    assert recording is not None
    await send({"type": "http.response.start", "status": answer.status, "headers": _encoded(answer.headers)})
    task = asyncio.current_task()
    assert task is not None

    def lost() -> None:
        task.cancel()

    connection.watch(lost)
    try:
        if connection.closed:
            return False
        async for data, last in recording.follow(patience):
            # Nothing to show for a while: what the dialect allows between events keeps the client waiting.
            await send(
                {
                    "type": "http.response.body",
                    "body": data if data or last else recording.heartbeat(),
                    "more_body": not last,
                }
            )
            if connection.closed:
                return last
        return True
    except asyncio.CancelledError:
        if connection.closed:
            task.uncancel()
            return False
        raise
    except AgentStateError as error:
        if answer.stream_error is not None:
            tail = answer.stream_error(error)
            await send({"type": "http.response.body", "body": tail, "more_body": False})
        return True
    finally:
        connection.unwatch(lost)


def _without_body(scope: Scope, path: str) -> tuple[int, Headers, bytes] | None:
    """Answers that need no provider: a probe of a session's base, a WebSocket that is not offered."""
    normal = registry.normalise(path)
    if scope["method"] in ("GET", "HEAD") and not normal:
        return 200, [("content-type", "application/json")], b'{"status":"ok"}'
    if normal == "responses" and any(
        name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]
    ):
        error = Refused("WebSocket is not offered here; use HTTP with server-sent events")
        return 426, [("content-type", "application/json"), ("upgrade", "HTTP/1.1")], rendered(error)[2]
    return None


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    full = [*headers, ("content-length", str(len(body)))]
    await send({"type": "http.response.start", "status": status, "headers": _encoded(full)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _send_error(scope: Scope, send: Send, error: AgentStateError) -> None:
    status, headers, body = rendered(error, registry.normalise(bare_path(scope["raw_path"].decode("latin-1"))))
    if status == 413:
        headers.append(("connection", "close"))
    await _send(send, status, headers, body)
