"""Owns the route of the journal's figures and of how the providers are, and how they look as JSON. Must not count.

Invariant: money is USD and what is known of it, how much is unknown stands beside it; showing it costs no provider a
call.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.engine.breakers import Held
from agentstate.engine.core import Parts
from agentstate.engine.stats import Row, Stats, as_csv, stats
from agentstate.errors import BadRequest
from agentstate.server.routing import Guard, json_answer
from agentstate.server.views import moment

_DOWNLOAD = {"content-disposition": 'attachment; filename="agentstate-spend.csv"'}
_QUERY = {"by": "day", "since": "", "until": "", "session": ""}


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """``GET /api/stats``."""

    async def show(request: Request) -> Response:
        query = request.query_params
        wanted = [query.get(name, default) for name, default in _QUERY.items()]
        shape = query.get("format", "json")
        if shape not in ("json", "csv"):
            raise BadRequest(f"format is {shape[:40]!r}; use json or csv")
        if shape == "csv":
            text = await guard.reading(lambda reader: as_csv(stats(reader, *wanted)))
            return Response(text, 200, _DOWNLOAD, "text/csv; charset=utf-8")
        figures = await guard.reading(lambda reader: stats_view(stats(reader, *wanted)))
        return json_answer(figures | providers_view(parts))

    return [Route("/api/stats", guard(show), methods=["GET"])]


def stats_view(found: Stats) -> dict[str, Any]:
    """``total``, and ``rows`` whose names stand under what they are by."""
    return {
        "by": found.by,
        "total": row_view(found.total),
        "rows": [{found.by: row.name} | row_view(row) for row in found.rows],
    }


def row_view(row: Row) -> dict[str, Any]:
    tokens = row.sent.tokens
    return {
        "calls": row.sent.calls,
        "failed": row.sent.failed,
        "replays": row.spared.replays,
        "tokens": tokens._asdict() | {"total": tokens.total},
        "uncounted": row.sent.uncounted,
        "cost": row.sent.cost,
        "cost_unknown": row.sent.unpriced,
        "saved": row.spared.saved,
        "saved_unknown": row.spared.unpriced,
    }


def providers_view(parts: Parts) -> dict[str, Any]:
    """How the providers are. Times are ISO 8601 in UTC."""
    return {
        "breakers": [breaker_view(held) for held in parts.breakers.shown()],
        "queues": [
            {"provider": queue.name, "limit": queue.limit, "under_way": queue.going, "waiting": queue.waiting}
            for queue in parts.queues.values()
        ],
        "warnings": [*parts.routes.warnings(), *parts.foresight.warnings()],
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
