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
from agentstate.engine.trial import Trials
from agentstate.errors import BadRequest
from agentstate.server.comparing_views import comparison_view, diff_view, trial_view
from agentstate.server.routing import Guard, body_of, json_answer, next_page, person_of, text_of, whole
from agentstate.server.views import session_view
from agentstate.store.rows import SessionRow

_AT = "/api/sessions/{id:path}"


class ComparingRoutes:
    """``/pause``, ``/resume``, ``/diff`` and ``/steps/N/try`` of a session, and ``/api/diff``."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._guard = guard
        self._sessions = Sessions(parts)
        self._trials = Trials(parts)

    @property
    def routes(self) -> list[Route]:
        guard, admin = self._guard, Role.ADMIN
        return [
            Route("/api/diff", guard(self._diff), methods=["GET"]),
            Route(_AT + "/diff", guard(self._diff_with), methods=["GET"]),
            Route(_AT + "/steps/{number:int}/try", guard(self._try, admin), methods=["POST"]),
            Route(_AT + "/pause", guard(self._pause, admin), methods=["POST"]),
            Route(_AT + "/resume", guard(self._resume, admin), methods=["POST"]),
        ]

    async def _pause(self, request: Request) -> Response:
        reason = text_of(await body_of(request), "reason", "")
        return await self._shown(await self._sessions.pause(request.path_params["id"], person_of(request), reason))

    async def _resume(self, request: Request) -> Response:
        return await self._shown(await self._sessions.resume(request.path_params["id"], person_of(request)))

    async def _shown(self, row: SessionRow) -> Response:
        return json_answer({"session": await self._guard.reading(lambda reader: session_view(reader, row))})

    async def _diff(self, request: Request) -> Response:
        a, b = (request.query_params.get(name, "") for name in ("a", "b"))
        if not a or not b:
            raise BadRequest("say what to compare: ?a=SESSION&b=SESSION, each with #RUN or @BRANCH if need be")
        return await self._compared(request, a, b)

    async def _diff_with(self, request: Request) -> Response:
        other = request.query_params.get("with", "")
        if not other:
            raise BadRequest("say what to compare with: ?with=SESSION, with #RUN or @BRANCH if need be")
        return await self._compared(request, request.path_params["id"], other)

    async def _compared(self, request: Request, a: str, b: str) -> Response:
        query = request.query_params
        if "pair" in query or "step" in query:
            name = "pair" if "pair" in query else "step"
            number = whole(request, name, 0, 0, 2**53)
            find = comparing.pair if name == "pair" else comparing.pair_of_step
            return json_answer(await self._guard.reading(lambda reader: diff_view(find(reader, a, b, number))))
        start = whole(request, "after", -1, -1, 2**53) + 1
        limit = whole(request, "limit", 100, 1, 10_000)
        found = await self._guard.reading(lambda reader: comparing.compare(reader, a, b, start, limit))
        more = start + limit < found.total
        headers = next_page(request, str(start + limit - 1), limit) if more else None
        return json_answer(comparison_view(found), headers=headers)

    async def _try(self, request: Request) -> Response:
        model = text_of(await body_of(request), "model")
        trial = await self._trials.try_step(
            request.path_params["id"], request.path_params["number"], model, person_of(request),
            request.headers.get("x-provider-key", "").strip(),
        )  # fmt: skip
        found = await self._guard.reading(lambda reader: comparing.between(reader, trial.original, trial.step))
        return json_answer(trial_view(trial) | diff_view(found))
