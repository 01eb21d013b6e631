"""Owns the bars: what each figure is made of, what it must be, and what it would be good to be.

Pure: measurements in, verdicts out. Must not print. Invariant: a figure whose parts were not all measured is None,
never a guess; a figure is computed within one round and the median of the rounds is judged.

Source of the limits: an early prototype of the proxy, measured against the same peers on a shared two-core machine,
with room left for what it did not do yet. "Added" is the difference of the medians to the call without a proxy.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bench.cells import Summary
from bench.recovery import Recovery
from bench.storage import REPEATED, Stored

US = "agentstate"
MB = 1e6


@dataclass(slots=True)
class Measurements:
    """All that one benchmark found. Keys of ``rounds``: cell, then target; of the rest: target."""

    rounds: list[dict[str, dict[str, Summary]]] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    rss_start: int = 0
    rss_rounds: list[int] = field(default_factory=list)
    stored: dict[str, dict[int, Stored]] = field(default_factory=dict)
    recovery: dict[str, Recovery] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)


class Round:
    """Reads figures out of one round; None where a part of one is missing or makes no sense."""

    def __init__(self, cells: dict[str, dict[str, Summary]]) -> None:
        self._cells = cells

    def get(self, cell: str, target: str, figure: str) -> float | None:
        """``figure`` of ``target``; a replay figure only if the provider was (all but) never asked."""
        summary = self._cells.get(cell, {}).get(target)
        if summary is None or not summary.n:
            return None
        if cell.startswith("replay") and target != "nginx" and (summary.paid is None or summary.paid > 0.01):
            return None
        value: float | None = getattr(summary, figure)
        return value

    def errors(self, cell: str, target: str) -> int | None:
        """Failed requests; unlike other figures there even if nothing succeeded."""
        summary = self._cells.get(cell, {}).get(target)
        return summary.errors if summary is not None else None

    def added(self, cell: str, target: str, figure: str = "p50") -> float | None:
        """``figure`` less that of the call without a proxy."""
        mine, base = self.get(cell, target, figure), self.get(cell, "direct", figure)
        return mine - base if mine is not None and base is not None else None

    def of(self, cell: str, peer: str, figure: str) -> float | None:
        """Our ``figure`` divided by the peer's."""
        return ratio(self.get(cell, US, figure), self.get(cell, peer, figure))

    def added_of(self, cell: str, peer: str, figure: str = "p50") -> float | None:
        """What we add to ``figure`` divided by what the peer adds."""
        return ratio(self.added(cell, US, figure), self.added(cell, peer, figure))


def ratio(mine: float | None, theirs: float | None) -> float | None:
    """None where a part is missing, or where noise made the divisor nothing or less."""
    return mine / theirs if mine is not None and theirs is not None and theirs > 0 else None


@dataclass(frozen=True, slots=True)
class Bar:
    """One row. ``limit`` must be met, ``stretch`` is the aim; ``better`` says which side of them is good."""

    text: str
    limit: float
    stretch: float
    unit: Literal["ratio", "ms", "MB", "s", "count"] = "ratio"
    better: Literal["less", "more"] = "less"
    each: Callable[[Round], float | None] | None = None
    once: Callable[[Measurements], float | None] | None = None

    def values(self, found: Measurements) -> list[float]:
        """The figure of every round that has it."""
        if self.each is not None:
            return [value for cells in found.rounds if (value := self.each(Round(cells))) is not None]
        assert self.once is not None
        value = self.once(found)
        return [] if value is None else [value]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar held against measurements; ``value`` is the median, None where nothing was measured."""

    bar: Bar
    value: float | None
    low: float | None
    high: float | None
    met: bool | None


def judge(found: Measurements) -> list[Verdict]:
    """Every bar's verdict, in the order of the report."""
    verdicts = []
    for bar in BARS:
        values = bar.values(found)
        if not values:
            verdicts.append(Verdict(bar, None, None, None, None))
            continue
        middle = statistics.median(values)
        met = middle <= bar.limit if bar.better == "less" else middle >= bar.limit
        verdicts.append(Verdict(bar, middle, min(values), max(values), met))
    return verdicts


def _growth(found: Measurements) -> float | None:
    mine = found.stored.get(US, {})
    return ratio(mine[600].size, mine[300].size) if 300 in mine and 600 in mine else None


def _bytes_of_seed(found: Measurements) -> float | None:
    """With the answers that the bar was set with: all alike, so that what is stored is what the requests say."""
    mine, seed = (found.stored.get(name + REPEATED, {}).get(300) for name in (US, "seed"))
    return ratio(mine.size, seed.size) if mine and seed else None


def _bytes_of_held(found: Measurements) -> float | None:
    mine = found.stored.get(US, {}).get(300)
    return ratio(mine.size, mine.held) if mine else None


def _rss_last(found: Measurements) -> float | None:
    return found.rss_rounds[-1] / MB if found.rss_rounds else None


def _rss_growth(found: Measurements) -> float | None:
    """Of the last round on the one before; one round says nothing, and the first fills what is bounded."""
    return found.rss_rounds[-1] / found.rss_rounds[-2] if len(found.rss_rounds) > 2 else None


def _start(found: Measurements) -> float | None:
    return statistics.median(found.starts_s) if found.starts_s else None


