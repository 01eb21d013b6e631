"""Owns the routes of the page of retention, under Settings. Must not decide what goes, nor delete.

Invariant: what is deleted was shown before by the same rules, and an admin pressed the button that names it.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.rendering import size
from agentstate.dashboard.retention_page import FIELDS, retention_page
from agentstate.errors import BadRequest
from agentstate.server.api_retention import Asked, asked_of
from agentstate.server.dashboard_pages import Done, Form, Pages, Shown
from agentstate.server.logins import Visit

HERE = ROOT + "/settings/retention"


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/settings/retention``: ``older_than_days``, ``keep``, ``label``, ``status`` say what to look at."""
    retention = pages.parts.retention

    def wanted(given: dict[str, str]) -> Asked:
        body: dict[str, Any] = {name: value for name, value in given.items() if name in ("label", "status")}
        for name, kind in (("older_than_days", float), ("keep", int)):
            if text := given.get(name):
                try:
                    body[name] = kind(text)
                except ValueError:
                    raise BadRequest(f"{name.replace('_', ' ')} is {text[:40]!r}; give a number") from None
        return asked_of(retention, body)

    async def show(request: Request, visit: Visit) -> Shown:
        given = {name: text for name in FIELDS if (text := request.query_params.get(name, "").strip())}
        foreseen = None
        if given:
            asked = wanted(given)
            foreseen = await retention.prune(asked.rules, visit.person.name, dry_run=True)
        page = retention_page(await retention.overview(), given, foreseen)
        crumbs = (Crumb("Settings", ROOT + "/settings"), Crumb("Retention"))
        return Shown("settings_retention.html", page, "Retention, settings", "Settings", crumbs)

    async def prune(request: Request, visit: Visit, form: Form) -> Done:
        given = {name: text for name in FIELDS if (text := form.get(name).strip())}
        asked = wanted(given)
        report = await retention.prune(
            asked.rules, visit.person.name, vacuum=form.get("vacuum") == "on", superseded_s=asked.superseded_s
        )
        steps = sum(fate.session.steps for fate in report.gone)
        freed = max(0, report.before.file - report.after.file)
        return Done(
            HERE,
            f"{len(report.gone):,} sessions with {steps:,} steps are deleted; {size(report.after.free)} of the file "
            f"are free for new ones, {size(freed)} went back to the disk.",
        )

    async def unpin(request: Request, visit: Visit, form: Form) -> Done:
        key = form.get("session")
        await retention.unpin(key, visit.person)
        return Done(HERE, f"Session {key} is not pinned any more.")

    return [
        *pages.page(HERE, show),
        pages.form(HERE + "/prune", prune, Role.ADMIN),
        pages.form(HERE + "/unpin", unpin, Role.ADMIN),
    ]
