"""Owns the routes of the page of money. Must not count.

Invariant: the page, its JSON and the API's figures are those of the same functions.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate import clock
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.spend import asked_of, spend_page
from agentstate.server.dashboard_pages import Pages, Shown
from agentstate.server.logins import Visit


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/spend``: ``range``, or ``since`` and ``until``; ``by``; ``session``."""
    budgets, settings = pages.parts.budgets, pages.parts.settings.budget

    async def show(request: Request, visit: Visit) -> Shown:
        now = clock.now()
        query = request.query_params
        asked = asked_of(
            query.get("range", ""), query.get("since", ""), query.get("until", ""), query.get("by", ""),
            query.get("session", ""), now,
        )  # fmt: skip
        page = await pages.reading(
            lambda reader: spend_page(reader, asked, budgets.limits, settings.at_limit, budgets.repeats, now)
        )
        return Shown("spend.html", page, "Spend", "Spend", (Crumb("Spend"),))

    return pages.page(ROOT + "/spend", show)
