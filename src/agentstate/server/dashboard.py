"""Owns the dashboard's routes: its files, logging in and out, how a person likes it, and the list of its pages.

Must not hold rules: pages fill contexts, forms call one verb of the engine. Invariant: a token stands in no page, no
log and no address that stays.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from agentstate.core.approval import Person, Role
from agentstate.dashboard.frame import DENSITIES, ROOT, THEMES, Look
from agentstate.dashboard.rendering import assets, assets_path, render
from agentstate.engine.core import Parts
from agentstate.errors import AgentStateError, BadRequest, NotFound
from agentstate.server import (
    dashboard_approvals,
    dashboard_compare,
    dashboard_datasets,
    dashboard_dialogs,
    dashboard_providers,
    dashboard_retention,
    dashboard_session,
    dashboard_sessions,
    dashboard_settings,
    dashboard_spend,
)
from agentstate.server.dashboard_pages import (
    HEADERS,
    LOOK_COOKIE,
    LOOK_S,
    Done,
    Form,
    Pages,
    Shown,
    form_of,
    inside,
    look_of,
    look_value,
)  # fmt: skip
from agentstate.server.logins import LOGIN, PATHS, Visit
from agentstate.server.routing import Guard

_FOR_EVER = "public, max-age=31536000, immutable"


class Dashboard:
    """The ASGI application under ``/dashboard``."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._pages = pages = Pages(parts, guard)
        self._app = Starlette(
            routes=[
                Route(ROOT + "/static/{version}/{name}", self._asset, methods=["GET"]),
                Route(LOGIN, self._login, methods=["GET"]),
                Route(LOGIN, self._log_in, methods=["POST"]),
                pages.form(ROOT + "/logout", self._log_out, Role.VIEWER),
                pages.form(ROOT + "/look", self._look, Role.VIEWER),
                *pages.page(ROOT + "/strip", self._strip),
                *dashboard_sessions.routes(pages),
                *dashboard_session.routes(pages),
                *dashboard_providers.routes(pages),
                *dashboard_spend.routes(pages),
                *dashboard_datasets.routes(pages),
                *dashboard_retention.routes(pages),
                *dashboard_settings.routes(pages),
                *dashboard_approvals.routes(pages),
                *dashboard_dialogs.routes(pages),
                *dashboard_compare.routes(pages),
                Route("/{rest:path}", self._unknown),
            ],
            exception_handlers={HTTPException: self._wrong, Exception: self._broken},
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # Routes are matched against the address as it was sent: an id with a slash is one part of it.
        await self._app({**scope, "path": scope["raw_path"].decode("latin-1")}, receive, send)

    async def _asset(self, request: Request) -> Response:
        kind, content = assets().get(request.path_params["name"], ("", b""))
        if not kind:
            return Response(status_code=404, headers=HEADERS)
        current = request.path_params["version"] == assets_path().rpartition("/")[2]
        return Response(content, 200, {**HEADERS, "cache-control": _FOR_EVER if current else "no-store"}, kind)

    async def _strip(self, request: Request, visit: Visit) -> Shown:
        return Shown("strip.html", {}, "Now", fragments={"strip": "strip.html"})

    # --- logging in and out ---

    async def _login(self, request: Request) -> Response:
        token = request.query_params.get("token", "")
        if not token or request.method == "HEAD":  # who only looks whether a link leads anywhere uses none up
            return await self._outside(request)
        try:
            person = await self._pages.reading(lambda reader: self._pages.logins.take(reader, token))
        except AgentStateError as error:
            return await self._outside(request, error)
        # A page, not a redirect: a browser that came from elsewhere would not send the cookie along with one.
        return self._logged_in(request, person, await self._outside(request, to=ROOT))

    async def _log_in(self, request: Request) -> Response:
        to = ROOT
        try:
            given = await form_of(request)
            to = inside(given.get("next"))
            token = given.get("token").strip()
            if not token:
                raise BadRequest("paste a token: an approver's, or the admin token")
            person = await self._pages.guard.caller(request, f"Bearer {token}")
        except AgentStateError as error:
            return await self._outside(request, error, to)
        return self._logged_in(request, person, Response(status_code=303, headers={**HEADERS, "location": to}))

    def _logged_in(self, request: Request, person: Person, answer: Response) -> Response:
        pages = self._pages
        value = pages.logins.cookie(pages.parts.journal.read, person)
        for path in PATHS:
            made = pages.cookie(request, pages.logins.name, value, path, pages.logins.expires_s)
            answer.headers.append("set-cookie", made)
        return answer

    async def _log_out(self, request: Request, visit: Visit, form: Form) -> Done:
        cookies = [self._pages.cookie(request, self._pages.logins.name, "", path, 0) for path in PATHS]
        return Done(LOGIN, cookies=tuple(cookies))

    async def _outside(
        self, request: Request, error: AgentStateError | None = None, next_: str = "", to: str = ""
    ) -> Response:
        """The page for who is not logged in (yet)."""
        html = await asyncio.to_thread(
            render, "outside.html", title="AgentState", error=error.message if error is not None else "",
            look=look_of(request), assets=assets_path(), action=LOGIN, to=to, done="",
            next=next_ or inside(request.query_params.get("next", "")),
        )  # fmt: skip
        return HTMLResponse(html, error.status if error is not None else 200, HEADERS)

    # --- how a person likes it ---

    async def _look(self, request: Request, visit: Visit, form: Form) -> Done:
        old = look_of(request)
        theme, density = form.get("theme", old.theme), form.get("density", old.density)
        if theme not in THEMES or density not in DENSITIES:
            raise BadRequest(f"theme is one of {', '.join(THEMES)}, density one of {', '.join(DENSITIES)}")
        letters, pinned = form.get("letters"), form.get("pinned")
        look = Look(
            theme, density, letters == "on" if letters else old.letters, pinned == "on" if pinned else old.pinned
        )
        made = self._pages.cookie(request, LOOK_COOKIE, look_value(look), ROOT, LOOK_S)
        return Done(inside(form.get("back")), cookies=(made,))

    # --- what is not there ---

    async def _unknown(self, request: Request) -> Response:
        return await self._said(request, NotFound("there is no such page; the list of sessions is a good start"))

    async def _wrong(self, request: Request, error: Exception) -> Response:
        fault = BadRequest(f"{request.method} is not offered here")
        fault.status = getattr(error, "status_code", 400)
        return await self._said(request, fault)

    async def _broken(self, request: Request, error: Exception) -> Response:
        """A fault of ours; what it was is in the log, where whoever called us writes it."""
        return await self._said(request, AgentStateError(f"the proxy failed ({type(error).__name__}); see its log"))

    async def _said(self, request: Request, error: AgentStateError) -> Response:
        visit = None
        try:
            visit = await self._pages.who(request, Role.VIEWER)
        except AgentStateError as other:
            return await self._pages.refused(request, None, other)
        return await self._pages.refused(request, visit, error)
