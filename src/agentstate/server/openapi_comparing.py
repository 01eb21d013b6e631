"""Owns the description of the routes that pause and compare sessions. Must not serve them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.errors import Conflict, NotFound
from agentstate.server.describing import Operation, maybe, record, ref, text

_AT = "/api/sessions/{id}"
_SHOWN = record({"session": ref("Session")})

OPERATIONS = (
    Operation(
        "POST", _AT + "/pause", "Pauses a session: nothing of it is sent until it is resumed.", _SHOWN, Role.ADMIN,
        "sessions",
        body=record({"reason": maybe(text("Why, 2000 characters at most."))}, optional=("reason",)),
        example={"reason": "the report looks wrong"}, errors=(NotFound, Conflict),
    ),
    Operation(
        "POST", _AT + "/resume", "Lets a paused session go on; requests that wait are judged anew.", _SHOWN, Role.ADMIN,
        "sessions", errors=(NotFound, Conflict),
    ),
)  # fmt: skip
