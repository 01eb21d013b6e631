"""What calls cost and what replay saved, as the control plane and the command line tell it of a real proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.client import status_of
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
COST = 600 * 2.5e-6 + 400 * 1.25e-6 + 100 * 10e-6  # gpt-4o: 2.50, 1.25 cached and 10.00 USD for a million tokens


def answers(seen: Seen) -> Reply:
    model = seen.json()["model"]
    return plain(json.dumps({**json.loads(chat.completion("a text")), "usage": USAGE, "model": model}).encode())


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    """One call of a model whose price is known and two of one whose is not; a second life is given two of them."""
    with Upstream(answers) as upstream, Proxy(tmp_path / "data", upstream.url) as running:
        for run, questions in (("a", ("one", "two")), ("b", ("one", "two"))):
            assert running.client.ask("s", questions[0], run=run, model="gpt-4o").status == 200
            assert running.client.ask("s", questions[1], run=run, model="own-model").status == 200
        assert running.client.ask("t", "three", run="c", model="own-model").status == 200
        yield running


def test_calls_cost_and_what_was_spared_is_saved(proxy: Proxy) -> None:
    found = proxy.control.get("/api/stats?by=model")
    rows = {row["model"]: row for row in found["rows"]}
    assert rows["gpt-4o"]["cost"] == pytest.approx(COST) == rows["gpt-4o"]["saved"]
    assert rows["gpt-4o"]["tokens"] == {
        "input": 1000, "output": 100, "cache_read": 400, "cache_write": 0, "reasoning": 0, "total": 1100,
    }  # fmt: skip
    unknown = rows["own-model"]
    assert (unknown["cost"], unknown["cost_unknown"], unknown["saved"], unknown["saved_unknown"]) == (0, 2, 0, 1)
    total = found["total"]
    assert (total["calls"], total["replays"], total["cost_unknown"]) == (3, 2, 2)
    assert [row["session"] for row in proxy.control.get("/api/stats?by=session&session=t")["rows"]] == ["t"]
    assert status_of(proxy.control.get, "/api/stats?session=nobody")[0] == 404


def test_the_command_line_says_the_same(proxy: Proxy) -> None:
    told = json.loads(proxy.cli("stats", "--by", "model", "--json").stdout)
    figures = proxy.control.get("/api/stats?by=model")
    assert (told["rows"], told["total"]) == (figures["rows"], figures["total"])
    shown = proxy.cli("stats", "--by", "model").stdout
    assert "gpt-4o" in shown and "+ ?2" in shown and "whose cost is unknown" in shown
