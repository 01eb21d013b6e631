"""Owns the routes of one session's page. Must not hold rules."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.journal import Filters, journal_page
from agentstate.dashboard.session import SessionPage, session_head, session_page
from agentstate.errors import BadRequest
from agentstate.server.dashboard_pages import Pages, Shown, path_value
from agentstate.server.logins import Visit
from agentstate.store.reader import Reader

_MOST_FIND = 200
_PARTS = {
    "rows": "session_rows.html",
    "row": "session_rows.html",
    "panel": "step.html",
    "head": "session_head.html",
}


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/sessions/{id}``."""

    async def show(request: Request, visit: Visit) -> Shown:
        key, query = path_value(request, "id"), request.query_params
        filters = Filters(
            query.get("failed") == "1", query.get("tools") == "1", query.get("find", "").strip()[:_MOST_FIND],
            query.get("timeline") == "1",
        )  # fmt: skip
        start, number = _whole(query.get("from", ""), "from"), _whole(query.get("step", ""), "step")
        step = None if number is None else (number, query.get("tab", ""), query.get("all") == "1")
        fragment = query.get("fragment", "")
        only = number if fragment == "row" else None
        listed = fragment not in ("panel", "head")

        def work(reader: Reader) -> SessionPage:
            if only is None:
                return session_page(reader, pages.parts, pages.overview, key, filters, start, step, listed)
            row, head = session_head(reader, pages.parts, pages.overview, key)
            return SessionPage(head, journal_page(reader, row, filters, None, only), filters, start, None)

        page = await pages.reading(work)
        crumbs = (Crumb("Sessions", ROOT), Crumb(page.head.id))
        return Shown("session.html", page, page.head.id, "Sessions", crumbs, _PARTS)

    return pages.page(ROOT + "/sessions/{id}", show)


def _whole(text: str, name: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise BadRequest(f"{name} must be a whole number from 0 on")
    return int(text)
