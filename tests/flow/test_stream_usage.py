"""What a stream cost is known whether or not its agent asks, and the agent sees nothing of the asking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.proxy import Proxy
from tests.support.upstream import Fin, Reply, Seen, Upstream, plain, stream

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
PRICES = '[[prices]]\nmodel = "gpt-4o-test"\ninput = 1.0\noutput = 2.0\n'
COST = (1000 * 1.0 + 500 * 2.0) / 1_000_000
EVENTS = chat.chunks("hello there")


def counting(seen: Seen) -> Reply:
    """A model that tells its usage where it is asked to, as OpenAI does."""
    asked = seen.json()
    if not asked.get("stream"):
        return plain(chat.completion("hello there"))
    options: Any = asked.get("stream_options") or {}
    told = b"data: " + json.dumps({"id": "chatcmpl-1", "choices": [], "usage": USAGE}).encode() + b"\n\n"
    return stream(*EVENTS[:-1], *([told] if options.get("include_usage") else []), EVENTS[-1])


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(counting) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path, upstream.url, file=PRICES) as running:
        yield running
        assert "Traceback" not in running.log


def step_of(proxy: Proxy, session: str = "s") -> dict[str, Any]:
    [step] = proxy.control.steps(session)
    return step


def test_usage_is_asked_for_and_kept_from_a_client_whose_parser_does_not_expect_it(
    proxy: Proxy, upstream: Upstream
) -> None:
    answer = proxy.client.ask("s", "hi", run="r1", stream=True)
    assert answer.body == b"".join(EVENTS)
    assert upstream.requests[0].json()["stream_options"] == {"include_usage": True}
    step = step_of(proxy)
    assert step["usage"] == USAGE
    assert step["token_cost"] == pytest.approx(COST)
    assert step["prices"] == "settings"


def test_replay_gives_the_bytes_that_were_released(proxy: Proxy, upstream: Upstream) -> None:
    first = proxy.client.ask("s", "hi", run="r1", stream=True)
    again = proxy.client.ask("s", "hi", run="r2", stream=True)
    assert (again.outcome, again.body) == ("replay", first.body)
    with_usage = proxy.client.ask("s", "hi", run="r3", stream=True, stream_options={"include_usage": True})
    assert with_usage.outcome == "replay"
    assert with_usage.body.count(b'"total_tokens"') == 1
    whole = proxy.client.ask("s", "hi", run="r4")
    assert whole.outcome == "replay"
    assert whole.json()["usage"] == USAGE
    assert upstream.calls == 1


def test_a_client_that_asks_gets_the_providers_own_bytes(proxy: Proxy, upstream: Upstream) -> None:
    answer = proxy.client.ask("s", "hi", run="r1", stream=True, stream_options={"include_usage": True})
    assert answer.body.count(b'"usage"') == 1
    assert step_of(proxy)["token_cost"] == pytest.approx(COST)


def test_a_provider_that_is_not_to_be_asked_gets_the_request_as_it_was_sent(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path, upstream.url, file=PRICES + "[providers.openai]\nusage_in_streams = false\n") as proxy:
        proxy.client.ask("s", "hi", run="r1", stream=True)
        assert "stream_options" not in upstream.requests[0].json()
        step = step_of(proxy)
        assert (step["usage"], step["token_cost"], step["prices"]) == (None, None, None)


def test_usage_on_a_chunk_with_choices_is_given_on(proxy: Proxy, upstream: Upstream) -> None:
    events = [*EVENTS[:-2], chat.chunk({}, finish="stop", usage=USAGE), chat.DONE]
    upstream.replies(stream(*events))
    assert proxy.client.ask("s", "hi", run="r1", stream=True).body == b"".join(events)
    assert step_of(proxy)["usage"] == USAGE


def test_a_provider_that_does_not_take_the_option_is_asked_without_it_from_then_on(
    proxy: Proxy, upstream: Upstream
) -> None:
    refusal = json.dumps({"error": {"message": "Unrecognized request argument supplied: stream_options"}}).encode()
    upstream.script = lambda seen: plain(refusal, 400) if seen.number == 0 else counting(seen)
    assert proxy.client.ask("s", "hi", run="r1", stream=True).body == b"".join(EVENTS)
    assert ["stream_options" in seen.json() for seen in upstream.requests] == [True, False]
    assert proxy.client.ask("s", "more", run="r1", stream=True).status == 200
    assert ["stream_options" in seen.json() for seen in upstream.requests] == [True, False, False]
    assert proxy.control.steps("s")[0]["attempts"] == 2


def test_a_cut_stream_carries_the_cost_that_had_come(tmp_path: Path) -> None:
    start = {
        "type": "message_start",
        "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test", "content": [],
                    "stop_reason": None, "usage": {"input_tokens": 1000, "output_tokens": 1}},
    }  # fmt: skip
    events = [f"event: message_start\ndata: {json.dumps(start)}\n\n".encode()]

    def cut(seen: Seen) -> Reply:
        return stream(*events, Fin(), finish=False)

    prices = '[[prices]]\nmodel = "claude-test"\ninput = 3.0\noutput = 15.0\n'
    body = json.dumps({"model": "claude-test", "max_tokens": 9, "stream": True,
                       "messages": [{"role": "user", "content": "hi"}]}).encode()  # fmt: skip
    with Upstream(cut) as upstream, Proxy(tmp_path, upstream.url, file=prices) as proxy:
        proxy.client.send("POST", "/s/s/v1/messages", {"content-type": "application/json"}, body)
        step = step_of(proxy)
        assert step["state"] == "failed"
        assert step["usage"] == {"input_tokens": 1000, "output_tokens": 1}
        assert step["token_cost"] == pytest.approx((1000 * 3.0 + 1 * 15.0) / 1_000_000)
        assert proxy.control.session("s")["session"]["cost"] == pytest.approx(step["token_cost"])


def test_a_stream_that_is_cut_before_it_tells_anything_costs_unknown_and_not_nothing(
    proxy: Proxy, upstream: Upstream
) -> None:
    upstream.replies(stream(*EVENTS[:2], Fin(), finish=False))
    proxy.client.ask("s", "hi", run="r1", stream=True)
    step = step_of(proxy)
    assert (step["state"], step["usage"], step["token_cost"]) == ("failed", None, None)
