"""Owns what an answer cost. Must not guess: what no price is known of costs ``None``, never 0.

The settings' own prices come first; else prices and usage fields are those of the genai-prices package, offline. It
takes about a second and 60 MB to load, so that happens in a thread at the first live call, not at start. Where a
model's price is linear in its usage, the library is asked once for the factors of each form of the usage object, and a
call costs a few multiplications instead of 0.1 ms.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentstate.core.usage import counted
from agentstate.providers.own_prices import SETTINGS, OwnPrices
from agentstate.providers.provider import Provider
from agentstate.settings import PriceSettings

if TYPE_CHECKING:
    from genai_prices.types import Provider as PricedProvider

log = logging.getLogger("agentstate")
_PROBE = 1_000_000  # tokens of each kind in the base point of a probe: more than any kind that contains another
_MODELS = 2000  # most models whose factors are kept

_Form = tuple[tuple[str, ...], ...]  # the paths of the numbers in a usage object


class _Terms(NamedTuple):
    """What a price depends on beside the usage. ``at``: the call's time, seconds; ``tier``, ``speed``: how the provider
    says that it served the call, empty where it says nothing."""

    model: str
    at: float
    tier: str = ""
    speed: str = ""

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Equal for terms of equal prices. Prices that change within a day are not kept, see ``_probe``."""
        return self.model, int(self.at // 86400), self.tier, self.speed

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.at, tz=UTC)

    @property
    def context(self) -> dict[str, str]:
        """As the library takes it."""
        return {name: value for name, value in (("service_tier", self.tier), ("speed", self.speed)) if value}


_Key = tuple[str, tuple[str, int, str, str]]
_UNKNOWN: dict[str, Decimal] = {}


