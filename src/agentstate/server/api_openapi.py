"""Owns the route of the OpenAPI document. Must not describe anything: ``openapi`` does.

Invariant: the document is put together once, when it is first asked for.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.server.routing import Guard, json_answer


def routes(guard: Guard) -> list[Route]:
    """``GET /api/openapi.json``, for viewers."""

    async def show(request: Request) -> Response:
        from agentstate.server.openapi import document  # not needed by anything else

        return json_answer(document())

    return [Route("/api/openapi.json", guard(show), methods=["GET"])]
