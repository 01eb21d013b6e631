"""Owns how sessions, steps and runs look as JSON. Must not query more than it is given.

Invariant: the first version's names stand (``id``, ``status``, ``step_number``, ``request_hash``, ``prompt``,
``response``, ``token_cost``, ``latency``, ``created_at``); newer ones stand beside them. Times are ISO 8601 in UTC,
money is USD.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from agentstate.core import effects
from agentstate.core.model import ApprovalKind, Shape, State
from agentstate.dialects import registry
from agentstate.engine.sessions import RunSummary, summary
from agentstate.errors import AgentStateError
from agentstate.store.branches import BranchRow, RevisionRow
from agentstate.store.detours import AttemptRow
from agentstate.store.rating_reader import RatingRow
from agentstate.store.reader import Reader
from agentstate.store.rows import AnswerRow, ApprovalRow, InvocationRow, OutboxRow, SessionRow, StepRow


def moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC).isoformat().replace("+00:00", "Z")


def session_view(reader: Reader, row: SessionRow) -> dict[str, Any]:
    steps, failed, cost, run_count = reader.session_totals(row.id)
    fork = reader.fork_of(row.id)
    return {
        "id": row.key,
        "status": row.status.value,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
        "steps": steps,
        "failed_steps": failed,
        "runs": run_count,
        "cost": cost,
        "forked_from": None if fork is None else _origin(reader, fork),
        "note": json.loads(row.note) if row.note.startswith("{") else row.note or None,
        "rating": rating_view(reader.ratings(row.id).get(0)),
        "labels": list(reader.labels(row.id)),
    }


def rating_view(row: RatingRow | None) -> dict[str, Any] | None:
    """What a person said of a session or step; ``None``: nobody said anything."""
    return None if row is None else {"rating": row.verdict, "note": row.note, "by": row.by, "at": moment(row.at)}


def _origin(reader: Reader, fork: BranchRow) -> dict[str, Any]:
    """What a session shares: the steps of another one below a number."""
    parent = fork.branch.parent
    source = reader.session_of(reader.session_of_branch(parent)) if parent is not None else None
    return {"session": source.key if source is not None else None, "branch": parent, "step_number": fork.branch.upto}


def run_view(found: RunSummary) -> dict[str, Any]:
    row = found.row
    return {
        "run": row.name,
        "state": row.state.value,
        "evidence": row.evidence,
        "replayed": found.replayed,
        "joined": found.joined,
        "live": found.live,
        "cost": found.cost,
        "saved": found.saved,
        "diverged": row.divergence is not None,
        "divergence": json.loads(row.divergence) if row.divergence else None,
        "sibling": bool(row.siblings),
        "exit_code": row.exit_code,
        "started_at": moment(row.started_at),
        "ended_at": moment(row.ended_at),
    }


def detail_view(reader: Reader, row: SessionRow, start: int, limit: int) -> dict[str, Any]:
    """The session, a page of its steps with their bodies, and its runs."""
    return {
        "session": session_view(reader, row),
        "steps": steps_view(reader, row, start, limit),
        "runs": [run_view(summary(reader, run)) for run in reversed(reader.runs(row.id, 1000))],
    }


def steps_view(reader: Reader, row: SessionRow, start: int, limit: int, bodies: bool = True) -> list[dict[str, Any]]:
    """A page of a session's steps, from the number ``start`` on. Without ``bodies`` they lack what is read from those:
    ``prompt``, ``response``, ``proposed``, ``release``."""
    names = {run.id: run.name for run in reader.runs(row.id, 1000)}
    lineage = reader.shown(row)
    shown = dict(lineage)
    edits = reader.revisions(lineage)
    steps = reader.all_steps(row.id, start, limit)
    names |= reader.run_names({step.run for step in steps} - names.keys())
    own = {key for key, branch in reader.branches(row.id).items() if branch.session == row.id}
    last_given = reader.last_given(row.id)
    ratings, labels = reader.ratings(row.id), reader.step_labels(row.id)
    calls: dict[int, list[dict[str, Any]]] = {}
    given = reader.invocations(step.id for step in steps)
    made = _made_at(reader, steps, given)
    for place, call in enumerate(given):
        calls.setdefault(call.step, []).append(call_view(call, made.get(place)))
    asked: dict[int, list[dict[str, Any]]] = {}
    for approval in reader.asked_about(step.id for step in steps):
        asked.setdefault(approval.step, []).append(asked_view(approval))
    served: dict[int, list[dict[str, Any]]] = {}
    for step, run, outcome, match, cut, joins, at in reader.served_of(step.id for step in steps):
        served.setdefault(step, []).append(
            {"run": run, "outcome": outcome, "match": match, "cut": cut, "again": joins, "at": moment(at)}
        )
    return [
        step_view(reader, step, names, shown, served.get(step.id, []), bodies)
        | {"shared": step.branch not in own, "edited": None}
        | (edited_view(reader, edits[step.id], bodies) if step.id in edits else {})
        | {
            "deaths": last_given.get(step.id, 0),
            "calls": calls.get(step.id, []),
            "approvals": asked.get(step.id, []),
            "tries": [attempt_view(row) for row in reader.attempts(step.id)] if step.attempts > 1 else [],
            "rating": rating_view(ratings.get(step.id)),
            "labels": list(labels.get(step.id, ())),
        }
        for step in steps
    ]


def _made_at(reader: Reader, steps: Sequence[StepRow], given: Sequence[InvocationRow]) -> dict[int, int]:
    """Which of the calls that agents were given are tool steps of their own, so that nobody takes one for two."""
    tools = [effect for step in steps if step.kind == "tool" and (effect := reader.effect(step.id)) is not None]
    if not tools:
        return {}
    numbers = {step.id: step.number for step in steps}
    proposed = [effects.Proposed(numbers[call.step], call.tool, call.arguments) for call in given]
    return effects.paired(proposed, [effects.Made(one.number, one.server, one.tool, one.arguments) for one in tools])


def call_view(call: InvocationRow, made_at: int | None) -> dict[str, Any]:
    """A tool call that the answer gave the agent, and the result that came back. ``made_at``: the number of the step
    that is this very call, where it was made under a claim."""
    return {
        "kind": "tool",
        "call_id": call.call_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "result": call.result,
        "failed": call.failed,
        "seen_at": moment(call.seen_at),
        "made_at": made_at,
    }


def attempt_view(row: AttemptRow) -> dict[str, Any]:
    """One attempt of a step that has several."""
    return {
        "attempt": row.n,
        "provider": row.provider,
        "candidate": row.detour.candidate or None,
        "status": row.status,
        "model": row.model or None,
        "cost": row.cost,
        "error": row.error or None,
        "why": row.detour.why or None,
        "lost": list(row.detour.lost),
        "started_at": moment(row.started_at),
        "finished_at": moment(row.finished_at),
    }


def asked_view(row: ApprovalRow) -> dict[str, Any]:
    """An approval as it stands beside its step; the request that a person is asked about is the step's own."""
    return {
        "id": row.id,
        "kind": row.kind.value,
        "tool_name": row.tool,
        "call_id": row.call_id,
        "arguments": row.arguments if row.kind is not ApprovalKind.REQUEST else "",
        "status": row.state.value.upper(),
        "decided_by": row.decided_by or None,
        "reason": row.reason,
    }


