"""Owns the rules for going on after a failed attempt: what kind of failure it is to us, whether it is tried again and
when, where else, and what an agent is told of that. Must not send, wait or roll dice: *now* and chance come in.

Invariant: a wait that a provider asks for is never cut short; waits grow and have a cap; what may have acted at the
provider is not sent a second time.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import NamedTuple

NONE = "none"  # as the value of the agent's header: no fallback for this request
_MOST_NAMED = 10  # candidates of one request
_LEAST_WAIT = 0.3  # of the base: below that a wait is none
_GROWTH = 1.6  # each wait is at least so much longer than the one before
SOON = timedelta(days=60)


class Fault(StrEnum):
    """What a failed attempt says of its provider. ``unreachable``, ``busy`` and ``left_alone``: nothing was sent."""

    UNREACHABLE = "unreachable"
    BUSY = "busy"
    LEFT_ALONE = "left_alone"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CUT = "cut"
    INVALID = "invalid"
    MODEL_GONE = "model_gone"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    CREDENTIALS = "credentials"
    REFUSED = "refused"


UNSENT = frozenset({Fault.UNREACHABLE, Fault.BUSY, Fault.LEFT_ALONE})
# The answer may exist, and have been paid for, at the provider.
LOST = frozenset({Fault.TIMEOUT, Fault.CUT, Fault.INVALID})
# What is no passing state of the provider: the same question to the same model fails the same way.
LASTING = frozenset(
    {Fault.QUOTA, Fault.MODEL_GONE, Fault.CONTEXT_LENGTH, Fault.CONTENT_FILTER, Fault.CREDENTIALS, Fault.REFUSED}
)
# What counts against a provider's health: see ``core.breaker``.
DOWN = frozenset({Fault.UNREACHABLE, Fault.OVERLOADED, Fault.SERVER_ERROR, *LOST})


class Failure(NamedTuple):
    """A failed attempt. ``status``: HTTP, 0 where none came; ``wait``: seconds that the provider asks to wait, if it
    does; ``again``: whether it says that trying again is worth it, if it says; ``text``: why, in words."""

    fault: Fault
    status: int = 0
    wait: float | None = None
    again: bool | None = None
    text: str = ""


class Candidate(NamedTuple):
    """A model at a provider of the settings."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Route:
    """Where calls for models that match ``model`` go when their own fails with one of ``on``. ``strict``: not where
    something of the request would be lost on the way."""

    model: str
    fallback: tuple[str, ...]
    on: frozenset[Fault]
    strict: bool = False


class Planned(NamedTuple):
    """Where else a call may go, in order, and after which faults."""

    candidates: tuple[Candidate, ...] = ()
    on: frozenset[Fault] = frozenset()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """``attempts``: most at one candidate; ``statuses``: HTTP statuses that are tried again; ``total_s``: no
    candidate is asked again later than that after the first attempt began; ``lost_answers``: how often a call is sent
    again whose answer was lost; ``patience_s``: nobody is asked later than that, as the agent waits no longer."""

    attempts: int
    base_s: float
    cap_s: float
    statuses: frozenset[int]
    total_s: float
    lost_answers: int
    patience_s: float = math.inf


@dataclass(frozen=True, slots=True)
class History:
    """What was done for a call. ``tried``: attempts at the present candidate; ``waited``: the last wait; ``lost``: how
    often it was sent again after its answer was lost; ``elapsed``: seconds since the first attempt began."""

    tried: int = 1
    waited: float = 0.0
    lost: int = 0
    elapsed: float = 0.0

    def after(self, delay: float, failure: Failure) -> History:
        """With one more attempt at the same candidate, after a wait of so many seconds."""
        return History(self.tried + 1, delay, self.lost + (failure.fault in LOST))


class Retry(NamedTuple):
    """Ask the same candidate again, after ``delay`` seconds."""

    delay: float


class Next(NamedTuple):
    """Ask the next candidate, at once."""


class GiveUp(NamedTuple):
    """Ask nobody again; why, in words."""

    reason: str


Decision = Retry | Next | GiveUp


def after_failure(
    failure: Failure, history: History, limits: Limits, planned: Planned, acts: bool, chance: float
) -> Decision:
    """What follows a failed attempt. ``planned``: what is left of the plan; ``acts``: the provider itself may have
    acted on the call, with tools of its own; ``chance``: uniform in [0, 1)."""
    if acts and (failure.fault in LOST or failure.fault is Fault.SERVER_ERROR):
        return GiveUp("the provider may have acted on it with tools of its own, so it is not sent again")
    if failure.fault in LOST and history.lost >= limits.lost_answers and not (limits.lost_answers and planned[0]):
        return GiveUp("its answer was lost after it was sent and may have been paid, so it is not sent once more")
    if history.elapsed >= limits.patience_s:
        return GiveUp(f"the agent waits no longer than {limits.patience_s:g} s for an attempt to begin")
    why = _why_not_again(failure, history, limits)
    if not why:
        delay = wait_before(history, limits, failure.wait, chance)
        if history.elapsed + delay < min(limits.total_s, limits.patience_s):
            return Retry(delay)
        why = f"waiting {delay:.1f} s would exceed {limits.total_s:g} s in all (retry.total_s)"
    if planned.candidates and failure.fault in planned.on:
        return Next()
    return GiveUp(why)


