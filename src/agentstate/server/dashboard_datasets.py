"""Owns the routes of the page of data sets. Must not choose lines; the lines themselves leave by the API.

Invariant: looking writes nothing and costs nothing; it reads the journal for some seconds at most.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate.dashboard.datasets import datasets_page
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.server.dashboard_pages import Pages, Shown
from agentstate.server.logins import Visit


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/datasets``: the parameters of ``GET /api/export/dataset``."""
    patterns = pages.parts.settings.export.redact

    async def show(request: Request, visit: Visit) -> Shown:
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "fragment"]
        page = await pages.reading(lambda reader: datasets_page(reader, query, patterns))
        fragments = {"report": "datasets_report.html"}
        return Shown("datasets.html", page, "Datasets", "Datasets", (Crumb("Datasets"),), fragments)

    return pages.page(ROOT + "/datasets", show)
