"""The usage of every answer is the provider's own, whole and as it was sent, in every wire format, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.core.model import Verdict
from agentstate.core.usage import Tokens, counted
from agentstate.dialects import registry, sse
from tests.support import chat, traffic


def verdict(path: str, body: bytes, stream: bool, choices: int = 1) -> Verdict:
    dialect = registry.for_path("POST", path)
    assert dialect is not None
    asked: dict[str, Any] = {"model": "m", "messages": [], "input": "x", "contents": [], "stream": stream, "n": choices}
    call = dialect.parse("POST", path, json.dumps(asked).encode())
    if not stream:
        return dialect.judge(call, body)
    gate = dialect.gate(call)
    gate.feed(body)
    return gate.finish()


def events(*values: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: " + str(value["type"]).encode() + b"\ndata: " + json.dumps(value).encode() + b"\n\n"
        for value in values
    )


def claude(first: dict[str, Any], last: dict[str, Any]) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "usage": first}
    return events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    )


# --- bugs that others had ---


def test_reasoning_tokens_are_those_that_the_provider_counted() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 120, "total_tokens": 129,
             "completion_tokens_details": {"reasoning_tokens": 100, "accepted_prediction_tokens": 0}}  # fmt: skip
    body = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"},
                                    "finish_reason": "stop"}], "usage": usage}).encode()  # fmt: skip
    found = json.loads(verdict("chat/completions", body, False).usage)
    assert found == usage
    assert counted(found) == Tokens(9, 120, 0, 0, 100)


def test_cache_tokens_of_a_stream_are_not_lost_and_the_last_figure_wins() -> None:
    first = {"input_tokens": 10, "cache_creation_input_tokens": 2000, "cache_read_input_tokens": 3000,
             "cache_creation": {"ephemeral_5m_input_tokens": 1500, "ephemeral_1h_input_tokens": 500},
             "output_tokens": 1, "service_tier": "standard"}  # fmt: skip
    found = json.loads(verdict("messages", claude(first, {"output_tokens": 40}), True).usage)
    assert found == first | {"output_tokens": 40}
    assert counted(found) == Tokens(5010, 40, 3000, 2000)


def test_what_server_tools_read_is_counted_by_the_last_event() -> None:
    first = {"input_tokens": 100, "output_tokens": 1}
    last = {"input_tokens": 9000, "output_tokens": 50, "server_tool_use": {"web_search_requests": 2}}
    assert json.loads(verdict("messages", claude(first, last), True).usage) == last


def test_a_usage_object_on_every_chunk_counts_once() -> None:
    chunks = [
        {"candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}}],
         "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11}},
        {"candidates": [{"content": {"parts": [{"text": "b"}], "role": "model"}, "finishReason": "STOP"}],
         "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 5,
                           "totalTokenCount": 17}},
    ]  # fmt: skip
    body = b"".join(sse.encode(json.dumps(chunk).encode()) for chunk in chunks)
    dialect = registry.for_path("POST", "models/gemini-test:streamGenerateContent")
    assert dialect is not None
    call = dialect.parse("POST", "models/gemini-test:streamGenerateContent", b'{"contents": []}', "alt=sse")
    gate = dialect.gate(call)
    gate.feed(body)
    assert counted(json.loads(gate.finish().usage)) == Tokens(10, 7, 0, 0, 5)


def test_service_tier_is_told_where_the_provider_tells_it() -> None:
    plain = json.loads(chat.completion())
    assert verdict("chat/completions", json.dumps(plain | {"service_tier": "flex"}).encode(), False).tier == "flex"
    streamed = b"".join([chat.chunk({"content": "a"}, service_tier="priority"), chat.chunk({}, finish="stop")])
    assert verdict("chat/completions", streamed, True).tier == "priority"
    assert verdict("chat/completions", chat.completion(), False).tier == ""


# --- recorded traffic ---


@pytest.mark.parametrize(
    "service",
    [
        "openai",
        "azure",
        "cerebras",
        "deepseek",
        "groq",
        "llamacpp",
        "mistral",
        "ollama",
        "openrouter",
        "together",
        "xai",
    ],
)
def test_recorded_usage_of_chat_is_kept_whole_and_counted(service: str) -> None:
    traffic.require()
    seen = 0
    for trajectory in traffic.provider_chat(service):
        for exchange in trajectory.exchanges:
            last = _last_usage(exchange.response, exchange.streamed)
            if exchange.status != 200 or last is None:
                continue
            found = verdict("chat/completions", exchange.response, exchange.streamed)
            if found.fault and not exchange.streamed:
                continue  # no answer at all
            assert json.loads(found.usage) == last, exchange.id
            tokens = counted(last)
            assert tokens is not None and tokens.total >= (last.get("total_tokens") or 0), exchange.id
            seen += 1
    if not seen:
        pytest.skip(f"no recorded answer of {service} tells its usage")


def _last_usage(body: bytes, streamed: bool) -> dict[str, Any] | None:
    if not streamed:
        try:
            found = json.loads(body)
        except ValueError:
            return None
        usage = found.get("usage") if isinstance(found, dict) else None
        return usage if isinstance(usage, dict) else None
    last = None
    for event in sse.events(body):
        data = sse.data_of(event)
        if data is None or data.strip() == b"[DONE]":
            continue
        try:
            chunk = json.loads(data)
        except ValueError:
            continue
        if isinstance(chunk, dict) and isinstance(chunk.get("usage"), dict):
            last = chunk["usage"]
    return last
