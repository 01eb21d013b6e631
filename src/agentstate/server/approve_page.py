"""Owns the page behind a link in a message: one approval, and a form to decide it. Must not decide, nor load anything.

Invariant: looking decides nothing, whoever looks (chats fetch the links that they show); everything of an agent or a
model on it is escaped, whole, and has no character that cannot be seen.
"""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from agentstate.core.approval import LINK, Decision, Person, Role, fits, may_decide
from agentstate.core.budget import RAISE
from agentstate.core.model import ApprovalKind, ApprovalState
from agentstate.core.policy import arguments_of
from agentstate.core.visible import laid_out, visible
from agentstate.engine.approvals import MOST_REASON, Approvals
from agentstate.engine.core import Parts
from agentstate.engine.links import Links
from agentstate.errors import AgentStateError, BadRequest, Unprocessable
from agentstate.server.routing import raw_body
from agentstate.server.views import moment
from agentstate.store.rows import ApprovalRow

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1rem;max-width:46rem;color:#1a1a1a;background:#fff}"
    "pre,textarea{font:14px/1.4 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;"
    "padding:.75rem;border:1px solid #ccc;border-radius:6px;unicode-bidi:isolate}"
    "textarea{width:100%;box-sizing:border-box;"
    "min-height:10rem}.short{min-height:3rem}dt{color:#666}dd{margin:0 0 .5rem;overflow-wrap:anywhere}"
    "button{font:inherit;padding:.6rem 1.2rem;margin:0 .5rem .5rem 0;border-radius:6px;border:1px solid #888;"
    "background:#eee}.yes{background:#1a7f37;color:#fff}.no{background:#b3261e;color:#fff}"
    ".said{padding:.75rem;border-radius:6px;background:#fff3cd}"
)
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cache-control": "no-store",
    # The address is a secret: it goes to no other site. Without any referrer browsers would not say, over plain HTTP,
    # that the form is our own.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
}
_EDITABLE = (ApprovalKind.CALL, ApprovalKind.DUPLICATE, ApprovalKind.BUDGET)

_BY = json.dumps({RAISE: 1})


class ApprovePage:
    def __init__(self, parts: Parts, links: Links) -> None:
        self._parts = parts
        self._links = links
        self._approvals = Approvals(parts)
        at = "/approve/{token}"
        self.routes = [Route(at, self._show, methods=["GET"]), Route(at, self._decide, methods=["POST"])]

    def _found(self, request: Request) -> tuple[ApprovalRow, Person]:
        """Raises ``Forbidden``, ``NotFound``."""
        key, target = self._links.read(request.path_params["token"])
        return self._approvals.find(key), Person(LINK + target, Role.APPROVER)

    async def _show(self, request: Request) -> Response:
        try:
            row, person = self._found(request)
        except AgentStateError as error:
            return _page("This link leads nowhere", f"<p>{_text(error.message)}</p>", error.status)
        return self._whole(row, person)

    async def _decide(self, request: Request) -> Response:
        try:
            row, person = self._found(request)
        except AgentStateError as error:
            return _page("This link leads nowhere", f"<p>{_text(error.message)}</p>", error.status)
        given: dict[str, str] = {}
        try:
            given = await _form(request)
            action = given.get("action", "")
            arguments = _parsed(given.get("arguments", "")) if action == Decision.EDITED else None
            if action == Decision.REUSED and row.kind is ApprovalKind.DOUBT:
                arguments = _result(given.get("result", ""))
            await self._approvals.decide(
                row.id, action, person, arguments, given.get("reason", ""), given.get("digest", "") or "missing"
            )
        except AgentStateError as error:
            return self._whole(self._approvals.find(row.id), person, error, given)
        return RedirectResponse(request.url.path, 303, _HEADERS)

    def _whole(
        self,
        row: ApprovalRow,
        person: Person,
        error: AgentStateError | None = None,
        given: dict[str, str] | None = None,
    ) -> Response:
        votes = self._parts.journal.read.votes(row.id)
        body = _said(error.message) if error is not None else ""
        body += _facts(row, [f"{who} {action.lower()}" for who, action, *_ in votes]) + _arguments(row)
        if row.state is not ApprovalState.PENDING:
            body += _said(f"It is {row.state.value}" + (f" by {row.decided_by}." if row.decided_by else "."))
        elif not may_decide(person, row.approvers):
            body += _said(f"This link may not decide it: it asks for {', '.join(row.approvers)}.")
        else:
            body += _forms(row, given or {})
        what = row.tool or ("A budget" if row.kind is ApprovalKind.BUDGET else "A request")
        title = f"{what} waits for a decision" if row.state is ApprovalState.PENDING else what
        return _page(title, body, error.status if error is not None else 200)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form. Raises ``BadRequest``."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise BadRequest("use the form of this page")
    try:
        fields = parse_qs((await raw_body(request)).decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise BadRequest("the form cannot be read") from error
    return {name: values[-1] for name, values in fields.items()}


def _parsed(text: str) -> Any:
    """Raises ``Unprocessable``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unprocessable(f"the edited arguments are not JSON: {error}; the approval is still pending") from None


def _result(text: str) -> Any:
    """What a person says that a call came to: JSON, or the text itself; ``None``: they do not know."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _page(title: str, body: str, status: int = 200) -> Response:
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main><h1>{_text(title)}</h1>{body}</main>"
        "</body></html>",
        status,
        _HEADERS,
    )


