"""Owns the description of the routes of exports and ratings. Must not serve them.

Invariant: as for ``describing``.
"""

from __future__ import annotations

from agentstate.core.approval import Role
from agentstate.core.dataset_filter import FORMATS, RATINGS
from agentstate.errors import NotFound, Unprocessable
from agentstate.server.describing import (
    Operation,
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
_MARK = record({"rating": options(RATINGS), "note": maybe(text("Why, 2000 characters at most."))}, optional=("note",))
_NAMES = {"add": maybe(many(text())), "remove": maybe(many(text()))}
_SESSION = query("session", text("Only this session."), many_times=True)
_FLAG = "true or false."

FILTERS = (
    query("format", text(f"One of {', '.join(FORMATS)}."), "openai"),
    query("label", text("A session or step has this label, or another of those given."), many_times=True),
    query("status", text("Only sessions of this status.")),
    query("rating", text("Only what was rated so: good, bad, none.")),
    query("model", text("Only steps of models that this pattern fits.")),
    query("since", text("Only steps asked since this day or moment.")),
    query("until", text("Only steps asked until this day or moment.")),
    query("min_cost", text("Least cost of a line, USD.")),
    query("max_cost", text("Most cost of a line, USD.")),
    query("run", text("Only steps of this run.")),
    query("branch", text("This branch of the session, by its number, instead of the one that is shown.")),
    query("approved", text(f"Only where a person approved or edited a call and none was refused: {_FLAG}")),
    query("finished", text(f"Only where the last answer ended by itself: {_FLAG}")),
    query("min_steps", text("Least trained answers in a line.")),
    query("per", text("A line for each trajectory, or for each step.")),
    query("dedupe", text(f"Leave equal lines out: {_FLAG}")),
    query("redact", text(f"Redact secrets and personal data: {_FLAG}")),
    query("split", text("The share of the sessions that are for validation.")),
    query("part", text("Only train, or only validation.")),
)

_REPORT = record(
    {
        "format": options(FORMATS),
        "summary": text("In one sentence."),
        "lines": whole(),
        "sessions": whole(),
        "parts": mapped(whole(), "Lines in each part."),
        "left_out": mapped(whole(), "Lines by the reason why they are left out."),
        "losses": mapped(whole(), "What lines could not hold, by kind."),
        "redacted": mapped(whole(), "Places by kind."),
        "bytes": whole(),
        "tokens": whole("About how many."),
        "price": number("What the answers in them cost, USD, as far as it is known."),
        "unpriced": whole("Answers whose cost is not known."),
        "warnings": many(text()),
        "preview": many(text(), "The first lines."),
    }
)

OPERATIONS = (
    Operation(
        "GET", "/api/export/dataset", "Exports sessions as a data set.", text(), tag="exports",
        query=(_SESSION, *FILTERS), kind="application/jsonl", errors=(NotFound, Unprocessable),
        more="As application/vnd.apache.parquet where the format is parquet.",
    ),
    Operation(
        "GET", "/api/export/report", "Says what an export would come to, with its first lines.", _REPORT, tag="exports",
        query=(_SESSION, *FILTERS, query("preview", whole("How many lines, 0 to 20.", minimum=0, maximum=20), 3)),
        errors=(NotFound,),
    ),
    Operation(
        "GET", _AT + "/export", "Exports one session as a data set.", text(), tag="exports", query=FILTERS,
        kind="application/jsonl", errors=(NotFound, Unprocessable),
    ),
    Operation(
        "POST", _AT + "/rating", "Rates a session.", record({"id": text(), "rating": maybe(ref("Rating"))}),
        Role.APPROVER, "exports", body=_MARK, example={"rating": "good", "note": "just right"}, errors=(NotFound,),
    ),
    Operation(
        "POST", _AT + "/steps/{number}/rating", "Rates a step.",
        record({"id": text(), "step_number": whole(), "rating": maybe(ref("Rating"))}), Role.APPROVER, "exports",
        body=_MARK, example={"rating": "bad", "note": "wrong tool"}, errors=(NotFound,),
    ),
    Operation(
        "POST", _AT + "/steps/{number}/labels", "Adds and removes labels of a step.",
        record({"id": text(), "step_number": whole(), "labels": many(text())}), Role.APPROVER, "exports",
        body=record(_NAMES, optional=_NAMES), example={"add": ["example"]}, errors=(NotFound,),
    ),
)  # fmt: skip
