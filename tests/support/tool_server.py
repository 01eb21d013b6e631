"""Owns a proxy for tests of tool calls: ``python -m tests.support.tool_server NAME:N:WHEN|-`` and the usual arguments.

It dies at a chosen write, as ``crashing_server`` does, and people may decide about any approval in it, at
``POST /api/approvals/{id}/decide``. Must not change anything else. Invariant: as for ``crashing_server``.
"""

from __future__ import annotations

import sys
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agentstate.core.approval import Person, Role
from agentstate.engine.approvals import Approvals
from agentstate.errors import AgentStateError
from agentstate.server import api
from tests.support import crashing_server


def command(name: str = "", count: int = 1, when: str = "after") -> tuple[str, ...]:
    """The command that stands for ``python -m agentstate``; without a name it does not die."""
    how = f"{name}:{count}:{when}" if name else "-"
    return (sys.executable, "-m", "tests.support.tool_server", how)


def let_people_decide() -> None:
    """Add the route."""
    usual = api.Api.app

    def app(self: api.Api) -> Starlette:
        made = usual(self)

        async def decide(request: Request) -> JSONResponse:
            body: dict[str, Any] = await request.json()
            try:
                row = await Approvals(self._parts).decide(
                    request.path_params["id"], body["action"], Person("tester", Role.ADMIN), body.get("arguments"),
                    body.get("reason", ""),
                )  # fmt: skip
            except AgentStateError as error:
                return JSONResponse({"error": error.message}, error.status)
            return JSONResponse({"state": row.state.value})

        made.router.routes.insert(0, Route("/api/approvals/{id}/decide", decide, methods=["POST"]))
        return made

    api.Api.app = app  # type: ignore[method-assign]


def main() -> None:
    """Arm the writer as the first argument says, and run the command line with the rest."""
    how = sys.argv.pop(1)
    if how != "-":
        name, count, when = how.split(":")
        crashing_server.arm(name, int(count), when)
    let_people_decide()
    from agentstate.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
