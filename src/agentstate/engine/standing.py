"""Owns how the providers are: what the last day's attempts say of their models, breakers, waits, prices, shutdowns.

Must not send anything, nor render. Invariant: looking costs no provider a call; what is not known is ``None`` or empty,
never a good sign; no address or key of a provider is more than named.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from agentstate import clock
from agentstate.core import routing
from agentstate.core.breaker import Breaker
from agentstate.core.model import BreakerState
from agentstate.core.routing import Candidate, Route
from agentstate.core.standing import How, Standing, Tally, how
from agentstate.errors import BreakerOpen, UpstreamBusy
from agentstate.providers.provider import Provider
from agentstate.store.reader import Reader

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

SPAN_S = 86_400.0
_MOST = 500  # models that are shown; names come from agents
_UNSENT = (f"{BreakerOpen.code}:", f"{UpstreamBusy.code}:")  # says nothing of the provider
_LIMITS = (429, 503, 529)  # statuses by which providers ask to wait


class Failed(NamedTuple):
    """The last attempt that failed. ``at``: seconds since the epoch; ``wait``: seconds that it asked to wait then."""

    at: float
    status: int
    error: str
    wait: float | None = None


class Offer(NamedTuple):
    """A provider's model. ``breaker``: ``None`` where nothing failed since its last answer; ``until``: the provider
    asked to be left alone until then (0: it did not, or that is over), seconds since the epoch; ``prices``: whose are
    used, empty: none is known; ``shutdown``: the day on which its vendor ends it, where that is known."""

    candidate: Candidate
    standing: Standing
    breaker: Breaker | None
    failed: Failed | None
    until: float
    prices: str
    shutdown: date | None


class Key(NamedTuple):
    """``variable``: that holds the proxy's own key, empty: agents' credentials pass through; ``there``: it is set."""

    variable: str
    there: bool


class Queue(NamedTuple):
    limit: int
    under_way: int
    waiting: int


class ProviderState(NamedTuple):
    """``address``: scheme, host, port and path; ``untestable``: why no test call can be sent, empty: it can."""

    name: str
    address: str
    dialects: tuple[str, ...]
    key: Key
    queue: Queue | None
    offers: tuple[Offer, ...]
    untestable: str


class RouteState(NamedTuple):
    """``candidates``: where calls go in turn; the first one is what the agent asked for, as a pattern."""

    model: str
    candidates: tuple[Candidate, ...]
    on: tuple[str, ...]
    strict: bool


class Providers(NamedTuple):
    """``warnings``: what will hurt soon, as sentences; ``at``: of this look; ``since``: begin of the span."""

    providers: tuple[ProviderState, ...]
    routes: tuple[RouteState, ...]
    warnings: tuple[str, ...]
    since: float
    at: float


class _Seen:
    """What the journal says of one model. ``failed``: (step, attempt, status, error, when) of its last failure."""

    def __init__(self, since: float, until: float) -> None:
        self.tally = Tally(since, until)
        self.failed: tuple[int, int, int, str, float] | None = None


async def providers(parts: Parts) -> Providers:
    """All providers of the settings, and their models that were asked, are routed to, or are left alone."""
    at = clock.now()
    since = at - SPAN_S
    seen, failed = await asyncio.to_thread(_read, parts, since, at)
    await asyncio.wrap_future(parts.pricing.warm())
    routes = _routes(parts)
    breakers = {held.candidate: held.breaker for held in parts.breakers.shown()}
    named = [candidate for route in routes for candidate in route.candidates[1:]]
    known = list(dict.fromkeys((*named, *breakers, *seen)))[:_MOST]
    offers = [
        _offer(parts, candidate, seen.get(candidate, Standing()), breakers.get(candidate), failed.get(candidate), at)
        for candidate in known
    ]
    found = tuple(_state(parts, provider, offers) for provider in parts.providers)
    return Providers(found, routes, (*parts.routes.warnings(), *parts.foresight.warnings()), since, at)


def _read(parts: Parts, since: float, at: float) -> tuple[dict[Candidate, Standing], dict[Candidate, Failed]]:
    reader = Reader(parts.journal.path, parts.settings.store.busy_s)
    try:
        return read(reader, since, at)
    finally:
        reader.close()


def read(reader: Reader, since: float, until: float) -> tuple[dict[Candidate, Standing], dict[Candidate, Failed]]:
    """What the journal says of a span, by model: how it stood, and the last failure of each. In a thread."""
    seen: dict[Candidate, _Seen] = {}
    for row in reader.tried_since(since):
        if row.tried.error.startswith(_UNSENT):
            continue
        found = seen.setdefault(Candidate(row.provider, row.model), _Seen(since, until))
        found.tally.add(row.tried)
        if row.tried.finished_at is not None and how(row.tried) in (How.LIMITED, How.FAILED):
            found.failed = (row.step, row.n, row.tried.status, row.tried.error, row.tried.finished_at)
    failed = {key: _failed(reader, *one.failed) for key, one in seen.items() if one.failed is not None}
    return {key: one.tally.standing() for key, one in seen.items()}, failed


def _failed(reader: Reader, step: int, n: int, status: int, error: str, at: float) -> Failed:
    wait = None
    if status in _LIMITS:
        head, _ = reader.attempt_head(step, n)
        packed = reader.head_of(head)
        wait = routing.asked_wait(msgspec.json.decode(packed, type=list[tuple[str, str]]) if packed else (), at)
    return Failed(at, status, error or f"HTTP {status}", wait)


def _offer(
    parts: Parts, candidate: Candidate, standing: Standing, breaker: Breaker | None, failed: Failed | None, at: float
) -> Offer:  # fmt: skip
    until = failed.at + failed.wait if failed is not None and failed.wait else 0.0
    if breaker is not None and breaker.state is BreakerState.OPEN:
        until = max(until, breaker.until)
    provider = parts.providers.named(candidate.provider)
    prices = parts.pricing.source(provider, candidate.model, at) if provider is not None else ""
    shutdown = parts.routes.shutdown(candidate.model)
    return Offer(candidate, standing, breaker, failed, until if until > at else 0.0, prices, shutdown)


def _state(parts: Parts, provider: Provider, offers: Iterable[Offer]) -> ProviderState:
    url = urlsplit(provider.root + provider.version)
    host = url.hostname or ""
    port = f":{url.port}" if url.port else ""
    queue = parts.queues.get(provider.name)
    return ProviderState(
        provider.name,
        f"{url.scheme}://{f'[{host}]' if ':' in host else host}{port}{url.path}",
        provider.dialects,
        Key(provider.key_env, bool(provider.key_env and os.environ.get(provider.key_env))),
        Queue(queue.limit, queue.going, queue.waiting) if queue is not None else None,
        tuple(offer for offer in offers if offer.candidate.provider == provider.name),
        untestable(provider, parts.settings.simulate.enabled),
    )


def _routes(parts: Parts) -> tuple[RouteState, ...]:
    kinds = parts.providers.kinds
    return tuple(_route(route, kinds) for route in parts.routes.all)


def _route(route: Route, kinds: dict[str, tuple[str, ...]]) -> RouteState:
    asked = routing.candidate_of(route.model, next(iter(kinds), ""), kinds)
    others = routing.plan(asked, ",".join(route.fallback), (), kinds, route.on).candidates
    return RouteState(route.model, (asked, *others), tuple(sorted(route.on)), route.strict)


def untestable(provider: Provider, simulated: bool) -> str:
    """Why no call of the proxy's own can be sent there, and what to do; empty: one can."""
    if simulated:
        return (
            ""
            if "openai" in provider.dialects
            else "the simulator, which answers for it, speaks OpenAI's formats alone"
        )
    if provider.key_env:
        if os.environ.get(provider.key_env):
            return ""
        return f"its key is missing: the variable {provider.key_env} is not set where the proxy runs"
    host = urlsplit(provider.root).hostname or ""
    if "ollama" in provider.dialects or host in ("localhost", "127.0.0.1", "::1"):
        return ""
    return (
        f"agents' own keys pass through to it, and they are never kept; name a variable with a key of the proxy's own "
        f"in providers.{provider.name}.key_env"
    )
