"""Owns the description of the routes of retention. Must not serve them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.core.model import SessionStatus
from agentstate.core.retention import Why
from agentstate.errors import Conflict, NotFound
from agentstate.server.describing import (
    Operation,
    flag,
    many,
    maybe,
    moment,
    number,
    options,
    record,
    text,
    whole,
)  # fmt: skip

_AT = "/api/sessions/{id}"
_FATE = record(
    {
        "id": text("The session."),
        "steps": whole(),
        "status": options(SessionStatus),
        "used_at": maybe(moment("When it was last used.")),
        "why": options(Why),
    }
)
_KEPT = many(record({"why": options(Why), "sessions": whole(), "text": text("In words.")}), "Those that stay, by why.")
_SIZE = record(
    {
        "bytes": whole("Of the file."),
        "free_bytes": whole("Of it, free pages."),
        "log_bytes": whole("Of its write-ahead log."),
        "sessions": whole(),
        "steps": whole(),
    }
)
_PINNED = record({"id": text(), "pinned": flag()})
_ASKED = {
    "older_than_days": maybe(number("Sessions not used for so long.", minimum=0, maximum=36_500)),
    "keep": maybe(whole("How many of the latest stay.", minimum=0)),
    "max_bytes": maybe(whole("How large the journal may be.", minimum=0)),
    "label": maybe(text("Only sessions with this label.")),
    "status": maybe(text("Only sessions of this status.")),
    "superseded_days": maybe(number("Superseded steps older than that.", minimum=0, maximum=36_500)),
    "dry_run": flag("Only say what would go."),
    "vacuum": flag("Give free space back to the file system."),
}

OPERATIONS = (
    Operation(
        "GET", "/api/retention", "Shows the rules of retention, the journal's size, and what would go now.",
        record(
            {
                "rules": record(
                    {
                        "sessions_days": maybe(number()),
                        "max_sessions": maybe(whole()),
                        "max_bytes": maybe(whole()),
                        "keep_labels": many(text()),
                        "by_label": many(record({"label": text(), "days": maybe(number())})),
                        "superseded_days": maybe(number()),
                        "every_h": number("Hours between two looks at them."),
                    }
                ),
                "size": _SIZE,
                "would_go": record({"sessions": whole(), "steps": whole(), "first": many(_FATE, "A thousand.")}),
                "kept": _KEPT,
                "pinned": many(record({"id": text(), "by": text(), "reason": maybe(text()), "at": maybe(moment())})),
                "unfinished": record({"sessions": whole(), "garbage": flag()}),
                "working": maybe(record({"what": text(), "done": whole(), "total": whole()})),
            }
        ),
        tag="retention",
    ),
    Operation(
        "POST", "/api/prune", "Deletes sessions by rules: those that are sent, or those of the settings.",
        record(
            {
                "dry_run": flag(),
                "sessions": whole("How many go."),
                "steps": whole(),
                "gone": many(_FATE, "The first thousand."),
                "kept": _KEPT,
                "superseded_steps": whole(),
                "bodies": whole("Contents that nothing refers to any more."),
                "before": _SIZE,
                "after": _SIZE,
            }
        ),
        Role.ADMIN, "retention", body=record(_ASKED, optional=_ASKED),
        example={"older_than_days": 90, "dry_run": True}, errors=(Conflict,),
    ),
    Operation(
        "DELETE", _AT, "Deletes a session with all that it holds.",
        record({"id": text(), "deleted": flag(), "steps": whole(), "cost": maybe(number("USD; null: unknown."))}),
        Role.ADMIN, "retention", errors=(NotFound, Conflict),
    ),
    Operation(
        "POST", _AT + "/pin", "Keeps a session from being pruned.", _PINNED, Role.ADMIN, "retention",
        body=record({"reason": maybe(text())}, optional=("reason",)), example={"reason": "evidence"},
        errors=(NotFound, Conflict),
    ),
    Operation(
        "POST", _AT + "/unpin", "Lets a session be pruned again.", _PINNED, Role.ADMIN, "retention",
        errors=(NotFound, Conflict),
    ),
)  # fmt: skip
