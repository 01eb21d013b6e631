"""Recorded traffic of providers and clients, played through a proxy, becomes lines that keep the published rules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agentstate.core import dataset
from agentstate.core.dataset_rules import faults
from tests.flow.test_dialect_traffic import played, send
from tests.flow.test_traffic import reply_of
from tests.support import published, traffic
from tests.support.exports import lines
from tests.support.proxy import Proxy
from tests.support.traffic import Trajectory
from tests.support.upstream import Upstream

# (service, wire format): lines that must come of it, at least.
SOURCES = {
    ("openai", "chat.completions"): 60,
    ("ollama", "chat.completions"): 10,
    ("openai", "responses"): 60,
    ("anthropic", "messages"): 60,
    ("gemini", "generateContent"): 60,
}


def play(upstream: Upstream, proxy: Proxy, found: Iterable[Trajectory]) -> None:
    for number, trajectory in enumerate(found):
        upstream.reset()
        upstream.replies(*(reply_of(exchange) for exchange in trajectory.exchanges))
        for exchange in trajectory.exchanges:
            send(proxy.client, f"t{number}", "run-1", exchange)


def check(proxy: Proxy, least: int) -> dict[str, Any]:
    report = proxy.control.get("/api/export/report?redact=false&dedupe=false")
    assert {reason.partition(":")[0] for reason in report["left_out"]} <= set(dataset.REASONS)
    assert not any(reason.startswith(dataset.INVALID) for reason in report["left_out"]), report["left_out"]
    for form in ("openai", "trl"):
        found = lines(proxy, f"/api/export/dataset?format={form}&redact=false&dedupe=false")
        assert [fault for line in found for fault in faults(form, line)] == []  # type: ignore[arg-type]
        if form == "openai":
            assert len(found) == report["lines"] >= least, report["summary"]
            assert [fault for line in found for fault in published.faults(line)][:3] == []
    return dict(report)


@pytest.mark.parametrize(("service", "api"), SOURCES)
def test_recorded_calls_become_lines_that_keep_the_rules(service: str, api: str, tmp_path: Path) -> None:
    traffic.require()
    found = list(traffic.provider_chat(service)) if api == "chat.completions" else played(service, api)
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as proxy:
        play(upstream, proxy, found)
        report = check(proxy, SOURCES[service, api])
        assert "Traceback" not in proxy.log
    print(service, api, report["summary"])


def test_a_recorded_agent_is_few_lines_however_many_steps_it_took(tmp_path: Path) -> None:
    traffic.require()
    found = [one for one in traffic.client_chat("run1") if len(one.exchanges) >= 3]
    assert found
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as proxy:
        play(upstream, proxy, found)
        whole = lines(proxy, "/api/export/dataset?format=trajectory&redact=false&dedupe=false")
        check(proxy, 1)
    steps = Counter(line["session"] for line in whole for _ in line["steps"])
    count = Counter(line["session"] for line in whole)
    folded = [session for session in count if steps[session] >= 3 * count[session] or count[session] == 1]
    print(json.dumps({session: (steps[session], count[session]) for session in count}))
    assert len(folded) >= len(count) * 0.6
