"""Minimal, replaced by the full one."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentstate.core.approval import Person, Role
from agentstate.engine.approvals import Approvals
from agentstate.engine.core import Parts


class ApprovalRoutes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._approvals = Approvals(parts)

    async def pending(self, request: Request) -> Response:
        rows = self._parts.journal.read.approvals("pending")
        out: list[dict[str, Any]] = [
            {
                "id": r.id,
                "session_id": r.session,
                "step_number": r.number,
                "tool_name": r.tool,
                "kind": r.kind,
                "status": r.state,
                "arguments": r.arguments,
                "digest": r.digest.hex(),
            }
            for r in rows
        ]
        return Response(json.dumps(out), media_type="application/json")

    async def act(self, request: Request) -> Response:
        body = json.loads(await request.body())
        row = await self._approvals.decide(
            request.path_params["id"],
            body["action"],
            Person("admin", Role.ADMIN),
            body.get("arguments"),
            body.get("reason", ""),
        )
        return Response(json.dumps({"id": row.id, "status": row.state}), media_type="application/json")
