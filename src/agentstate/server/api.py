"""Owns the control plane's routes. Must not hold rules: each route parses, calls one verb, renders.

Invariant: every route but the health checks asks for the admin token; errors have codes and no traceback.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate import __version__
from agentstate.core.approval import Person, Role
from agentstate.engine.core import Parts
from agentstate.engine.doubts import settle
from agentstate.engine.sessions import Sessions, found, summary
from agentstate.errors import AgentStateError, BadRequest, NotFound
from agentstate.server import auth
from agentstate.server.effects import effect_view, settled_view
from agentstate.server.errors import rendered
from agentstate.server.views import detail_view, run_view, session_view
from agentstate.store.reader import Reader

T = TypeVar("T")
_MOST_BODY = 1024 * 1024

Handler = Callable[[Request], Awaitable[Response]]


class Api:
    """The routes under ``/api``, ``/healthz`` and ``/readyz``."""

    def __init__(self, parts: Parts, token: str) -> None:
        self._parts = parts
        self._token = token
        self._sessions = Sessions(parts)

    def app(self) -> Starlette:
        at = "/api/sessions/{id:path}"
        return Starlette(
            routes=[
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/readyz", self._readyz, methods=["GET"]),
                Route("/api/sessions", self._guarded(self._list), methods=["GET"]),
                Route(at + "/reset", self._guarded(self._reset), methods=["POST"]),
                Route(at + "/status", self._guarded(self._status), methods=["POST"]),
                Route(at + "/runs", self._guarded(self._begin_run), methods=["POST"]),
                Route(at + "/runs/{run}/end", self._guarded(self._end_run), methods=["POST"]),
                Route(at + "/runs/{run}", self._guarded(self._run), methods=["GET"]),
                Route(at + "/effects", self._guarded(self._effects), methods=["GET"]),
                Route(at + "/effects/{number:int}/settle", self._guarded(self._settle), methods=["POST"]),
                Route(at, self._guarded(self._detail), methods=["GET"]),
                Route("/{rest:path}", _unknown),
            ],
            exception_handlers={HTTPException: _refused},
        )

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                auth.check_admin(request.headers.get("authorization", ""), self._token)
                return await handler(request)
            except AgentStateError as error:
                return _error(error)

        return guarded

    async def _reading(self, work: Callable[[Reader], T]) -> T:
        """A long read, in a thread with a connection of its own."""

        def run() -> T:
            reader = Reader(self._parts.journal.path, self._parts.settings.store.busy_s)
            try:
                return work(reader)
            finally:
                reader.close()

        return await asyncio.to_thread(run)

    async def _healthz(self, request: Request) -> Response:
        return _json({"status": "ok", "version": __version__})

    async def _readyz(self, request: Request) -> Response:
        try:
            self._parts.journal.check()
        except AgentStateError as error:
            return _error(error)
        ready = not self._parts.closing
        return _json({"status": "ready" if ready else "stopping"}, 200 if ready else 503)

    async def _list(self, request: Request) -> Response:
        limit = _whole(request, "limit", 100, 1, 1000)
        after = request.query_params.get("after", "")
        status = request.query_params.get("status", "").upper()

        def work(reader: Reader) -> tuple[list[dict[str, Any]], bool]:
            last = found(reader, after) if after else None
            rows = reader.sessions(limit + 1, last, status)
            return [session_view(reader, row) for row in rows[:limit]], len(rows) > limit

        page, more = await self._reading(work)
        return _json(page, headers=_next_page(request, page[-1]["id"], limit) if more else None)

    async def _detail(self, request: Request) -> Response:
        key = request.path_params["id"]
        start = _whole(request, "after", -1, -1, 2**53) + 1
        limit = _whole(request, "limit", 1000, 1, 10_000)

        def work(reader: Reader) -> tuple[dict[str, Any], bool]:
            row = found(reader, key)
            view = detail_view(reader, row, start, limit)
            return view, bool(view["steps"]) and view["steps"][-1]["step_number"] + 1 < row.steps

        view, more = await self._reading(work)
        last = str(view["steps"][-1]["step_number"]) if more else ""
        return _json(view, headers=_next_page(request, last, limit) if more else None)

    async def _reset(self, request: Request) -> Response:
        key = request.path_params["id"]
        number = (await _body(request)).get("step_number")
        if number is None or not _small(number):
            raise BadRequest('send {"step_number": n}: steps from n on are superseded')
        row = await self._sessions.roll_back(key, number)
        view = await self._reading(lambda reader: session_view(reader, row))
        return _json({"message": f"Session {key} reset from step {number} successfully.", "session": view})

    async def _status(self, request: Request) -> Response:
        key = request.path_params["id"]
        status = (await _body(request)).get("status")
        if not isinstance(status, str):
            raise BadRequest('send {"status": "RUNNING"}, or PAUSED, FAILED, COMPLETED')
        row = await self._sessions.set_status(key, status)
        view = await self._reading(lambda reader: session_view(reader, row))
        return _json({"message": f"Session {key} status updated to {row.status.value}.", "session": view})

    async def _begin_run(self, request: Request) -> Response:
        body = await _body(request)
        name, replaces, pid = body.get("run"), body.get("replaces"), body.get("supervisor_pid")
        if not isinstance(name, str) or not isinstance(replaces, str | None) or not _small(pid):
            raise BadRequest('send {"run": "…", "replaces": "…" or null, "supervisor_pid": number or null}')
        row, fenced = await self._sessions.register_run(request.path_params["id"], name, replaces, pid)
        return _json({"run": row.name, "evidence": row.evidence, "fenced": fenced, "sibling": bool(row.siblings)})

    async def _end_run(self, request: Request) -> Response:
        code = (await _body(request)).get("exit_code")
        if not _small(code):
            raise BadRequest("exit_code must be a whole number or null")
        row = await self._sessions.end_run(request.path_params["id"], request.path_params["run"], code)
        return _json(run_view(summary(self._parts.journal.read, row)))

    async def _effects(self, request: Request) -> Response:
        key = request.path_params["id"]

        def work(reader: Reader) -> list[dict[str, Any]]:
            return [effect_view(reader, effect) for effect in reader.effects(found(reader, key).id)]

        return _json(await self._reading(work))

    async def _settle(self, request: Request) -> Response:
        body = await _body(request)
        outcome, reason = body.get("outcome"), body.get("reason", "")
        if not isinstance(outcome, str) or not isinstance(reason, str):
            raise BadRequest('send {"outcome": "ran", "result": …}, or did_not_run, or abort')
        person = Person("admin", Role.ADMIN)
        key, number = request.path_params["id"], request.path_params["number"]
        row = await settle(self._parts, key, number, outcome, person, body.get("result"), reason)
        return _json(settled_view(row))

    async def _run(self, request: Request) -> Response:
        row = self._sessions.run(request.path_params["id"], request.path_params["run"])
        return _json(run_view(summary(self._parts.journal.read, row)))


async def _unknown(request: Request) -> Response:
    return _error(NotFound(f"there is nothing at {request.url.path}"))


async def _refused(request: Request, error: Exception) -> Response:
    """What the framework itself refuses, a wrong method above all."""
    fault = BadRequest(f"{request.method} is not offered at {request.url.path}")
    fault.status = getattr(error, "status_code", 400)
    return _error(fault)


async def _body(request: Request) -> dict[str, Any]:
    """A JSON object; an empty body is an empty one. Raises ``BadRequest``."""
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > _MOST_BODY:
            raise BadRequest("the body is too large")
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value


def _small(value: Any) -> bool:
    """Whether it is absent or a whole number that any database can hold."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53)


def _whole(request: Request, name: str, default: int, least: int, most: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number") from None
    if not least <= number <= most:
        raise BadRequest(f"{name} must be from {least} to {most}")
    return number


def _next_page(request: Request, after: str, limit: int) -> dict[str, str]:
    url = request.url.include_query_params(after=after, limit=limit)
    return {"link": f'<{url.path}?{url.query}>; rel="next"'}


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _error(error: AgentStateError) -> Response:
    status, headers, body = rendered(error)
    return Response(body, status, dict(headers))
