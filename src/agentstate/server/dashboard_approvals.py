"""Owns the dashboard's routes of approvals: the inbox, one card, its edit page, several at once. Must not hold rules.

Invariant: looking decides nothing; a decision is made by who is logged in, about what their page showed, and a form
that does not say what that was decides nothing.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route

from agentstate.core.approval import Decision, Role
from agentstate.core.budget import RAISE
from agentstate.core.model import ApprovalKind, ApprovalState
from agentstate.dashboard import approval_edit, approval_words
from agentstate.dashboard.approval_bulk import Bulk, bulk
from agentstate.dashboard.approvals import DECIDED, card, decided, inbox
from agentstate.dashboard.frame import ROOT, Crumb
from agentstate.engine.approvals import Approvals
from agentstate.errors import AgentStateError, BadRequest, Unprocessable
from agentstate.server.approve_page import result_of
from agentstate.server.dashboard_pages import Done, Form, Pages, Shown, path_value
from agentstate.server.logins import Visit
from agentstate.store.reader import Reader

PATH = ROOT + "/approvals"
_ACTIVE = "Approvals"
_PARTS = {"inbox": "approvals_inbox.html", "card": "approval_card.html"}
_MOST_AT_ONCE = 50


def routes(pages: Pages) -> list[Route]:
    made = ApprovalPages(pages)
    return [
        *pages.page(PATH, made.inbox),
        *pages.page(PATH + "/decided", made.decided),
        *pages.page(PATH + "/bulk", made.bulk, Role.APPROVER),
        pages.form(PATH + "/bulk", made.decide_all, Role.APPROVER),
        *pages.page(PATH + "/{id}/edit", made.edit, Role.APPROVER),
        pages.form(PATH + "/{id}/edit", made.edited, Role.APPROVER),
        *pages.page(PATH + "/{id}", made.inbox),
        pages.form(PATH + "/{id}", made.decide, Role.APPROVER, again=made.inbox),
    ]


def path_of(key: str, *more: str) -> str:
    return "/".join((PATH, key, *more))


class ApprovalPages:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._parts = pages.parts
        self._approvals = Approvals(pages.parts)

    async def inbox(self, request: Request, visit: Visit) -> Shown:
        """The inbox with one card: of the address, or of the oldest approval that waits."""
        key = path_value(request, "id") if "id" in request.path_params else ""
        if key:
            self._approvals.find(key)
        session = request.query_params.get("session", "")
        page = await self._pages.reading(lambda reader: inbox(self._parts, reader, visit.person, session, key))
        crumbs = (Crumb("Approvals", PATH), Crumb(key)) if key else (Crumb("Approvals"),)
        return Shown("approvals.html", page, "Approvals", _ACTIVE, crumbs, _PARTS)

    async def decided(self, request: Request, visit: Visit) -> Shown:
        given = request.query_params
        state = given.get("state", "")
        if state and state not in DECIDED:
            raise BadRequest(f"state is {state[:40]!r}; use {', '.join(DECIDED)}")
        session, after = given.get("session", ""), given.get("after", "")
        page = await self._pages.reading(lambda reader: decided(reader, state, session, after))
        crumbs = (Crumb("Approvals", PATH), Crumb("Decided"))
        return Shown("approvals_decided.html", page, "Decided approvals", _ACTIVE, crumbs)

    async def decide(self, request: Request, visit: Visit, form: Form) -> Done:
        row = self._approvals.find(path_value(request, "id"))
        action, reason = form.get("action"), form.get("reason").strip()
        if action == Decision.REJECTED and not reason:
            raise BadRequest("say why it is rejected: the agent or the model is told")
        arguments = None
        if action == Decision.EDITED and row.kind is ApprovalKind.BUDGET:
            arguments = {RAISE: _number(form.get("raise"))}
        elif action == Decision.EDITED:
            raise BadRequest("an edit is made on its own page")
        elif action == Decision.REUSED and row.kind is ApprovalKind.DOUBT:
            arguments = result_of(form.get("result"))
        shown = form.get("digest") or "missing"
        row = await self._approvals.decide(row.id, action, visit.person, arguments, reason, shown)
        return Done(path_of(row.id), _said(row.state, approval_words.title(row), row.quorum))

    # --- editing ---

    async def edit(self, request: Request, visit: Visit) -> Shown:
        return await self._edit_page(request, visit, dict(request.query_params), False)

    async def edited(self, request: Request, visit: Visit, form: Form) -> Done | Shown:
        """Check what was typed, or decide it."""
        given = {name: form.get(name) for name in form.fields}
        if form.get("do") != "approve":
            return await self._edit_page(request, visit, given, True)
        row = self._approvals.find(path_value(request, "id"))
        try:
            arguments = approval_edit.arguments(row, approval_edit.typed(given))
            shown = form.get("digest") or "missing"
            row = await self._approvals.decide(
                row.id, Decision.EDITED, visit.person, arguments, form.get("reason").strip(), shown
            )
        except AgentStateError as error:
            return await self._edit_page(request, visit, given, True, error)
        return Done(path_of(row.id), _said(row.state, approval_words.title(row), row.quorum))

    async def _edit_page(
        self, request: Request, visit: Visit, given: dict[str, str], checked: bool,
        error: AgentStateError | None = None,
    ) -> Shown:  # fmt: skip
        row = self._approvals.find(path_value(request, "id"))
        shown = await self._pages.reading(lambda reader: card(self._parts, reader, row, visit.person))
        page = await approval_edit.edit(
            self._approvals, row, shown, visit.person, approval_edit.typed(given), checked, given.get("reason", "")
        )
        if error is not None and page.valid:
            page = approval_edit.refused(page, error.message)
        crumbs = (Crumb("Approvals", PATH), Crumb(row.id, path_of(row.id)), Crumb("Edit"))
        status = error.status if error is not None else 200
        return Shown("approval_edit.html", page, f"Edit {shown.row.title}", _ACTIVE, crumbs,
                     {"check": "approval_check.html"}, status)  # fmt: skip

    # --- several at once ---

    async def bulk(self, request: Request, visit: Visit) -> Shown:
        keys = request.query_params.getlist("id")
        if not keys:
            raise BadRequest("select approvals in the inbox first")
        return await self._bulk_page(visit, keys)

    async def _bulk_page(self, visit: Visit, keys: list[str], failed: dict[str, str] | None = None) -> Shown:
        if len(keys) > _MOST_AT_ONCE:
            raise BadRequest(f"{len(keys)} are selected; decide {_MOST_AT_ONCE} at once at most")
        rows = [self._approvals.find(key) for key in dict.fromkeys(keys)]

        def work(reader: Reader) -> Bulk:
            return bulk([card(self._parts, reader, row, visit.person) for row in rows], failed or {})

        page = await self._pages.reading(work)
        crumbs = (Crumb("Approvals", PATH), Crumb("Several"))
        status = 409 if failed else 200
        return Shown("approvals_bulk.html", page, "Decide several", _ACTIVE, crumbs, status=status)

    async def decide_all(self, request: Request, visit: Visit, form: Form) -> Done | Shown:
        """The same decision about each, one by one: those that cannot be decided so are told, the others stand."""
        action, reason = form.get("action"), form.get("reason").strip()
        if action not in (Decision.APPROVED, Decision.REJECTED):
            raise BadRequest("several at once are approved or rejected")
        if action == Decision.REJECTED and not reason:
            raise BadRequest("say why they are rejected: the agents or the models are told")
        keys = form.all("id")
        if not keys or len(keys) > _MOST_AT_ONCE:
            raise BadRequest(f"select 1 to {_MOST_AT_ONCE} approvals")
        failed: dict[str, str] = {}
        for key in keys:
            try:
                shown = form.get(f"digest-{key}") or "missing"
                await self._approvals.decide(key, action, visit.person, None, reason, shown)
            except AgentStateError as error:
                failed[key] = error.message
        done = len(keys) - len(failed)
        if failed:
            return await self._bulk_page(visit, keys, failed)
        return Done(PATH, f"{'Approved' if action == Decision.APPROVED else 'Rejected'} {done}.")


def _said(state: ApprovalState, what: str, quorum: int) -> str:
    if state is ApprovalState.PENDING:
        return f"Counted. {what} waits for others: {quorum} people must say the same."
    return f"{what}: {state.value}."


def _number(text: str) -> float | None:
    """Raises ``Unprocessable``."""
    try:
        return float(text)
    except ValueError:
        raise Unprocessable("enter by how much the limit is raised, a number above 0") from None