def _why_not_again(failure: Failure, history: History, limits: Limits) -> str:
    """Why the same candidate is not asked again; empty: it may be."""
    if failure.fault is Fault.LEFT_ALONE:
        return "its breaker is open"
    if failure.fault in LASTING or failure.again is False:
        return "trying again would not help"
    if failure.fault is Fault.BUSY:
        return "its queue is full"
    if history.tried >= limits.attempts:
        return f"it was tried {history.tried} times" if history.tried > 1 else "it is tried once"
    if failure.status and failure.status not in limits.statuses and failure.again is not True:
        return f"status {failure.status} is not one that is tried again (retry.statuses)"
    if failure.fault in LOST and history.lost >= limits.lost_answers:
        return "its answer was lost after it was sent and may have been paid"
    if failure.wait is not None and failure.wait > limits.cap_s:
        return f"it asks to wait {failure.wait:.0f} s, which is longer than {limits.cap_s:g} s (retry.cap_s)"
    return ""


def wait_before(history: History, limits: Limits, asked: float | None, chance: float) -> float:
    """Seconds before the next attempt: what the provider asks for, else exponential with full jitter, but never below
    three tenths of the base nor shorter than the wait before, so that chance does not make a burst of it."""
    if asked is not None:
        return max(asked, min(limits.base_s * _LEAST_WAIT, limits.cap_s))
    most = min(limits.cap_s, limits.base_s * 2.0 ** min(history.tried - 1, 60))
    least = max(limits.base_s * _LEAST_WAIT, history.waited * _GROWTH)
    return min(limits.cap_s, max(least, chance * most))


# --- the plan ---


def plan(
    asked: Candidate, header: str, routes: Sequence[Route], providers: Mapping[str, Sequence[str]], on: frozenset[Fault]
) -> Planned:
    """Where else a call for ``asked`` may go. ``header``: the request's own list, which binds, or ``none``;
    ``providers``: the kinds that each speaks, by name, in order; ``on``: the faults that a header's list is for."""
    if header:
        names: Iterable[str] = () if header.strip().lower() == NONE else header.split(",")
        strict = False
    else:
        route = next((route for route in routes if fnmatch.fnmatchcase(asked.model, route.model)), None)
        if route is None:
            return Planned()
        names, on, strict = route.fallback, route.on, route.strict
    found = [candidate_of(name.strip(), asked.provider, providers) for name in names if name.strip()]
    distinct = [candidate for candidate in dict.fromkeys(found) if candidate != asked]
    return Planned(tuple(distinct[:_MOST_NAMED]), on, strict)


# Whose models are called so; elsewhere they are asked for as ``provider/model``.
_FAMILIES = (
    ("claude", "anthropic"), ("gemini", "gemini"), ("gpt-", "openai"), ("chatgpt-", "openai"), ("o1", "openai"),
    ("o3", "openai"), ("o4", "openai"),
)  # fmt: skip


def candidate_of(name: str, asked: str, providers: Mapping[str, Sequence[str]]) -> Candidate:
    """``provider/model`` where the first part is a provider of the settings; else a model of the provider that was
    ``asked``, or of the first one of the model's own family where that one speaks another wire format."""
    first, slash, rest = name.partition("/")
    if slash and rest and first in providers:
        return Candidate(first, rest)
    family = next((kind for prefix, kind in _FAMILIES if name.startswith(prefix)), None)
    if family is None or family in providers.get(asked, ()):
        return Candidate(asked, name)
    return Candidate(next((key for key, kinds in providers.items() if kinds and kinds[0] == family), asked), name)


# --- what a provider says about waiting ---


def asked_wait(headers: Iterable[tuple[str, str]], now: float) -> float | None:
    """Seconds that response headers ask to wait: ``retry-after-ms``, or ``Retry-After`` in seconds or as a date.
    ``now``: seconds since the epoch. ``None``: they do not ask."""
    named = {name.lower(): value.strip() for name, value in headers}
    exact = _number(named.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    value = named.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def said_again(headers: Iterable[tuple[str, str]]) -> bool | None:
    """What ``x-should-retry`` says, if anything."""
    value = next((value.strip().lower() for name, value in headers if name.lower() == "x-should-retry"), "")
    return {"true": True, "false": False}.get(value)


# --- what is told ---


def told(candidate: str, why: str, lost: Sequence[str]) -> str:
    """The value of ``x-agentstate-fallback``: who answered instead, why, and what of the request or answer was lost."""
    text = f"{candidate}; because={why}"
    return text + (f"; lost={','.join(lost)}" if lost else "")


def warnings(routes: Sequence[Route], ends: Mapping[str, date], today: date) -> list[str]:
    """What will hurt soon: candidates whose shutdown is known and near, or past. ``ends``: days by model."""
    found = []
    for route in routes:
        for name in route.fallback:
            model = name if name in ends else name.partition("/")[2]
            end = ends.get(model)
            if end is not None and end - today <= SOON:
                when = f"was shut down on {end}" if end <= today else f"will be shut down on {end}"
                found.append(f"the route for {route.model} falls back to {name}, which {when}: name another model")
    return found
