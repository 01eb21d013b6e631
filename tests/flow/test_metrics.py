"""A real proxy is looked at as Prometheus does: what is counted, who may see it, what no label holds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.house.pages import REFERENCE, table
from tests.support import chat
from tests.support.client import Client
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Reply, Rst, Seen, Upstream, plain, stream

BOUND_S = 20.0
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}


def scrape(proxy: Proxy, token: str | None = None) -> Samples:
    answer = proxy.client.send("GET", "/metrics", {"authorization": f"Bearer {token or proxy.admin_token}"})
    assert answer.status == 200, answer.body
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, tuple(sorted(labels.items()))), 0.0)


def answers(seen: Seen) -> Reply:
    """As the question wants it: an error, a cut, a call of a tool, a stream, or a text, with usage."""
    asked = seen.json()
    text = json.dumps(asked["messages"])
    model = str(asked["model"])
    if "overloaded" in text:
        return plain(b'{"error":{"message":"overloaded"}}', 529)
    if "cut" in text:
        return [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", Rst()]
    if "mail" in text:
        return plain(chat.completion(None, tool_calls=[chat.tool_call("send_email")]))
    if asked.get("stream"):
        return stream(*chat.chunks("a text", name="s"))
    body = json.loads(chat.completion("a text"))
    return plain(json.dumps({**body, "usage": USAGE, "model": model}).encode())


@pytest.fixture(scope="module")
def upstream_of_metrics() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


@pytest.fixture
def proxy(upstream_of_metrics: Upstream, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(tmp_path / "data", upstream_of_metrics.url) as running:
        yield running


def test_a_live_answer_and_its_replay_are_counted_with_tokens_and_money(proxy: Proxy) -> None:
    for run in ("a", "b"):
        assert proxy.client.ask("s", "hello", run=run, model="gpt-4o").status == 200
        assert proxy.client.ask("s", "stream it", run=run, model="gpt-4o", stream=True).status == 200
    assert proxy.client.ask(None, "hello", model="gpt-4o").status == 200
    found = scrape(proxy)
    of = {"provider": "openai", "model": "gpt-4o"}
    assert value(found, "agentstate_requests_total", dialect="openai_chat", outcome="live") == 2
    assert value(found, "agentstate_requests_total", dialect="openai_chat", outcome="replay") == 2
    assert value(found, "agentstate_requests_total", dialect="passthrough", outcome="live") == 1
    assert value(found, "agentstate_attempts_total", **of, status="2xx") >= 1
    assert value(found, "agentstate_tokens_total", **of, kind="input") == 1000
    assert value(found, "agentstate_tokens_total", **of, kind="output") == 100
    assert value(found, "agentstate_tokens_total", **of, kind="cached") == 400
    cost = value(found, "agentstate_cost_usd_total", **of)
    assert cost == pytest.approx(600 * 2.5e-6 + 400 * 1.25e-6 + 100 * 10e-6)
    assert value(found, "agentstate_saved_cost_usd_total") == pytest.approx(cost)
    assert value(found, "agentstate_replay_duration_seconds_count") == 2
    assert value(found, "agentstate_added_latency_seconds_count") == 2
    assert 0 < value(found, "agentstate_added_latency_seconds_sum") < BOUND_S
    assert value(found, "agentstate_journal_fsync_seconds_count") >= 1
    assert value(found, "agentstate_journal_commit_seconds_count") >= 1
    assert value(found, "agentstate_journal_bytes") > 0 and value(found, "agentstate_journal_wal_bytes") > 0


def test_the_added_latency_is_without_the_time_of_the_provider(proxy: Proxy, upstream_of_metrics: Upstream) -> None:
    gate = Gate()
    upstream_of_metrics.reset(lambda seen: [gate, *answers(seen)])
    try:
        asking = Asking(lambda: proxy.client.ask("slow", "hello", model="gpt-4o"))
        gate.wait_reached()
        deadline = time.monotonic() + BOUND_S
        while not value(scrape(proxy), "agentstate_event_loop_lag_seconds_count"):
            assert time.monotonic() < deadline, "the event loop was not measured"
            time.sleep(0.02)
        assert value(scrape(proxy), "agentstate_steps_in_flight") == 1
        gate.open()
        assert asking.answer().status == 200
    finally:
        gate.open()
        upstream_of_metrics.reset(answers)
    found = scrape(proxy)
    waited = value(found, "agentstate_attempt_duration_seconds_sum", provider="openai", model="gpt-4o")
    added = value(found, "agentstate_added_latency_seconds_sum")
    assert value(found, "agentstate_attempt_first_byte_seconds_sum", provider="openai", model="gpt-4o") > added
    assert waited > added > 0
    assert value(found, "agentstate_steps_in_flight") == 0


def test_failures_are_counted_by_code_and_status(proxy: Proxy) -> None:
    assert proxy.client.ask("s", "hello", model="gpt-4o").status == 200
    assert proxy.client.ask("s", "overloaded", model="gpt-4o").status == 529
    cut = proxy.client.ask("s", "cut", model="gpt-4o")
    found = scrape(proxy)
    of = {"provider": "openai", "model": "gpt-4o"}
    assert value(found, "agentstate_attempts_total", **of, status="5xx") >= 1
    assert value(found, "agentstate_attempts_total", **of, status="none") >= 1
    assert value(found, "agentstate_errors_total", code=cut.error["code"]) == 1


def test_approvals_and_held_answers_are_seen_as_they_are(proxy: Proxy) -> None:
    asking = Asking(lambda: proxy.client.ask("mails", "mail", run="a", model="gpt-4o"))
    [row] = pending(proxy)
    assert value(scrape(proxy), "agentstate_approvals_pending") == 1
    decide(proxy, row, "APPROVED")
    assert asking.answer().status == 200
    found = scrape(proxy)
    assert value(found, "agentstate_approvals_pending") == 0
    assert value(found, "agentstate_approvals_decided_total", state="approved") == 1
    assert value(found, "agentstate_requests_total", dialect="openai_chat", outcome="held") == 1


def test_a_rejection_by_an_error_counts_as_one_error_and_as_no_answer(
    upstream_of_metrics: Upstream, tmp_path: Path
) -> None:
    file = '[[policies]]\ntools = ["send_email"]\non_reject = "error"\n'
    with Proxy(tmp_path / "data", upstream_of_metrics.url, file=file) as proxy:
        asking = Asking(lambda: proxy.client.ask("mails", "mail", run="a", model="gpt-4o"))
        decide(proxy, pending(proxy)[0], "REJECTED")
        assert asking.answer().status == 403
        found = scrape(proxy)
        assert value(found, "agentstate_errors_total", code="human_rejection") == 1
        assert not [labels for name, labels in found if name == "agentstate_requests_total"]


def test_no_label_holds_what_agents_made_up(proxy: Proxy) -> None:
    secret = "sk-test-in-the-wrong-place"
    for number in range(30):
        proxy.client.ask(f"session-{number}", "overloaded", run=f"run-{number}", model=f"{secret}-{number}")
    text = proxy.client.send("GET", "/metrics", {"authorization": f"Bearer {proxy.admin_token}"}).body.decode()
    assert secret not in text and "session-" not in text and "run-" not in text
    assert 'model="other"' in text


def test_only_people_may_look(proxy: Proxy) -> None:
    assert proxy.client.send("GET", "/metrics").status == 401
    assert proxy.client.send("GET", "/metrics", {"authorization": "Bearer sk-test-guess"}).status == 401
    viewer = proxy.control.post("/api/approvers", {"name": "prometheus", "role": "viewer"})["token"]
    assert value(scrape(proxy, viewer), "agentstate_info", version="0.1.0") == 1


def test_where_it_is_open_everybody_may_look_under_any_name(upstream_of_metrics: Upstream, tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", upstream_of_metrics.url, settings={"metrics.open": "true"}) as proxy:
        answer = Client(proxy.port).send("GET", "/metrics", {"host": "agentstate.internal:8080"})
        assert answer.status == 200 and b"agentstate_info" in answer.body
        assert proxy.client.send("GET", "/api/sessions").status == 401


def test_openmetrics_is_given_to_who_asks_for_it(proxy: Proxy) -> None:
    headers = {"authorization": f"Bearer {proxy.admin_token}", "accept": "application/openmetrics-text; version=1.0.0"}
    answer = proxy.client.send("GET", "/metrics", headers)
    assert answer.body.endswith(b"# EOF\n")
    assert (answer.headers.get("content-type") or "").startswith("application/openmetrics-text")


def test_the_reference_names_every_metric_with_its_type_and_labels(proxy: Proxy) -> None:
    assert proxy.client.ask("s", "hello", run="a", model="gpt-4o").status == 200
    assert proxy.client.ask("s", "hello", run="b", model="gpt-4o").status == 200
    asking = Asking(lambda: proxy.client.ask("mails", "mail", run="a", model="gpt-4o"))
    decide(proxy, pending(proxy)[0], "REJECTED")
    assert asking.answer().status == 200
    cut = proxy.client.ask("s", "cut", run="b", model="gpt-4o")
    assert cut.status >= 500
    body = proxy.client.send("GET", "/metrics", {"authorization": f"Bearer {proxy.admin_token}"}).body.decode()
    served = {}
    for family in text_string_to_metric_families(body):
        if family.name.startswith("agentstate_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            served[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    documented = {}
    for name, kind, labels_of, _ in table(REFERENCE / "metrics.md", "Metrics"):
        documented[name.strip("`")] = (kind, {part.strip(" `") for part in labels_of.split(",") if part.strip()})
    assert documented == served
    assert value(scrape(proxy), "agentstate_breaker_open", provider="openai", model="gpt-4o") == 0  # it failed once
    assert "process_cpu_seconds_total" in body and "python_gc_" in body