def _errors(round_: Round) -> float | None:
    counts = [round_.errors(cell, US) for cell in ("json-1k-c64", "sse-c64")]
    known = [value for value in counts if value is not None]
    return float(sum(known)) if known else None


def _own_100k(round_: Round) -> float | None:
    return ratio(round_.added("json-100k-c1", US), round_.added("json-1k-c1", US))


def _later_than_direct(round_: Round) -> float | None:
    return round_.added("paced-c16", US)


def _paid_twice(found: Measurements) -> float | None:
    mine = found.recovery.get(US)
    return float(mine.paid_twice) if mine else None


LIVE, LIVE_100K, LIVE_16 = "json-1k-c1", "json-100k-c1", "json-1k-c16"
REPLAY, REPLAY_100K, REPLAY_16 = "replay-1k-c1", "replay-100k-c1", "replay-1k-c16"

BARS = (
    Bar("added p50, c=1, 1 KB, of LiteLLM's", 1 / 8, 1 / 12, each=lambda r: r.added_of(LIVE, "litellm")),
    Bar("the same, of nginx's hop", 12, 8, each=lambda r: r.added_of(LIVE, "nginx")),
    Bar("the same, of Portkey's", 0.8, 0.45, each=lambda r: r.added_of(LIVE, "portkey")),
    Bar("the same, of the first AgentState's", 1 / 20, 1 / 35, each=lambda r: r.added_of(LIVE, "seed")),
    Bar("added p50, c=1, 100 KB, of LiteLLM's", 1 / 7, 1 / 12, each=lambda r: r.added_of(LIVE_100K, "litellm")),
    Bar("the same, of our own at 1 KB", 2, 1.4, each=_own_100k),
    Bar("CPU a request, c=16, 1 KB, of LiteLLM's", 1 / 18, 1 / 34, each=lambda r: r.of(LIVE_16, "litellm", "cpu")),
    Bar("the same, of Portkey's", 0.5, 0.25, each=lambda r: r.of(LIVE_16, "portkey", "cpu")),
    Bar(
        "requests/s of one core, c=16, 1 KB, of LiteLLM's",
        15,
        25,
        better="more",
        each=lambda r: r.of(LIVE_16, "litellm", "rps"),
    ),
    Bar("the same, of the first AgentState's", 35, 70, better="more", each=lambda r: r.of(LIVE_16, "seed", "rps")),
    Bar("replay p50, c=1, 1 KB, of the first AgentState's", 1 / 3, 1 / 6, each=lambda r: r.of(REPLAY, "seed", "p50")),
    Bar("the same, of LiteLLM's cache hit", 1 / 12, 1 / 25, each=lambda r: r.of(REPLAY, "litellm-cache", "p50")),
    Bar("the same, of a live call through nginx, whole", 3, 1.3, each=lambda r: r.of(REPLAY, "nginx", "p50")),
    Bar(
        "replay p50, c=1, 100 KB, of the first AgentState's",
        1 / 3,
        1 / 5,
        each=lambda r: r.of(REPLAY_100K, "seed", "p50"),
    ),
    Bar(
        "replay of a 200-chunk stream, whole, of LiteLLM's cache hit",
        1 / 100,
        1 / 300,
        each=lambda r: r.of("replay-sse-c1", "litellm-cache", "p50"),
    ),
    Bar(
        "replays/s, c=16, 1 KB, of the first AgentState's",
        6,
        13,
        better="more",
        each=lambda r: r.of(REPLAY_16, "seed", "rps"),
    ),
    Bar("chunk lag added, paced, c=1, of nginx's", 4, 3, each=lambda r: r.added_of("paced-c1", "nginx", "lag")),
    Bar("the same, of LiteLLM's", 1 / 3, 1 / 5, each=lambda r: r.added_of("paced-c1", "litellm", "lag")),
    Bar(
        "first chunk added, paced, c=1, of LiteLLM's",
        1 / 4,
        1 / 8,
        each=lambda r: r.added_of("paced-c1", "litellm", "ttft"),
    ),
    Bar("CPU a 200-chunk stream, c=16, of LiteLLM's", 1 / 40, 1 / 65, each=lambda r: r.of("sse-c16", "litellm", "cpu")),
    Bar("the same, of Portkey's", 0.9, 0.45, each=lambda r: r.of("sse-c16", "portkey", "cpu")),
    Bar("paced 2 s stream, c=16, ends later than direct by", 25, 10, "ms", each=_later_than_direct),
    Bar("bytes stored, 300 steps of 1.5 KB, of the first AgentState's", 1 / 60, 1 / 120, once=_bytes_of_seed),
    Bar("the same, of the last request and all answers, uncompressed", 1.3, 1.0, once=_bytes_of_held),
    Bar("growth: bytes at 600 steps of bytes at 300", 2.2, 2.0, once=_growth),
    Bar("memory at start", 100, 70, "MB", once=lambda m: m.rss_start / MB if m.rss_start else None),
    Bar("memory after all runs above", 250, 150, "MB", once=_rss_last),
    Bar("memory after the last round, of the round before", 1.15, 1.05, once=_rss_growth),
    Bar("start to listening", 1.0, 0.5, "s", once=_start),
    Bar("errors under load, c=64", 0, 0, "count", each=_errors),
    Bar("calls paid twice by an agent killed at step 45 of 50", 0, 0, "count", once=_paid_twice),
)
