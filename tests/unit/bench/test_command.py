"""The command line: what is chosen is what is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.__main__ import Bench, arguments, chosen


@pytest.mark.parametrize(
    ("name", "patterns", "meant"),
    [("json-1k-c1", "json-*", True), ("json-1k-c1", "sse-*, json-1k-c1", True), ("paced-c1", "json-*,storage", False)],
)
def test_parts_are_chosen_by_comma_list_with_stars(name: str, patterns: str, meant: bool) -> None:
    assert chosen(name, patterns) is meant


def test_proxy_under_test_is_looked_for_whatever_peers_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BENCH_SEED", raising=False)
    bench = Bench(arguments(["--peers", "seed"]), tmp_path)
    bench._find()
    assert set(bench.found.versions) == {"direct", "agentstate"}
    assert set(bench.found.missing) == {"seed"}
