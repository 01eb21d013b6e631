"""Thinking that only its author can check goes from what another one is sent, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.foreign_thinking import LOSS, NO_THINKING, bound, without

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "eA=="}
TEXT = {"type": "text", "text": 'the "thinking" of it'}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1.10}}
ASKED = {"role": "user", "content": "hi"}


def messages(*content: Any, **more: Any) -> bytes:
    return json.dumps(
        {"model": "m", **more, "messages": [ASKED, {"role": "assistant", "content": list(content)}]}
    ).encode()


def test_signed_and_hidden_thoughts_go_and_every_other_byte_stays() -> None:
    body, lost = without("anthropic_messages", messages(THOUGHT, HIDDEN, TEXT, x_new=1.10), "claude-test")
    assert json.loads(body) == json.loads(messages(TEXT, x_new=1.10))
    assert b"1.1" in body
    assert lost == (LOSS,)


def test_an_answer_that_only_thought_is_left_out_whole() -> None:
    body, _ = without("anthropic_messages", messages(THOUGHT), "claude-test")
    assert json.loads(body)["messages"] == [ASKED]


def test_nobody_is_told_to_think_over_calls_whose_thinking_is_gone() -> None:
    asked = messages(THOUGHT, CALL, thinking={"type": "enabled", "budget_tokens": 2000})
    body, lost = without("anthropic_messages", asked, "claude-sonnet-4-5")
    assert json.loads(body).get("thinking") in (None, {"type": "disabled"})
    assert lost == (NO_THINKING, LOSS)
    body, lost = without("anthropic_messages", messages(THOUGHT, TEXT, thinking={"type": "adaptive"}), "claude-test")
    assert json.loads(body)["thinking"] == {"type": "adaptive"}
    assert lost == (LOSS,)


@pytest.mark.parametrize("dialect", ["anthropic_messages", "openai_chat", "openai_responses", "gemini"])
def test_a_question_without_thoughts_stays_byte_for_byte(dialect: str) -> None:
    body = messages(TEXT, thinking={"type": "adaptive"}, reasoning={"effort": "low"}, input=[{"role": "user"}])
    assert without(dialect, body, "m") == (body, ())


def test_reasoning_items_and_signed_details_of_openais_formats_go_too() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    asked = {"model": "m", "input": [ASKED, {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}, call]}
    body, lost = without("openai_responses", json.dumps(asked).encode(), "m")
    assert (json.loads(body)["input"], lost) == ([ASKED, call], (LOSS,))
    said = {"role": "assistant", "content": "a", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}
    body, lost = without("openai_chat", json.dumps({"model": "m", "messages": [ASKED, said]}).encode(), "m")
    assert json.loads(body)["messages"][1] == {"role": "assistant", "content": "a"}
    assert lost == (LOSS,)


def test_models_of_one_maker_at_one_provider_keep_their_thinking() -> None:
    assert not bound("anthropic_messages", "claude-opus-4-5", "claude-sonnet-4-5", False)
    assert bound("anthropic_messages", "claude-opus-4-5", "glm-5", False)
    assert bound("anthropic_messages", "claude-opus-4-5", "claude-sonnet-4-5", True)
    assert not bound("openai_responses", "o3", "gpt-5", False)
