"""Owns the description of the routes by which a session goes on from elsewhere: rollback, fork, edit. Must not serve
them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.engine.steering import VERBS
from agentstate.errors import Conflict, Forbidden, NotFound, Unprocessable
from agentstate.server.describing import (
    Operation,
    Schema,
    anything,
    flag,
    many,
    mapped,
    maybe,
    moment,
    number,
    options,
    query,
    record,
    ref,
    text,
    whole,
)  # fmt: skip

_AT = "/api/sessions/{id}"
_MADE = record(
    {
        "step_number": whole(),
        "tool": text(),
        "call_id": maybe(text()),
        "arguments": text(),
        "result_seen": flag("Its result came back; else it may have been made."),
        "failed": flag("With an error."),
    }
)
_TOLD: dict[str, Schema] = {
    "session": ref("Session"),
    "standing": many(ref("Effect"), "Tool calls in the steps concerned that did something, or may have."),
    "made": many(_MADE, "Tool calls in them that agents were given and made by themselves."),
}
_BRANCH = whole("Its number.", minimum=0)
_VERSION = record(
    {
        "made_by": maybe(text("Who edited; null: the provider.")),
        "created_at": maybe(moment()),
        "reason": maybe(text()),
        "branch": maybe(whole("The branch that shows it.")),
        "changed": anything("What was changed, or null."),
        "response": anything("The answer as JSON text, or null."),
        "shown": flag("Whether the session shows this one."),
    },
    "One version of an answer.",
)

OPERATIONS = (
    Operation(
        "POST", _AT + "/reset", "Rolls a session back: steps from a number on are superseded, never deleted.",
        record({"message": text(), **_TOLD}), Role.ADMIN, "steering", body=record({"step_number": whole(minimum=0)}),
        example={"step_number": 1}, errors=(NotFound, Conflict, Unprocessable),
    ),
    Operation(
        "POST", _AT + "/rollback", "Rolls a session back, on the branch that is shown, or to another one.",
        record({**_TOLD, "branch": whole("The branch that is made.")}), Role.ADMIN, "steering",
        body=record(
            {"step_number": maybe(whole(minimum=0)), "branch": maybe(_BRANCH)}, optional=("step_number", "branch")
        ),
        example={"step_number": 1}, errors=(NotFound, Conflict, Unprocessable),
    ),
    Operation(
        "POST", _AT + "/fork", "Makes a session that shares the steps below a number.",
        record({**_TOLD, "source": text("The session that was forked."), "step_number": whole()}), Role.ADMIN,
        "steering",
        body=record(
            {
                "step_number": whole(minimum=0),
                "name": maybe(text("Default: one that is free.")),
                "branch": maybe(_BRANCH),
            },
            optional=("name", "branch"),
        ),
        example={"step_number": 3, "name": "invoice-4711-b"}, status=201, errors=(NotFound, Conflict, Unprocessable),
    ),
    Operation(
        "POST", _AT + "/steps/{number}/edit", "Changes a recorded answer: its text, the arguments of its calls.",
        record({**_TOLD, "step_number": whole(), "branch": whole("The branch that is made.")}), Role.ADMIN, "steering",
        body=record(
            {
                "text": maybe(text()),
                "arguments": maybe(mapped(anything(), "By call id: all arguments of the call.")),
                "reason": maybe(text()),
            },
            optional=("text", "arguments", "reason"),
        ),
        example={"arguments": {"call_0": {"to": "bob@example.test"}}, "reason": "wrong address"},
        errors=(NotFound, Conflict, Forbidden, Unprocessable),
    ),
    Operation(
        "GET", _AT + "/branches", "Lists the branches of a session.",
        many(
            record(
                {
                    "id": whole(),
                    "session": text("Whose branch it is: a fork shares branches of another session."),
                    "parent": maybe(whole()),
                    "upto": maybe(whole("It shares its parent's steps below this number.")),
                    "reason": text(),
                    "created_at": maybe(moment()),
                    "made_by": maybe(text()),
                    "steps": whole("Of its own."),
                    "shown": flag(),
                    "head": flag(),
                }
            )
        ),
        tag="steering", errors=(NotFound,),
    ),
    Operation(
        "GET", _AT + "/preview", "Says what a verb would do.",
        record(
            {
                "verb": options(VERBS),
                "session_id": text(),
                "step_number": whole(),
                "branch": maybe(whole()),
                "superseded": many(whole(), "Numbers of steps that would be left behind."),
                "restored": many(whole(), "Numbers of steps that would be shown again."),
                "cost": maybe(number("What was paid for those left behind, USD; null: unknown.")),
                "cost_unknown": whole("Of how many of them it is not known."),
                "replays": whole("How many steps the next run would replay."),
                "standing": _TOLD["standing"],
                "made": _TOLD["made"],
                "pending": many(
                    record({"id": text(), "step_number": whole(), "kind": text(), "tool_name": maybe(text())}),
                    "Approvals that would be withdrawn.",
                ),
            }
        ),
        tag="steering",
        query=(
            query("verb", options(VERBS), "rollback", required=True),
            query("step_number", whole(minimum=-1)),
            query("branch", whole(minimum=-1)),
        ),
        errors=(NotFound, Conflict, Unprocessable),
    ),
    Operation(
        "GET", _AT + "/steps/{number}/versions", "Lists the versions of an answer.", many(_VERSION), tag="steering",
        errors=(NotFound, Conflict, Unprocessable),
    ),
    Operation(
        "GET", _AT + "/steps/{number}/editable", "Shows what of an answer can be edited.",
        record(
            {
                "text": maybe(text()),
                "calls": many(
                    record(
                        {
                            "choice": whole(),
                            "place": whole(),
                            "call_id": maybe(text()),
                            "tool": text(),
                            "arguments": anything(),
                            "schema": anything("The schema that the request gave for them, or null."),
                        }
                    )
                ),
                "versions": many(_VERSION),
            }
        ),
        tag="steering", errors=(NotFound, Conflict, Unprocessable),
    ),
)  # fmt: skip
