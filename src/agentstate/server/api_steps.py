"""Owns the routes of one session's steps and runs, page by page and one by one. Must not hold rules.

Invariant: a page begins behind the last entry of the one before, whatever has come meanwhile; lists read no bodies.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.branching import NO_LIMIT
from agentstate.engine.sessions import found, summary
from agentstate.errors import NotFound
from agentstate.server.routing import Guard, json_answer, page, whole
from agentstate.server.views import attempt_view, run_view, steps_view
from agentstate.store.reader import Reader

MOST_STEPS, MOST_RUNS = 1000, 500


def routes(guard: Guard) -> list[Route]:
    """To be put before the routes of single sessions, whose ids may hold slashes."""

    async def steps(request: Request) -> Response:
        key, limit = request.path_params["id"], whole(request, "limit", 200, 1, MOST_STEPS)
        start = whole(request, "after", -1, -1, 2**53) + 1

        def work(reader: Reader) -> list[dict[str, Any]]:
            return steps_view(reader, found(reader, key), start, limit + 1, bodies=False)

        return page(request, await guard.reading(work), limit, "step_number")

    async def step(request: Request) -> Response:
        key, number = request.path_params["id"], request.path_params["number"]
        return json_answer(await guard.reading(lambda reader: one_step(reader, key, number)))

    async def runs(request: Request) -> Response:
        key, limit = request.path_params["id"], whole(request, "limit", 100, 1, MOST_RUNS)
        after = request.query_params.get("after", "")

        def work(reader: Reader) -> list[dict[str, Any]]:
            session = found(reader, key)
            last = reader.run(session.id, after) if after else None
            if after and last is None:
                raise NotFound(f"session {key!r} has no run {after[:80]!r} to go on after")
            rows = reader.runs_before(session.id, last.id if last is not None else NO_LIMIT, limit + 1)
            return [run_view(summary(reader, row)) for row in rows]

        return page(request, await guard.reading(work), limit, "run")

    at = "/api/sessions/{id:path}"
    return [
        Route(at + "/steps", guard(steps), methods=["GET"]),
        Route(at + "/steps/{number:int}", guard(step), methods=["GET"]),
        Route(at + "/runs", guard(runs), methods=["GET"]),
    ]


def one_step(reader: Reader, key: str, number: int) -> dict[str, Any]:
    """One step with its bodies and all of its attempts. Raises ``NotFound``."""
    session = found(reader, key)
    step = reader.step_by_number(session.id, number) if number < NO_LIMIT else None
    views = steps_view(reader, session, number, 1) if step is not None else []
    if step is None or not views or views[0]["step_number"] != number:
        raise NotFound(f"session {key!r} has no step {number}; it has the steps 0 to {session.steps - 1}")
    return {**views[0], "tries": [attempt_view(row) for row in reader.attempts(step)]}
