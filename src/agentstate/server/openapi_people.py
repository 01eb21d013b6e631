"""Owns the description of the routes of people: approvals, approvers, the audit log, messages, pages and buttons.

Must not serve them. Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Decision, Role
from agentstate.core.model import ApprovalState
from agentstate.errors import Conflict, NotFound, Unprocessable
from agentstate.server.describing import (
    Operation,
    after,
    anything,
    flag,
    limit,
    many,
    mapped,
    maybe,
    options,
    query,
    record,
    ref,
    text,
    whole,
)  # fmt: skip
from agentstate.server.openapi_schemas import APPROVER

_SESSION = query("session", text("Only those of this session."))
_WITH_TOKEN = record({**APPROVER["properties"], "token": text("Shown this once.")})
_FORM = "application/x-www-form-urlencoded"
_HTML = "text/html"

OPERATIONS = (
    Operation(
        "GET", "/api/approvals/pending", "Lists what waits for a decision, oldest first.", many(ref("Approval")),
        tag="approvals", query=(limit(500, 100), after("The id"), _SESSION), errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", "/api/approvals", "Lists approvals of any state, oldest first.", many(ref("Approval")), tag="approvals",
        query=(
            limit(500, 100), after("The id"), _SESSION,
            query("state", text(f"Only those in this state: {', '.join(ApprovalState)}."), "pending"),
        ),
        errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", "/api/approvals/{id}", "Shows one approval.", ref("Approval"), tag="approvals", errors=(NotFound,),
    ),
    Operation(
        "POST", "/api/approvals/{id}/action", "Decides, in the name of the person whose token came.",
        record({"message": text(), "approval": ref("Approval")}), Role.APPROVER, "approvals",
        body=record(
            {
                "action": options(Decision),
                "arguments": anything("Of EDITED: all arguments, an object. Of a call in doubt that ran: its result."),
                "reason": maybe(text("Why, 2000 characters at most; the agent or the model may be told.")),
                "digest": maybe(text("The digest as it was shown; another one is refused.")),
            },
            optional=("arguments", "reason", "digest"),
        ),
        example={"action": "EDITED", "arguments": {"to": "bob@example.test"}, "reason": "wrong address"},
        errors=(NotFound, Conflict, Unprocessable), more="The first decision is the only one.",
    ),
    Operation(
        "GET", "/api/approvers", "Lists the approvers by name.", many(ref("Approver")), Role.ADMIN, "people",
        query=(limit(500, 500), after("The name")), paged=True,
    ),
    Operation(
        "POST", "/api/approvers", "Adds an approver.", _WITH_TOKEN, Role.ADMIN, "people",
        body=record(
            {
                "name": text(), "role": options(Role), "slack": maybe(text("Their user id there.")),
                "discord": maybe(text("Their user id there.")),
            },
            optional=("slack", "discord"),
        ),
        example={"name": "ann", "role": "approver", "slack": "U024BE7LH"}, errors=(Conflict, Unprocessable),
    ),
    Operation(
        "POST", "/api/approvers/{name}/disable", "Takes an approver's authority away, for good.", ref("Approver"),
        Role.ADMIN, "people", errors=(NotFound,),
    ),
    Operation(
        "POST", "/api/approvers/{name}/rotate", "Gives an approver another token.", _WITH_TOKEN, Role.ADMIN, "people",
        errors=(NotFound,),
    ),
    Operation(
        "GET", "/api/audit", "Lists the audit log, oldest first.", many(ref("Entry")), tag="people",
        query=(limit(1000, 100), after("The number", whole(minimum=0))), paged=True,
    ),
    Operation(
        "GET", "/api/alerts", "Lists the messages to people, newest first.", many(ref("Message")), tag="people",
        query=(
            limit(1000, 100), after("The number", whole(minimum=0)),
            query("state", text("Only those in this state: pending, delivered, dead."), "dead"),
        ),
        paged=True,
    ),
    Operation(
        "POST", "/api/alerts/test", "Sends a message that only tries a target, or all of them.",
        many(
            record(
                {
                    "target": text(), "kind": text(), "address": text("Scheme and host."), "delivered": flag(),
                    "status_code": whole("0: no answer came."), "error": maybe(text()),
                }
            )
        ),
        Role.ADMIN, "people",
        body=record({"name": text("Of the target; default: all.")}, optional=("name",)), example={"name": "ops"},
        errors=(NotFound,),
    ),
    Operation(
        "POST", "/api/alerts/{number}/retry", "Makes a dead message due again.", ref("Message"), Role.ADMIN, "people",
        errors=(NotFound, Conflict),
    ),
    Operation(
        "GET", "/approve/{token}", "Shows an approval to whoever has the link of a message.", text(), None, "people",
        kind=_HTML, errors=(NotFound,),
    ),
    Operation(
        "POST", "/approve/{token}", "Decides by the form of that page.", text(), None, "people", kind=_HTML,
        body=record(
            {
                "action": options(Decision), "arguments": text(), "result": text(), "reason": text(), "digest": text(),
            },
            optional=("arguments", "result", "reason", "digest"),
        ),
        body_kind=_FORM, errors=(NotFound, Conflict, Unprocessable),
        statuses={303: ("It is decided; back to the page.", {})},
    ),
    Operation(
        "POST", "/hooks/slack", "Takes a press of a button in Slack.", mapped(anything()), None, "people",
        body=record({"payload": text("What Slack sends, signed.")}), body_kind=_FORM, errors=(NotFound,),
    ),
    Operation(
        "POST", "/hooks/discord", "Takes a press of a button in Discord, and its pings.", mapped(anything()), None,
        "people", body=mapped(anything(), "What Discord sends, signed."), errors=(NotFound,),
    ),
)  # fmt: skip
