"""Owns the routes of authority: approvals, approvers, the audit log, labels of sessions. Must not hold rules: each
route parses, calls one verb, renders.

Invariant: whoever decides is the person whose token came, never somebody that the body names.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.core.model import ApprovalState
from agentstate.engine.approvals import Approvals
from agentstate.engine.approvers import Approvers
from agentstate.engine.core import Parts
from agentstate.engine.sessions import Sessions, found
from agentstate.errors import BadRequest, NotFound
from agentstate.server.approval_views import approval_view, approver_view, audit_view
from agentstate.server.routing import (
    Guard,
    body_of,
    json_answer,
    label_names,
    next_page,
    page,
    person_of,
    text_of,
    whole,
)
from agentstate.store.reader import Reader

MOST_PAGE = 500


class ApprovalRoutes:
    """To be put before the routes of single sessions, whose ids may hold slashes."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._read = guard.reading
        self._approvals = Approvals(parts)
        self._approvers = Approvers(parts)
        self._sessions = Sessions(parts)
        labels = "/api/sessions/{id:path}/labels"
        self.routes = [
            Route("/api/approvals/pending", guard(self._pending), methods=["GET"]),
            Route("/api/approvals", guard(self._list), methods=["GET"]),
            Route("/api/approvals/{id}/action", guard(self._decide, Role.APPROVER), methods=["POST"]),
            Route("/api/approvals/{id}", guard(self._one), methods=["GET"]),
            Route("/api/approvers", guard(self._people, Role.ADMIN), methods=["GET"]),
            Route("/api/approvers", guard(self._add, Role.ADMIN), methods=["POST"]),
            Route("/api/approvers/{name}/disable", guard(self._disable, Role.ADMIN), methods=["POST"]),
            Route("/api/approvers/{name}/rotate", guard(self._rotate, Role.ADMIN), methods=["POST"]),
            Route("/api/audit", guard(self._audit), methods=["GET"]),
            Route(labels, guard(self._labels), methods=["GET"]),
            Route(labels, guard(self._label, Role.ADMIN), methods=["POST"]),
        ]

    async def _pending(self, request: Request) -> Response:
        return await self._page(request, ApprovalState.PENDING.value)

    async def _list(self, request: Request) -> Response:
        state = request.query_params.get("state", "").lower()
        if state and state not in tuple(ApprovalState):
            raise BadRequest(f"state is {state[:40]!r}; use {', '.join(ApprovalState)}")
        return await self._page(request, state)

    async def _page(self, request: Request, state: str) -> Response:
        limit = whole(request, "limit", 100, 1, MOST_PAGE)
        session, after = request.query_params.get("session", ""), request.query_params.get("after", "")

        def work(reader: Reader) -> tuple[list[dict[str, Any]], bool]:
            last = reader.approval(after) if after else None
            if after and last is None:
                raise NotFound(f"there is no approval {after[:80]!r} to go on after")
            rows = reader.approvals(state, session, limit + 1, last)
            return [approval_view(reader, row) for row in rows[:limit]], len(rows) > limit

        shown, more = await self._read(work)
        return json_answer(shown, headers=next_page(request, shown[-1]["id"], limit) if more else None)

    async def _one(self, request: Request) -> Response:
        row = self._approvals.find(request.path_params["id"])
        return json_answer(await self._read(lambda reader: approval_view(reader, row)))

    async def _decide(self, request: Request) -> Response:
        body = await body_of(request)
        row = await self._approvals.decide(
            request.path_params["id"], text_of(body, "action"), person_of(request), body.get("arguments"),
            text_of(body, "reason", ""), text_of(body, "digest", ""),
        )  # fmt: skip
        view = await self._read(lambda reader: approval_view(reader, row))
        return json_answer({"message": f"Approval {row.id} is {row.state.value}.", "approval": view})

    async def _people(self, request: Request) -> Response:
        limit, after = whole(request, "limit", MOST_PAGE, 1, MOST_PAGE), request.query_params.get("after", "")

        def work(reader: Reader) -> list[dict[str, Any]]:
            rows = [row for row in reader.approvers() if row.name > after]
            return [approver_view(row) for row in rows[: limit + 1]]

        return page(request, await self._read(work), limit, "name")

    async def _add(self, request: Request) -> Response:
        body = await body_of(request)
        row, token = await self._approvers.add(
            text_of(body, "name"), text_of(body, "role"), text_of(body, "slack", ""), text_of(body, "discord", ""),
            person_of(request),
        )  # fmt: skip
        return json_answer({**approver_view(row), "token": token}, headers={"cache-control": "no-store"})

    async def _disable(self, request: Request) -> Response:
        row = await self._approvers.disable(request.path_params["name"], person_of(request))
        return json_answer(approver_view(row))

    async def _rotate(self, request: Request) -> Response:
        row, token = await self._approvers.rotate(request.path_params["name"], person_of(request))
        return json_answer({**approver_view(row), "token": token}, headers={"cache-control": "no-store"})

    async def _audit(self, request: Request) -> Response:
        limit, after = whole(request, "limit", 100, 1, 1000), whole(request, "after", 0, 0, 2**53)

        found_rows = await self._read(lambda reader: [audit_view(row) for row in reader.audit(after, limit + 1)])
        return page(request, found_rows, limit, "id")

    async def _labels(self, request: Request) -> Response:
        key = request.path_params["id"]
        limit, after = whole(request, "limit", 1000, 1, 1000), request.query_params.get("after", "")
        known = await self._read(lambda reader: reader.labels(found(reader, key).id))
        names = [name for name in known if name > after]
        shown = names[:limit]
        more = next_page(request, shown[-1], limit) if len(names) > limit else None
        return json_answer({"id": key, "labels": shown}, headers=more)

    async def _label(self, request: Request) -> Response:
        body, key = await body_of(request), request.path_params["id"]
        names = await self._sessions.set_labels(
            key, label_names(body.get("add")), label_names(body.get("remove")), person_of(request)
        )
        return json_answer({"id": key, "labels": list(names)})
