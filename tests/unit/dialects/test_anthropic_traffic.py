"""Anthropic messages recorded with real providers and clients: read, judged and converted as what they are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Call, Verdict
from agentstate.dialects import sse
from agentstate.dialects.anthropic_messages import AnthropicMessages
from tests.support import traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.test_sse import cut

MESSAGES = AnthropicMessages()
# Two processes of these really asked something else: another folder, or random names of sub-agents.
ASKED_OTHERWISE = ("claude-code-subagents",)


@dataclass(frozen=True)
class Recorded:
    """One exchange as bytes. ``client``: which recorded client sent it, empty for those of providers' test suites."""

    id: str
    request: bytes
    status: int
    response: bytes
    streamed: bool
    client: str = ""


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()


@cache
def recorded() -> tuple[Recorded, ...]:
    """All exchanges of this wire format."""
    traffic.require()
    return (*_of_providers(), *_of_clients())


def _of_providers() -> Iterator[Recorded]:
    for name in ("anthropic", "vertex"):
        for line in (traffic.FOLDER / "providers" / f"{name}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            if row["api"] == "messages":
                answer = row["response"]
                body = _bytes(answer.get("sse", answer.get("text", answer.get("body"))))
                yield Recorded(row["id"], _bytes(row["request"]["body"]), answer["status"], body, "sse" in answer)


def _of_clients() -> Iterator[Recorded]:
    for path in sorted((traffic.FOLDER / "clients").glob("*.jsonl")):
        for place, line in enumerate(path.read_text("utf-8").splitlines()):
            row = json.loads(line)
            if row["path"].partition("?")[0].endswith("/messages"):
                answer, name = row["response"], path.name.removesuffix(".jsonl")
                streamed = isinstance(answer["body"], str)
                body = _bytes(answer["body"])
                yield Recorded(f"{name}#{place}", _bytes(row["body"]), answer["status"], body, streamed, name)


def asked(exchange: Recorded) -> Call:
    return MESSAGES.parse("POST", "messages", exchange.request, "beta=true")


def judged(exchange: Recorded, places: list[int] | None = None) -> tuple[bytes, Verdict]:
    """(bytes that may be seen before the commit, verdict) of a recorded answer, a stream cut at the given places."""
    call = asked(exchange)
    if not exchange.streamed:
        return b"", MESSAGES.judge(call, exchange.response)
    gate = MESSAGES.gate(call)
    free = b"".join(gate.feed(piece) for piece in cut(exchange.response, places or []))
    return free, gate.finish()


def objects(stream: bytes) -> list[dict[str, Any]]:
    """The JSON data of a stream's events, read in the plainest way."""
    data = (sse.data_of(event) for event in sse.events(stream))
    return [json.loads(found) for found in data if found is not None and found.strip() != b"[DONE]"]


def test_recorded_requests_are_put_together_again_byte_for_byte() -> None:
    split = 0
    for exchange in recorded():
        call = asked(exchange)
        if b'"authorization_token"' in exchange.request:  # one names a remote tool
            assert call.body == exchange.request.replace(b'"REDACTED"', b'"[credential]"')
        else:
            assert call.body == exchange.request, exchange.id
        assert call.model == json.loads(exchange.request).get("model", ""), exchange.id
        assert call.shape.stream == (json.loads(exchange.request).get("stream") is True), exchange.id
        if call.items:
            whole = call.before + call.separator.join(item.raw for item in call.items) + call.after
            assert whole == call.body, exchange.id
            split += 1
    # One asks with a message that is no object; the provider refuses it.
    assert split == len(recorded()) - 1 > 450


def test_recorded_successes_are_finished_and_recorded_errors_are_none() -> None:
    wrong = []
    for exchange in recorded():
        _, verdict = judged(exchange)
        if bool(verdict.fault) != (exchange.status != 200) or verdict.broken:
            wrong.append(f"{exchange.id} ({exchange.status}): {verdict}")
    assert wrong == []
    assert {exchange.status for exchange in recorded()} == {200, 400, 401, 404}


def test_verdict_on_recorded_answers_names_their_calls_usage_model_and_reason() -> None:
    for exchange in recorded():
        if exchange.status != 200:
            continue
        _, verdict = judged(exchange)
        if exchange.streamed:
            events = objects(exchange.response)
            blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
            start = next(event["message"] for event in events if event["type"] == "message_start")
            end = [event for event in events if event["type"] == "message_delta"][-1]
            usage, reason = start["usage"] | end["usage"], end["delta"]["stop_reason"]
        else:
            start = json.loads(exchange.response)
            blocks, usage, reason = start["content"], start["usage"], start["stop_reason"]
        called = [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
        assert [(call.call_id, call.name) for call in verdict.calls] == called, exchange.id
        assert all(isinstance(json.loads(call.arguments), dict) for call in verdict.calls), exchange.id
        assert json.loads(verdict.usage) == usage, exchange.id
        assert (verdict.model, verdict.finish) == (start["model"], (reason,)), exchange.id


def test_recorded_streams_show_their_text_and_no_call_and_no_end_too_early() -> None:
    shown = 0
    for exchange in recorded():
        if not exchange.streamed:
            continue
        free, _ = judged(exchange)
        assert exchange.response.startswith(free)
        early = objects(free)
        kinds = {event["type"] for event in early} | {
            event["content_block"]["type"] for event in early if event["type"] == "content_block_start"
        }
        assert not kinds & {"tool_use", "message_delta", "message_stop"}, exchange.id
        held = objects(exchange.response[len(free) :])[0]
        secret = held["type"] == "message_delta" or held["content_block"]["type"] == "tool_use"
        assert secret, exchange.id
        shown += sum(event["type"] == "content_block_delta" for event in early)
    assert shown > 1000


@examples(6)
@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=12))
def test_verdict_and_visible_bytes_of_recorded_streams_do_not_depend_on_how_they_are_cut(places: list[int]) -> None:
    for exchange in [exchange for exchange in recorded() if exchange.streamed][::2]:
        assert judged(exchange, places) == judged(exchange), exchange.id


