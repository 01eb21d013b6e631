"""Owns the routes of the page of providers. Must not ask a provider anything itself.

Invariant: looking costs nothing; the one thing that costs is a form that an admin sends.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.providers import ProvidersPage, drafted, providers_page
from agentstate.dashboard.rendering import dollars, duration
from agentstate.engine.standing import providers
from agentstate.engine.testing import Tested, send_one_token
from agentstate.server.dashboard_pages import Done, Form, Pages, Shown, path_value
from agentstate.server.logins import Visit

_HERE = ROOT + "/providers"


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/providers``, and the form that sends one token."""
    parts = pages.parts

    async def page(request: Request) -> ProvidersPage:
        query = request.query_params
        draft = drafted(
            query.get("model", ""), query.get("fallback", ""), query.get("strict") == "on", tuple(parts.providers.kinds)
        )
        found = await providers(parts)
        settings = parts.settings
        return providers_page(found, settings.providers, settings.routes, settings.simulate.enabled, draft)

    async def show(request: Request, visit: Visit) -> Shown:
        fragments = {"providers": "providers_part.html"}
        return Shown("providers.html", await page(request), "Providers", "Providers", (Crumb("Providers"),), fragments)

    async def test(request: Request, visit: Visit, form: Form) -> Done:
        name = path_value(request, "name")
        return Done(_HERE, said(await send_one_token(parts, name, form.get("model").strip())))

    return [*pages.page(_HERE, show), pages.form(_HERE + "/{name}/test", test, Role.ADMIN, show)]


def said(tested: Tested) -> str:
    """How a test call went, in a sentence."""
    where = f"{tested.provider}/{tested.model}"
    kept = f"It is step {tested.step} of session {tested.session}."
    if tested.error:
        return f"{where} did not answer ({tested.status}): {tested.error[:300]} {kept}"
    cost = "its price is not known" if tested.cost is None else f"it cost {dollars(tested.cost)}"
    return f"{where} answered in {duration(tested.took_s)}, {tested.tokens} tokens; {cost}. {kept}"
