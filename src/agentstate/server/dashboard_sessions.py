"""Owns the routes of the page of all sessions, and of what is done to several of them. Must not hold rules.

Invariant: what is done to several sessions is done to each by the verb that does it to one; who is told how many were
done is told which were not, and why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.sessions import Bulk, session_row, sessions_page
from agentstate.engine.sessions import Sessions
from agentstate.errors import AgentStateError, BadRequest
from agentstate.server.dashboard_pages import Done, Form, Pages, Shown, inside
from agentstate.server.logins import Visit

_MOST = 500
_DONE = {"pause": "paused", "resume": "resumed", "delete": "deleted"}


def routes(pages: Pages) -> list[Route]:
    """``/dashboard`` and ``/dashboard/bulk``."""
    sessions = Sessions(pages.parts)

    async def show(request: Request, visit: Visit) -> Shown:
        given = dict(request.query_params)
        if given.get("fragment") == "row":
            row = await pages.reading(lambda reader: session_row(reader, pages.overview, given.get("id", "")))
            return Shown("sessions.html", row, "", fragments={"row": "sessions_row.html"})
        page = await pages.reading(lambda reader: sessions_page(reader, pages.overview, given))
        return Shown("sessions.html", page, "Sessions", "Sessions", (Crumb("Sessions"),))

    async def several(request: Request, visit: Visit, form: Form) -> Done | Shown:
        verb, keys, back = form.get("verb"), list(dict.fromkeys(form.all("id"))), inside(form.get("back"))
        if not 1 <= len(keys) <= _MOST:
            raise BadRequest(f"tick 1 to {_MOST} sessions first; {len(keys)} are ticked")
        if verb == "compare":
            if len(keys) != 2:
                raise BadRequest(f"tick exactly two sessions to compare; {len(keys)} are ticked")
            return Done(f"{ROOT}/compare?" + urlencode({"a": keys[1], "b": keys[0]}))
        if verb == "export":
            return Done(f"{ROOT}/datasets?" + urlencode([("session", key) for key in keys]))
        if verb == "delete" and form.get("sure") != "yes":
            return Shown("bulk.html", Bulk(tuple(keys), back), "Delete sessions", "Sessions",
                         (Crumb("Sessions", ROOT), Crumb("Delete")))  # fmt: skip
        acts: dict[str, Callable[[str], Awaitable[object]]] = {
            "pause": lambda key: sessions.pause(key, visit.person, form.get("reason")),
            "resume": lambda key: sessions.resume(key, visit.person),
            "delete": lambda key: pages.parts.retention.delete(key, visit.person),
        }
        if verb not in acts:
            raise BadRequest(f"verb is {verb[:40]!r}; use {', '.join([*acts, 'export', 'compare'])}")
        return Done(back, await _each(keys, acts[verb], _DONE[verb]))

    return [*pages.page(ROOT, show), pages.form(ROOT + "/bulk", several, Role.ADMIN, again=show)]


async def _each(keys: list[str], act: Callable[[str], Awaitable[object]], done: str) -> str:
    """Do it to each. What is said of it; raises ``BadRequest`` where it was done to none."""
    faults = []
    for key in keys:
        try:
            await act(key)
        except AgentStateError as error:
            faults.append(error.message)
    if len(faults) == len(keys):
        raise BadRequest(" · ".join(faults[:5]))
    went = len(keys) - len(faults)
    said = f"{went} {'session was' if went == 1 else 'sessions were'} {done}"
    return said + (f"; not {len(faults)}: {' · '.join(faults[:5])}" if faults else "")
