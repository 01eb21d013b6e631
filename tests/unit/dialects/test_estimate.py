"""What a call may take is told from its size and its own limit, in every wire format."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentstate.core.model import Call
from agentstate.core.usage import counted
from agentstate.dialects import estimate, registry
from tests.support import traffic


def parsed(path: str, body: dict[str, Any]) -> Call:
    dialect = registry.for_path("POST", path)
    assert dialect is not None
    return dialect.parse("POST", path, json.dumps(body).encode())


SAID = [{"role": "user", "content": "x" * 300}]


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        ("chat/completions", {"messages": SAID, "max_completion_tokens": 50}, 50),
        ("chat/completions", {"messages": SAID, "max_tokens": 50, "n": 3}, 150),
        ("chat/completions", {"messages": SAID}, estimate.UNLIMITED_TOKENS),
        ("chat/completions", {"messages": SAID, "max_tokens": None}, estimate.UNLIMITED_TOKENS),
        ("completions", {"prompt": "x" * 300, "max_tokens": 50}, 50),
        ("responses", {"input": "x" * 300, "max_output_tokens": 50}, 50),
        ("messages", {"messages": SAID, "max_tokens": 50}, 50),
        ("models/gemini-test:generateContent",
         {"contents": [{"parts": [{"text": "x" * 300}]}], "generationConfig": {"maxOutputTokens": 50}}, 50),
        ("api/chat", {"model": "m", "messages": SAID, "options": {"num_predict": 50}}, 50),
        ("embeddings", {"input": "x" * 300}, 0),
    ],
)  # fmt: skip
def test_the_limit_that_a_request_sets_itself_bounds_its_output(path: str, body: dict[str, Any], most: int) -> None:
    found = estimate.of(parsed(path, body))
    assert found.output == most
    assert 100 < found.input < 200


def test_a_picture_counts_as_a_picture_and_not_as_text() -> None:
    picture = "data:image/png;base64," + base64.b64encode(bytes(300_000)).decode()
    content = [{"type": "image_url", "image_url": {"url": picture}}]
    found = estimate.of(parsed("chat/completions", {"messages": [{"role": "user", "content": content}]}))
    assert estimate.PICTURE_TOKENS < found.input < 2 * estimate.PICTURE_TOKENS


def test_the_estimate_is_on_the_safe_side_for_recorded_text() -> None:
    traffic.require()
    below, all_ = [], 0
    for trajectory in traffic.provider_chat("openai"):
        for exchange in trajectory.exchanges:
            if exchange.streamed or exchange.status != 200 or b"base64" in exchange.request:
                continue
            usage = counted(json.loads(exchange.response).get("usage"))
            if usage is None or not usage.input or b"http" in exchange.request:
                continue
            all_ += 1
            call = parsed("chat/completions", json.loads(exchange.request))
            if estimate.of(call).input < usage.input - usage.cache_read:
                below.append(exchange.id)
    assert all_ > 20
    assert len(below) <= all_ // 20, below
