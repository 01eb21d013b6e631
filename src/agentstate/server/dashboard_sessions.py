"""Owns the routes of the page of all sessions. Must not hold rules."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.sessions import session_row, sessions_page
from agentstate.server.dashboard_pages import Pages, Shown
from agentstate.server.logins import Visit


def routes(pages: Pages) -> list[Route]:
    """``/dashboard``."""

    async def show(request: Request, visit: Visit) -> Shown:
        given = dict(request.query_params)
        if given.get("fragment") == "row":
            row = await pages.reading(lambda reader: session_row(reader, pages.overview, given.get("id", "")))
            return Shown("sessions.html", row, "", fragments={"row": "sessions_row.html"})
        page = await pages.reading(lambda reader: sessions_page(reader, pages.overview, given))
        return Shown("sessions.html", page, "Sessions", "Sessions", (Crumb("Sessions"),))

    return [*pages.page(ROOT, show)]
