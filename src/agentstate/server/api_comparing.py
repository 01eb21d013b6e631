"""Owns the routes that pause and resume sessions, compare them, and try a step with another model. Must not decide.

Invariant: each route parses, calls one verb, renders; who may only look may compare, and only an admin does the rest.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.engine import comparing
from agentstate.engine.core import Parts
from agentstate.engine.sessions import Sessions
from agentstate.errors import BadRequest
from agentstate.server.comparing_views import comparison_view, diff_view
from agentstate.server.routing import Guard, body_of, json_answer, next_page, person_of, text_of, whole
from agentstate.server.views import session_view
from agentstate.store.rows import SessionRow

_AT = "/api/sessions/{id:path}"


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """``/pause``, ``/resume`` and ``/diff`` of a session, and ``/api/diff``."""
    sessions = Sessions(parts)

    async def shown(row: SessionRow) -> Response:
        return json_answer({"session": await guard.reading(lambda reader: session_view(reader, row))})

    async def pause(request: Request) -> Response:
        reason = text_of(await body_of(request), "reason", "")
        return await shown(await sessions.pause(request.path_params["id"], person_of(request), reason))

    async def resume(request: Request) -> Response:
        return await shown(await sessions.resume(request.path_params["id"], person_of(request)))

    async def differ(request: Request, a: str, b: str) -> Response:
        query = request.query_params
        if "pair" in query or "step" in query:
            name = "pair" if "pair" in query else "step"
            number = whole(request, name, 0, 0, 2**53)
            find = comparing.pair if name == "pair" else comparing.pair_of_step
            return json_answer(await guard.reading(lambda reader: diff_view(find(reader, a, b, number))))
        start = whole(request, "after", -1, -1, 2**53) + 1
        limit = whole(request, "limit", 100, 1, 10_000)
        found = await guard.reading(lambda reader: comparing.compare(reader, a, b, start, limit))
        more = start + limit < found.total
        return json_answer(
            comparison_view(found), headers=next_page(request, str(start + limit - 1), limit) if more else None
        )

    async def diff(request: Request) -> Response:
        a, b = (request.query_params.get(name, "") for name in ("a", "b"))
        if not a or not b:
            raise BadRequest("say what to compare: ?a=SESSION&b=SESSION, each with #RUN or @BRANCH if need be")
        return await differ(request, a, b)

    async def diff_with(request: Request) -> Response:
        other = request.query_params.get("with", "")
        if not other:
            raise BadRequest("say what to compare with: ?with=SESSION, with #RUN or @BRANCH if need be")
        return await differ(request, request.path_params["id"], other)

    return [
        Route("/api/diff", guard(diff), methods=["GET"]),
        Route(_AT + "/diff", guard(diff_with), methods=["GET"]),
        Route(_AT + "/pause", guard(pause, Role.ADMIN), methods=["POST"]),
        Route(_AT + "/resume", guard(resume, Role.ADMIN), methods=["POST"]),
    ]
