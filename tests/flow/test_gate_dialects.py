"""In every wire format: of an answer with held calls the agent has what may flow, to the byte, and not one byte more;
then exactly what was recorded, or an answer without the calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agentstate.core.model import Call, Verdict
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from tests.flow.test_dialect_traffic import _DROPPED
from tests.flow.test_traffic import reply_of
from tests.support import traffic
from tests.support.client import Connection
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.traffic import Exchange
from tests.support.upstream import Upstream

_numbers = itertools.count()
SOURCES = [
    ("openai", "chat.completions"),
    ("openai", "responses"),
    ("anthropic", "messages"),
    ("gemini", "generateContent"),
]
EACH = 3  # exchanges of each wire format and shape
HEARTBEATS = b": keep-alive\n\n"


@dataclass(frozen=True)
class Recorded:
    """A recorded exchange whose answer calls tools."""

    exchange: Exchange
    dialect: Dialect
    call: Call
    verdict: Verdict
    free: bytes


def recorded(service: str, api: str, streamed: bool) -> Iterator[Recorded]:
    found = traffic.provider_chat(service) if api == "chat.completions" else traffic.provider_calls(service, api)
    for exchange in (exchange for trajectory in found for exchange in trajectory.exchanges):
        path, _, query = exchange.path.partition("?")
        normal = registry.normalise(path if api != "chat.completions" else "/v1/chat/completions")
        dialect = registry.for_path("POST", normal)
        if dialect is None or exchange.status != 200 or exchange.streamed is not streamed:
            continue
        call = dialect.parse("POST", normal, exchange.request, query)
        if call.background or call.shape.stream is not streamed or b"REDACT" in exchange.request:
            continue
        free = b""
        if streamed:
            gate = dialect.gate(call)
            free = gate.feed(exchange.response)
            verdict = gate.finish()
        else:
            verdict = dialect.judge(call, exchange.response)
        if verdict.calls and not verdict.fault and not verdict.broken:
            yield Recorded(exchange, dialect, call, verdict, free)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    everything = '[[policies]]\ntools = ["*"]'
    with Proxy(tmp_path_factory.mktemp("held"), upstream.url, file=everything) as running:
        yield running
        assert "Traceback" not in running.log


def begin(proxy: Proxy, session: str, found: Recorded) -> Connection:
    fields: dict[str, Any] = {
        name: value for name, value in found.exchange.request_headers if name.lower() not in _DROPPED
    }
    fields.setdefault("content-type", "application/json")
    path = found.exchange.path
    if found.dialect.name == "openai_chat":
        path = "/v1/chat/completions"
    connection = proxy.client.connect()
    connection.request("POST", f"/s/{session}/r/r1{path}", fields, found.exchange.request)
    return connection


@pytest.mark.parametrize("action", ["APPROVED", "REJECTED"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("service", "api"), SOURCES)
def test_agent_has_what_may_flow_and_not_a_byte_more_before_people_decide(
    upstream: Upstream, proxy: Proxy, service: str, api: str, streamed: bool, action: str
) -> None:
    traffic.require()
    exchanges = list(itertools.islice(recorded(service, api, streamed), EACH))
    assert exchanges
    for found in exchanges:
        session = f"gate-{next(_numbers)}"
        upstream.reset()
        upstream.script = lambda seen, found=found: reply_of(found.exchange)
        with begin(proxy, session, found) as connection:
            approvals = pending(proxy, len(found.verdict.calls), session)
            assert [one["tool_name"] for one in approvals] == [one.name for one in found.verdict.calls]
            if found.free:
                connection.read_head()
                connection.read_until(found.free[-20:])
                assert connection.received() == found.free
            assert connection.silent(0.2)
            for approval in approvals:
                decide(proxy, approval, action, reason="because")
            if not found.free:
                connection.read_head()
            body, whole = connection.read_body()
        assert whole
        if action == "APPROVED":
            assert body == found.exchange.response
            continue
        assert body.startswith(found.free)
        after = found.dialect.judge(found.call, body)
        if streamed:
            gate = found.dialect.gate(found.call)
            gate.feed(body)
            after = gate.finish()
        assert (after.fault, after.calls) == ("", ())
        assert b"because" in body
        for call in found.verdict.calls:
            for secret in (call.call_id, call.arguments if len(call.arguments) > 8 else ""):
                assert not secret or secret.encode() not in body
