"""Owns the description of the routes that pause and compare sessions, and try steps. Must not serve them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.core.comparing import Kind
from agentstate.errors import BudgetExceeded, Conflict, NotFound, Unprocessable
from agentstate.server.describing import (
    Operation,
    Schema,
    after,
    anything,
    flag,
    limit,
    many,
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

_FIGURES = maybe(
    record(
        {
            "number": whole(),
            "kind": text(),
            "state": text(),
            "model": text(),
            "tokens": maybe(whole()),
            "cost": maybe(number("Of all attempts, USD.")),
            "latency": maybe(number("Seconds.")),
        },
        "The step; null: the side has none.",
    )
)
_PAIR: dict[str, Schema] = {
    "pair": whole("Its number in the comparison."),
    "kind": options(Kind),
    "differs": many(text(), "In what."),
    "left": _FIGURES,
    "right": _FIGURES,
}
_SIDE = record(
    {
        "reference": text("As it was named."),
        "session": text(),
        "run": maybe(text()),
        "branch": maybe(whole()),
        "steps": whole(),
        "cost": number("What is known of it, USD."),
        "cost_unknown": whole("Of how many answered steps it is not known."),
        "tokens": whole(),
        "latency": number("Of the steps, added up, seconds."),
        "models": many(text()),
    }
)
_FIELD = record(
    {
        "path": text("Keys and places, as messages[2].content."),
        "place": text("The same in words."),
        "left": anything("What stands there."),
        "right": anything("What stands there."),
        "only": maybe(text("The side that has it at all.")),
        "text": many(record({"side": options(("both", "left", "right")), "text": text()}), "Pieces of two texts."),
    }
)
_FIELDS = record({"fields": many(_FIELD), "more": flag("There are more than 500.")})

COMPARISON = record(
    {
        "same": flag(),
        "left": _SIDE,
        "right": _SIDE,
        "total": whole("How many pairs there are."),
        "counts": record({kind.value: whole() for kind in Kind}, "Of all pairs."),
        "first": maybe(record(_PAIR, "The first that is not the same.")),
        "pairs": many(record(_PAIR), "A page of them."),
    },
    "Two sides, step by step.",
)
_IN_FULL: dict[str, Schema] = {
    **_PAIR,
    "request": _FIELDS,
    "answer": _FIELDS,
    "released": maybe(_FIELDS),
    "left_text": text("The text that the agent was given."),
    "right_text": text("The text that the agent was given."),
}
PAIR_DIFF = record(_IN_FULL, "One pair, field by field.")
_TRIAL = record(
    {
        "session": text("Where it is kept."),
        "step_number": whole(),
        "provider": text(),
        "model": text(),
        "lost": many(text(), "What could not be carried over into its wire format."),
        "error": maybe(text("Why there is no answer.")),
    }
)
TRIED = record({"trial": _TRIAL, "note": text(), **_IN_FULL}, "The recorded step (left) and its trial (right).")

_ANSWER: Schema = {"anyOf": [COMPARISON, PAIR_DIFF]}
_QUERY = (
    query("pair", whole("One pair, by its number, field by field.", minimum=0)),
    query("step", whole("The pair of the step of that number.", minimum=0)),
    limit(10_000, 100),
    after("The number", whole(minimum=-1)),
)

OPERATIONS = (
    Operation(
        "GET", "/api/diff", "Compares two sessions, runs or branches.", _ANSWER, tag="sessions",
        query=(
            query("a", text("SESSION, SESSION#RUN or SESSION@BRANCH."), required=True),
            query("b", text("SESSION, SESSION#RUN or SESSION@BRANCH."), required=True),
            *_QUERY,
        ),
        errors=(NotFound,), paged=True,
    ),
    Operation(
        "GET", _AT + "/diff", "Compares a session, or a run or branch of it, with another one.", _ANSWER,
        tag="sessions", query=(query("with", text("SESSION, SESSION#RUN or SESSION@BRANCH."), required=True), *_QUERY),
        errors=(NotFound,), paged=True,
    ),
    Operation(
        "POST", _AT + "/pause", "Pauses a session: nothing of it is sent until it is resumed.", _SHOWN, Role.ADMIN,
        "sessions", body=record({"reason": maybe(text("Why, 2000 characters at most."))}, optional=("reason",)),
        example={"reason": "the report looks wrong"}, errors=(NotFound, Conflict),
    ),
    Operation(
        "POST", _AT + "/resume", "Lets a paused session go on; requests that wait are judged anew.", _SHOWN, Role.ADMIN,
        "sessions", errors=(NotFound, Conflict),
    ),
    Operation(
        "POST", _AT + "/steps/{number}/try", "Asks another model what a recorded step asked.", TRIED, Role.ADMIN,
        "sessions", body=record({"model": text("A model, or `provider/model` of the settings.")}),
        example={"model": "gpt-4o"}, errors=(NotFound, BudgetExceeded, Unprocessable),
        more="The header `x-provider-key` gives the provider a key for this call alone.",
    ),
)  # fmt: skip
