"""Owns what the dashboard's pages share on their way out: who looks, the frame, forms, refusals, headers. Must not know
a page.

Invariant: nothing is shown to who is not logged in, nothing is done without the form token of the one who does it and a
role that reaches, and no page loads or sends anything that is not ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from agentstate import __version__
from agentstate.core.approval import Role, reaches
from agentstate.dashboard.frame import DENSITIES, ROOT, THEMES, Crumb, Frame, Look, Strips
from agentstate.dashboard.rendering import assets_path, render
from agentstate.engine.core import Parts
from agentstate.engine.overview import Overview
from agentstate.errors import AgentStateError, BadRequest, Forbidden, NotFound, Unauthorized
from agentstate.server.auth import same
from agentstate.server.logins import LOGIN, Logins, Visit, set_cookie
from agentstate.server.routing import Guard, error_answer, json_answer, raw_body
from agentstate.store.reader import Reader

T = TypeVar("T")
log = logging.getLogger("agentstate")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cache-control": "no-store",
    # Browsers say where a form of ours comes from only with a referrer; other sites learn nothing.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LOOK_COOKIE, SAID_COOKIE = "agentstate_look", "agentstate_said"
_SAID_S = 60
LOOK_S = 400 * 86400
_MOST_FIELDS = 2000


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows. ``page``: its context, also its JSON; ``active``: the rail's entry; ``fragments``: templates
    of parts that can be fetched by themselves, by the name that ``?fragment=`` gives."""

    template: str
    page: Any
    title: str
    active: str = ""
    crumbs: tuple[Crumb, ...] = ()
    fragments: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Done:
    """Something was done. ``to``: the page to go to; ``said``: what it says there, once; ``cookies``: ``Set-Cookie``
    headers that go with it."""

    to: str
    said: str = ""
    cookies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a posted form, each with all its values."""

    fields: Mapping[str, list[str]]

    def get(self, name: str, default: str = "") -> str:
        """The last value of a field."""
        return (self.fields.get(name) or [default])[-1]

    def all(self, name: str) -> list[str]:
        return list(self.fields.get(name, ()))


Show = Callable[[Request, Visit], Awaitable[Shown]]
Act = Callable[[Request, Visit, Form], Awaitable[Done | Shown]]


def path_value(request: Request, name: str) -> str:
    """A part of the address as it was before it was encoded: an id may hold any character, slashes too. Raises
    ``NotFound`` for what is no text."""
    try:
        return unquote(request.path_params[name], errors="strict")
    except UnicodeDecodeError:
        raise NotFound("there is no such page: a name in its address is not UTF-8") from None


class Pages:
    """Makes routes of pages and forms."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        assert guard.logins is not None
        self.parts = parts
        self.guard = guard
        self.logins: Logins = guard.logins
        self.overview = Overview(parts)
        self._strips = Strips(parts, self.overview)

    async def reading(self, work: Callable[[Reader], T]) -> T:
        """A long read, in a thread with a connection of its own."""
        return await self.guard.reading(work)

    def page(self, path: str, show: Show, least: Role = Role.VIEWER) -> list[Route]:
        """The page at ``path``, and its context as JSON at ``path.json``."""

        async def html(request: Request) -> Response:
            visit: Visit | None = None
            request.state.after = self.parts.events.last  # what happens from here on, the page may not show
            try:
                visit = await self.who(request, least)
                return await self._shown(request, visit, await show(request, visit))
            except AgentStateError as error:
                return await self.refused(request, visit, error)

        async def as_json(request: Request) -> Response:
            try:
                found = await show(request, await self.who(request, least))
                return json_answer(found.page, found.status, {**HEADERS})
            except AgentStateError as error:
                return error_answer(error)

        return [Route(path + ".json", as_json, methods=["GET"]), Route(path, html, methods=["GET"])]

    def form(self, path: str, act: Act, least: Role = Role.ADMIN, again: Show | None = None) -> Route:
        """What a form posts to ``path``. ``again``: the page that asked; it is shown with the reason when the act is
        refused, and what was typed is in ``frame.given``."""

        async def posted(request: Request) -> Response:
            visit: Visit | None = None
            given = Form({})
            try:
                visit = await self.who(request, Role.VIEWER)
                given = await form_of(request)
                self._check(request, visit, given)
                if not reaches(visit.person.role, least):
                    raise Forbidden(f"{visit.person.name} is a {visit.person.role}; this asks for the role {least}")
                done = await act(request, visit, given)
            except AgentStateError as error:
                if again is None or visit is None or isinstance(error, Unauthorized):
                    return await self.refused(request, visit, error)
                try:
                    return await self._shown(request, visit, await again(request, visit), error, given)
                except AgentStateError as other:
                    return await self.refused(request, visit, other)
            if isinstance(done, Shown):
                return await self._shown(request, visit, done, given=given)
            return self.gone_to(request, done)

        return Route(path, posted, methods=["POST"])

    async def who(self, request: Request, least: Role) -> Visit:
        """Who looks: by cookie, or by a token as the API takes it. Raises ``Unauthorized``, ``Forbidden``."""
        given = request.headers.get("authorization", "")
        if given:
            visit = Visit(await self.guard.caller(request, given), "")
        else:
            known = self.logins.visit(self.parts.journal.read, request.headers.get("cookie", ""))
            if known is None:
                raise Unauthorized("log in first: `agentstate dashboard` prints a link, or paste a token")
            visit = known
        if not reaches(visit.person.role, least):
            raise Forbidden(f"{visit.person.name} is a {visit.person.role}; this asks for the role {least}")
        return visit

    def _check(self, request: Request, visit: Visit, given: Form) -> None:
        """Whether a form is ours. What came with a token of its own was sent by no browser."""
        if visit.csrf and not same(given.get("csrf"), visit.csrf):
            raise Forbidden("this form is not of this login; go back, load the page again, and send it again")

    async def _shown(
        self,
        request: Request,
        visit: Visit,
        shown: Shown,
        error: AgentStateError | None = None,
        given: Form | None = None,
    ) -> Response:
        strip = await self.reading(self._strips.now)
        said = self.logins.signed(request.cookies.get(SAID_COOKIE, ""), _SAID_S)
        fields = {} if given is None else {name: values[-1] for name, values in given.fields.items() if values}
        frame = Frame(
            shown.title, shown.active, shown.crumbs, visit.person, visit.csrf, _path(request), strip, look_of(request),
            __version__, assets_path(), f"{request.url.scheme}://{request.url.netloc}", said,
            error.message if error is not None else "",
            getattr(request.state, "after", self.parts.events.last), fields,
        )  # fmt: skip
        fragment = request.query_params.get("fragment", "")
        template = shown.fragments.get(fragment, "") if fragment else shown.template
        if not template:
            raise BadRequest(f"this page has no part {fragment[:40]!r}; it has {', '.join(shown.fragments) or 'none'}")
        html = await asyncio.to_thread(render, template, page=shown.page, frame=frame)
        answer = HTMLResponse(html, error.status if error is not None else shown.status, HEADERS)
        # What scripts fetch on their way to a page is not yet the page that somebody sees.
        if said and not fragment and request.headers.get("sec-fetch-dest") != "empty":
            answer.headers.append("set-cookie", self.cookie(request, SAID_COOKIE, "", ROOT, 0))
        return answer

    async def refused(self, request: Request, visit: Visit | None, error: AgentStateError) -> Response:
        """A refusal in words. Who is not logged in is led to where they can."""
        if isinstance(error, Unauthorized) and not request.query_params.get("fragment"):
            to = {"next": _path(request)} if request.method == "GET" and _path(request) != ROOT else {}
            return Response(
                status_code=303, headers={**HEADERS, "location": LOGIN + ("?" + urlencode(to) if to else "")}
            )
        if visit is None or isinstance(error, Unauthorized):
            return HTMLResponse(
                await asyncio.to_thread(
                    render, "outside.html", title="Not here", error=error.message, look=look_of(request),
                    assets=assets_path(), action="", next="", to="", done="",
                ),
                error.status, HEADERS,
            )  # fmt: skip
        said = {"status": error.status, "code": error.code, "message": error.message}
        parts = {request.query_params.get("fragment", ""): "error_part.html"}
        shown = Shown("error.html", said, "Not done", fragments=parts, status=error.status)
        return await self._shown(request, visit, shown)

    def gone_to(self, request: Request, done: Done) -> Response:
        """To the page where what was done is seen."""
        answer = Response(status_code=303, headers={**HEADERS, "location": inside(done.to)})
        for made in done.cookies:
            answer.headers.append("set-cookie", made)
        if done.said:
            value = self.logins.sign(done.said)
            answer.headers.append("set-cookie", self.cookie(request, SAID_COOKIE, value, ROOT, _SAID_S))
        return answer

    def cookie(self, request: Request, name: str, value: str, path: str, lasts_s: float) -> str:
        """A ``Set-Cookie`` of ours; for HTTPS alone where that is how people reach us."""
        public = urlsplit(self.parts.settings.approvals.public_url)
        secure = public.scheme == "https" and request.headers.get("host", "").lower() == public.netloc.lower()
        return set_cookie(name, value, path, lasts_s, secure)


