"""A real proxy tells a real receiver of its steps: one span a step, the agent's span above it, no text in any."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.collector import Collector
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Hang, Reply, Seen, Upstream, plain, stream

QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "20"}  # milliseconds between two batches
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PROMPT = "the prompt that nobody else may read"
ANSWER = "the answer that nobody else may read"
CLIENT, INTERNAL = 3, 1


def answers(seen: Seen) -> Reply:
    if "mcp" in seen.target:
        text = {"content": [{"type": "text", "text": ANSWER}], "isError": False}
        return plain(json.dumps({"jsonrpc": "2.0", "id": seen.json()["id"], "result": text}).encode())
    if "overloaded" in json.dumps(seen.json()):
        return plain(json.dumps({"error": {"message": f"{ANSWER} {PROMPT}"}}).encode(), 503)
    if "mail" in json.dumps(seen.json()):
        return plain(chat.completion(None, tool_calls=[chat.tool_call("send_email")]))
    if seen.json().get("stream"):
        return stream(*chat.chunks(ANSWER, name="s"))
    return plain(chat.completion(ANSWER), headers=[("x-request-id", "req_71")])


@pytest.fixture(scope="module")
def model() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def told(model: Upstream, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    settings = {"telemetry.otlp_url": collector.url, "mcp.bank.url": model.url.removesuffix("/v1") + "/mcp"}
    environment = {**QUICK, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
    data = tmp_path_factory.mktemp("told") / "data"
    with Proxy(data, model.url, settings=settings, environment=environment) as running:
        yield running


@pytest.fixture(autouse=True)
def forgotten(collector: Collector) -> None:
    collector.spans.clear()


def test_a_live_step_is_a_span_and_its_replay_another_without_usage(told: Proxy, collector: Collector) -> None:
    for run in ("a", "b"):
        assert told.client.ask("s", PROMPT, run=run).status == 200
    live, replay = sorted(collector.wait(2, "chat"), key=lambda span: span.begin)
    assert live.name == replay.name == f"chat {chat.MODEL}" and live.kind == CLIENT
    assert live.attributes | {"agentstate.cost_usd": 0} == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": chat.MODEL,
        "gen_ai.response.model": chat.MODEL, "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5, "gen_ai.conversation.id": "s",
        "http.response.status_code": 200, "agentstate.outcome": "live", "agentstate.replayed": False,
        "agentstate.step": 0, "agentstate.run": "a", "agentstate.attempts": 1,
        "agentstate.provider_request_id": "req_71", "agentstate.cost_usd": 0,
    }  # fmt: skip
    assert [name for name, _ in live.events] == ["agentstate.attempt"] and not live.failed
    assert live.resource["service.name"] == "agentstate" and live.resource["deployment.environment.name"] == "test"
    of = replay.attributes
    assert of["agentstate.outcome"] == "replay" and of["agentstate.replayed"] is True and of["agentstate.run"] == "b"
    assert not [name for name in of if "usage" in name or "cost" in name]
    assert live.begin < live.end <= time.time_ns() and live.end - live.begin < 20e9


def test_spans_of_a_session_without_a_parent_are_in_one_trace(told: Proxy, collector: Collector) -> None:
    for run in ("a", "b"):
        assert told.client.ask("one", PROMPT, run=run, stream=True).status == 200
    spans = collector.wait(2, "chat")
    assert {span.trace for span in spans} == {sha256(b"one").hexdigest()[:32]}
    assert {span.parent for span in spans} == {""}


def test_the_agents_span_is_above_and_its_header_goes_on_as_it_came(
    told: Proxy, collector: Collector, model: Upstream
) -> None:
    for run in ("a", "b"):
        assert told.client.ask("above", PROMPT, run=run, headers={"traceparent": PARENT}).status == 200
    spans = collector.wait(2, "chat")
    assert {(span.trace, span.parent) for span in spans} == {tuple(PARENT.split("-")[1:3])}
    assert model.requests[-1].headers.get("traceparent") == PARENT


@pytest.mark.parametrize(
    "parent", ["", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff" + PARENT[2:], PARENT + "x", "x"]
)
def test_a_parent_that_is_none_is_left_out(told: Proxy, collector: Collector, parent: str) -> None:
    session = "odd-" + sha256(parent.encode()).hexdigest()[:8]
    assert told.client.ask(session, PROMPT, run="a", headers={"traceparent": parent}).status == 200
    [span] = collector.wait(1, "chat")
    assert span.trace == sha256(session.encode()).hexdigest()[:32]


def test_a_failure_is_a_span_with_its_code_and_none_of_the_providers_words(told: Proxy, collector: Collector) -> None:
    assert told.client.ask("fails", "overloaded", run="a").status == 503
    [span] = collector.wait(1, "chat")
    assert span.failed and span.attributes["error.type"] == "http_503"
    assert span.events[-1][1]["http.response.status_code"] == 503


def test_a_tool_is_a_span_however_it_is_called(told: Proxy, collector: Collector) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {"to": PROMPT}}}
    headers = {"content-type": "application/json", "accept": "application/json", "traceparent": PARENT}
    for run in ("a", "b"):
        answer = told.client.send("POST", f"/s/tools/r/{run}/mcp/bank", headers, json.dumps(body).encode())
        assert answer.status == 200, answer.body
    live, replay = sorted(collector.wait(2, "execute_tool"), key=lambda span: span.begin)
    assert live.name == "execute_tool pay" and live.kind == INTERNAL and live.trace == PARENT.split("-")[1]
    assert live.attributes["gen_ai.operation.name"] == "execute_tool" and live.attributes["gen_ai.tool.name"] == "pay"
    assert (live.attributes["agentstate.outcome"], replay.attributes["agentstate.outcome"]) == ("live", "replay")


def test_a_function_is_a_span_from_its_claim_to_its_result(told: Proxy, collector: Collector) -> None:
    claim = {"arguments": {"to": PROMPT}, "process": "of a", "sending": "1"}
    at = "/s/functions/r/a/tools/pay/"
    kind = {"content-type": "application/json"}
    got = told.client.send("POST", at + "claim", kind, json.dumps(claim).encode()).json()
    assert got["state"] == "claimed" and not [span for span in collector.spans if span.name.startswith("execute")]
    result = {**claim, "step": got["step"], "attempt": got["attempt"], "outcome": {"result": ANSWER}}
    assert told.client.send("POST", at + "result", kind, json.dumps(result).encode()).status == 200
    [span] = collector.wait(1, "execute_tool")
    assert span.attributes["agentstate.outcome"] == "live" and span.attributes["agentstate.run"] == "a"
    assert not span.failed


def test_a_wait_for_a_person_is_a_span_of_its_own(told: Proxy, collector: Collector) -> None:
    asking = Asking(lambda: told.client.ask("mails", "mail", run="a"))
    [span] = collector.wait(1, "chat")
    assert span.attributes["gen_ai.usage.output_tokens"] == 5
    decide(told, pending(told, session="mails")[0], "APPROVED")
    assert asking.answer().status == 200
    [held] = collector.wait(1, "hold")
    assert held.attributes["agentstate.outcome"] == "held" and "gen_ai.usage.output_tokens" not in held.attributes


def test_no_span_holds_a_text_or_a_credential(told: Proxy, collector: Collector) -> None:
    headers = {"authorization": "Bearer sk-test-of-the-header", "baggage": "sk-test-of-the-baggage"}
    assert told.client.ask("quiet", PROMPT, run="a", headers=headers).status == 200
    assert told.client.ask("quiet", f"overloaded {PROMPT}", run="a", headers=headers).status == 503
    collector.wait(2, "chat")
    assert collector.raw
    for text in (PROMPT, ANSWER, "sk-test-"):
        assert text.encode() not in collector.raw


def test_a_stop_sends_the_last_spans(model: Upstream, tmp_path: Path) -> None:
    with Collector() as last:
        settings = {"telemetry.otlp_url": last.url}
        slow = {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
        with Proxy(tmp_path / "data", model.url, settings=settings, environment=slow) as proxy:
            assert proxy.client.ask("s", "hello", run="a").status == 200
            assert not last.spans
            assert proxy.stop() == 0
        assert [span.name for span in last.spans] == [f"chat {chat.MODEL}"]


@pytest.mark.parametrize("how", ["down", "silent"])
def test_a_collector_that_does_not_answer_costs_nothing_and_is_told_of_once(
    how: str, model: Upstream, tmp_path: Path
) -> None:
    with Collector() as deaf, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody will
        deaf.reply = lambda: [Hang()]
        url = deaf.url if how == "silent" else f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"
        environment = {**QUICK, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1"}
        settings = {"telemetry.otlp_url": url}
        with Proxy(tmp_path / "data", model.url, settings=settings, environment=environment) as proxy:
            began = time.monotonic()
            until = began + 30
            number = 0
            while "cannot be sent" not in proxy.log or number < 40:
                assert proxy.client.ask("s", f"question {number}", run="a").status == 200
                number += 1
                assert time.monotonic() < until, proxy.log
            began = time.monotonic()
            assert proxy.stop() == 0
            assert time.monotonic() - began < 15
        assert proxy.log.count("cannot be sent") == 1 and "Traceback" not in proxy.log
        assert len(proxy.log.splitlines()) == 1, proxy.log


def test_nothing_of_it_is_loaded_where_it_is_not_asked_for() -> None:
    import subprocess
    import sys

    from tests.support.proxy import ROOT, clean_environment

    code = (
        "import sys, agentstate.server.app; from agentstate.engine.core import Parts;"
        "from agentstate.settings import Settings; Parts(Settings());"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus_client'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment(ROOT), timeout=60
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
