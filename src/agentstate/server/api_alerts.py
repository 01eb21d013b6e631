"""Owns the control plane's routes about messages to people. Must not hold rules, nor send anything itself.

Invariant: as for ``api``; no answer shows more of a target's address than scheme and host.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.engine.core import Parts
from agentstate.errors import BadRequest
from agentstate.server.routing import Guard, body_of, json_answer, next_page, whole
from agentstate.server.views import message_view

STATES = ("", "pending", "delivered", "dead")
_LARGEST = 2**53


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """Viewers may look, admins send."""

    async def listed(request: Request) -> Response:
        limit = whole(request, "limit", 100, 1, 1000)
        after = whole(request, "after", 0, 0, _LARGEST)
        state = request.query_params.get("state", "").lower()
        if state not in STATES:
            raise BadRequest("state must be pending, delivered or dead")
        rows = await guard.reading(lambda reader: reader.messages(state, limit + 1, after))
        page = [message_view(row) for row in rows[:limit]]
        return json_answer(page, headers=next_page(request, str(page[-1]["id"]), limit) if len(rows) > limit else None)

    async def test(request: Request) -> Response:
        name = (await body_of(request)).get("name", "")
        if not isinstance(name, str):
            raise BadRequest('send {"name": "…"}, or nothing to try every target')
        return json_answer(
            [
                {"target": target.name, "kind": target.kind, "address": target.shown, "delivered": not sent.error,
                 "status_code": sent.status, "error": sent.error or None}
                for target, sent in await parts.delivery.test(name)
            ]
        )  # fmt: skip

    async def retry(request: Request) -> Response:
        return json_answer(message_view(await parts.delivery.retry(request.path_params["number"])))

    return [
        Route("/api/alerts", guard(listed), methods=["GET"]),
        Route("/api/alerts/test", guard(test, Role.ADMIN), methods=["POST"]),
        Route("/api/alerts/{number:int}/retry", guard(retry, Role.ADMIN), methods=["POST"]),
    ]
