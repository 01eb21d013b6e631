"""Recorded calls of every wire format are relayed byte for byte and replayed byte for byte, however they are cut."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentstate.dialects import registry
from tests.flow.test_traffic import MOMENT, may_be_paid_again, reply_of
from tests.support import traffic
from tests.support.client import Answer, Client
from tests.support.proxy import Proxy
from tests.support.traffic import Exchange, Trajectory
from tests.support.upstream import Upstream

pytestmark = pytest.mark.usefixtures("no_traceback")
_numbers = itertools.count()

# (service, wire format) of the recordings, and how many calls of it are played at least.
SOURCES = {
    ("openai", "responses"): 350,
    ("xai", "responses"): 20,
    ("azure", "responses"): 0,
    ("anthropic", "messages"): 300,
    ("gemini", "generateContent"): 200,
    ("openai", "embeddings"): 10,
    ("gemini", "embeddings"): 5,
}
_DROPPED = ("content-length", "host", "connection", "accept-encoding", "authorization", "x-api-key", "x-goog-api-key")


def played(service: str, api: str) -> list[Trajectory]:
    """The trajectories, less the calls that are passed through."""
    found = []
    for trajectory in traffic.provider_calls(service, api):
        kept = tuple(
            exchange
            for exchange in trajectory.exchanges
            if registry.for_path(exchange.method, registry.normalise(exchange.path.partition("?")[0])) is not None
            # A credential in the body is taken out of what is kept; here a word stands for it that answers use too.
            and b'"authorization": "REDACT' not in exchange.request
        )
        if kept:
            found.append(Trajectory(trajectory.id, kept))
    return found


def send(client: Client, session: str, run: str, exchange: Exchange) -> Answer:
    fields = {name: value for name, value in exchange.request_headers if name.lower() not in _DROPPED}
    fields.setdefault("content-type", "application/json")
    return client.send("POST", f"/s/{session}/r/{run}{exchange.path}", fields, exchange.request)


def relay_and_replay(upstream: Upstream, proxy: Proxy, found: Sequence[Trajectory], cuts: Sequence[int] = ()) -> int:
    """Play each trajectory as one run, then as the next; how many calls that were."""
    faults: list[str] = []
    count = 0
    for trajectory in found:
        session = f"dialect-{next(_numbers)}"
        for run in ("first", "second"):
            for place, exchange in enumerate(trajectory.exchanges):
                upstream.reset()
                upstream.script = lambda seen, exchange=exchange: reply_of(exchange, cuts)
                answer = send(proxy.client, session, run, exchange)
                faults += faults_of(trajectory, place, answer, run, upstream)
                count += run == "first"
    assert not faults, f"{len(faults)} faults, the first: " + "\n".join(faults[:8])
    return count


def faults_of(trajectory: Trajectory, place: int, answer: Answer, run: str, upstream: Upstream) -> list[str]:
    exchange = trajectory.exchanges[place]
    found = []
    if answer.outcome == "memo" and answer.step != place:
        return found  # what was asked before gets the answer of then
    if (answer.status, answer.body, answer.complete) != (exchange.status, exchange.response, True):
        found.append(f"{run} {exchange.id}: {answer.status} {answer.body[:300]!r} for {exchange.response[:300]!r}")
    for name, value in exchange.response_headers:
        wanted = None if answer.hit and name.lower().startswith(MOMENT) else value
        if answer.headers.get(name) != wanted:
            found.append(f"{run} {exchange.id}: {name} is {answer.headers.get(name)!r}, was {value!r}")
    asked = [seen for seen in upstream.requests if seen.method == "POST"]  # jobs of other calls are looked at meanwhile
    found += [
        f"{run} {exchange.id}: {seen.target} was asked, not {exchange.path}"
        for seen in asked
        if (seen.target, seen.body) != (exchange.path, exchange.request)
    ]
    if run == "first" and answer.outcome not in ("live", "memo"):
        found.append(f"{run} {exchange.id}: {answer.outcome}")
    if run == "second" and asked and not may_be_paid_again(trajectory, exchange):
        found.append(f"{run} {exchange.id} ({exchange.status}): paid for again, {answer.outcome}")
    return found


@pytest.mark.parametrize(("service", "api"), SOURCES)
def test_recorded_calls_are_relayed_and_replayed_byte_for_byte(
    upstream: Upstream, proxy: Proxy, service: str, api: str
) -> None:
    traffic.require()
    assert relay_and_replay(upstream, proxy, played(service, api)) >= SOURCES[service, api]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_streams_may_be_cut_anywhere(upstream: Upstream, proxy: Proxy, data: st.DataObject) -> None:
    traffic.require()
    source = data.draw(st.sampled_from([source for source in SOURCES if source[1] != "embeddings"]))
    found = [one for one in played(*source) if any(exchange.streamed for exchange in one.exchanges)]
    if found:
        cuts = data.draw(st.lists(st.integers(0, 2**20), max_size=12))
        relay_and_replay(upstream, proxy, [data.draw(st.sampled_from(found))], cuts)
