"""Owns what an answer cost. Must not guess: what the price table does not know costs ``None``, never 0.

Prices and usage fields are those of the genai-prices package, offline. It takes about a second and 60 MB to load, so
that happens in a thread at the first live call, not at start. Where a model's price is linear in its usage, the
library is asked once for the factors of each form of the usage object, and a call costs a few multiplications instead
of 0.1 ms.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from agentstate.providers.provider import Provider

if TYPE_CHECKING:
    from genai_prices.types import Provider as PricedProvider

log = logging.getLogger("agentstate")
_PROBE = 1_000_000  # tokens of each kind in the base point of a probe: more than any kind that contains another
_MODELS = 2000  # most models whose factors are kept

_Form = tuple[tuple[str, ...], ...]  # the paths of the numbers in a usage object

_UNKNOWN: dict[str, Decimal] = {}


class Pricing:
    """The price table, loaded once. ``warm`` starts loading; ``cost`` needs it loaded."""

    def __init__(self) -> None:
        self._loading: Future[Any] | None = None
        self._factors: dict[tuple[str, str, int, frozenset[str]], dict[str, Decimal] | None] = {}
        self._forms: dict[tuple[str, str, int, _Form], tuple[Decimal, ...] | None] = {}
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

    def cost(self, provider: Provider, model: str, usage: str, at: float) -> float | None:
        """USD of one answer; ``None``: unknown. ``usage``: the provider's usage object as JSON; ``at``: its time."""
        try:
            return self._cost(provider, model, usage, at)
        except Exception:  # an answer is not lost over its price, whatever a provider calls its usage
            log.exception("an answer of %s could not be priced", provider.name)
            return None

    def _cost(self, provider: Provider, model: str, usage: str, at: float) -> float | None:
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
        if not isinstance(found, dict) or not _numbers(found, (), paths, values):
            return self._by_kind(snapshot, source, model, found, at)
        key = (source.id, model, int(at // 86400), tuple(paths))
        if key not in self._forms:
            if len(self._forms) > _MODELS:
                self._forms.clear()
            self._forms[key] = self._form_factors(snapshot, source, model, found, at, paths, values)
        factors = self._forms[key]
        if factors is None:
            return self._by_kind(snapshot, source, model, found, at)
        return float(sum([factor * value for factor, value in zip(factors, values, strict=True)], Decimal(0)))

    def _by_kind(self, snapshot: Any, source: PricedProvider, model: str, usage: Any, at: float) -> float | None:
        counts = _counts(source, model, usage)
        return None if counts is None else self._price(snapshot, source, model, counts, at)

    def _form_factors(
        self,
        snapshot: Any,
        source: PricedProvider,
        model: str,
        usage: dict[str, Any],
        at: float,
        paths: list[tuple[str, ...]],
        values: list[int],
    ) -> tuple[Decimal, ...] | None:
        """USD for one more of each number; ``None`` where the price is not a sum of them.

        The library adds up the numbers that it knows the paths of, so what one of them adds tells what it counts for.
        """
        counts = _counts(source, model, usage)
        if counts is None or self._price(snapshot, source, model, counts, at) is None:
            return None
        kinds = self._factors.get((source.id, model, int(at // 86400), frozenset(counts)))
        if not kinds:
            return None
        factors = []
        total = dict.fromkeys(counts, 0)
        for path, value in zip(paths, values, strict=True):
            more = _counts(source, model, _with(usage, path, value + _PROBE))
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

    def _price(
        self, snapshot: Any, source: PricedProvider, model: str, counts: Mapping[str, Any], at: float
    ) -> float | None:
        kinds = frozenset(counts)
        key = (source.id, model, int(at // 86400), kinds)
        if key not in self._factors:
            if len(self._factors) > _MODELS:
                self._factors.clear()
            self._factors[key] = self._probe(snapshot, source, model, kinds, at)
        factors = self._factors[key]
        if factors == _UNKNOWN:
            return None
        if factors is not None:
            return float(sum((factors[kind] * count for kind, count in counts.items()), Decimal(0)))
        return self._ask(snapshot, source, model, counts, at)

    def _probe(
        self, snapshot: Any, source: PricedProvider, model: str, kinds: frozenset[str], at: float
    ) -> dict[str, Decimal] | None:
        """USD for one more of each kind; ``None`` where the price is not linear, ``_UNKNOWN`` where there is none."""
        from genai_prices.types import TieredPrices

        found = source.find_model(model, all_providers=snapshot.providers)
        if found is None:
            return _UNKNOWN
        moment = datetime.fromtimestamp(at, tz=UTC)
        if any(isinstance(part, TieredPrices) for part in vars(found.get_prices(moment)).values()):
            return None
        base = {kind: _PROBE * (len(kinds) if kind in ("input_tokens", "output_tokens") else 1) for kind in kinds}
        start = self._exact(snapshot, source, model, base, at)
        if start is None:
            return _UNKNOWN
        factors = {}
        for kind in kinds:
            more = self._exact(snapshot, source, model, {**base, kind: base[kind] + _PROBE}, at)
            if more is None:
                return None
            factors[kind] = (more - start) / _PROBE
        return factors if sum(factors[kind] * base[kind] for kind in kinds) == start else None

    def _ask(
        self, snapshot: Any, source: PricedProvider, model: str, counts: Mapping[str, Any], at: float
    ) -> float | None:
        exact = self._exact(snapshot, source, model, counts, at)
        return None if exact is None else float(exact)

    @staticmethod
    def _exact(
        snapshot: Any, source: PricedProvider, model: str, counts: Mapping[str, Any], at: float
    ) -> Decimal | None:
        from genai_prices import Usage

        try:
            moment = datetime.fromtimestamp(at, tz=UTC)
            price: Decimal = snapshot.calc(Usage(**counts), model, source.id, None, moment, None).total_price
        except (LookupError, ValueError, TypeError):
            return None
        return price


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
