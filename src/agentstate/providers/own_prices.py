"""Owns the prices that the settings give. Must not know the price table.

Invariant: one entry alone prices a call, the first that names its model and provider; what it does not price apart is
charged as the whole that it is a part of, so nothing is charged twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fnmatch import fnmatchcase

from agentstate.core.usage import Tokens
from agentstate.settings import PriceSettings

SETTINGS = "settings"  # whose prices they are, as the journal says it
_MTOK = Decimal(1_000_000)
_MOST = 2000  # most models whose entry is kept


class OwnPrice:
    """One entry, in USD for each token."""

    def __init__(self, given: PriceSettings) -> None:
        self._input, self._output = _each(given.input), _each(given.output)
        self._read = self._input if given.cache_read is None else _each(given.cache_read)
        self._write = self._input if given.cache_write is None else _each(given.cache_write)

    def cost(self, tokens: Tokens) -> float:
        """USD; cached tokens are taken out of the input that they are a part of."""
        plain = tokens.input - tokens.cache_read - tokens.cache_write
        return float(
            plain * self._input + tokens.cache_read * self._read + tokens.cache_write * self._write
            + tokens.output * self._output
        )  # fmt: skip


class OwnPrices:
    """``of`` finds the entry for a call. False where there are none."""

    def __init__(self, given: Sequence[PriceSettings]) -> None:
        self._given = tuple((entry.model.lower(), entry.provider.lower(), OwnPrice(entry)) for entry in given)
        self._known: dict[tuple[str, str], OwnPrice | None] = {}

    def __bool__(self) -> bool:
        return bool(self._given)

    def of(self, provider: str, model: str) -> OwnPrice | None:
        """The first entry for that model at that provider; ``None``: the settings have no price for it."""
        if not self._given:
            return None
        key = (provider, model)
        if key not in self._known:
            if len(self._known) > _MOST:
                self._known.clear()
            self._known[key] = next(
                (
                    price for model_pattern, provider_pattern, price in self._given
                    if fnmatchcase(model.lower(), model_pattern)
                    and (not provider_pattern or fnmatchcase(provider.lower(), provider_pattern))
                ),
                None,
            )  # fmt: skip
        return self._known[key]


def _each(usd_per_million: float) -> Decimal:
    return Decimal(repr(usd_per_million)) / _MTOK
