"""Owns the route that shows how the providers are: breakers, turns, warnings. Must not hold rules.

Invariant: it reads only what the process knows already; showing it costs no provider a call.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.engine.breakers import Held
from agentstate.engine.core import Parts
from agentstate.server.routing import Guard, json_answer
from agentstate.server.views import moment


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """``GET /api/stats``."""

    async def stats(request: Request) -> Response:
        return json_answer(stats_view(parts))

    return [Route("/api/stats", guard(stats), methods=["GET"])]


def stats_view(parts: Parts) -> dict[str, Any]:
    """How the providers are. Times are ISO 8601 in UTC."""
    return {
        "breakers": [breaker_view(held) for held in parts.breakers.shown()],
        "queues": [
            {"provider": queue.name, "limit": queue.limit, "under_way": queue.going, "waiting": queue.waiting}
            for queue in parts.queues.values()
        ],
        "warnings": parts.routes.warnings(),
    }


def breaker_view(held: Held) -> dict[str, Any]:
    """A breaker: ``until`` is when a call may try again, where it is open."""
    found = held.breaker
    return {
        "provider": held.candidate.provider,
        "model": held.candidate.model,
        "state": found.state.value,
        "failures": found.failures,
        "until": moment(found.until) if found.until else None,
        "since": moment(found.since) if found.since else None,
        "why": found.why or None,
    }
