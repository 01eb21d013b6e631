"""Owns the routes by which a session goes on from elsewhere: rollback, fork, edit, and what is shown before and after
them. Must not hold rules: each route parses, calls one verb, renders.

Invariant: what only looks runs in a thread with a reader of its own; who did it is the person that the guard knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.engine.core import Parts
from agentstate.engine.editing import Editable, Version
from agentstate.engine.steering import VERBS, BranchView, MadeCall, Preview, Steering
from agentstate.errors import BadRequest
from agentstate.server.effects import effect_view
from agentstate.server.routing import Guard, body_of, is_small, json_answer, person_of, text_of, whole
from agentstate.server.views import moment, session_view
from agentstate.store.effect_reader import EffectRow
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow

_MOST_NUMBER = 2**53 - 1


class SteeringRoutes:
    """``routes`` are those under ``/api/sessions/{id}``."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._parts = parts
        self._guard = guard
        self._verbs = Steering(parts)

    @property
    def routes(self) -> list[Route]:
        at, guard, admin = "/api/sessions/{id:path}", self._guard, Role.ADMIN
        return [
            Route(at + "/reset", guard(self._reset, admin), methods=["POST"]),
            Route(at + "/rollback", guard(self._roll_back, admin), methods=["POST"]),
            Route(at + "/fork", guard(self._fork, admin), methods=["POST"]),
            Route(at + "/branches", guard(self._branches), methods=["GET"]),
            Route(at + "/preview", guard(self._preview), methods=["GET"]),
            Route(at + "/steps/{number:int}/edit", guard(self._edit, admin), methods=["POST"]),
            Route(at + "/steps/{number:int}/versions", guard(self._versions), methods=["GET"]),
            Route(at + "/steps/{number:int}/editable", guard(self._editable), methods=["GET"]),
        ]

    async def _reset(self, request: Request) -> Response:
        key = request.path_params["id"]
        number = (await body_of(request)).get("step_number")
        if number is None or not is_small(number):
            raise BadRequest('send {"step_number": n}: steps from n on are superseded')
        done = await self._verbs.roll_back(key, number, person_of(request))
        told = await self._told(done.session, done.standing, done.made)
        return json_answer({"message": f"Session {key} reset from step {number} successfully.", **told})

    async def _roll_back(self, request: Request) -> Response:
        key, body = request.path_params["id"], await body_of(request)
        number, branch = _number(body, "step_number"), _number(body, "branch")
        done = await self._verbs.roll_back(key, number, person_of(request), branch=branch)
        return json_answer({**await self._told(done.session, done.standing, done.made), "branch": done.branch})

    async def _fork(self, request: Request) -> Response:
        key, body = request.path_params["id"], await body_of(request)
        number, branch = _number(body, "step_number"), _number(body, "branch")
        if number is None:
            raise BadRequest('send {"step_number": n}: steps below n are shared; and a "name", if you like')
        name = text_of(body, "name", "") or None
        done = await self._verbs.fork(key, number, person_of(request), name=name, branch=branch)
        told = await self._told(done.session, done.standing, done.made)
        return json_answer({**told, "source": done.source, "step_number": done.step}, 201)

    async def _edit(self, request: Request) -> Response:
        key, number, body = request.path_params["id"], request.path_params["number"], await body_of(request)
        text, arguments = body.get("text"), body.get("arguments")
        if (
            not isinstance(text, str | None)
            or not isinstance(arguments, dict | None)
            or (text is None and not arguments)
        ):
            raise BadRequest('send {"text": "…"}, or {"arguments": {"<call id>": {…}}}, or both; and a "reason"')
        done = await self._verbs.edit(
            key, number, person_of(request), text=text, arguments=arguments, reason=text_of(body, "reason", "")
        )
        told = await self._told(done.session, done.standing, done.made)
        return json_answer({**told, "step_number": done.step, "branch": done.branch})

    async def _branches(self, request: Request) -> Response:
        key = request.path_params["id"]
        found = await self._guard.reading(lambda reader: Steering(self._parts, reader).branches(key))
        return json_answer([branch_view(one) for one in found])

    async def _preview(self, request: Request) -> Response:
        key, verb = request.path_params["id"], request.query_params.get("verb", "")
        known = next((name for name in VERBS if name == verb), None)
        if known is None:
            raise BadRequest(f"verb is {verb[:40]!r}; use one of {', '.join(VERBS)}")
        number = whole(request, "step_number", -1, -1, _MOST_NUMBER)
        branch = whole(request, "branch", -1, -1, _MOST_NUMBER)

        def work(reader: Reader) -> dict[str, Any]:
            found = Steering(self._parts, reader).preview(
                key, number if number >= 0 else None, branch=branch if branch >= 0 else None, verb=known
            )
            return preview_view(reader, found)

        return json_answer(await self._guard.reading(work))

    async def _versions(self, request: Request) -> Response:
        key, number = request.path_params["id"], request.path_params["number"]
        found = await self._guard.reading(lambda reader: Steering(self._parts, reader).versions(key, number))
        return json_answer([version_view(one) for one in found])

    async def _editable(self, request: Request) -> Response:
        key, number = request.path_params["id"], request.path_params["number"]
        found = await self._guard.reading(lambda reader: Steering(self._parts, reader).editable(key, number))
        return json_answer(editable_view(found))

    async def _told(self, session: SessionRow, standing: list[EffectRow], made: Sequence[MadeCall]) -> dict[str, Any]:
        def work(reader: Reader) -> dict[str, Any]:
            stands = [effect_view(reader, effect) for effect in standing]
            return {
                "session": session_view(reader, session),
                "standing": stands,
                "made": [made_view(call) for call in made],
            }

        return await self._guard.reading(work)


