"""Owns the dashboard's routes of the session verbs: each a page that opens as a dialog, and the form that does it. Must
not hold rules: each parses, calls one verb of the engine, and goes where what it did is seen.

Invariant: looking does nothing; what a dialog refuses stays in it, with what was typed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.dashboard import dialogs
from agentstate.dashboard.frame import ROOT, Crumb, session_path
from agentstate.engine.rating import rate
from agentstate.engine.retention import Retention
from agentstate.engine.sessions import Sessions
from agentstate.engine.steering import Steering
from agentstate.engine.trial import Trials
from agentstate.errors import AgentStateError, BadRequest
from agentstate.server.dashboard_pages import Act, Done, Form, Pages, Show, Shown, path_value
from agentstate.server.logins import Visit
from agentstate.store.reader import Reader

_AT = ROOT + "/sessions/{id}/"
_MOST_NUMBER = 2**53 - 1


def routes(pages: Pages) -> list[Route]:
    """Before those of single sessions, whose pages lie above."""
    made = DialogPages(pages)
    found: list[Route] = []
    verbs: tuple[tuple[str, Show, Act], ...] = (
        ("rollback", made.rollback, made.roll_back),
        ("fork", made.fork, made.do_fork),
        ("edit", made.edit, made.do_edit),
        ("pause", made.pause, made.do_pause),
        ("resume", made.resume, made.do_resume),
        ("delete", made.delete, made.do_delete),
        ("rate", made.rate, made.do_rate),
        ("try", made.trying, made.do_try),
    )
    for name, show, act in verbs:
        least = Role.APPROVER if name == "rate" else Role.ADMIN
        found += [*pages.page(_AT + name, show, least), pages.form(_AT + name, act, least, again=show)]
    return found


class DialogPages:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._parts = pages.parts

    # --- rollback and fork ---

    async def rollback(self, request: Request, visit: Visit) -> Shown:
        return await self._point("rollback", request)

    async def fork(self, request: Request, visit: Visit) -> Shown:
        return await self._point("fork", request)

    async def _point(self, verb: str, request: Request) -> Shown:
        key, step = path_value(request, "id"), _number(request, "step")
        branch, start = _number(request, "branch"), _number(request, "from")
        name = request.query_params.get("name", "")

        def work(reader: Reader) -> dialogs.Point:
            return dialogs.point(self._parts, reader, verb, key, step, branch, start, name)

        return _shown(key, await self._pages.reading(work), {"rollback": "Roll back", "fork": "Fork"}[verb])

    async def roll_back(self, request: Request, visit: Visit, form: Form) -> Done:
        key, step, branch = path_value(request, "id"), _given(form, "step"), _given(form, "branch")
        done = await Steering(self._parts).roll_back(key, step, visit.person, branch=branch)
        said = f"Rolled back: session {key} goes on from step {step if step is not None else done.session.steps}."
        return Done(session_path(key), said)

    async def do_fork(self, request: Request, visit: Visit, form: Form) -> Done:
        key, step, branch = path_value(request, "id"), _given(form, "step"), _given(form, "branch")
        if step is None:
            raise BadRequest("choose the step at which to fork")
        first = bool(form.get("edit_first"))
        name = form.get("name").strip() or None
        made = await Steering(self._parts).fork(
            key, step + 1 if first else step, visit.person, name=name, branch=branch
        )
        said = f"Forked: give your agent the session id {made.session.key}."
        to = session_path(made.session.key, "edit") + f"?step={step}" if first else session_path(made.session.key)
        return Done(to, said)

    # --- edit ---

    async def edit(self, request: Request, visit: Visit) -> Shown:
        return await self._edit(request, dict(request.query_params))

    async def _edit(self, request: Request, given: dict[str, str], error: AgentStateError | None = None) -> Shown:
        key, step, start = path_value(request, "id"), _number(request, "step"), _number(request, "from")

        def work(reader: Reader) -> dialogs.EditPoint:
            fault = error.message if error is not None else ""
            return dialogs.edit_point(self._parts, reader, key, step, given, start, fault)

        status = error.status if error is not None else 200
        return _shown(key, await self._pages.reading(work), "Edit a response", status)

    async def do_edit(self, request: Request, visit: Visit, form: Form) -> Done | Shown:
        given = {name: form.get(name) for name in form.fields}
        if form.get("do") != "edit":
            return await self._edit(request, given)
        key, step = path_value(request, "id"), _given(form, "step")
        if step is None:
            raise BadRequest("choose the step whose response is edited")
        try:
            text, arguments = dialogs.edits_of(given)
            await Steering(self._parts).edit(
                key, step, visit.person, text=text, arguments=arguments, reason=form.get("reason").strip()
            )
        except AgentStateError as error:
            return await self._edit(request, given, error)
        return Done(session_path(key) + f"?step={step}", f"Step {step} has the answer that you wrote.")

    # --- one thing ---

    async def pause(self, request: Request, visit: Visit) -> Shown:
        return await self._asked(request, dialogs.ask_pause, "Pause")

    async def do_pause(self, request: Request, visit: Visit, form: Form) -> Done:
        key = path_value(request, "id")
        await Sessions(self._parts).pause(key, visit.person, form.get("note"))
        return Done(session_path(key), "Paused.")

    async def resume(self, request: Request, visit: Visit) -> Shown:
        return await self._asked(request, dialogs.ask_resume, "Resume")

    async def do_resume(self, request: Request, visit: Visit, form: Form) -> Done:
        key = path_value(request, "id")
        await Sessions(self._parts).resume(key, visit.person)
        return Done(session_path(key), "Resumed.")

    async def delete(self, request: Request, visit: Visit) -> Shown:
        return await self._asked(request, dialogs.ask_delete, "Delete")

    async def do_delete(self, request: Request, visit: Visit, form: Form) -> Done:
        key = path_value(request, "id")
        await self._retention.delete(key, visit.person)
        return Done(ROOT, f"Session {key} is deleted.")

    async def _asked(self, request: Request, ask: Callable[[Reader, str], Any], title: str) -> Shown:
        key = path_value(request, "id")
        return _shown(key, await self._pages.reading(lambda reader: ask(reader, key)), title)

    @property
    def _retention(self) -> Retention:
        return self._parts.retention

    async def rate(self, request: Request, visit: Visit) -> Shown:
        key, step = path_value(request, "id"), _number(request, "step")
        return _shown(key, await self._pages.reading(lambda reader: dialogs.ask_rating(reader, key, step)), "Rate")

    async def do_rate(self, request: Request, visit: Visit, form: Form) -> Done:
        key, step = path_value(request, "id"), _given(form, "step")
        said = await rate(self._parts, key, step, form.get("rating"), form.get("note").strip(), visit.person)
        about = "The session" if step is None else f"Step {step}"
        to = session_path(key) + ("" if step is None else f"?step={step}")
        return Done(to, f"{about} is rated {said.verdict}." if said is not None else f"{about} has no rating.")

    async def trying(self, request: Request, visit: Visit) -> Shown:
        key, step, start = path_value(request, "id"), _number(request, "step"), _number(request, "from")
        kept, number = request.query_params.get("with", ""), _number(request, "number") or 0

        def work(reader: Reader) -> dialogs.Trying:
            return dialogs.trying(self._parts, reader, key, step, start, kept, number)

        return _shown(key, await self._pages.reading(work), "Try another model")

    async def do_try(self, request: Request, visit: Visit, form: Form) -> Done:
        key, step = path_value(request, "id"), _given(form, "step")
        if step is None:
            raise BadRequest("choose the step to try")
        model, secret = form.get("model"), form.get("provider_key").strip()
        made = await Trials(self._parts).try_step(key, step, model, visit.person, secret)
        said = urlencode({"step": step, "with": made.session, "number": made.number})
        return Done(session_path(key, "try") + "?" + said)


def _shown(key: str, page: Any, title: str, status: int = 200) -> Shown:
    crumbs = (Crumb("Sessions", ROOT), Crumb(key, session_path(key)), Crumb(title))
    return Shown("dialog_page.html", page, f"{title} · {key}", "Sessions", crumbs, {"dialog": page.template},
                 status)  # fmt: skip


def _number(request: Request, name: str) -> int | None:
    """A whole number of the query; ``None``: it is not there. Raises ``BadRequest``."""
    return _whole(request.query_params.get(name, ""), name)


def _given(form: Form, name: str) -> int | None:
    """The same of a form."""
    return _whole(form.get(name), name)


def _whole(text: str, name: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) > _MOST_NUMBER:
        raise BadRequest(f"{name} must be a whole number")
    return int(text)
