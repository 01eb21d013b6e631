"""Owns the description of the routes of sessions: steps, runs, effects, labels, status. Must not serve them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.core.model import SessionStatus
from agentstate.errors import Conflict, NotFound, Unprocessable
from agentstate.server.describing import (
    Operation,
    after,
    anything,
    flag,
    limit,
    many,
    maybe,
    options,
    query,
    record,
    ref,
    text,
    whole,
)  # fmt: skip
from agentstate.store.overview_reader import SESSION_STATES

_AT = "/api/sessions/{id}"
_LABELS = record({"id": text("The session."), "labels": many(text())})
_NAMES = {"add": maybe(many(text())), "remove": maybe(many(text()))}

OPERATIONS = (
    Operation(
        "GET", "/api/sessions", "Lists the sessions, latest change first.", many(ref("Session")), tag="sessions",
        query=(
            limit(1000, 100), after("The id"),
            query("at", text("Comes with the link to the next page.")),
            query("q", text("Only those with this text in id, label or model.")),
            query("state", text(f"Only those at work so, divided by commas: {', '.join(SESSION_STATES)}."), "held"),
            query("status", text("Only sessions of this status."), "RUNNING"),
            query("model", text("Only those that asked this model, or were answered by it.")),
            query("label", text("Only those with this label.")),
            query("since", text("Changed since: a day, a time, or how long ago (24h)."), "7d"),
            query("until", text("Changed until.")),
        ),
        errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", _AT, "Shows a session, a page of its steps with their bodies, and its runs.",
        record(
            {
                "session": ref("Session"),
                "steps": many(ref("Step"), "In order."),
                "runs": many(ref("Run"), "Oldest first, the latest thousand."),
            }
        ),
        tag="sessions", query=(limit(10_000, 1000), after("The step number", whole(minimum=-1))),
        errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", _AT + "/steps", "Lists the steps of a session, without bodies.", many(ref("StepFacts")), tag="sessions",
        query=(limit(1000, 200), after("The step number", whole(minimum=-1))), errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", _AT + "/steps/{number}", "Shows one step with its bodies and all of its attempts.", ref("Step"),
        tag="sessions", errors=(NotFound,),
    ),
    Operation(
        "GET", _AT + "/runs", "Lists the runs of a session, newest first.", many(ref("Run")), tag="sessions",
        query=(limit(500, 100), after("The run id")), errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", _AT + "/runs/{run}", "Shows one run.", ref("Run"), tag="sessions", errors=(NotFound,),
    ),
    Operation(
        "POST", _AT + "/runs", "Says that a supervised run begins.",
        record(
            {
                "run": text("The run id."),
                "evidence": text("How it was known to be new."),
                "fenced": many(text(), "The runs that were fenced."),
                "sibling": flag("Whether it began beside a living run."),
            }
        ),
        Role.ADMIN, "sessions",
        body=record(
            {
                "run": text("1 to 256 characters."),
                "replaces": maybe(text("A run whose process is known dead; it is fenced.")),
                "supervisor_pid": maybe(whole("Keeps a lingering proxy up while that process lives.")),
            },
            optional=("replaces", "supervisor_pid"),
        ),
        example={"run": "run-3", "replaces": "run-2", "supervisor_pid": None},
        more="A session that does not exist is made. A run id that is known already changes nothing.",
    ),
    Operation(
        "POST", _AT + "/runs/{run}/end", "Says that the process of a run has ended.", ref("Run"), Role.ADMIN,
        "sessions", body=record({"exit_code": maybe(whole("null: unknown."))}, optional=("exit_code",)),
        example={"exit_code": 0}, errors=(NotFound,),
    ),
    Operation(
        "POST", _AT + "/status", "Sets the status of a session.",
        record({"message": text(), "session": ref("Session")}), Role.ADMIN, "sessions",
        body=record({"status": options(SessionStatus)}), example={"status": "PAUSED"}, errors=(NotFound,),
    ),
    Operation(
        "GET", _AT + "/effects", "Lists the tool calls that were made under claims, by step.", many(ref("Effect")),
        tag="sessions", query=(limit(1000, 500), after("The step number", whole(minimum=-1))), errors=(NotFound,),
        paged=True,
    ),
    Operation(
        "POST", _AT + "/effects/{number}/settle", "Says what became of a call in doubt.",
        record(
            {
                "id": text("The approval's id."),
                "session_id": text(),
                "step_number": whole(),
                "tool_name": text(),
                "status": text(),
                "decided_by": maybe(text()),
            }
        ),
        Role.APPROVER, "sessions",
        body=record(
            {
                "outcome": options(("ran", "did_not_run", "abort")),
                "result": anything("Of a call that ran: its result, where it is known."),
                "reason": text(),
            },
            optional=("result", "reason"),
        ),
        example={"outcome": "did_not_run", "reason": "not at the payment provider"},
        errors=(NotFound, Conflict, Unprocessable),
    ),
    Operation(
        "GET", _AT + "/labels", "Lists the labels of a session.", _LABELS, tag="sessions",
        query=(limit(1000, 1000), after("The label")), errors=(NotFound,), paged=True,
    ),
    Operation(
        "POST", _AT + "/labels", "Adds and removes labels of a session.", _LABELS, Role.ADMIN, "sessions",
        body=record(_NAMES, optional=_NAMES), example={"add": ["vip"], "remove": ["trial"]}, errors=(NotFound,),
    ),
)  # fmt: skip
