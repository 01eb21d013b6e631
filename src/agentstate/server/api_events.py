"""Owns the feed of changes as server-sent events. Must not decide what is told.

Invariant: nobody listens but a person, and none of them once they are disabled or have another token; a stream ends at
once when the proxy stops, and a listener who does not take what is sent is let go of instead of being waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agentstate.core.approval import Person
from agentstate.engine.core import Parts
from agentstate.engine.events import Event, Listener, Missed
from agentstate.errors import ShuttingDown, TooManyRequests
from agentstate.server.routing import Guard, flag, person_of
from agentstate.store.people_rows import ApproverRow

HEARTBEAT_S = 15.0
SLOW_S = 20.0  # how long one piece may take on its way to a listener
RETRY_MS = 2000  # after which a listener whose stream ended comes back
MOST_LISTENERS = 200


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """``GET /api/events``."""

    async def listen(request: Request) -> Response:
        query = request.query_params
        after = request.headers.get("last-event-id", "") or query.get("after", "")
        if parts.closing:
            raise ShuttingDown("the proxy is stopping; ask again")
        if parts.events.listening >= MOST_LISTENERS:
            raise TooManyRequests(f"{MOST_LISTENERS} listen already; close some dashboards")
        listener = parts.events.listen(
            parts.journal.read, after.strip(), query.get("session", ""), query.get("kinds", "")
        )
        if request.method == "HEAD":
            return Response(headers={"cache-control": "no-store"}, media_type="text/event-stream")
        follow = flag(request, "follow", True)
        return _Stream(parts, listener, follow, request.scope.get("agentstate.cycle"), person_of(request))

    return [Route("/api/events", guard(listen), methods=["GET"])]


class _Stream(StreamingResponse):
    def __init__(self, parts: Parts, listener: Listener, follow: bool, cycle: Any, person: Person) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(self._told(listener, follow), 200, headers, "text/event-stream")
        self._parts = parts
        self._cycle = cycle
        self._person = person
        self._known = self._standing_of()

    async def stream_response(self, send: Any) -> None:
        async def patiently(message: Any) -> None:
            try:
                async with self._standing(SLOW_S):
                    await send(message)
            except TimeoutError:
                if self._cycle is not None:
                    self._cycle.transport.abort()  # it takes nothing: a farewell would not arrive either
                raise

        with contextlib.suppress(TimeoutError):
            await super().stream_response(patiently)

    async def _told(self, listener: Listener, follow: bool) -> AsyncIterator[bytes]:
        """The stream, piece by piece. It begins with the id from which a listener goes on who loses it before the first
        event."""
        yield b"retry: %d\nid: %s\n\n" % (RETRY_MS, listener.id.encode())
        with listener:
            while self._known == self._standing_of() and not self._parts.closing and (follow or not listener.at_end):
                try:
                    async with self._standing(HEARTBEAT_S):
                        events = await listener.next()
                except TimeoutError:
                    yield b": still here\n\n"
                except Missed:
                    yield written(self._parts.events.resync())
                    return
                else:
                    if self._known == self._standing_of():
                        yield b"".join(map(written, events))

    def _standing_of(self) -> ApproverRow | None:
        """What is known of who listens; they are shown nothing more once that is something else."""
        return self._parts.journal.read.approver(self._person.name)

    @contextlib.asynccontextmanager
    async def _standing(self, seconds: float) -> AsyncIterator[None]:
        """At most so long, and less if the proxy stops. Raises ``TimeoutError``."""
        async with asyncio.timeout(seconds) as patience:
            self._parts.standing.add(patience)
            try:
                yield
            finally:
                self._parts.standing.discard(patience)


def written(event: Event) -> bytes:
    """An event as it goes over the wire."""
    name = "resync" if event.kind == "resync" else "change"
    data = json.dumps(event.data, ensure_ascii=True, separators=(",", ":"))
    return f"id: {event.id}\nevent: {name}\ndata: {data}\n\n".encode()
