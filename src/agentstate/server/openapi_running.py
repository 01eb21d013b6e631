"""Owns the description of the routes about how the proxy runs: a test call, budgets, the seal, diagnostics, logins.

Must not serve them. Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.errors import Conflict, NotFound
from agentstate.server.describing import (
    Operation,
    anything,
    flag,
    many,
    mapped,
    maybe,
    moment,
    number,
    options,
    record,
    text,
    whole,
)  # fmt: skip

_COUNTS = mapped(whole())
_LIMIT = record(
    {
        "limit": text("Its name in the settings."),
        "session_id": maybe(text("null: of the day.")),
        "most": number("With what people raised it by."),
        "raised": number(),
        "used": number(),
        "reserved": number("By calls in flight, at most."),
    },
    "In the limit's own unit: USD, steps or tokens.",
)

OPERATIONS = (
    Operation(
        "POST", "/api/providers/{name}/test", "Asks a model of a provider for one token, with the proxy's own key.",
        record(
            {
                "provider": text(),
                "model": text(),
                "answered": flag(),
                "status_code": whole("0: no answer came."),
                "error": maybe(text()),
                "latency": maybe(number("Seconds.")),
                "tokens": maybe(whole()),
                "cost": maybe(number("USD; null: unknown.")),
                "session_id": text("Whose step it is."),
                "step_number": maybe(whole()),
            }
        ),
        Role.ADMIN, "proxy", body=record({"model": text()}), example={"model": "gpt-4o-mini"},
        errors=(NotFound, Conflict),
    ),
    Operation(
        "GET", "/api/budgets", "Shows what is used of each limit.",
        record(
            {
                "at_limit": options(("hold", "deny")),
                "repeats": maybe(whole("How often a run may ask the same in a row; null: always.")),
                "limits": many(_LIMIT),
            }
        ),
        tag="proxy",
    ),
    Operation(
        "GET", "/api/audit/check", "Checks the seal of the audit log.",
        record(
            {
                "sound": flag(),
                "entries": whole(),
                "seal": maybe(text("The hash of the last entry.")),
                "faults": many(record({"where": text(), "what": text()}), "At most 100."),
            }
        ),
        tag="people",
    ),
    Operation(
        "GET", "/api/diagnostics", "Gives what helps to find out what is wrong, without secrets or contents.",
        record(
            {
                "at": moment(),
                "versions": mapped(text()),
                "libraries": many(record({"name": text(), "version": text(), "licence": text()})),
                "settings": maybe(mapped(anything())),
                "store": record({"journal_bytes": whole(), "wal_bytes": whole(), "rows": _COUNTS}),
                "calls": mapped(anything()),
                "replays": mapped(anything()),
                "approvals": maybe(_COUNTS),
                "breakers": many(record({"provider": text(), "state": text(), "failures": whole()})),
                "in_flight": whole(),
                "open_sockets": whole(),
                "warnings": whole(),
            }
        ),
        Role.ADMIN, "proxy",
    ),
    Operation(
        "POST", "/api/logins", "Makes a link that logs the caller in to the dashboard, once.",
        record({"path": text("A path of this proxy."), "expires_in_s": number()}), tag="people",
    ),
)  # fmt: skip
