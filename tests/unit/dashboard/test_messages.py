"""What a message of any dialect says is read, its calls and results too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dashboard.messages import said_by

CALL = {"id": "c1", "type": "function", "function": {"name": "send", "arguments": '{"to": 1}'}}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "user", "content": "hello"}, "hello"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]},
         "a\n[image_url]"),
        ({"role": "assistant", "content": "I will.", "tool_calls": [CALL]}, 'I will.\nsend({"to": 1})'),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 'send({"to": 1})'),
        ({"role": "tool", "tool_call_id": "c1", "name": "send", "content": "sent"}, "sent"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
                                           {"type": "tool_use", "id": "t", "name": "send", "input": {"to": 1}}]},
         'hm\nsend({"to": 1})'),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "sent"}]}]}, "sent"),
        ({"type": "function_call", "call_id": "c", "name": "send", "arguments": "{}"}, "send({})"),
        ({"type": "function_call_output", "call_id": "c", "output": "sent"}, "sent"),
        ({"role": "model", "parts": [{"functionCall": {"name": "send", "args": {"to": 1}}}]}, 'send({"to": 1})'),
        ({"role": "user", "parts": [{"functionResponse": {"name": "send", "response": {"output": "sent"}}}]}, "sent"),
        ({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]}, "[file]"),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_message_is_read_in_every_dialect(message: dict[str, Any], said: str) -> None:
    assert said_by(json.dumps(message).encode()) == said


def test_what_is_no_message_is_shown_as_it_is() -> None:
    assert said_by(b"\xffnot json") == "\ufffdnot json"


def test_what_is_nested_without_end_ends() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = {"content": [deep]}
    assert said_by(json.dumps(deep).encode()) == ""