async def form_of(request: Request) -> Form:
    """Raises ``BadRequest``."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise BadRequest("use the form of the page")
    try:
        text = (await raw_body(request)).decode("ascii")
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise BadRequest("the form cannot be read") from error


def inside(path: str) -> str:
    """A path within the dashboard, or its first page: no address that was given leads anywhere else."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and (path == ROOT or path.startswith((ROOT + "/", ROOT + "?"))) else ROOT


def look_of(request: Request) -> Look:
    """How who looks likes it, as their cookie says."""
    said = parse_qs(unquote(request.cookies.get(LOOK_COOKIE, "")))
    given = {name: values[-1] for name, values in said.items()}
    theme, density = given.get("theme", ""), given.get("density", "")
    return Look(
        theme if theme in THEMES else THEMES[0],
        density if density in DENSITIES else DENSITIES[0],
        given.get("letters") != "off",
        given.get("pinned") != "off",
    )


def look_value(look: Look) -> str:
    """The cookie for it."""
    said = {"theme": look.theme, "density": look.density, "letters": "on" if look.letters else "off"}
    return quote(urlencode(said | {"pinned": "on" if look.pinned else "off"}), safe="")


def _path(request: Request) -> str:
    """Of this page, with its query but for what names a part of it."""
    url = request.url.remove_query_params(["fragment"])
    path: str = request.scope["path"]
    return path + (f"?{url.query}" if url.query else "")