def _text(text: str) -> str:
    return escape(visible(text))


def _said(text: str) -> str:
    return f"<p class=said role=status>{_text(text)}</p>"


def _facts(row: ApprovalRow, votes: list[str]) -> str:
    rule = json.loads(row.rule)
    facts = {
        "Session": row.session,
        "Step": str(row.number),
        "Tool": row.tool,
        "Why it is held": str(rule.get("why", "")),
        "Who may decide": ", ".join(row.approvers) or "any approver",
        "People who must agree": str(row.quorum) if row.quorum > 1 else "",
        "Said already": ", ".join(votes),
        "Asked": moment(row.created_at) or "",
        "Expires": moment(row.expires_at) or "",
        "Reason": row.reason,
    }
    rows = [f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in facts.items() if value]
    return f"<dl>{''.join(rows)}</dl>"


def _arguments(row: ApprovalRow) -> str:
    text, note = laid_out(row.arguments)
    whats = {ApprovalKind.REQUEST: "The request, in full", ApprovalKind.BUDGET: "What it is about"}
    what = whats.get(row.kind, "Arguments, in full")
    said = _said(f"They are shown to the letter: {note}.") if note else ""
    shown = f"<h2>{what}</h2>{said}<pre dir=ltr>{escape(text)}</pre>"
    if row.effective:
        what = "Its result" if row.kind is ApprovalKind.DOUBT else "As edited"
        shown += f"<h2>{what}</h2><pre dir=ltr>{escape(laid_out(row.effective)[0])}</pre>"
    if row.schema:
        shown += f"<details><summary>Schema</summary><pre dir=ltr>{escape(laid_out(row.schema)[0])}</pre></details>"
    return shown


def _forms(row: ApprovalRow, given: dict[str, str]) -> str:
    digest = f'<input type=hidden name=digest value="{row.digest.hex()}">'
    # A text field of one line would send the form on Enter, as if the first button were pressed.
    reason = (
        f"<label>Reason (the agent may be told)<textarea class=short name=reason maxlength={MOST_REASON}>\n"
        f"{escape(given.get('reason', ''))}</textarea></label>"
    )
    if row.kind is ApprovalKind.DOUBT:
        return _doubt(digest, reason, given)
    buttons = "<button class=yes name=action value=APPROVED>Approve</button>"
    if not fits(row.kind, Decision.REUSED):
        buttons += "<button name=action value=REUSED>Reuse the recorded result</button>"
    buttons += "<button class=no name=action value=REJECTED>Reject</button>"
    forms = f"<h2>Decide</h2><form method=post>{digest}{reason}{buttons}</form>"
    proposed, fault = arguments_of(row.arguments)
    if row.kind not in _EDITABLE or fault:
        return forms
    text = json.dumps(proposed, indent=2, ensure_ascii=False)
    if row.kind is ApprovalKind.BUDGET:
        return forms + _raise(digest, reason, given)
    if visible(text) != text:  # what cannot be seen stands in the text field as an escape
        text = json.dumps(proposed, indent=2)
    return forms + (
        f"<h2>Or edit</h2><form method=post>{digest}<label>Arguments, all of them<textarea name=arguments "
        f"spellcheck=false>\n{escape(given.get('arguments', text))}</textarea></label>{reason}"
        "<button name=action value=EDITED>Approve as edited</button></form>"
    )


def _doubt(digest: str, reason: str, given: dict[str, str]) -> str:
    """The forms for a call of which it is not known whether it ran."""
    result = (
        "<label>Its result, where you know it (JSON or text; the agent is given it)<textarea class=short name=result "
        f"spellcheck=false>\n{escape(given.get('result', ''))}</textarea></label>"
    )
    return (
        "<h2>What became of it?</h2><p>Look at what the tool acts on first. The key above says which call it was.</p>"
        f"<h2>It ran</h2><form method=post>{digest}{result}{reason}"
        "<button name=action value=REUSED>It ran</button></form>"
        f"<h2>It did not</h2><form method=post>{digest}{reason}"
        "<button class=yes name=action value=APPROVED>It did not run: send it again</button>"
        "<button class=no name=action value=REJECTED>Give it up</button></form>"
    )


def _raise(digest: str, reason: str, given: dict[str, str]) -> str:
    """The other ways to answer a question about a budget, in words."""
    return (
        "<p>Approve lets this one call through; Reject refuses it and pauses the session.</p>"
        f"<h2>Or raise the limit</h2><form method=post>{digest}<label>By how much, in the limit's own unit"
        f"<textarea class=short name=arguments spellcheck=false>\n{escape(given.get('arguments', _BY))}</textarea>"
        f"</label>{reason}<button name=action value=EDITED>Raise it and go on</button></form>"
    )
