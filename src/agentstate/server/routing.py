"""Owns what the routes of the control plane share: who may use one, bodies, parameters, answers. Must not know a route.

Invariant: no handler runs before its caller is known to be a person whose role reaches what the route asks for.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from agentstate.core.approval import Person, Role, reaches
from agentstate.engine.core import Parts
from agentstate.errors import AgentStateError, BadRequest, Forbidden, NotFound
from agentstate.server.address import whole_names
from agentstate.server.auth import Authority, same
from agentstate.server.errors import rendered
from agentstate.server.logins import CSRF_HEADER, Logins
from agentstate.store.reader import Reader

T = TypeVar("T")
MOST_BODY = 1024 * 1024
LARGEST = 2**53  # whole number that every client and the journal can hold

Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Stands before handlers; ``least``: the role that a caller needs. ``logins``: of browsers, where there are any."""

    def __init__(self, parts: Parts, authority: Authority, logins: Logins | None = None) -> None:
        self._parts = parts
        self._authority = authority
        self.logins = logins

    def __call__(self, handler: Handler, least: Role = Role.VIEWER) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                person = self._visitor(request) or await self.caller(request, request.headers.get("authorization", ""))
                if not reaches(person.role, least):
                    raise Forbidden(f"{person.name} is a {person.role}; this asks for the role {least}")
                request.scope["path_params"] = whole_names(request.path_params)
                if any(isinstance(value, int) and value > LARGEST for value in request.path_params.values()):
                    raise NotFound("there is nothing with so large a number")
                request.state.person = person
                return await handler(request)
            except AgentStateError as error:
                return error_answer(error)

        return guarded

    async def caller(self, request: Request, authorization: str) -> Person:
        """Whose token it is. Raises what ``Authority.caller`` does."""
        peer = request.client.host if request.client is not None else ""
        return await self._authority.caller(self._parts.journal.read, authorization, peer)

    def _visitor(self, request: Request) -> Person | None:
        """Who looks through a browser that is logged in. Raises ``Forbidden`` for a change that no page of ours asked
        for."""
        if self.logins is None or request.headers.get("authorization"):
            return None
        visit = self.logins.visit(self._parts.journal.read, request.headers.get("cookie", ""))
        if visit is None:
            return None
        if request.method not in ("GET", "HEAD") and not same(request.headers.get(CSRF_HEADER, ""), visit.csrf):
            raise Forbidden(f"a logged-in browser changes things by the dashboard's forms, or with {CSRF_HEADER}")
        return visit.person

    async def reading(self, work: Callable[[Reader], T]) -> T:
        """A long read, in a thread with a connection of its own."""

        def run() -> T:
            reader = Reader(self._parts.journal.path, self._parts.settings.store.busy_s)
            try:
                with reader.snapshot():
                    return work(reader)
            finally:
                reader.close()

        return await asyncio.to_thread(run)


def person_of(request: Request) -> Person:
    """Who calls, behind a guard."""
    person: Person = request.state.person
    return person


async def raw_body(request: Request) -> bytes:
    """Raises ``BadRequest`` for one that is too large."""
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > MOST_BODY:
            raise BadRequest("the body is too large")
    return raw


async def body_of(request: Request) -> dict[str, Any]:
    """A JSON object; an empty body is an empty one. Raises ``BadRequest``."""
    raw = await raw_body(request)
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequest("the body has half a character (a surrogate without its other half)") from None
    except RecursionError:
        raise BadRequest("the body is nested too deep") from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    return value


def text_of(body: dict[str, Any], name: str, default: str | None = None) -> str:
    """A text of a body. Raises ``BadRequest`` where it is none, or missing and without default."""
    value = body.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text")
    return value


def label_names(value: Any) -> list[str]:
    """The labels of a body that adds and removes some; absent: none. Raises ``BadRequest``."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BadRequest('send {"add": ["label", …], "remove": ["label", …]}')
    return value


def is_small(value: Any) -> bool:
    """Whether it is absent or a whole number that any database can hold."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53)


def whole(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises ``BadRequest``."""
    value = request.query_params.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number") from None
    if not least <= number <= most:
        raise BadRequest(f"{name} must be from {least} to {most}")
    return number


def flag(request: Request, name: str, default: bool) -> bool:
    """Yes or no of the query. Raises ``BadRequest``."""
    value = request.query_params.get(name)
    if value is None:
        return default
    if value not in ("true", "false"):
        raise BadRequest(f"{name} must be true or false")
    return value == "true"


def next_page(request: Request, after: str, limit: int, **more: str) -> dict[str, str]:
    """The header that leads to the next page: the same address, as it came. ``more``: what else says where."""
    set_ = {"limit": str(limit), "after": after, **more}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in set_]
    path = request.scope["raw_path"].decode("latin-1")
    return {"link": f'<{path}?{urlencode([*kept, *set_.items()])}>; rel="next"'}


def page(request: Request, views: list[dict[str, Any]], limit: int, cursor: str) -> Response:
    """A page of a list of which one more than ``limit`` was read; ``cursor``: the field that leads to the next one."""
    more = len(views) > limit
    shown = views[:limit]
    return json_answer(shown, headers=next_page(request, str(shown[-1][cursor]), limit) if more else None)


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, "application/json")


def encoded(value: Any) -> bytes:
    """As JSON. What a model wrote may have halves of characters (``\\ud800``), which UTF-8 has none of: escaped, they
    are what they were. A number that is none is ``null``."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(_finite(msgspec.to_builtins(value)), separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def error_answer(error: AgentStateError) -> Response:
    status, headers, body = rendered(error)
    return Response(body, status, dict(headers))
