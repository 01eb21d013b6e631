"""Owns the description of the routes that pause and compare sessions, and try steps. Must not serve them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.core.comparing import Kind
from agentstate.errors import BudgetExceeded, Conflict, NotFound, Unprocessable
from agentstate.server.describing import (
    Operation,
    anything,
    flag,
    limit,
    many,
    mapped,
    maybe,
    number,
    options,
    query,
    record,
    ref,
    text,
    whole,
)  # fmt: skip

_AT = "/api/sessions/{id}"
_SHOWN = record({"session": ref("Session")})
_FIGURES = record(
    {
        "number": whole("The step's number."), "kind": options(("model", "tool")), "state": text(), "model": text(),
        "tokens": maybe(whole()), "cost": maybe(number("USD, of all attempts.")), "latency": maybe(number("Seconds.")),
    }
)  # fmt: skip
_PAIR = {
    "pair": whole("Its number in the comparison."),
    "kind": options(Kind),
    "differs": many(text(), "In what, in a word each."),
    "left": maybe(_FIGURES),
    "right": maybe(_FIGURES),
}
_FIELDS = record(
    {
        "fields": many(
            record(
                {
                    "path": text("As `messages[2].content`."), "place": text("The same in words."),
                    "left": anything("What stands there."), "right": anything("What stands there."),
                    "only": maybe(options(("left", "right"), "The side that has it at all.")),
                    "text": many(
                        record({"side": options(("both", "left", "right")), "text": text()}), "Of two texts."
                    ),
                }
            )
        ),
        "more": flag("Whether there are more than 500."),
    }
)  # fmt: skip
_IN_FULL = {
    **_PAIR,
    "request": _FIELDS,
    "answer": _FIELDS,
    "released": maybe(_FIELDS),
    "left_text": text(),
    "right_text": text(),
}
_SIDE = record(
    {
        "reference": text(), "session": text(), "run": maybe(text()), "branch": maybe(whole()), "steps": whole(),
        "cost": number("USD, what is known of it."), "cost_unknown": whole("Of how many it is not known."),
        "tokens": whole(), "latency": number("Seconds, added up."), "models": many(text()),
    }
)  # fmt: skip
_COMPARISON = record(
    {
        "same": flag(), "left": _SIDE, "right": _SIDE, "total": whole("Pairs."), "counts": mapped(whole()),
        "first": maybe(record(_PAIR)), "pairs": many(record(_PAIR)),
    }
)  # fmt: skip
_COMPARED = {"anyOf": [_COMPARISON, record(_IN_FULL, "With `pair` or `step`.")]}
_PAGED = (
    query("pair", whole("Only the pair of that number, field by field.", minimum=0)),
    query("step", whole("The same, of the left side's step of that number.", minimum=0)),
    query("after", whole("The last pair of the page before.", minimum=-1)),
    limit(10_000, 100),
)
_TRIED = record(
    {
        "trial": record(
            {
                "session": text("Where it is kept."), "step_number": whole(), "provider": text(), "model": text(),
                "lost": many(text(), "Not carried over."), "error": maybe(text("Why there is no answer.")),
            }
        ),
        "note": text(),
        **_IN_FULL,
    }
)  # fmt: skip

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
    Operation(
        "GET", "/api/diff", "Compares sessions, runs or branches step by step.", _COMPARED, Role.VIEWER, "sessions",
        query=(
            query("a", text("The left side: `session`, `session#run` or `session@branch`."), "invoice-4711"),
            query("b", text("The right side."), "invoice-4712"), *_PAGED,
        ),
        errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", _AT + "/diff", "Compares a session with another session, run or branch.", _COMPARED, Role.VIEWER,
        "sessions", query=(query("with", text("The right side."), "invoice-4712"), *_PAGED), errors=(NotFound,),
        paged=True,
    ),
    Operation(
        "POST", _AT + "/steps/{number}/try", "Asks another model what a recorded step asked.", _TRIED, Role.ADMIN,
        "sessions",
        body=record({"model": text("A model, or `provider/model` of the settings.")}), example={"model": "gpt-4o"},
        errors=(NotFound, BudgetExceeded, Unprocessable),
        more="The header `x-provider-key` gives the provider a key for this call alone.",
    ),
)  # fmt: skip