def branch_view(row: BranchView) -> dict[str, Any]:
    return {
        "id": row.id,
        "session": row.session,
        "parent": row.parent,
        "upto": row.upto,
        "reason": row.reason,
        "created_at": moment(row.made_at),
        "made_by": row.made_by or None,
        "steps": row.steps,
        "shown": row.shown,
        "head": row.head,
    }


def preview_view(reader: Reader, found: Preview) -> dict[str, Any]:
    return {
        "verb": found.verb,
        "session_id": found.session,
        "step_number": found.step,
        "branch": found.branch,
        "superseded": list(found.superseded),
        "restored": list(found.restored),
        "cost": found.cost,
        "cost_unknown": found.cost_unknown,
        "replays": found.replays,
        "standing": [effect_view(reader, effect) for effect in found.standing],
        "made": [made_view(call) for call in found.made],
        "pending": [
            {"id": row.id, "step_number": row.number, "kind": row.kind.value, "tool_name": row.tool or None}
            for row in found.pending
        ],
    }


def made_view(call: MadeCall) -> dict[str, Any]:
    return {
        "step_number": call.number,
        "tool": call.tool,
        "call_id": call.call_id or None,
        "arguments": call.arguments,
        "result_seen": call.seen,
        "failed": call.failed,
    }


def version_view(row: Version) -> dict[str, Any]:
    return {
        "made_by": row.who or None,
        "created_at": moment(row.when) if row.when else None,
        "reason": row.why or None,
        "branch": row.branch,
        "changed": row.changed or None,
        "response": row.answer,
        "shown": row.shown,
    }


def editable_view(found: Editable) -> dict[str, Any]:
    return {
        "text": found.text,
        "calls": [
            {
                "choice": call.choice,
                "place": call.place,
                "call_id": call.call_id or None,
                "tool": call.tool,
                "arguments": call.arguments,
                "schema": json.loads(call.schema) if call.schema else None,
            }
            for call in found.calls
        ],
        "versions": [version_view(one) for one in found.versions],
    }


def _number(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if not is_small(value):
        raise BadRequest(f"{name} must be a whole number")
    return None if value is None else int(value)
