"""Owns the route of the journal's figures, and how they look as JSON. Must not count.

Invariant: money is USD and what is known of it; how much is unknown stands beside it.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.engine.stats import Row, Stats, stats
from agentstate.server.routing import Guard, json_answer


def routes(guard: Guard) -> list[Route]:
    async def show(request: Request) -> Response:
        query = request.query_params
        wanted = [query.get(name, default) for name, default in _QUERY.items()]
        return json_answer(await guard.reading(lambda reader: stats_view(stats(reader, *wanted))))

    return [Route("/api/stats", guard(show), methods=["GET"])]


_QUERY = {"by": "day", "since": "", "until": "", "session": ""}


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
