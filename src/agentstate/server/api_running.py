"""Owns the control plane's routes about how the proxy runs: a test call, budgets, the audit log's seal, diagnostics.

Must not hold rules. Invariant: as for ``api``; nothing here shows a secret, or more of an address than where it leads.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate import clock
from agentstate.core.approval import Role
from agentstate.engine.about import diagnostics
from agentstate.engine.allowances import Use, uses
from agentstate.engine.core import Parts
from agentstate.engine.testing import Tested, send_one_token
from agentstate.errors import BadRequest
from agentstate.server.routing import Guard, body_of, json_answer
from agentstate.server.views import moment
from agentstate.store import audit
from agentstate.store.reader import Reader

_MOST_FAULTS = 100


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """Viewers may look, admins test and download."""

    async def test(request: Request) -> Response:
        model = (await body_of(request)).get("model")
        if not isinstance(model, str):
            raise BadRequest('send {"model": "…"}: it is asked for one token')
        return json_answer(tested_view(await send_one_token(parts, request.path_params["name"], model)))

    async def budgets(request: Request) -> Response:
        limits, at = parts.budgets.limits, clock.now()
        found = await guard.reading(lambda reader: uses(reader, limits, at))
        return json_answer(budgets_view(found, parts.settings.budget.at_limit, parts.budgets.repeats))

    async def check(request: Request) -> Response:
        return json_answer(await guard.reading(checked))

    async def bundle(request: Request) -> Response:
        found = await guard.reading(lambda reader: diagnostics(parts, reader))
        headers = {"content-disposition": 'attachment; filename="agentstate-diagnostics.json"'}
        return json_answer(found | {"at": moment(found["at"])}, headers=headers)

    return [
        Route("/api/providers/{name}/test", guard(test, Role.ADMIN), methods=["POST"]),
        Route("/api/budgets", guard(budgets), methods=["GET"]),
        Route("/api/audit/check", guard(check), methods=["GET"]),
        Route("/api/diagnostics", guard(bundle, Role.ADMIN), methods=["GET"]),
    ]


def tested_view(tested: Tested) -> dict[str, Any]:
    """How a test call went. ``latency`` is in seconds, ``cost`` in USD."""
    return {
        "provider": tested.provider,
        "model": tested.model,
        "answered": not tested.error,
        "status_code": tested.status,
        "error": tested.error or None,
        "latency": tested.took_s,
        "tokens": tested.tokens,
        "cost": tested.cost,
        "session_id": tested.session,
        "step_number": tested.step,
    }


def budgets_view(found: list[Use], at_limit: str, repeats: int) -> dict[str, Any]:
    """What is used of each limit, in its own unit: USD, steps or tokens."""
    return {
        "at_limit": at_limit,
        "repeats": repeats or None,
        "limits": [
            {
                "limit": use.limit.name,
                "session_id": use.session or None,
                "most": use.most,
                "raised": use.raised,
                "used": use.used,
                "reserved": use.reserved,
            }
            for use in found
        ],
    }


def checked(reader: Reader) -> dict[str, Any]:
    """Whether the audit log's seal holds. In a thread: it reads the whole log."""
    faults: list[dict[str, str]] = []
    for fault in audit.faults(reader):
        faults.append({"where": fault.where, "what": fault.what})
        if len(faults) == _MOST_FAULTS:
            break
    last = reader.raw("select id, hash from audit order by id desc limit 1").fetchone()
    return {
        "sound": not faults,
        "entries": last[0] if last else 0,
        "seal": bytes(last[1]).hex() if last else None,
        "faults": faults,
    }
