"""Owns the routes of retention, and how they look as JSON. Must not decide what goes, nor delete: the engine does.

Invariant: as for ``api``; what changes anything asks for an admin. Times are ISO 8601 in UTC, sizes bytes, ages days.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.core.model import SessionStatus
from agentstate.core.retention import DAY_S, WORDS, Fate, Rules, Why
from agentstate.engine.core import Parts
from agentstate.engine.retention import Overview, Report, Retention
from agentstate.errors import BadRequest
from agentstate.server.routing import Guard, body_of, is_small, json_answer, person_of, text_of
from agentstate.server.views import moment
from agentstate.store.pruning_reader import Size

MOST_SHOWN = 1000  # sessions of a report that are listed by their ids
_MOST_DAYS = 36_500.0


class Asked(NamedTuple):
    """What a call of ``POST /api/prune`` asks for."""

    rules: Rules
    superseded_s: float | None
    dry_run: bool
    vacuum: bool


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """Viewers may look, admins delete."""
    at, retention = "/api/sessions/{id:path}", parts.retention

    async def overview(request: Request) -> Response:
        return json_answer(overview_view(await retention.overview()))

    async def prune(request: Request) -> Response:
        asked = asked_of(retention, await body_of(request))
        report = await retention.prune(
            asked.rules, person_of(request).name, dry_run=asked.dry_run, vacuum=asked.vacuum,
            superseded_s=asked.superseded_s,
        )  # fmt: skip
        return json_answer(report_view(report))

    async def delete(request: Request) -> Response:
        gone = await retention.delete(request.path_params["id"], person_of(request))
        return json_answer({"id": gone.key, "deleted": True, "steps": gone.steps, "cost": gone.cost})

    async def pin(request: Request) -> Response:
        key, reason = request.path_params["id"], text_of(await body_of(request), "reason", "")
        await retention.pin(key, person_of(request), reason)
        return json_answer({"id": key, "pinned": True})

    async def unpin(request: Request) -> Response:
        key = request.path_params["id"]
        await retention.unpin(key, person_of(request))
        return json_answer({"id": key, "pinned": False})

    return [
        Route("/api/retention", guard(overview), methods=["GET"]),
        Route("/api/prune", guard(prune, Role.ADMIN), methods=["POST"]),
        Route(at + "/pin", guard(pin, Role.ADMIN), methods=["POST"]),
        Route(at + "/unpin", guard(unpin, Role.ADMIN), methods=["POST"]),
        Route(at, guard(delete, Role.ADMIN), methods=["DELETE"]),
    ]


def asked_of(retention: Retention, body: dict[str, Any]) -> Asked:
    """What a body asks for; one that names no rule asks for what the settings do. Raises ``BadRequest``."""
    names = {"older_than_days", "keep", "max_bytes", "label", "status", "superseded_days", "dry_run", "vacuum"}
    if unknown := sorted(set(body) - names):
        raise BadRequest(f"{unknown[0][:40]!r} is not known here; send {', '.join(sorted(names))}")
    days, superseded = _days(body, "older_than_days"), _days(body, "superseded_days")
    keep, most_bytes = _count(body, "keep"), _count(body, "max_bytes")
    label, status = text_of(body, "label", ""), text_of(body, "status", "").upper()
    dry_run, vacuum = _flag(body, "dry_run"), _flag(body, "vacuum")
    if status and status not in tuple(SessionStatus):
        raise BadRequest(f"status is {status[:40]!r}; use one of {', '.join(SessionStatus)}")
    rules = retention.asked_rules(days, keep, most_bytes, label, status)
    named = rules is not retention.rules
    superseded_s = superseded if superseded is not None or named else retention.superseded_s
    if not (rules.any or superseded_s is not None or vacuum):
        raise BadRequest(
            "nothing says what is to go: send older_than_days, keep, max_bytes, label or status, or give [retention] "
            "in the settings rules"
        )
    return Asked(rules, superseded_s, dry_run, vacuum)


def _days(body: dict[str, Any], name: str) -> float | None:
    """Days of a body, as seconds."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadRequest(f"{name} must be a number of days")
    if not 0 <= value <= _MOST_DAYS:
        raise BadRequest(f"{name} must be from 0 to {_MOST_DAYS:.0f}")
    return float(value) * DAY_S


def _count(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (not is_small(value) or value < 0):
        raise BadRequest(f"{name} must be a whole number, 0 or more")
    return value


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false")
    return value


def report_view(report: Report) -> dict[str, Any]:
    """What a pruning did, or would do."""
    return {
        "dry_run": report.dry_run,
        "sessions": len(report.gone),
        "steps": sum(fate.session.steps for fate in report.gone),
        "gone": [fate_view(fate) for fate in report.gone[:MOST_SHOWN]],
        "kept": kept_view(report.kept),
        "superseded_steps": report.superseded,
        "bodies": report.bodies,
        "before": size_view(report.before),
        "after": size_view(report.after),
    }


def overview_view(found: Overview) -> dict[str, Any]:
    """The rules, the sizes, and what would go now."""
    goes = [fate for fate in found.fates if fate.goes]
    kept: dict[Why, int] = {}
    for fate in found.fates:
        if not fate.goes:
            kept[fate.why] = kept.get(fate.why, 0) + 1
    return {
        "rules": rules_view(found.rules, found.superseded_s) | {"every_h": found.every_s / 3600},
        "size": size_view(found.size),
        "would_go": {
            "sessions": len(goes),
            "steps": sum(fate.session.steps for fate in goes),
            "first": [fate_view(fate) for fate in goes[:MOST_SHOWN]],
        },
        "kept": kept_view(kept),
        "pinned": [
            {"id": pin.key, "by": pin.actor, "reason": pin.reason or None, "at": moment(pin.at)}
            for pin in found.pinned
        ],
        "unfinished": {"sessions": len(found.left.doomed), "garbage": found.left.garbage},
        "working": None if found.working is None else found.working._asdict(),
    }  # fmt: skip


def rules_view(rules: Rules, superseded_s: float | None) -> dict[str, Any]:
    """The rules of the settings, ages in days."""
    return {
        "sessions_days": _in_days(rules.older_s),
        "max_sessions": rules.most,
        "max_bytes": rules.most_bytes,
        "keep_labels": list(rules.keep_labels),
        "by_label": [{"label": label, "days": _in_days(age)} for label, age in rules.by_label],
        "superseded_days": _in_days(superseded_s),
    }


def _in_days(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / DAY_S


def fate_view(fate: Fate) -> dict[str, Any]:
    found = fate.session
    return {
        "id": found.key,
        "steps": found.steps,
        "status": found.status,
        "used_at": moment(found.used_at),
        "why": fate.why.value,
    }


def kept_view(kept: dict[Why, int]) -> list[dict[str, Any]]:
    """How many stay, by why, most first."""
    return [
        {"why": why.value, "sessions": count, "text": WORDS[why]}
        for why, count in sorted(kept.items(), key=lambda pair: -pair[1])
    ]


def size_view(size: Size) -> dict[str, Any]:
    """``bytes`` of the file, of which ``free_bytes`` are free pages; ``log_bytes`` of its write-ahead log."""
    return {
        "bytes": size.file,
        "free_bytes": size.free,
        "log_bytes": size.log,
        "sessions": size.sessions,
        "steps": size.steps,
    }
