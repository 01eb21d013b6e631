"""Owns the routes of the pages under Settings. Must not hold rules: each form calls one verb of the engine.

Invariant: people and their tokens are for admins alone; a token is in one answer, the one to the form that made it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.dashboard import settings_page
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.dashboard.settings_page import PersonDialog, TrialFigures
from agentstate.engine.approvers import Approvers
from agentstate.engine.policies import Policies, check_tried
from agentstate.engine.rehearsal import LAST, judged, last_proposals
from agentstate.errors import BadRequest, NotFound, SettingsError
from agentstate.server.dashboard_pages import HEADERS, Done, Form, Pages, Shown, path_value
from agentstate.server.logins import Visit
from agentstate.settings import policies_of
from agentstate.store.reader import Reader

HERE = ROOT + "/settings"
PEOPLE = HERE + "/people"


def routes(pages: Pages) -> list[Route]:
    """``/dashboard/settings`` and what is below it."""
    made = _Settings(pages)
    person = PEOPLE + "/{name}"
    return [
        Route(HERE, _first, methods=["GET"]),
        *pages.page(HERE + "/policies", made.policies),
        pages.form(HERE + "/policies/try", made.try_policies, Role.VIEWER, made.policies),
        *pages.page(HERE + "/notifiers", made.notifiers),
        pages.form(HERE + "/notifiers/test", made.test_notifier, Role.ADMIN, made.notifiers),
        pages.form(HERE + "/notifiers/retry", made.retry_message, Role.ADMIN, made.notifiers),
        *pages.page(PEOPLE, made.people, Role.ADMIN),
        pages.form(PEOPLE, made.add_person, Role.ADMIN, made.people),
        *pages.page(person + "/rotate", made.dialog("rotate"), Role.ADMIN),
        pages.form(person + "/rotate", made.rotate, Role.ADMIN, made.dialog("rotate")),
        *pages.page(person + "/disable", made.dialog("disable"), Role.ADMIN),
        pages.form(person + "/disable", made.disable, Role.ADMIN, made.dialog("disable")),
        *pages.page(HERE + "/audit", made.audit),
        *pages.page(HERE + "/look", made.look),
        *pages.page(HERE + "/about", made.about),
    ]


async def _first(request: Request) -> Response:
    return RedirectResponse(HERE + "/policies", 303, HEADERS)


class _Settings:
    def __init__(self, pages: Pages) -> None:
        self._pages, self._parts = pages, pages.parts
        self._approvers = Approvers(pages.parts)

    async def _read(self, template: str, name: str, work: Callable[[Reader], Any]) -> Shown:
        return _shown(template, name, await self._pages.reading(work))

    # --- policies ---

    async def policies(self, request: Request, visit: Visit) -> Shown:
        return _shown("settings_policies.html", "Policies", settings_page.policies_page(self._given, LAST))

    @property
    def _given(self) -> Any:
        return self._parts.settings.policies

    async def try_policies(self, request: Request, visit: Visit, form: Form) -> Shown:
        text = form.get("policies").replace("\r\n", "\n")
        try:
            asked = policies_of(text)
            check_tried(asked, self._given, visit.person)
            tried = Policies(asked)
        except SettingsError as error:
            raise BadRequest(error.message) from error

        def work(reader: Reader) -> Any:
            calls = last_proposals(reader, LAST)
            found = settings_page.tried_of(judged(calls, tried), judged(calls, self._parts.gate.policies, 0))
            return settings_page.policies_page(self._given, LAST, text, found)

        return await self._read("settings_policies.html", "Policies", work)

    # --- notifiers ---

    async def notifiers(self, request: Request, visit: Visit) -> Shown:
        return await self._read(
            "settings_notifiers.html", "Notifiers", lambda reader: settings_page.notifiers_page(self._parts, reader)
        )

    async def test_notifier(self, request: Request, visit: Visit, form: Form) -> Shown:
        name = form.get("name")
        if not name:
            raise BadRequest("say which target is to be tried")
        trials = tuple(
            TrialFigures(target.name, sent.status, sent.error) for target, sent in await self._parts.delivery.test(name)
        )
        return await self._read(
            "settings_notifiers.html", "Notifiers",
            lambda reader: settings_page.notifiers_page(self._parts, reader, trials),
        )  # fmt: skip

    async def retry_message(self, request: Request, visit: Visit, form: Form) -> Done:
        number = form.get("id")
        if not number.isascii() or not number.isdigit() or len(number) > 15:
            raise BadRequest("say which message is to be sent again, by its number")
        await self._parts.delivery.retry(int(number))
        return Done(HERE + "/notifiers", f"Message {number} is on its way again.")

    # --- people ---

    async def people(self, request: Request, visit: Visit) -> Shown:
        return await self._read("settings_people.html", "People", settings_page.people_page)

    async def add_person(self, request: Request, visit: Visit, form: Form) -> Shown:
        name, role, slack, discord = (form.get(field).strip() for field in ("name", "role", "slack", "discord"))
        row, token = await self._approvers.add(name, role, slack, discord, visit.person)
        return await self._told(row.name, token)

    async def rotate(self, request: Request, visit: Visit, form: Form) -> Shown:
        row, token = await self._approvers.rotate(path_value(request, "name"), visit.person)
        return await self._told(row.name, token)

    async def _told(self, name: str, token: str) -> Shown:
        return await self._read(
            "settings_people.html", "People", lambda reader: settings_page.people_page(reader, name, token)
        )

    async def disable(self, request: Request, visit: Visit, form: Form) -> Done:
        row = await self._approvers.disable(path_value(request, "name"), visit.person)
        return Done(PEOPLE, f"{row.name} is disabled.")

    def dialog(self, verb: str) -> Callable[[Request, Visit], Any]:
        async def show(request: Request, visit: Visit) -> Shown:
            name = path_value(request, "name")
            row = await self._pages.reading(lambda reader: reader.approver(name))
            if row is None or row.disabled_at is not None:
                raise NotFound(f"there is no approver {name!r} whose token could be used")
            page = PersonDialog(name, row.role.value, verb, shlex.quote(name))
            crumbs = (Crumb("Settings", HERE), Crumb("People", PEOPLE), Crumb(name))
            return Shown("person.html", page, name, "Settings", crumbs, {"dialog": "person_dialog.html"})

        return show

    # --- the rest ---

    async def audit(self, request: Request, visit: Visit) -> Shown:
        given = request.query_params.get("before", "0")
        if not given.isascii() or not given.isdigit() or len(given) > 15:
            raise BadRequest("before must be the number of an entry")
        check = request.query_params.get("check") == "1"
        return await self._read(
            "settings_audit.html", "Audit log", lambda reader: settings_page.audit_page(reader, int(given), check)
        )

    async def look(self, request: Request, visit: Visit) -> Shown:
        return _shown("settings_look.html", "Look", {})

    async def about(self, request: Request, visit: Visit) -> Shown:
        return await self._read(
            "settings_about.html", "About", lambda reader: settings_page.about_page(self._parts, reader)
        )


def _shown(template: str, name: str, page: Any) -> Shown:
    return Shown(template, page, f"{name}, settings", "Settings", (Crumb("Settings", HERE), Crumb(name)))
