"""Owns the control plane's routes. Must not hold rules: each route parses, calls one verb, renders.

Invariant: every route but the health checks asks for a person's token, what changes sessions for an admin's (what is
measured asks for none where the settings say so); errors have codes and no traceback.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate import __version__
from agentstate.core.approval import Role
from agentstate.engine.core import Parts
from agentstate.engine.doubts import settle
from agentstate.engine.links import Links
from agentstate.engine.overview import FILTERS, Overview, wanted
from agentstate.engine.sessions import Sessions, found, summary
from agentstate.errors import AgentStateError, BadRequest, MethodNotAllowed, NotFound
from agentstate.server import (
    api_alerts,
    api_events,
    api_openapi,
    api_retention,
    api_running,
    api_standing,
    api_stats,
    api_steps,
)  # fmt: skip
from agentstate.server.api_approvals import ApprovalRoutes
from agentstate.server.api_comparing import ComparingRoutes
from agentstate.server.api_exports import ExportRoutes
from agentstate.server.api_steering import SteeringRoutes
from agentstate.server.approve_page import ApprovePage
from agentstate.server.auth import Authority
from agentstate.server.effects import effect_view, settled_view
from agentstate.server.hooks import Hooks
from agentstate.server.logins import LINK_S, Logins
from agentstate.server.metrics import metrics_route
from agentstate.server.routing import (
    Guard,
    body_of,
    error_answer,
    is_small,
    json_answer,
    next_page,
    page,
    person_of,
    whole,
)  # fmt: skip
from agentstate.server.views import detail_view, run_view, session_view
from agentstate.settings import data_folder
from agentstate.store.reader import Reader


class Api:
    """The routes under ``/api``, ``/healthz``, ``/readyz`` and ``/metrics``."""

    def __init__(self, parts: Parts, token: str, logins: Logins | None = None) -> None:
        self._parts = parts
        self._logins = logins or Logins(token, data_folder(), parts.settings.dashboard.login_expires_s)
        self.guard = self._guard = Guard(parts, Authority(token, parts.settings), self._logins)
        self._sessions = Sessions(parts)
        self._overview = Overview(parts)
        self._links = Links(data_folder(), parts.settings.approvals.link_expires_s)

    def app(self) -> Starlette:
        at, guard, admin = "/api/sessions/{id:path}", self._guard, Role.ADMIN
        app = Starlette(
            routes=[
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/readyz", self._readyz, methods=["GET"]),
                metrics_route(self._parts, guard),
                # Labels of steps before those of sessions, whose ids may hold slashes.
                *ExportRoutes(self._parts, guard).routes,
                *ApprovalRoutes(self._parts, guard).routes,
                *ApprovePage(self._parts, self._links, guard.reading).routes,
                *Hooks(self._parts).routes,
                Route("/api/logins", guard(self._login), methods=["POST"]),
                Route("/api/sessions", guard(self._list), methods=["GET"]),
                *SteeringRoutes(self._parts, guard).routes,
                Route(at + "/status", guard(self._status, admin), methods=["POST"]),
                *api_steps.routes(guard),
                *ComparingRoutes(self._parts, guard).routes,
                Route(at + "/runs", guard(self._begin_run, admin), methods=["POST"]),
                Route(at + "/runs/{run}/end", guard(self._end_run, admin), methods=["POST"]),
                Route(at + "/runs/{run}", guard(self._run), methods=["GET"]),
                Route(at + "/effects", guard(self._effects), methods=["GET"]),
                Route(at + "/effects/{number:int}/settle", guard(self._settle, Role.APPROVER), methods=["POST"]),
                Route(at, guard(self._detail), methods=["GET"]),
                *api_alerts.routes(self._parts, guard),
                *api_stats.routes(self._parts, guard),
                *api_running.routes(self._parts, guard),
                *api_retention.routes(self._parts, guard),
                *api_events.routes(self._parts, guard),
                *api_standing.routes(self._parts, guard),
                *api_openapi.routes(guard),
            ],
            exception_handlers={HTTPException: _refused},
        )
        app.router.redirect_slashes = False
        return app

    async def _healthz(self, request: Request) -> Response:
        return json_answer({"status": "ok", "version": __version__})

    async def _readyz(self, request: Request) -> Response:
        try:
            self._parts.journal.check()
        except AgentStateError as error:
            return error_answer(error)
        ready = not self._parts.closing
        return json_answer({"status": "ready" if ready else "stopping"}, 200 if ready else 503)

    async def _login(self, request: Request) -> Response:
        path = self._logins.link(person_of(request).name)
        return json_answer({"path": path, "expires_in_s": LINK_S}, headers={"cache-control": "no-store"})

    async def _list(self, request: Request) -> Response:
        limit = whole(request, "limit", 100, 1, 1000)
        after = request.query_params.get("after", "")
        asked = wanted(**{name: request.query_params.get(name, "") for name in FILTERS})

        at = request.query_params.get("at", "")

        def work(reader: Reader) -> tuple[list[dict[str, Any]], dict[str, str] | None]:
            last = found(reader, after) if after else None
            if last is not None and at:  # where it stood when its page was read: it may have changed meanwhile
                last = replace(last, updated_at=stood(at))
            rows = self._overview.rows(reader, asked, limit + 1, last)
            views = [session_view(reader, listed.row) for listed in rows[:limit]]
            end = rows[limit - 1].row if len(rows) > limit else None
            return views, None if end is None else next_page(request, end.key, limit, at=repr(end.updated_at))

        views, more = await self._guard.reading(work)
        return json_answer(views, headers=more)

    async def _detail(self, request: Request) -> Response:
        key = request.path_params["id"]
        start = whole(request, "after", -1, -1, 2**53) + 1
        limit = whole(request, "limit", 1000, 1, 10_000)

        def work(reader: Reader) -> tuple[dict[str, Any], bool]:
            row = found(reader, key)
            view = detail_view(reader, row, start, limit)
            return view, bool(view["steps"]) and view["steps"][-1]["step_number"] + 1 < row.steps

        view, more = await self._guard.reading(work)
        last = str(view["steps"][-1]["step_number"]) if more else ""
        return json_answer(view, headers=next_page(request, last, limit) if more else None)

    async def _status(self, request: Request) -> Response:
        key = request.path_params["id"]
        status = (await body_of(request)).get("status")
        if not isinstance(status, str):
            raise BadRequest('send {"status": "RUNNING"}, or PAUSED, FAILED, COMPLETED')
        row = await self._sessions.set_status(key, status, person_of(request))
        view = await self._guard.reading(lambda reader: session_view(reader, row))
        return json_answer({"message": f"Session {key} status updated to {row.status.value}.", "session": view})

    async def _begin_run(self, request: Request) -> Response:
        body = await body_of(request)
        name, replaces, pid = body.get("run"), body.get("replaces"), body.get("supervisor_pid")
        if not isinstance(name, str) or not isinstance(replaces, str | None) or not is_small(pid):
            raise BadRequest('send {"run": "…", "replaces": "…" or null, "supervisor_pid": number or null}')
        row, fenced = await self._sessions.register_run(request.path_params["id"], name, replaces, pid)
        return json_answer({"run": row.name, "evidence": row.evidence, "fenced": fenced, "sibling": bool(row.siblings)})

    async def _end_run(self, request: Request) -> Response:
        code = (await body_of(request)).get("exit_code")
        if not is_small(code):
            raise BadRequest("exit_code must be a whole number or null")
        row = await self._sessions.end_run(request.path_params["id"], request.path_params["run"], code)
        return json_answer(run_view(summary(self._parts.journal.read, row)))

    async def _effects(self, request: Request) -> Response:
        key = request.path_params["id"]
        limit, after = whole(request, "limit", 500, 1, 1000), whole(request, "after", -1, -1, 2**53)

        def work(reader: Reader) -> list[dict[str, Any]]:
            session = found(reader, key)
            shared = [
                effect for branch, upto in reader.shared(session.id)
                for effect in reader.effects(reader.session_of_branch(branch), upto, after)
                if effect.branch == branch and effect.number < upto
            ]  # fmt: skip
            shared.sort(key=lambda effect: effect.number)
            rows = [*shared, *reader.effects(session.id, limit + 1, after)]
            return [effect_view(reader, row) for row in rows[: limit + 1]]

        return page(request, await self._guard.reading(work), limit, "step_number")

    async def _settle(self, request: Request) -> Response:
        body = await body_of(request)
        outcome, reason = body.get("outcome"), body.get("reason", "")
        if not isinstance(outcome, str) or not isinstance(reason, str):
            raise BadRequest('send {"outcome": "ran", "result": …}, or did_not_run, or abort')
        key, number = request.path_params["id"], request.path_params["number"]
        row = await settle(self._parts, key, number, outcome, person_of(request), body.get("result"), reason)
        return json_answer(settled_view(row))

    async def _run(self, request: Request) -> Response:
        row = self._sessions.run(request.path_params["id"], request.path_params["run"])
        return json_answer(run_view(summary(self._parts.journal.read, row)))


def stood(at: str) -> float:
    """When the last session of a page had changed, as the link to the next one says it: seconds since the epoch."""
    try:
        seconds = float(at)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e15:
        raise BadRequest("at comes with the link to the next page; follow that, or leave at out")
    return seconds


async def _refused(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: an unknown address, or a wrong method."""
    path = request.url.path
    offered = {
        method for route in request.app.routes if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }  # fmt: skip
    if not offered:
        return error_answer(NotFound(f"there is nothing at {path}"))
    answer = error_answer(
        MethodNotAllowed(f"{request.method} is not offered at {path}; {', '.join(sorted(offered))} is")
    )
    answer.headers["allow"] = ", ".join(sorted(offered))
    return answer
