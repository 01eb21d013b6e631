"""Recorded traffic of real providers and real clients is relayed and replayed byte for byte, however it is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import traffic
from tests.support.client import Answer, Client, chat_headers, chat_path
from tests.support.proxy import Proxy
from tests.support.traffic import Exchange, Trajectory
from tests.support.upstream import Reply, Upstream, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")
_numbers = itertools.count()

# A status that speaks of the key or the moment: it is never part of a later run's history.
NEVER_HISTORY = (401, 403, 429)
MOMENT = ("x-ratelimit", "ratelimit", "retry-after")
# Answers under status 200 that are not finished: a choice has no finish reason, or an error stands in the stream.
UNFINISHED = {
    "openai": {"openai-7aed41dc30"},
    "openrouter": {"openrouter-bf467b9a03"},
    "snowflake": {"snowflake-9fd08c5ed0"},
    "groq": {"groq-8e947bc80e", "groq-9e866a6389"},
}


def reply_of(exchange: Exchange, cuts: Sequence[int] = ()) -> Reply:
    """The recorded answer as the upstream sends it; a stream is cut at the given places."""
    fields = [(name, value) for name, value in exchange.response_headers if name.lower() != "content-type"]
    if not exchange.streamed:
        return plain(exchange.response, exchange.status, headers=fields, content_type=exchange.content_type)
    body = exchange.response
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    pieces = [body[start:end] for start, end in itertools.pairwise(edges)]
    content_type = exchange.content_type or "text/event-stream"
    return stream(*pieces, status=exchange.status, headers=fields, content_type=content_type)


def as_sent(body: bytes, sent: bytes) -> bytes:
    """What reached the provider, less the option by which the proxy asks for the usage of a stream."""
    wanted, found = json.loads(sent), json.loads(body)
    options = wanted.get("stream_options") or {}
    if not wanted.get("stream") or options.get("include_usage") or body == sent:
        return body
    assert found.pop("stream_options") == options | {"include_usage": True}
    wanted.pop("stream_options", None)
    assert found == wanted
    return sent


def send(client: Client, session: str, run: str, exchange: Exchange) -> Answer:
    kept = {name: value for name, value in exchange.request_headers if name.lower() != "authorization"}
    return client.send("POST", chat_path(session, run), chat_headers(kept), exchange.request)


def play(
    upstream: Upstream, client: Client, session: str, run: str, trajectory: Trajectory, cuts: Sequence[int] = ()
) -> list[Answer]:
    upstream.reset()
    upstream.replies(*(reply_of(exchange, cuts) for exchange in trajectory.exchanges))
    answers = [send(client, session, run, exchange) for exchange in trajectory.exchanges]
    seen = [
        (request.target, as_sent(request.body, exchange.request))
        for request, exchange in zip(upstream.requests, trajectory.exchanges, strict=True)
    ]
    assert seen == [(exchange.path, exchange.request) for exchange in trajectory.exchanges]
    return answers


def play_again(
    upstream: Upstream, client: Client, session: str, run: str, trajectory: Trajectory
) -> tuple[list[Answer], list[Exchange]]:
    """The answers of a new run, and the exchanges for which the upstream was asked again."""
    upstream.reset()
    paid: list[Exchange] = []
    answers = []
    for exchange in trajectory.exchanges:
        before = upstream.calls
        upstream.script = lambda seen, exchange=exchange: reply_of(exchange)
        answers.append(send(client, session, run, exchange))
        if upstream.calls > before:
            paid.append(exchange)
    return answers, paid


def differences(trajectory: Trajectory, answers: Sequence[Answer]) -> list[str]:
    """Where an answer is not what was recorded. What speaks of the moment is not told again in a replay."""
    found = []
    for exchange, answer in zip(trajectory.exchanges, answers, strict=True):
        if (answer.status, answer.body, answer.complete) != (exchange.status, exchange.response, True):
            found.append(f"{exchange.id}: {answer.status} {answer.body[:200]!r} for {exchange.response[:200]!r}")
        for name, value in exchange.response_headers:
            wanted = None if answer.hit and name.lower().startswith(MOMENT) else value
            if answer.headers.get(name) != wanted:
                found.append(f"{exchange.id}: {name} is {answer.headers.get(name)!r}, was {value!r}")
    return found


def may_be_paid_again(trajectory: Trajectory, exchange: Exchange) -> bool:
    """Errors are history only if the run went on after them, and never when they speak of the key or the moment."""
    last = exchange is trajectory.exchanges[-1]
    return exchange.status >= 400 and (last or exchange.status in NEVER_HISTORY)


def relay_and_replay(upstream: Upstream, proxy: Proxy, found: Sequence[Trajectory], cuts: Sequence[int] = ()) -> None:
    faults: list[str] = []
    for trajectory in found:
        session = f"traffic-{next(_numbers)}"
        answers = play(upstream, proxy.client, session, "first", trajectory, cuts)
        faults += differences(trajectory, answers)
        faults += [
            f"{exchange.id}: first run says {answer.outcome}"
            for exchange, answer in zip(trajectory.exchanges, answers, strict=True)
            if answer.outcome != "live"
        ]
        answers, paid = play_again(upstream, proxy.client, session, "second", trajectory)
        faults += [f"again {fault}" for fault in differences(trajectory, answers)]
        for exchange, answer in zip(trajectory.exchanges, answers, strict=True):
            if exchange in paid and not may_be_paid_again(trajectory, exchange):
                faults.append(f"{exchange.id} ({exchange.status}): paid for again, {answer.outcome}")
            if (exchange in paid) != (answer.hit is False):
                faults.append(f"{exchange.id}: paid is {exchange in paid}, the header says hit={answer.hit}")
    assert not faults, f"{len(faults)} faults, the first: " + "\n".join(faults[:8])


def finished(service: str) -> list[Trajectory]:
    """The trajectories of a service less the exchanges that are no finished answers."""
    left_out = UNFINISHED.get(service, set())
    kept = (
        Trajectory(found.id, tuple(exchange for exchange in found.exchanges if exchange.id not in left_out))
        for found in traffic.provider_chat(service)
    )
    return [found for found in kept if found.exchanges]


@pytest.mark.parametrize("service", UNFINISHED)
def test_recorded_answers_that_are_not_finished_are_never_replayed(
    upstream: Upstream, proxy: Proxy, service: str
) -> None:
    traffic.require()
    found = [exchange for trajectory in traffic.provider_chat(service) for exchange in trajectory.exchanges]
    unfinished = [exchange for exchange in found if exchange.id in UNFINISHED[service]]
    assert len(unfinished) == len(UNFINISHED[service])
    for exchange in unfinished:
        upstream.reset()
        upstream.script = lambda seen, exchange=exchange: reply_of(exchange)
        session = f"traffic-{next(_numbers)}"
        for calls, run in enumerate(("first", "first", "second"), start=1):
            answer = send(proxy.client, session, run, exchange)
            assert answer.hit is not True
            assert upstream.calls == calls
            assert answer.status == 503 or answer.stream_error


def test_recorded_openai_trajectories_are_relayed_and_replayed_byte_for_byte(upstream: Upstream, proxy: Proxy) -> None:
    traffic.require()
    found = finished("openai")
    assert sum(len(trajectory.exchanges) for trajectory in found) > 350
    relay_and_replay(upstream, proxy, found)


@pytest.mark.parametrize("service", ["azure", "openrouter", "groq", "mistral", "deepseek", "ollama", "xai", "zai"])
def test_streams_of_other_providers_are_relayed_byte_for_byte(upstream: Upstream, proxy: Proxy, service: str) -> None:
    traffic.require()
    faults: list[str] = []
    for trajectory in finished(service):
        for exchange in trajectory.exchanges:
            if not exchange.streamed or exchange.status != 200:
                continue
            upstream.replies(reply_of(exchange))
            answer = send(proxy.client, f"traffic-{next(_numbers)}", "first", exchange)
            faults += differences(Trajectory(exchange.id, (exchange,)), [answer])
    assert not faults, f"{len(faults)} faults, the first: " + "\n".join(faults[:8])


def test_recorded_client_runs_are_relayed_and_replayed_byte_for_byte(upstream: Upstream, proxy: Proxy) -> None:
    traffic.require()
    # Where the provider leaves out the ids of tool calls they are filled in: those bytes change, and are tested apart.
    left_out = ("retry-after", "no-call-ids")
    found = [found for found in traffic.client_chat("run1") if not any(part in found.id for part in left_out)]
    relay_and_replay(upstream, proxy, found)


def test_second_process_of_each_recorded_client_is_fast_forwarded(upstream: Upstream, proxy: Proxy) -> None:
    """Two real processes of one client did the same task minutes apart: the second one costs nothing."""
    traffic.require()
    faults: list[str] = []
    second = {found.id: found for found in traffic.client_chat("run2")}
    for first in traffic.client_chat("run1"):
        # Kept on disk between the processes: the second one really asks something else.
        if first.id not in second or first.id == "crewai-memory":
            continue
        session = f"traffic-{next(_numbers)}"
        given = play(upstream, proxy.client, session, "first", first)
        upstream.reset()
        for number, exchange in enumerate(second[first.id].exchanges):
            answer = send(proxy.client, session, "second", exchange)
            if answer.body != given[number].body or answer.hit is not True:
                faults.append(f"{exchange.id}: {answer.outcome}")
        if upstream.calls:
            faults.append(f"{first.id}: {upstream.calls} calls were paid for again")
    assert not faults, faults


@pytest.mark.parametrize("name", ["openai-py-3-chat-retry-after-429", "openai-node-7-chat-retry-after-429"])
def test_recorded_retry_after_a_429_is_asked_anew_as_the_same_step(upstream: Upstream, proxy: Proxy, name: str) -> None:
    traffic.require()
    found = next(trajectory for trajectory in traffic.client_chat("run1") if trajectory.id == name)
    assert [exchange.status for exchange in found.exchanges] == [429, 200, 200, 200]
    session = f"traffic-{next(_numbers)}"
    answers = play(upstream, proxy.client, session, "first", found)
    assert differences(found, answers) == []
    assert [answer.step for answer in answers] == [0, 0, 1, 2]
    upstream.reset()
    later = [send(proxy.client, session, "second", exchange) for exchange in found.exchanges[1:]]
    assert [answer.body for answer in later] == [answer.body for answer in answers[1:]]
    assert upstream.calls == 0


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_recorded_streams_are_relayed_alike_however_they_are_cut(
    shared_upstream: Upstream, proxy: Proxy, data: st.DataObject
) -> None:
    traffic.require()
    streams = [
        exchange
        for trajectory in traffic.provider_chat("openai")
        for exchange in trajectory.exchanges
        if exchange.streamed and len(exchange.response) < 20_000
    ]
    exchange = data.draw(st.sampled_from(streams), label="exchange")
    cuts = data.draw(st.lists(st.integers(0, len(exchange.response)), max_size=40), label="cuts")
    relay_and_replay(shared_upstream, proxy, [Trajectory(exchange.id, (exchange,))], cuts)


def test_recorded_stream_sent_byte_by_byte_is_relayed_and_replayed(upstream: Upstream, proxy: Proxy) -> None:
    traffic.require()
    streams = [
        exchange
        for trajectory in traffic.provider_chat("openai")
        for exchange in trajectory.exchanges
        if exchange.streamed and b'"tool_calls"' in exchange.response
    ]
    smallest = min(streams, key=lambda exchange: len(exchange.response))
    found = [Trajectory(smallest.id, (smallest,))]
    relay_and_replay(upstream, proxy, found, range(len(smallest.response)))


def test_journal_of_recorded_traffic_shows_each_exchange_as_it_was(upstream: Upstream, proxy: Proxy) -> None:
    traffic.require()
    longest = max(traffic.provider_chat("openai"), key=lambda found: len(found.exchanges))
    assert {exchange.status for exchange in longest.exchanges} == {200}
    session = f"traffic-{next(_numbers)}"
    play(upstream, proxy.client, session, "first", longest)
    steps = proxy.control.steps(session)
    assert [step["step_number"] for step in steps] == list(range(len(longest.exchanges)))
    for step, exchange in zip(steps, longest.exchanges, strict=True):
        assert json.loads(step["response"]) == json.loads(exchange.response)
        asked = json.loads(exchange.request)
        assert json.loads(step["prompt"]) in (asked, asked["messages"])
        assert step["state"] == "completed"
        assert step["stream"] is False
