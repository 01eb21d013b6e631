"""Owns what is measured: the cells, which targets each visits, and how samples become a summary.

Must not judge: bars are in ``bench.bars``. Invariant: within a round every cell visits its targets in turn, there and
back again, so that a neighbour on the machine meets them alike; figures of two rounds are never mixed.
"""

from __future__ import annotations

import json
import statistics
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import procs
from bench.peers import Target

EVERYONE = ("direct", "agentstate", "nginx", "litellm", "portkey", "seed")
STREAMERS = ("direct", "agentstate", "nginx", "litellm", "portkey")
BIG = 100_000  # bytes of a body with a long history: 66 messages of 1.5 KB
PACED = ("direct", "agentstate", "nginx", "litellm")


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing measured. ``replay``: the requests are recorded first, then made again by another process."""

    name: str
    title: str
    targets: tuple[str, ...]
    mode: str = "json"
    concurrency: int = 1
    body_bytes: int = 1000
    seconds: float = 0.8
    replay: bool = False
    least: int = 1
    chunks: int = 200
    gap_ms: int = 0
    passes: int = 2


CELLS = (
    Cell("json-1k-c1", "Live, plain answer, 1 KB, c=1", EVERYONE),
    Cell("json-100k-c1", "Live, plain answer, 100 KB, c=1", EVERYONE, body_bytes=BIG),
    Cell("json-1k-c16", "Live, plain answer, 1 KB, c=16", EVERYONE, concurrency=16),
    Cell("json-1k-c64", "Live, plain answer, 1 KB, c=64", ("direct", "agentstate"), concurrency=64),
    Cell("sse-c16", "Live, stream of 200 chunks at once, c=16", STREAMERS, "sse", 16),
    Cell("sse-c64", "Live, stream of 200 chunks at once, c=64", ("direct", "agentstate"), "sse", 64),
    Cell(
        "paced-c1", "Live, a chunk every 10 ms, 20 chunks, c=1", PACED, "sse", seconds=0, least=12, chunks=20, gap_ms=10
    ),
    Cell("paced-c16", "Live, a chunk every 10 ms, 200 chunks, c=16", PACED, "sse", 16, seconds=0, gap_ms=10, passes=1),
    Cell(
        "replay-1k-c1",
        "Replay, plain answer, 1 KB, c=1",
        ("nginx", "agentstate", "litellm-cache", "seed"),
        replay=True,
        least=20,
    ),
    Cell(
        "replay-100k-c1",
        "Replay, plain answer, 100 KB, c=1",
        ("nginx", "agentstate", "seed"),
        body_bytes=BIG,
        replay=True,
        least=20,
    ),
    Cell(
        "replay-1k-c16",
        "Replay, plain answer, 1 KB, c=16",
        ("nginx", "agentstate", "seed"),
        concurrency=16,
        replay=True,
    ),
    Cell(
        "replay-sse-c1",
        "Replay, stream of 200 chunks, c=1",
        ("agentstate", "litellm-cache"),
        "sse",
        replay=True,
        least=8,
    ),
)


@dataclass(frozen=True, slots=True)
class Summary:
    """A target's figures in one cell of one round. Times in ms; CPU in ms a request; ``rss`` in bytes.

    ``paid`` is the share of counted requests that reached the provider: 1 live, 0 where all were replayed.
    """

    n: int
    errors: int
    last_error: str
    p50: float | None
    p99: float | None
    ttft: float | None
    lag: float | None
    rps: float
    cpu: float | None
    rss: int
    paid: float | None

    @staticmethod
    def of(tallies: list[dict[str, Any]], paid: int) -> Summary:
        """Of the volleys of one cell, put together; ``paid`` is how many requests the provider counted."""
        whole = [value for tally in tallies for value in tally["whole"]]
        cpu = sum(tally["cpu_s"] for tally in tallies)
        elapsed = sum(tally["elapsed_s"] for tally in tallies)
        return Summary(
            n=len(whole),
            errors=sum(tally["errors"] for tally in tallies),
            last_error=next((tally["last_error"] for tally in tallies if tally["last_error"]), ""),
            p50=percentile(whole, 0.5),
            p99=percentile(whole, 0.99),
            ttft=percentile([value for tally in tallies for value in tally["ttft"]], 0.5),
            lag=percentile([value for tally in tallies for value in tally["lag"]], 0.5),
            rps=len(whole) / elapsed if elapsed else 0.0,
            cpu=cpu * 1000 / len(whole) if cpu and whole else None,
            rss=max(tally["rss"] for tally in tallies),
            paid=paid / len(whole) if whole else None,
        )


def percentile(values: list[float], share: float) -> float | None:
    """The value below which ``share`` of ``values`` lie; the middle one, or the mean of two, for a half."""
    if not values:
        return None
    if share == 0.5:
        return statistics.median(values)
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Visitor:
    """Makes the visits of one benchmark: knows the running targets and where the load runs."""

    def __init__(
        self, targets: dict[str, Target], upstream: int, core: int | None, log: Path, haste: float = 1.0
    ) -> None:
        self._targets, self._upstream, self._core, self._log, self._haste = targets, upstream, core, log, haste

    def warm(self) -> dict[str, str]:
        """Every target's first calls, not counted. Returns the failure of each that cannot be used at all."""
        broken = {}
        for name, target in self._targets.items():
            tally = self._volley(target, {"name": f"warm-{name}", "least": 20})
            if not tally["whole"]:
                broken[name] = tally["last_error"] or "gave no answer"
        return broken

    def round(self, number: int, cells: Iterable[Cell], say: Callable[[str], None]) -> dict[str, dict[str, Summary]]:
        """All ``cells`` once: cell name → target name → summary."""
        result = {}
        for cell in cells:
            names = [name for name in cell.targets if name in self._targets]
            if not any(name != "direct" for name in names):
                continue
            say(f"round {number + 1}: {cell.title}")
            result[cell.name] = self._cell(number, cell, names)
        return result

    def _cell(self, number: int, cell: Cell, names: list[str]) -> dict[str, Summary]:
        tallies: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        paid = dict.fromkeys(names, 0)
        for turn in range(cell.passes):
            for name in names if turn % 2 == 0 else reversed(names):
                tally, cost = self._visit(cell, self._targets[name], f"{cell.name}-{number}-{turn}-{name}")
                tallies[name].append(tally)
                paid[name] += cost
        return {name: Summary.of(tallies[name], paid[name]) for name in names}

    def _visit(self, cell: Cell, target: Target, label: str) -> tuple[dict[str, Any], int]:
        spec: dict[str, Any] = {
            "name": label,
            "mode": cell.mode,
            "concurrency": cell.concurrency,
            "body_bytes": cell.body_bytes,
            "chunks": cell.chunks,
            "gap_ms": cell.gap_ms,
            "seconds": cell.seconds * self._haste,
            "least": cell.least if cell.seconds else max(1, round(cell.least * self._haste)),
        }
        if cell.replay:
            spec["path"] = target.replay_path
            recorded = self._volley(target, spec)
            spec |= {"run": "b", "replay": recorded["made"]}
        before = count(self._upstream)
        tally = self._volley(target, spec)
        return tally, count(self._upstream) - before

    def _volley(self, target: Target, spec: dict[str, Any]) -> dict[str, Any]:
        where = {"port": target.port, "path": target.path, "headers": target.headers, "watch": target.pid}
        return procs.volley(where | spec, self._core, self._log)


def count(upstream: int) -> int:
    """How many calls the provider has answered, which is how many were paid."""
    with urllib.request.urlopen(f"http://127.0.0.1:{upstream}/count", timeout=30) as answer:
        found: int = json.load(answer)["requests"]
    return found