class Pricing:
    """The price table, loaded once. ``warm`` starts loading; ``cost`` needs it loaded."""

    def __init__(self, own: Sequence[PriceSettings] = ()) -> None:
        self._own = OwnPrices(own)
        self._loading: Future[Any] | None = None
        self._factors: dict[tuple[_Key, frozenset[str]], dict[str, Decimal] | None] = {}
        self._forms: dict[tuple[str, str, int, str, str, _Form], tuple[Decimal, ...] | None] = {}
        self._table = ""
        self._models: dict[tuple[str, str], bool] = {}
        self._extractors: dict[str, Any] = {}

    def warm(self) -> Future[Any]:
        """Load the table in a thread, once."""
        if self._loading is None:
            self._loading = Future()
            threading.Thread(target=self._load, args=(self._loading,), name="agentstate-prices", daemon=True).start()
        return self._loading

    @property
    def ready(self) -> bool:
        return self._loading is not None and self._loading.done()

    @staticmethod
    def _load(done: Future[Any]) -> None:
        try:
            from genai_prices import data_snapshot

            snapshot = data_snapshot.get_snapshot()
            gc.freeze()  # 60 MB that stay for good: the collector need not look through them
            done.set_result(snapshot)
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for a price
            done.set_exception(error)

    def priced(self, provider: Provider, model: str, usage: str, at: float, tier: str = "") -> tuple[float | None, str]:
        """(USD of one answer, ``None``: unknown; whose prices they are, empty where there is none).

        ``usage``: the provider's usage object as JSON; ``at``: the call's time, so that it costs what it cost on its
        day; ``tier``: the service tier that the provider says it was served in.
        """
        try:
            if self._own:
                found = self._own.of(provider.name, model)
                if found is not None:
                    tokens = counted(msgspec.json.decode(usage)) if usage else None
                    return (None, "") if tokens is None else (found.cost(tokens), SETTINGS)
            cost = self._cost(provider, model, usage, at, tier)
        except Exception:  # an answer is not lost over its price, whatever a provider calls its usage
            log.exception("an answer of %s could not be priced", provider.name)
            return None, ""
        return cost, "" if cost is None else self._version()

    def cost(self, provider: Provider, model: str, usage: str, at: float, tier: str = "") -> float | None:
        """The first part of ``priced``."""
        return self.priced(provider, model, usage, at, tier)[0]

    def estimated(self, provider: Provider, model: str, given: int, made: int, at: float) -> float | None:
        """USD of a call before it is made, for so many tokens of input and output; ``None``: no price is known."""
        usage = msgspec.json.encode({"prompt_tokens": given, "completion_tokens": made}).decode()
        if self._own.of(provider.name, model) is not None:
            return self.cost(provider, model, usage, at)
        try:
            snapshot = self.warm().result()
            source = self._source(snapshot, provider)
            if source is None or not self._knows(snapshot, source, model):
                return None
            counts = {"input_tokens": given, "output_tokens": made}
            return self._price(snapshot, source, _Terms(model, at), counts)
        except Exception:
            log.exception("a call of %s could not be priced before it was made", provider.name)
            return None

    def source(self, provider: Provider, model: str, at: float) -> str:
        """Whose prices a call of that model would be computed with; empty: no price is known."""
        if self._own.of(provider.name, model) is not None:
            return SETTINGS
        return "" if self.estimated(provider, model, 1, 1, at) is None else self._version()

    def _version(self) -> str:
        if not self._table:
            self._table = f"genai-prices {version('genai-prices')}"
        return self._table

    def _cost(self, provider: Provider, model: str, usage: str, at: float, tier: str) -> float | None:
        if not usage or not model:
            return None
        snapshot = self.warm().result()
        source = self._source(snapshot, provider)
        if source is None:
            return None
        if not self._knows(snapshot, source, model):
            return None
        try:
            found = msgspec.json.decode(usage)
        except msgspec.DecodeError:
            return None
        paths: list[tuple[str, ...]] = []
        values: list[int] = []
        if not isinstance(found, dict):
            return None
        tier, speed = tier or _word(found.get("service_tier")), _word(found.get("speed"))
        if not _numbers(found, (), paths, values):
            return self._by_kind(snapshot, source, _Terms(model, at, tier, speed), found)
        key = (source.id, model, int(at // 86400), tier, speed, tuple(paths))
        if key not in self._forms:
            if len(self._forms) > _MODELS:
                self._forms.clear()
            terms = _Terms(model, at, tier, speed)
            self._forms[key] = self._form_factors(snapshot, source, terms, found, paths, values)
        factors = self._forms[key]
        if factors is None:
            return self._by_kind(snapshot, source, _Terms(model, at, tier, speed), found)
        return float(sum([factor * value for factor, value in zip(factors, values, strict=True)], Decimal(0)))

    def _by_kind(self, snapshot: Any, source: PricedProvider, terms: _Terms, usage: Any) -> float | None:
        counts = _counts(source, terms.model, usage)
        return None if counts is None else self._price(snapshot, source, terms, counts)

    def _form_factors(
        self,
        snapshot: Any,
        source: PricedProvider,
        terms: _Terms,
        usage: dict[str, Any],
        paths: list[tuple[str, ...]],
        values: list[int],
    ) -> tuple[Decimal, ...] | None:
        """USD for one more of each number; ``None`` where the price is not a sum of them.

        The library adds up the numbers that it knows the paths of, so what one of them adds tells what it counts for.
        """
        counts = _counts(source, terms.model, usage)
        if counts is None or self._price(snapshot, source, terms, counts) is None:
            return None
        kinds = self._factors.get(((source.id, terms.key), frozenset(counts)))
        if not kinds:
            return None
        factors = []
        total = dict.fromkeys(counts, 0)
        for path, value in zip(paths, values, strict=True):
            more = _counts(source, terms.model, _with(usage, path, value + _PROBE))
            if more is None or more.keys() != counts.keys():
                return None
            each = {kind: (more[kind] - count) // _PROBE for kind, count in counts.items()}
            factors.append(sum((kinds[kind] * number for kind, number in each.items()), Decimal(0)))
            total = {kind: count + each[kind] * value for kind, count in total.items()}
        return tuple(factors) if total == counts else None

    def _source(self, snapshot: Any, provider: Provider) -> PricedProvider | None:
        """The table's entry for a provider: by its address, else by its name in the settings."""
        if provider.name not in self._extractors:
            found = None
            for name, address in ((None, provider.root + provider.version), (provider.name, None)):
                try:
                    found = snapshot.find_provider(None, name, address)
                    break
                except LookupError:
                    continue
            self._extractors[provider.name] = found
        return self._extractors[provider.name]  # type: ignore[no-any-return]

    def _knows(self, snapshot: Any, source: PricedProvider, model: str) -> bool:
        """Whether the table has the model; looking through it takes 0.2 ms, so the answer is kept."""
        key = (source.id, model)
        known = self._models.get(key)
        if known is None:
            if len(self._models) > _MODELS:
                self._models.clear()
            known = self._models[key] = source.find_model(model, all_providers=snapshot.providers) is not None
        return known

    def _price(self, snapshot: Any, source: PricedProvider, terms: _Terms, counts: Mapping[str, Any]) -> float | None:
        kinds = frozenset(counts)
        key = ((source.id, terms.key), kinds)
        if key not in self._factors:
            if len(self._factors) > _MODELS:
                self._factors.clear()
            self._factors[key] = self._probe(snapshot, source, terms, kinds)
        factors = self._factors[key]
        if factors == _UNKNOWN:
            return None
        if factors is not None:
            return float(sum((factors[kind] * count for kind, count in counts.items()), Decimal(0)))
        return self._ask(snapshot, source, terms, counts)

    def _probe(
        self, snapshot: Any, source: PricedProvider, terms: _Terms, kinds: frozenset[str]
    ) -> dict[str, Decimal] | None:
        """USD for one more of each kind; ``None`` where the price is not linear, or not the same all day; ``_UNKNOWN``
        where there is none."""
        from genai_prices.types import TieredPrices, TimeOfDateConstraint

        found = source.find_model(terms.model, all_providers=snapshot.providers)
        if found is None:
            return _UNKNOWN
        if any(isinstance(part, TieredPrices) for part in vars(found.get_prices(terms.moment, terms.context)).values()):
            return None
        dated = [found.prices] if not isinstance(found.prices, list) else found.prices
        if any(isinstance(getattr(part, "constraint", None), TimeOfDateConstraint) for part in dated):
            return None
        base = {kind: _PROBE * (len(kinds) if kind in ("input_tokens", "output_tokens") else 1) for kind in kinds}
        start = self._exact(snapshot, source, terms, base)
        if start is None:
            return _UNKNOWN
        factors = {}
        for kind in kinds:
            more = self._exact(snapshot, source, terms, {**base, kind: base[kind] + _PROBE})
            if more is None:
                return None
            factors[kind] = (more - start) / _PROBE
        return factors if sum(factors[kind] * base[kind] for kind in kinds) == start else None

    def _ask(self, snapshot: Any, source: PricedProvider, terms: _Terms, counts: Mapping[str, Any]) -> float | None:
        exact = self._exact(snapshot, source, terms, counts)
        return None if exact is None else float(exact)

    @staticmethod
    def _exact(snapshot: Any, source: PricedProvider, terms: _Terms, counts: Mapping[str, Any]) -> Decimal | None:
        from genai_prices import Usage

        try:
            found = snapshot.calc(Usage(**counts), terms.model, source.id, None, terms.moment, terms.context)
        except (LookupError, ValueError, TypeError):
            return None
        price: Decimal = found.total_price
        return price


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _counts(source: PricedProvider, model: str, usage: Any) -> dict[str, Any] | None:
    """The usage by the library's kinds; ``None``: it cannot make anything of it."""
    # A provider's wire formats name things differently: the first whose required names are all there is the one.
    for extractor in sorted(source.extractors or (), key=lambda part: part.api_flavor != "chat"):
        root = [extractor.root] if isinstance(extractor.root, str) else list(extractor.root)
        answer: Any = usage
        for name in reversed(root):
            answer = {name: answer}
        try:
            return dict(extractor.extract(answer)[1]._reported_values())
        except (LookupError, ValueError, TypeError, AttributeError):  # the last for numbers where names are usual
            continue
    return None


def _numbers(usage: dict[str, Any], above: tuple[str, ...], paths: list[tuple[str, ...]], values: list[int]) -> bool:
    """Collect the whole numbers of a usage object with their paths; false: there is more in it than objects of them."""
    for name, value in usage.items():
        if value.__class__ is int:
            paths.append((*above, name))
            values.append(value)
        elif isinstance(value, dict):
            if not _numbers(value, (*above, name), paths, values):
                return False
        elif value is not None and not isinstance(value, str | bool):
            return False
    return True


def _with(usage: dict[str, Any], path: tuple[str, ...], value: int) -> dict[str, Any]:
    """The usage object with another number at that path."""
    name, rest = path[0], path[1:]
    return {**usage, name: _with(usage[name], rest, value) if rest else value}
