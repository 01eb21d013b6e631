"""Owns the page behind a link in a message: one approval, and a form to decide it. Must not decide, nor load anything.

Invariant: looking decides nothing, whoever looks (chats fetch the links that they show); everything of an agent or a
model on it is escaped, whole, and has no character that cannot be seen.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from agentstate.core.approval import LINK, Decision, Person, Role
from agentstate.core.model import ApprovalKind, ApprovalState
from agentstate.dashboard.approvals import Card, card
from agentstate.dashboard.rendering import assets, render
from agentstate.engine.approvals import Approvals
from agentstate.engine.core import Parts
from agentstate.engine.links import Links
from agentstate.errors import AgentStateError, BadRequest, Unprocessable
from agentstate.server.routing import raw_body
from agentstate.store.reader import Reader
from agentstate.store.rows import ApprovalRow

Reading = Callable[[Callable[[Reader], Any]], Awaitable[Any]]
_HEADERS = {
    "cache-control": "no-store",
    # The address is a secret: it goes to no other site. Without any referrer browsers would not say, over plain HTTP,
    # that the form is our own.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
}


class ApprovePage:
    """``reading``: runs a long read in a thread, as ``Guard.reading`` does."""

    def __init__(self, parts: Parts, links: Links, reading: Reading) -> None:
        self._parts = parts
        self._links = links
        self._reading = reading
        self._approvals = Approvals(parts)
        at = "/approve/{token}"
        self.routes = [Route(at, self._show, methods=["GET"]), Route(at, self._decide, methods=["POST"])]

    def _found(self, request: Request) -> tuple[ApprovalRow, Person]:
        """Raises ``Forbidden``, ``NotFound``."""
        key, target = self._links.read(request.path_params["token"])
        return self._approvals.find(key), Person(LINK + target, Role.APPROVER)

    async def _show(self, request: Request) -> Response:
        try:
            row, person = self._found(request)
        except AgentStateError as error:
            return _page("This link leads nowhere", None, error, {})
        return await self._whole(row, person, None, {})

    async def _decide(self, request: Request) -> Response:
        try:
            row, person = self._found(request)
        except AgentStateError as error:
            return _page("This link leads nowhere", None, error, {})
        given: dict[str, str] = {}
        try:
            given = await _form(request)
            action = given.get("action", "")
            arguments = _parsed(given.get("arguments", "")) if action == Decision.EDITED else None
            if action == Decision.REUSED and row.kind is ApprovalKind.DOUBT:
                arguments = result_of(given.get("result", ""))
            await self._approvals.decide(
                row.id, action, person, arguments, given.get("reason", ""), given.get("digest", "") or "missing"
            )
        except AgentStateError as error:
            return await self._whole(self._approvals.find(row.id), person, error, given)
        return RedirectResponse(request.url.path, 303, _HEADERS)

    async def _whole(
        self, row: ApprovalRow, person: Person, error: AgentStateError | None, given: Mapping[str, str]
    ) -> Response:
        shown: Card = await self._reading(lambda reader: card(self._parts, reader, row, person))
        waits = row.state is ApprovalState.PENDING
        return _page(shown.row.title + (" waits for a decision" if waits else ""), shown, error, given)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form. Raises ``BadRequest``."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise BadRequest("use the form of this page")
    try:
        fields = parse_qs((await raw_body(request)).decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise BadRequest("the form cannot be read") from error
    return {name: values[-1] for name, values in fields.items()}


def _parsed(text: str) -> Any:
    """Raises ``Unprocessable``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unprocessable(f"the edited arguments are not JSON: {error}; the approval is still pending") from None


def result_of(text: str) -> Any:
    """What a person says that a call came to: JSON, or the text itself; ``None``: they do not know."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _page(title: str, shown: Card | None, error: AgentStateError | None, given: Mapping[str, str]) -> Response:
    style = assets()["approve.css"][1].decode()
    allowed = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{allowed}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    html = render(
        "approve.html", title=title, card=shown, error=error.message if error is not None else "", given=given,
        style=Markup(style),  # noqa: S704 - a file of ours
    )  # fmt: skip
    headers = {**_HEADERS, "content-security-policy": policy}
    return HTMLResponse(html, error.status if error is not None else 200, headers)
