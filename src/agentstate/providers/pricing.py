"""Owns what an answer cost. Must not guess: what the price table does not know costs ``None``, never 0.

Prices and usage fields are those of the genai-prices package, offline. It takes about a second and 60 MB to load, so
that happens in a thread at the first live call, not at start. Where a model's price is linear in its usage, the
library is asked once for the factors, and a call costs a few multiplications instead of 0.1 ms.
"""

from __future__ import annotations

import gc
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

_PROBE = 1_000_000  # tokens of each kind in the base point of a probe: more than any kind that contains another
_MODELS = 2000  # most models whose factors are kept

_UNKNOWN: dict[str, Decimal] = {}


class Pricing:
    """The price table, loaded once. ``warm`` starts loading; ``cost`` needs it loaded."""

    def __init__(self) -> None:
        self._loading: Future[Any] | None = None
        self._factors: dict[tuple[str, str, int, frozenset[str]], dict[str, Decimal] | None] = {}
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
        if not usage or not model:
            return None
        snapshot = self.warm().result()
        source = self._source(snapshot, provider)
        if source is None:
            return None
        if not self._knows(snapshot, source, model):
            return None
        try:
            body = {"model": model, "usage": msgspec.json.decode(usage)}
            flavor = "chat" if any(part.api_flavor == "chat" for part in source.extractors or ()) else "default"
            counts = dict(source.extract_usage(body, api_flavor=flavor)[1]._reported_values())
        except (LookupError, ValueError, TypeError):
            return None
        return self._price(snapshot, source, model, counts, at)

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
