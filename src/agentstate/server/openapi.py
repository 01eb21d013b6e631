"""Owns the OpenAPI document of the control plane: it is put together from the descriptions beside the routes. Must not
describe a route itself.

Invariant: every route of the control plane is in the document, and nothing else; a test compares them. A new module of
routes adds its ``OPERATIONS`` to ``PARTS``.
"""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus
from typing import Any

from agentstate import __version__, errors
from agentstate.core.approval import Role
from agentstate.errors import AgentStateError
from agentstate.server import (
    openapi_comparing,
    openapi_exports,
    openapi_people,
    openapi_proxy,
    openapi_retention,
    openapi_running,
    openapi_sessions,
    openapi_steering,
)  # fmt: skip
from agentstate.server.describing import JSON, Operation, Schema, options, record, ref, text, whole
from agentstate.server.openapi_schemas import COMPONENTS

PARTS = (
    openapi_sessions,
    openapi_steering,
    openapi_comparing,
    openapi_retention,
    openapi_people,
    openapi_exports,
    openapi_running,
    openapi_proxy,
)

_WHOLE = whole(minimum=0, maximum=2**53)
_PATH: dict[str, Schema] = {
    "id": text(minLength=1),
    "run": text(minLength=1),
    "name": text(minLength=1),
    "token": text(minLength=1),
    "number": _WHOLE,
}
_ROLES = {
    Role.VIEWER: "For viewers, approvers and admins.",
    Role.APPROVER: "For approvers and admins.",
    Role.ADMIN: "For admins.",
}
# What any route may answer, and what those answer that ask for a token.
_EVERYWHERE: tuple[type[AgentStateError], ...] = (errors.BadRequest, errors.Forbidden)
_WITH_TOKEN: tuple[type[AgentStateError], ...] = (errors.Unauthorized, errors.TooManyRequests)
_PASSING: tuple[type[AgentStateError], ...] = (
    AgentStateError,
    errors.ShuttingDown,
    errors.SessionGone,
    errors.StepTaken,
    errors.StoreError,
    errors.StoreLocked,
    errors.StoreFull,
    errors.StoreReadOnly,
    errors.StoreCorrupt,
    errors.StoreNewer,
)


def operations() -> tuple[Operation, ...]:
    """All of them."""
    return tuple(operation for part in PARTS for operation in part.OPERATIONS)


@cache
def document() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations():
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "AgentState control plane",
            "version": __version__,
            "description": "What people and supervisors ask of the proxy. Times are ISO 8601 in UTC, money is USD.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "The proxy that serves this document."}],
        "security": [{"token": []}],
        "tags": [{"name": name} for name in dict.fromkeys(one.tag for one in operations())],
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An approver's token, or the admin's."}
            },
        },
    }


def _operation(found: Operation) -> dict[str, Any]:
    role = "Asks for no token." if found.role is None else _ROLES[found.role]
    told: dict[str, Any] = {
        "operationId": found.id,
        "summary": found.does,
        "description": " ".join(filter(None, (role, found.more))),
        "tags": [found.tag],
        "parameters": [*_in_path(found.path), *found.query],
        "responses": _responses(found),
    }
    if found.role is None:
        told["security"] = []
    if found.body is not None:
        content = {"schema": found.body} | ({} if found.example is None else {"example": found.example})
        required = bool(found.body.get("required")) or found.body_kind != JSON
        told["requestBody"] = {"required": required, "content": {found.body_kind: content}}
    return told


def _in_path(path: str) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH[name]} for name in re.findall(r"{(\w+)}", path)
    ]


def _responses(found: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "What was asked for."}
    if found.answer is not None:
        answer["content"] = {found.kind: {"schema": found.answer}}
    if found.paged:
        link = {"description": 'Where there is more: <…>; rel="next"', "schema": text()}
        answer["headers"] = {"link": link}
    told: dict[str, Any] = {str(found.status): answer}
    known = (*_EVERYWHERE, *(_WITH_TOKEN if found.role is not None else ()), *found.errors, *_PASSING)
    if "{number}" in found.path:
        known += (errors.MethodNotAllowed,)  # where the number is none, the address is that of something else
    if found.role is None and found.body is not None:
        known += (errors.Unauthorized,)  # what is signed otherwise
    for status in sorted({error.status for error in known}):
        codes = sorted({error.code for error in known if error.status == status})
        told[str(status)] = _error(status, codes, found.kind if found.kind == "text/html" else JSON)
    for status, (meaning, schema) in found.statuses.items():
        told[str(status)] = {"description": meaning} | ({"content": {JSON: {"schema": schema}}} if schema else {})
    return told


def _error(status: int, codes: list[str], kind: str) -> dict[str, Any]:
    schema: Schema = {"allOf": [ref("Error"), record({"error": record({"code": options(codes)})})]}
    if kind != JSON:
        schema = text("A page that says it in words.")
    told: dict[str, Any] = {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}.",
        "content": {kind: {"schema": schema}},
    }
    if status in (429, 503):
        told["headers"] = {"retry-after": {"description": "Seconds.", "schema": whole()}}
    return told
