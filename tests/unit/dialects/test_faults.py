"""What providers say of a failure is read in every wire format, and what is not understood goes by its status."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.routing import Fault
from agentstate.dialects import faults
from agentstate.dialects.opening import read

NOW = 1_800_000_000.0


def openai(message: str, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}}).encode()


def anthropic(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (429, openai("Rate limit reached for gpt-4o: limit 30000 tokens", "rate_limit_exceeded"), Fault.RATE_LIMIT),
        (429, openai("You exceeded your current quota", "insufficient_quota"), Fault.QUOTA),
        (429, b'{"error":{"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota","details":'
              b'[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"}]}}', Fault.RATE_LIMIT),
        (400, openai("This model's maximum context length is 8192 tokens", "context_length_exceeded"),
         Fault.CONTEXT_LENGTH),
        (400, anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
         Fault.CONTEXT_LENGTH),
        (400, openai("The response was filtered", "content_filter"), Fault.CONTENT_FILTER),
        (400, anthropic("invalid_request_error", "Your credit balance is too low"), Fault.QUOTA),
        (404, openai("The model `gpt-9` does not exist or you do not have access to it.", "model_not_found"),
         Fault.MODEL_GONE),
        (404, anthropic("not_found_error", "model: claude-2"), Fault.MODEL_GONE),
        (404, b'{"error":{"code":404,"message":"models/gemini-1 is not found for API version v1beta"}}',
         Fault.MODEL_GONE),
        (400, openai("The model `llama2` has been decommissioned", "model_decommissioned"), Fault.MODEL_GONE),
        (404, openai("Unknown request URL: POST /v1/nothing"), Fault.REFUSED),
        (410, b"", Fault.MODEL_GONE),
        (401, openai("Incorrect API key provided"), Fault.CREDENTIALS),
        (403, openai("not allowed"), Fault.CREDENTIALS),
        (400, openai("Invalid type for 'messages'"), Fault.REFUSED),
        (400, openai("Unsupported parameter: 'max_tokens' is not supported with this model."), Fault.REFUSED),
        (503, b"<html>", Fault.OVERLOADED),
        (529, anthropic("overloaded_error", "Overloaded"), Fault.OVERLOADED),
        (500, b"", Fault.SERVER_ERROR),
        (599, b"\xff\xfe", Fault.SERVER_ERROR),
        (418, b"", Fault.REFUSED),
    ],
)  # fmt: skip
def test_an_error_is_told_for_what_it_is(status: int, body: bytes, fault: Fault) -> None:
    assert faults.of_answer(status, [], body, NOW).fault is fault


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        (b'{"error":{"details":[{"retryDelay": "34.5s"}]}}', 34.5),
        (openai("Rate limit reached. Please try again in 6.5s. Visit"), 6.5),
        (openai("Please try again in 20ms."), 0.02),
        (openai("Please try again in 1m30s."), 90.0),
        (openai("Please retry after 2 seconds"), 2.0),
        (openai("Please try again later"), None),
        (openai("try again in ..s"), None),
    ],
)
def test_the_wait_that_a_body_asks_for_is_read(body: bytes, wait: float | None) -> None:
    found = faults.of_answer(429, [], body, NOW).wait
    assert found == (wait if wait is None else pytest.approx(wait))


def test_a_header_counts_more_than_a_body() -> None:
    body = openai("Please try again in 20s.")
    assert faults.of_answer(429, [("Retry-After", "2")], body, NOW).wait == 2.0


@given(st.integers(400, 599), st.binary(max_size=300))
def test_no_body_makes_reading_it_fail(status: int, body: bytes) -> None:
    failure = faults.of_answer(status, [], body, NOW)
    assert failure.status == status
    assert failure.wait is None or failure.wait >= 0


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ('the provider broke off: {"type":"overloaded_error"}', Fault.OVERLOADED),
        ('the provider broke off: {"code":"rate_limit_exceeded"}', Fault.RATE_LIMIT),
        ("server_error: The server had an error", Fault.SERVER_ERROR),
        ("the response was cancelled", Fault.REFUSED),
        ('the provider broke off: {"type":"invalid_request_error"}', Fault.REFUSED),
        ("invalid_image_format: no image", Fault.REFUSED),
        ("invalid_prompt: it violates a policy", Fault.CONTENT_FILTER),
        ("Your input exceeds the context window of this model", Fault.CONTEXT_LENGTH),
    ],
)
def test_what_a_stream_says_of_its_failure_is_told_for_what_it_is(said: str, fault: Fault) -> None:
    assert faults.of_words(said, NOW).fault is fault


# --- what may act at the provider ---


@pytest.mark.parametrize(
    ("asked", "acts"),
    [
        ({"tools": [{"type": "function", "function": {"name": "send_email"}}]}, False),
        ({"tools": [{"name": "send_email", "input_schema": {}}]}, False),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, False),
        ({"tools": [{"functionDeclarations": []}, {"googleSearch": {}}]}, False),
        ({"tools": [{"codeExecution": {}}]}, True),
        ({"tools": [{"type": "mcp", "server_url": "https://x"}]}, True),
        ({"tools": [{"type": "code_interpreter"}]}, True),
        ({"tools": [{"type": "code_execution_20250522", "name": "code_execution"}]}, True),
        ({"tools": ["odd"]}, True),
        ({"background": True}, True),
        ({"mcp_servers": [{"url": "https://x"}]}, True),
        ({"messages": []}, False),
    ],
)
def test_a_call_whose_provider_runs_tools_itself_is_known(asked: dict[str, Any], acts: bool) -> None:
    assert faults.acts(json.dumps(asked).encode()) is acts


def test_what_cannot_be_read_may_act() -> None:
    assert faults.acts(b"{")
    assert faults.acts(b"[]")
    assert not faults.acts(b"")


# --- the opening of a stream ---


def read_silent(shown: bytes, lines: bool = False) -> bool:
    return read(shown, lines)[0]


@pytest.mark.parametrize(
    "value",
    [
        {"model": "m-2", "choices": [{"delta": {"content": "hi"}}]},
        {"type": "message_start", "message": {"model": "m-2"}},
        {"type": "response.created", "response": {"model": "m-2", "tools": [{"model": "m-3"}]}},
        {"modelVersion": "m-2", "candidates": []},
    ],
)
def test_the_model_that_answers_is_read_from_the_first_event(value: dict[str, Any]) -> None:
    assert read(event(value) + delta(content='{"model":"m-4"}'))[1] == "m-2"


def event(value: dict[str, Any], name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**said: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": None}]})


@pytest.mark.parametrize(
    "shown",
    [
        b": comment\n\n",
        delta(role="assistant", content="", refusal=None),
        delta(role="assistant", content=None),
        event({"type": "message_start", "message": {"content": []}}, "message_start"),
        event({"type": "ping"}, "ping"),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        event({"type": "response.created", "response": {}}) + event({"type": "response.in_progress", "response": {}}),
        event({"type": "response.output_item.added", "item": {"type": "reasoning"}}),
    ],
)
def test_an_opening_is_known_for_one(shown: bytes) -> None:
    assert read_silent(shown)


@pytest.mark.parametrize(
    "shown",
    [
        delta(content="hi"),
        delta(role="assistant", content="", reasoning_content="hm"),
        delta(anything={"new": 1}),
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        event({"choices": [{"index": 0, "text": "hi"}]}),
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        event({"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": "x"}}),
        event({"type": "response.output_text.delta", "delta": "hi"}),
        event({"type": "error", "error": {}}),
        event({"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}),
        b"data: [DONE]\n\n",
        b"data: {\n\n",
        delta(role="assistant", content="") + delta(content="hi"),
    ],
)
def test_what_is_said_is_never_taken_for_an_opening(shown: bytes) -> None:
    assert not read_silent(shown)


def test_lines_of_json_have_an_opening_too() -> None:
    assert read_silent(b'{"message":{"role":"assistant","content":""},"done":false}\n', lines=True)
    assert not read_silent(b'{"message":{"role":"assistant","content":"h"},"done":false}\n', lines=True)
    assert not read_silent(b'{"message":{"role":"assistant","content":""},"done":true}\n', lines=True)
