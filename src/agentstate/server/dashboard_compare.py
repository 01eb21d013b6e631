"""Owns the dashboard's route of Compare. Must not hold rules. Invariant: every view of it is an address."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate.dashboard.compare import compare_page
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.server.dashboard_pages import Pages, Shown
from agentstate.server.logins import Visit
from agentstate.server.routing import whole

PATH = ROOT + "/compare"
_MOST = 2**31


def routes(pages: Pages) -> list[Route]:
    async def show(request: Request, visit: Visit) -> Shown:
        given = request.query_params
        a, b = given.get("a", "").strip(), given.get("b", "").strip()
        pair, start = whole(request, "pair", -1, -1, _MOST), whole(request, "start", 0, 0, _MOST)
        unfolded = whole(request, "open", -1, -1, _MOST)
        page = await pages.reading(
            lambda reader: compare_page(
                reader, a, b, pair if pair >= 0 else None, start, unfolded if unfolded >= 0 else None
            )
        )
        title = f"{a} against {b}" if a and b else "Compare"
        crumbs = (Crumb("Sessions", ROOT), Crumb("Compare"))
        return Shown("compare.html", page, title, "Sessions", crumbs, {"pair": "compare_pair.html"},
                     404 if page.fault else 200)  # fmt: skip

    return pages.page(PATH, show)