def test_recorded_stream_sent_byte_by_byte_has_the_same_verdict() -> None:
    exchange = min(
        (exchange for exchange in recorded() if exchange.streamed and b'"tool_use"' in exchange.response),
        key=lambda exchange: len(exchange.response),
    )
    assert judged(exchange, list(range(len(exchange.response)))) == judged(exchange)


def test_second_process_of_each_recorded_client_asks_the_same_questions() -> None:
    by_client: dict[str, list[bytes]] = {}
    for exchange in recorded():
        if exchange.client:
            by_client.setdefault(exchange.client, []).append(fingerprint.of(asked(exchange)).key)
    pairs = 0
    for name, keys in by_client.items():
        again = by_client.get(name.replace(".run1", ".run2"))
        if name.endswith(".run1") and again is not None and not name.startswith(ASKED_OTHERWISE):
            assert keys == again, name
            pairs += 1
    assert pairs >= 12


def test_request_of_a_recorded_conversation_goes_on_from_the_one_before() -> None:
    """Claude Code and opencode move the cache marks on, and turn one text block into a string, between the steps."""
    for name in ("claude-code.run1", "claude-code-2.1.197.run1", "langchain-anthropic.run1"):
        chains = [fingerprint.of(asked(exchange)).chain for exchange in recorded() if exchange.client == name]
        assert len(chains) == 3
        for one, two in itertools.pairwise(chains):
            assert two[: len(one)] == one, name


def test_recorded_requests_can_be_masked_and_blanked() -> None:
    results = 0
    for exchange in recorded():
        call = asked(exchange)
        for item in (*call.context, *call.items):
            found = MESSAGES.scrubbed(item, user_text=True)
            if not found.literals and item in call.items:
                assert found.digest == item.digest, exchange.id
        for item in call.items:
            blanked = MESSAGES.blanked(item)
            assert set(blanked.ids) <= set(item.call_ids)
            results += len(blanked.ids)
    assert results > 250
