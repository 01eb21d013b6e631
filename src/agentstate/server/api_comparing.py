"""Owns the routes that pause and resume sessions, compare them, and try a step with another model. Must not decide.

Invariant: each route parses, calls one verb, renders; who may only look may compare, and only an admin does the rest.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.engine.core import Parts
from agentstate.engine.sessions import Sessions
from agentstate.server.routing import Guard, body_of, json_answer, person_of, text_of
from agentstate.server.views import session_view
from agentstate.store.rows import SessionRow

_AT = "/api/sessions/{id:path}"


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """``/pause``, ``/resume`` of a session."""
    sessions = Sessions(parts)

    async def shown(row: SessionRow) -> Response:
        return json_answer({"session": await guard.reading(lambda reader: session_view(reader, row))})

    async def pause(request: Request) -> Response:
        reason = text_of(await body_of(request), "reason", "")
        return await shown(await sessions.pause(request.path_params["id"], person_of(request), reason))

    async def resume(request: Request) -> Response:
        return await shown(await sessions.resume(request.path_params["id"], person_of(request)))

    return [
        Route(_AT + "/pause", guard(pause, Role.ADMIN), methods=["POST"]),
        Route(_AT + "/resume", guard(resume, Role.ADMIN), methods=["POST"]),
    ]
