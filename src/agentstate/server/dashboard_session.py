"""Owns the routes of one session's page. Must not hold rules."""

from __future__ import annotations

from starlette.routing import Route

from agentstate.server.dashboard_pages import Pages


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/sessions/{id}``."""
    return []
