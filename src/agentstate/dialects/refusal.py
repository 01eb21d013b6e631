"""Owns the answer that stands for a refused request where an error has no place any more: the model saying so. Must not
be used where a status can still be told.

Invariant: it is a finished answer of its dialect, in plain form, with one text and no usage.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.core.model import Call

_ZERO = {"input_tokens": 0, "output_tokens": 0}


def completion(call: Call, text: str, name: str) -> bytes:
    """``name``: an id for the answer, no other answer's. Only for dialects in ``SPOKEN``."""
    made = _MADE[call.dialect](call.model, text, name)
    if call.path.partition("?")[0].endswith("generate"):
        made["response"] = made.pop("message")["content"]
    return msgspec.json.encode(made)


def _chat(model: str, text: str, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _completions(model: str, text: str, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "text_completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _messages(model: str, text: str, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": _ZERO,
    }


def _responses(model: str, text: str, name: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": name,
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            **_ZERO,
            "total_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _gemini(model: str, text: str, name: str) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": text}]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
        "modelVersion": model,
        "responseId": name,
    }


def _ollama(model: str, text: str, name: str) -> dict[str, Any]:
    return {
        "model": model,
        "created_at": "1970-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text},
        "done": True,
        "done_reason": "stop",
    }


_MADE = {
    "openai_chat": _chat,
    "openai_completions": _completions,
    "anthropic_messages": _messages,
    "openai_responses": _responses,
    "gemini": _gemini,
    "ollama_chat": _ollama,
}
SPOKEN = frozenset(_MADE)  # dialects whose answers are texts
