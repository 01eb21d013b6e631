"""Owns what the page of providers shows: routes in turn, how each model stood in the last day, what to paste.

Must not ask a provider anything. Invariant: it shows what ``engine.standing`` found; a model that nobody asked is shown
as such, never as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from agentstate.core import toml
from agentstate.core.model import BreakerState
from agentstate.core.routing import SOON, Candidate
from agentstate.engine.standing import Offer, Providers, ProviderState, RouteState
from agentstate.settings import ProviderSettings, RouteSettings


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """Attempts that began within half an hour, from ``since`` on (seconds since the epoch)."""

    since: float
    answered: int
    limited: int
    failed: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The day on which a vendor shuts a model down; ``state``: ``past``, ``soon`` (60 days) or ``far``."""

    on: str
    days: int
    state: str


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """``state``: of its breaker: closed, open or half_open; ``idle``: nothing was asked and nothing is known to be
    wrong. ``p50``, ``p95``: seconds; ``failing``: share from 0 to 1; ``wait_until``: it asks to be left alone until
    then; ``why``: its last failure, ``why_at``: when."""

    provider: str
    model: str
    state: str
    failures: int
    since: float
    wait_until: float
    why: str
    why_at: float
    answered: int
    limited: int
    failed: int
    under_way: int
    calls: int
    failing: float | None
    p50: float | None
    p95: float | None
    strip: tuple[SlotFigures, ...]
    prices: str
    ending: Ending | None


@dataclass(frozen=True, slots=True)
class ProviderFigures:
    """``key``: ``own``, ``missing`` or ``agents``; ``most``: calls at a time, 0: any number; ``untestable``: why no
    test call can be sent, empty: it can; ``toml``: its table of the settings."""

    name: str
    address: str
    dialects: tuple[str, ...]
    key: str
    key_variable: str
    most: int
    under_way: int
    waiting: int
    models: tuple[ModelFigures, ...]
    untestable: str
    toml: str


@dataclass(frozen=True, slots=True)
class Place:
    """A candidate of a route. ``state``: as in ``ModelFigures``; ``known``: the settings have its provider."""

    provider: str
    model: str
    state: str
    known: bool
    ending: Ending | None


@dataclass(frozen=True, slots=True)
class RouteFigures:
    model: str
    places: tuple[Place, ...]
    on: tuple[str, ...]
    strict: bool
    toml: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A route that somebody is writing. ``toml``: to be pasted; ``fault``: why there is none."""

    model: str = ""
    fallback: str = ""
    strict: bool = False
    toml: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ProvidersPage:
    """``since``, ``at``: of the figures, seconds since the epoch; ``simulated``: the simulator answers for all."""

    providers: tuple[ProviderFigures, ...]
    routes: tuple[RouteFigures, ...]
    warnings: tuple[str, ...]
    since: float
    at: float
    simulated: bool
    draft: Draft


def providers_page(
    found: Providers, providers: Mapping[str, ProviderSettings], routes: Sequence[RouteSettings], simulated: bool,
    draft: Draft,
) -> ProvidersPage:  # fmt: skip
    today = datetime.fromtimestamp(found.at, tz=UTC).date()
    models = {offer.candidate: model_figures(offer, today) for provider in found.providers for offer in provider.offers}
    return ProvidersPage(
        tuple(_provider(one, models, providers[one.name]) for one in found.providers),
        tuple(_route(one, given, models) for one, given in zip(found.routes, routes, strict=True)),
        found.warnings, found.since, found.at, simulated, draft,
    )  # fmt: skip


def model_figures(offer: Offer, today: date) -> ModelFigures:
    breaker, stood, failed = offer.breaker, offer.standing, offer.failed
    state = breaker.state.value if breaker is not None else BreakerState.CLOSED.value
    if state == BreakerState.CLOSED.value and not stood.calls and breaker is None:
        state = "idle"
    return ModelFigures(
        offer.candidate.provider, offer.candidate.model, state, breaker.failures if breaker is not None else 0,
        breaker.since if breaker is not None else 0.0, offer.until,
        failed.error if failed is not None else breaker.why if breaker is not None else "",
        failed.at if failed is not None else breaker.at if breaker is not None else 0.0,
        stood.answered, stood.limited, stood.failed, stood.under_way, stood.calls, stood.failing, stood.p50, stood.p95,
        tuple(SlotFigures(slot.since, slot.answered, slot.limited, slot.failed) for slot in stood.strip),
        offer.prices, ending(offer.shutdown, today),
    )  # fmt: skip


def ending(on: date | None, today: date) -> Ending | None:
    if on is None:
        return None
    left = on - today
    return Ending(on.isoformat(), left.days, "past" if left.days <= 0 else "soon" if left <= SOON else "far")


def _provider(
    found: ProviderState, models: Mapping[Candidate, ModelFigures], given: ProviderSettings
) -> ProviderFigures:  # fmt: skip
    queue = found.queue
    mine = [models[offer.candidate] for offer in found.offers]
    return ProviderFigures(
        found.name, found.address, found.dialects,
        "agents" if not found.key.variable else "own" if found.key.there else "missing", found.key.variable,
        queue.limit if queue is not None else 0, queue.under_way if queue is not None else 0,
        queue.waiting if queue is not None else 0,
        tuple(sorted(mine, key=lambda model: (model.state in ("closed", "idle"), -model.calls, model.model))),
        found.untestable,
        toml.table(f"providers.{found.name}", {
            "url": found.address, "dialects": list(given.dialects), "key_env": given.key_env or None,
            "max_concurrent": given.max_concurrent or None,
            "usage_in_streams": None if given.usage_in_streams else False,
        }),
    )  # fmt: skip


def _route(found: RouteState, given: RouteSettings, models: Mapping[Candidate, ModelFigures]) -> RouteFigures:
    places = tuple(_place(candidate, models.get(candidate)) for candidate in found.candidates)
    return RouteFigures(found.model, places, found.on, found.strict, route_toml(given))


def _place(candidate: Candidate, figures: ModelFigures | None) -> Place:
    state = figures.state if figures is not None else "idle"
    return Place(candidate.provider, candidate.model, state, True, figures.ending if figures is not None else None)


def route_toml(given: RouteSettings) -> str:
    """A route as its table of the settings; what is as it is anyway is left out."""
    default = RouteSettings(model="x", fallback=["y"])  # type: ignore[call-arg]
    return toml.table("routes", {
        "model": given.model, "fallback": given.fallback, "on": None if given.on == default.on else given.on,
        "strict": given.strict or None,
    }, many=True)  # fmt: skip


def drafted(model: str, fallback: str, strict: bool, providers: Sequence[str]) -> Draft:
    """The table of a route as somebody types it. ``fallback``: one a line, or with commas."""
    if not model and not fallback:
        return Draft()
    names = [name.strip() for name in fallback.replace("\n", ",").split(",") if name.strip()]
    fault = ""
    if not model.strip():
        fault = "say which models it is for, as gpt-4o*"
    elif not names:
        fault = "say where their calls go instead, one model a line"
    if fault:
        return Draft(model, fallback, strict, "", fault)
    named = [name.partition("/")[0] for name in names if "/" in name]
    strangers = sorted({name for name in named if name not in providers})
    if strangers:
        fault = (
            f"no provider of the settings is called {', '.join(strangers)}: the whole is taken for a model's name. "
            f"There are {', '.join(providers)}"
        )
    given = RouteSettings(model=model.strip(), fallback=names, strict=strict)  # type: ignore[call-arg]
    return Draft(model, fallback, strict, route_toml(given), fault)
