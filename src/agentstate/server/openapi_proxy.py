"""Owns the description of the routes of the proxy itself: health, figures, providers, settings, policies, events.

Must not serve them. Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.model import Action, BreakerState
from agentstate.engine.stats import BY
from agentstate.errors import NotFound, TooManyRequests, Unprocessable
from agentstate.server.describing import (
    Operation,
    Schema,
    anything,
    day,
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
from agentstate.server.openapi_schemas import FIGURES

_MODEL = record(
    {
        "model": text(),
        "state": options(BreakerState, "Of its breaker."),
        "calls": whole("Attempts of the last 24 hours that are over."),
        "answered": whole(),
        "limited": whole("Refused for want of room, 429."),
        "failed": whole(),
        "under_way": whole(),
        "failing": maybe(number("The share, 0 to 1, of attempts that were not answered; null: there was none.")),
        "p50": maybe(number("Whole duration of answered attempts, seconds.")),
        "p95": maybe(number()),
        "until": maybe(moment("It asked to be left alone, or is left alone, until then.")),
        "last_failure": maybe(record({"at": moment(), "status": whole("0: none came."), "error": text()})),
        "prices": maybe(text("Whose prices are used; null: none is known.")),
        "shutdown": maybe(day("The day on which its vendor ends it, where that is known.")),
        "strip": many(
            record({"since": moment(), "answered": whole(), "limited": whole(), "failed": whole()}),
            "The last 24 hours in parts of half an hour.",
        ),
    }
)

_PROVIDERS = record(
    {
        "since": moment("From when on attempts are counted."),
        "at": moment("When this was looked at."),
        "simulated": flag("The simulator answers for all of them."),
        "providers": many(
            record(
                {
                    "name": text(),
                    "address": text("Scheme, host, port and path."),
                    "dialects": many(text()),
                    "key": options(("own", "missing", "agents"), "Whose key is used; missing: it is not set."),
                    "key_variable": maybe(text("The variable that holds the key.")),
                    "queue": maybe(record({"limit": whole(), "under_way": whole(), "waiting": whole()})),
                    "untestable": maybe(text("Why the proxy cannot send a call of its own there.")),
                    "models": many(_MODEL, "Those that were asked lately, are routed to, or are left alone."),
                }
            )
        ),
        "routes": many(
            record(
                {
                    "model": text("A pattern of what agents ask for."),
                    "candidates": many(record({"provider": text(), "model": text()}), "In the order of asking."),
                    "on": many(text(), "The faults on which the next one is asked."),
                    "strict": flag("Not where something would be lost."),
                }
            )
        ),
        "warnings": many(text(), "What will hurt soon."),
    }
)

_TRIED: Schema = record(
    {
        "looked": whole("How many calls were looked at."),
        "unread": whole("Answers that could not be read."),
        "whole": flag("All that were asked for, or that there are, were looked at."),
        "allowed": whole(),
        "held": whole(),
        "denied": whole(),
        "by_policy": many(record({"policy": maybe(whole("null: none.")), "action": options(Action), "calls": whole()})),
        "kept": many(
            record(
                {
                    "session_id": text(),
                    "step_number": whole(),
                    "tool_name": text(),
                    "arguments_text": text(),
                    "action": options(Action),
                    "policy": maybe(whole()),
                    "why": text(),
                }
            ),
            "Calls that would be held or denied, newest first, 200 at most.",
        ),
    }
)

_POLICY_GIVEN = mapped(anything(), "Like a [[policies]] table of the settings.")

_STATS = record(
    {
        "by": options(BY),
        "total": record(FIGURES),
        "rows": many(record({**{name: text() for name in BY}, **FIGURES}, optional=BY), "Named by what they are by."),
        "breakers": many(ref("Breaker")),
        "queues": many(record({"provider": text(), "limit": whole(), "under_way": whole(), "waiting": whole()})),
        "warnings": many(text()),
    }
)

OPERATIONS = (
    Operation(
        "GET", "/healthz", "Says that the process answers.", record({"status": options(("ok",)), "version": text()}),
        None, "proxy",
    ),
    Operation(
        "GET", "/readyz", "Says whether calls are taken.", record({"status": options(("ready",))}), None, "proxy",
        statuses={503: ("The journal cannot be read, or the proxy stops.", anything())},
    ),
    Operation(
        "GET", "/metrics", "Gives what is counted, for Prometheus.", text(), tag="proxy", kind="text/plain",
        more="With metrics.open it asks for no token.",
    ),
    Operation(
        "GET", "/api/openapi.json", "Gives this document.", mapped(anything()), tag="proxy",
    ),
    Operation(
        "GET", "/api/whoami", "Says whose token came.", record({"name": text(), "role": text()}), tag="proxy",
    ),
    Operation(
        "GET", "/api/events", "Tells what changes, as it does, as server-sent events.", text(), tag="proxy",
        kind="text/event-stream",
        query=(
            query("after", text("The id of the last event that is known, or first.")),
            query("session", text("Only what is about this session.")),
            query("kinds", text("Only these kinds, divided by commas."), "step,approval.asked"),
            query("follow", flag("false: end after what is known by now."), False),
        ),
        errors=(TooManyRequests,),
        more="The header last-event-id counts before after. The data of an event is an object with kind and at.",
    ),
    Operation(
        "GET", "/api/stats", "Sums up what was asked of providers, what it cost, what replay saved.", _STATS,
        tag="proxy",
        query=(
            query("by", text(f"What the rows are of: {', '.join(BY)}."), "model"),
            query("since", text("The first day that counts (UTC).", format="date")),
            query("until", text("The last one.", format="date")),
            query("session", text("Only this session.")),
            query("format", text("json, or csv: the rows as a table for spreadsheets."), "json"),
        ),
        errors=(NotFound,), more="As text/csv where the format is csv.",
    ),
    Operation("GET", "/api/providers", "Shows how providers and routes stand.", _PROVIDERS, tag="proxy"),
    Operation(
        "GET", "/api/settings", "Shows the settings in force, without secrets.",
        record(
            {
                "settings": mapped(anything(), "By section. A secret is shown as (set), an address as where it leads."),
                "set": many(text(), "Those that a file, a variable or a flag gave."),
            }
        ),
        tag="proxy",
    ),
    Operation("GET", "/api/policies", "Lists the policies in force.", many(ref("Policy")), tag="proxy"),
    Operation(
        "POST", "/api/policies/rehearse", "Shows what the last tool calls would meet; changes nothing.", _TRIED,
        tag="proxy",
        body=record(
            {
                "last": whole("How many calls.", minimum=1, maximum=10_000, default=1000),
                "policies": maybe(many(_POLICY_GIVEN, "Those to try; default: those in force.")),
            },
            optional=("last", "policies"),
        ),
        example={"last": 1000, "policies": [{"tools": ["send_*"], "action": "hold", "when": "args.amount > 100"}]},
        errors=(Unprocessable,),
    ),
)  # fmt: skip
