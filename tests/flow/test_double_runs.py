"""Two runs of real clients differ in nothing but what the client makes up: the second is replayed from the first.

Where a client really asks something else, the report of the divergence says where, and how to declare it harmless.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.support import traffic
from tests.support.client import Answer, Client
from tests.support.proxy import Proxy
from tests.support.traffic import Exchange
from tests.support.upstream import Reply, Upstream, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")
_numbers = itertools.count()

# What the second run really asks anew, and why that is right.
ASKS_ANEW: dict[str, str] = {
    "crewai-memory": "its prompts hold what the first run has left on the disk",
}


def reply_of(exchange: Exchange) -> Reply:
    fields = [(name, value) for name, value in exchange.response_headers if name.lower() != "content-type"]
    if exchange.streamed:
        kind = exchange.content_type or "text/event-stream"
        return stream(exchange.response, status=exchange.status, headers=fields, content_type=kind)
    return plain(exchange.response, exchange.status, headers=fields, content_type=exchange.content_type)


def ask(client: Client, session: str, run: str, exchange: Exchange) -> Answer:
    prefix = f"/s/{session}/r/{run}"
    dropped = ("content-length", "host", "connection", "accept-encoding")
    fields = {name: value for name, value in exchange.request_headers if name.lower() not in dropped}
    return client.send(exchange.method, prefix + exchange.path, fields, exchange.request)


def play(upstream: Upstream, client: Client, session: str, run: str, exchanges: Sequence[Exchange]) -> list[Answer]:
    answers = []
    for exchange in exchanges:
        upstream.script = lambda seen, exchange=exchange: reply_of(exchange)
        answers.append(ask(client, session, run, exchange))
    return answers


def paid_by_second(upstream: Upstream, proxy: Proxy, one: str, two: str) -> list[str]:
    """The places of the requests of the second run for which a provider was asked."""
    first, second = traffic.client_all(one), traffic.client_all(two)
    session = f"double-{next(_numbers)}"
    upstream.reset()
    whole = play(upstream, proxy.client, session, "one", first)
    relayed = [(answer.status, answer.body) for answer in whole]
    for exchange, answer in zip(first, relayed, strict=True):
        # A probe of the bare address and the offer of a WebSocket are answered here.
        assert exchange.method != "POST" or answer == (exchange.status, exchange.response)
    answers = play(upstream, proxy.client, session, "two", second)
    return [
        f"{place} {exchange.method} {exchange.path}: {answer.status} {answer.outcome}"
        for place, (exchange, answer) in enumerate(zip(second, answers, strict=True))
        if answer.outcome not in ("replay", "memo") and is_model_call(exchange)
    ]


def is_model_call(exchange: Exchange) -> bool:
    """Lists of models, probes and upgrades are no steps; an error of the first run is history only if it went on."""
    return exchange.method == "POST" and exchange.status < 400


PAIRS = traffic.double_runs()


@pytest.mark.parametrize("name", [name for name in PAIRS if name not in ASKS_ANEW])
def test_second_run_of_a_client_is_replayed_from_the_first(upstream: Upstream, proxy: Proxy, name: str) -> None:
    traffic.require()
    one, two = PAIRS[name]
    assert paid_by_second(upstream, proxy, one, two) == []


@pytest.mark.parametrize("name", ASKS_ANEW)
def test_what_a_client_really_asks_anew_is_paid(upstream: Upstream, proxy: Proxy, name: str) -> None:
    traffic.require()
    one, two = PAIRS[name]
    assert paid_by_second(upstream, proxy, one, two), f"{name} is replayed now: {ASKS_ANEW[name]}"
