"""Owns the routes of how things stand: providers, settings, policies, who asks. Must not hold rules, nor change them.

Invariant: looking costs no provider a call; of secrets it is shown whether they are set, of addresses where they lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate.core.model import Action, BreakerState
from agentstate.engine import standing
from agentstate.engine.about import plain
from agentstate.engine.core import Parts
from agentstate.engine.policies import Policies, check_tried
from agentstate.engine.rehearsal import LAST, Rehearsal, Seen, rehearsed_last
from agentstate.engine.standing import Offer, Providers, ProviderState, RouteState
from agentstate.errors import BadRequest, SettingsError, Unprocessable
from agentstate.server.routing import Guard, body_of, is_small, json_answer, person_of
from agentstate.server.views import moment
from agentstate.settings import PolicySettings, Settings

MOST_POLICIES = 1000
MOST_SHOWN = 200


def routes(parts: Parts, guard: Guard) -> list[Route]:
    """All for viewers."""

    async def providers(request: Request) -> Response:
        return json_answer(standing_view(await standing.providers(parts), parts.settings.simulate.enabled))

    async def settings(request: Request) -> Response:
        return json_answer(settings_view(parts.settings))

    async def policies(request: Request) -> Response:
        return json_answer(policies_view(parts.settings.policies))

    async def rehearse(request: Request) -> Response:
        body = await body_of(request)
        last, given = body.get("last", LAST), body.get("policies")
        if last is None or not is_small(last):
            raise BadRequest('send {"last": 1000}, and "policies": […] to try others than those in force')
        tried = parts.settings.policies if given is None else _policies(given)
        check_tried(tried, parts.settings.policies, person_of(request))
        try:
            rules = Policies(tried)
        except SettingsError as error:
            raise Unprocessable(str(error)) from error
        return json_answer(
            await guard.reading(lambda reader: rehearsal_view(rehearsed_last(reader, rules, last, MOST_SHOWN)))
        )

    async def whoami(request: Request) -> Response:
        person = person_of(request)
        return json_answer({"name": person.name, "role": person.role.value})

    return [
        Route("/api/providers", guard(providers), methods=["GET"]),
        Route("/api/settings", guard(settings), methods=["GET"]),
        Route("/api/policies", guard(policies), methods=["GET"]),
        Route("/api/policies/rehearse", guard(rehearse), methods=["POST"]),
        Route("/api/whoami", guard(whoami), methods=["GET"]),
    ]


def _policies(given: Any) -> list[PolicySettings]:
    if not isinstance(given, list) or len(given) > MOST_POLICIES:
        raise BadRequest(f"policies is a list of {MOST_POLICIES} at most, each like a [[policies]] table")
    if not all(isinstance(one, dict) for one in given):
        raise BadRequest("each policy is an object like a [[policies]] table")
    found = []
    for number, one in enumerate(given, 1):
        try:
            found.append(PolicySettings(**one))
        except ValueError as error:  # which says of each part what is wrong with it
            faults: list[Any] = getattr(error, "errors", list)()
            told = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:5])
            raise Unprocessable(f"policy {number}: {told or error}") from error
    return found


# --- providers ---


def standing_view(found: Providers, simulated: bool) -> dict[str, Any]:
    """``simulated``: the simulator answers in the place of all of them."""
    return {
        "since": moment(found.since),
        "at": moment(found.at),
        "simulated": simulated,
        "providers": [_provider(one) for one in found.providers],
        "routes": [_route(one) for one in found.routes],
        "warnings": list(found.warnings),
    }


def _provider(found: ProviderState) -> dict[str, Any]:
    return {
        "name": found.name,
        "address": found.address,
        "dialects": list(found.dialects),
        "key": "agents" if not found.key.variable else "own" if found.key.there else "missing",
        "key_variable": found.key.variable or None,
        "queue": found.queue._asdict() if found.queue is not None else None,
        "untestable": found.untestable or None,
        "models": [_offer(one) for one in found.offers],
    }


def _offer(found: Offer) -> dict[str, Any]:
    seen, breaker, failed = found.standing, found.breaker, found.failed
    return {
        "model": found.candidate.model,
        "state": (breaker.state if breaker is not None else BreakerState.CLOSED).value,
        "calls": seen.calls,
        "answered": seen.answered,
        "limited": seen.limited,
        "failed": seen.failed,
        "under_way": seen.under_way,
        "failing": seen.failing,
        "p50": seen.p50,
        "p95": seen.p95,
        "until": moment(found.until) if found.until else None,
        "last_failure": (
            {"at": moment(failed.at), "status": failed.status, "error": failed.error} if failed is not None else None
        ),
        "prices": found.prices or None,
        "shutdown": found.shutdown.isoformat() if found.shutdown is not None else None,
        "strip": [{**slot._asdict(), "since": moment(slot.since)} for slot in seen.strip],
    }


def _route(found: RouteState) -> dict[str, Any]:
    return {
        "model": found.model,
        "candidates": [candidate._asdict() for candidate in found.candidates],
        "on": list(found.on),
        "strict": found.strict,
    }


# --- settings and policies ---


def settings_view(settings: Settings) -> dict[str, Any]:
    """``settings``: all in force, by section; ``set``: those that a file, a variable or a flag gave."""
    given = settings.model_dump(exclude_unset=True)
    return {"settings": plain(settings.model_dump()), "set": sorted(_names(given))}


def _names(given: dict[str, Any]) -> list[str]:
    found = []
    for section, part in given.items():
        found += [f"{section}.{name}" for name in part] if isinstance(part, dict) else [section]
    return found


def policies_view(given: Sequence[PolicySettings]) -> list[dict[str, Any]]:
    """The policies by their number, the place in the settings."""
    return [{"number": number, **one.model_dump()} for number, one in enumerate(given, 1)]


def rehearsal_view(found: Rehearsal) -> dict[str, Any]:
    """What the last calls would meet. ``kept``: those that would be held or denied, newest first."""
    return {
        "looked": found.looked,
        "unread": found.unread,
        "whole": found.whole,
        **{name: found.counts.get(action, 0) for name, action in _ACTIONS.items()},
        "by_policy": [
            {"policy": number or None, "action": action.value, "calls": count}
            for (number, action), count in sorted(found.by_rule.items())
        ],
        "kept": [_kept(one) for one in found.kept],
    }


_ACTIONS = {"allowed": Action.ALLOW, "held": Action.HOLD, "denied": Action.DENY}


def _kept(one: Seen) -> dict[str, Any]:
    call, ruling = one.met.call, one.met.ruling
    assert call is not None and ruling is not None  # what cannot be read is counted, not kept
    return {
        "session_id": one.session,
        "step_number": one.met.number,
        "tool_name": call.name,
        "arguments_text": call.arguments,
        "action": ruling.action.value,
        "policy": ruling.rule.number if ruling.rule is not None else None,
        "why": ruling.why,
    }