_OF_BODIES = ("prompt", "response", "proposed", "release")


def step_view(
    reader: Reader,
    step: StepRow,
    names: dict[int, str],
    shown: dict[int, int],
    served: list[dict[str, Any]],
    bodies: bool = True,
) -> dict[str, Any]:
    """One step, bodies as JSON text. A body that cannot be read says why instead of failing the whole list."""
    ended = step.finished_at
    view: dict[str, Any] = {
        "step_number": step.number,
        "request_hash": step.fingerprint.hex(),
        "prompt": None,
        "response": None,
        "proposed": None,
        "release": None,
        "token_cost": step.cost,
        "prices": step.prices or None,
        "latency": round(ended - step.started_at, 6) if ended is not None else None,
        "created_at": moment(step.created_at),
        "state": step.state.value,
        "kind": step.kind,
        "model": step.model or step.asked_model,
        "asked_model": step.asked_model,
        "provider": step.provider,
        "stream": step.shape.stream,
        "status_code": step.status,
        "attempts": step.attempts,
        "usage": json.loads(step.usage) if step.usage else None,
        "error": step.error or None,
        "run": names.get(step.run),
        "superseded": step.branch not in shown or step.number >= shown[step.branch],
        "served": served,
    }
    if not bodies:
        return {name: value for name, value in view.items() if name not in _OF_BODIES}
    try:
        view["prompt"] = reader.request(step.id)[3].decode("utf-8", "replace")
        if step.has_body:
            answer = reader.answer(step.id)
            view["response"] = _text(answer)
            view["release"] = answer.release.value if answer.release is not None else None
            received = reader.received(step.id) if answer.release is not None else answer
            view["proposed"] = _text(received) if received.body != answer.body else None
    except AgentStateError as error:
        view["error"] = str(error)
    return view


def edited_view(reader: Reader, edit: RevisionRow, bodies: bool = True) -> dict[str, Any]:
    """What is another in a step whose answer a person edited: the answer as agents are given it, and who did it. The
    recorded one is among its versions."""
    said = {"made_by": edit.made_by, "reason": edit.reason or None, "created_at": moment(edit.made_at)}
    told = {**said, "branch": edit.branch, "changed": json.loads(edit.changed)}
    if not bodies:
        return {"edited": told}
    return {"edited": told, "response": reader.blob(edit.body).decode("utf-8", "replace")}


def _text(answer: AnswerRow) -> str:
    """A recorded answer as JSON text; a stream is added up."""
    body = answer.body
    if answer.state is State.COMPLETED and answer.shape.stream:
        body = registry.BY_NAME[answer.dialect].convert(answer.shape, Shape(), body)
    return body.decode("utf-8", "replace")


def message_view(row: OutboxRow) -> dict[str, Any]:
    """One message to one target; never the target's address."""
    return {
        "id": row.id,
        "alert": row.alert,
        "target": row.target,
        "event": row.event,
        "session": row.session or None,
        "subject": row.subject or None,
        "state": row.state,
        "attempts": row.attempts,
        "created_at": moment(row.created_at),
        "next_at": moment(row.next_at) if row.state == "pending" else None,
        "delivered_at": moment(row.delivered_at),
        "dead_at": moment(row.dead_at),
        "error": row.error or None,
    }
