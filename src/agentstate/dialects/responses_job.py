"""Owns how the Responses API says that it still works on a job. Must not decide when that is said.

Invariant: nothing that the model said is in it: only what the request said, names and times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.dialects.responses_answer import loaded

# Members of a response that repeat its request, or name it. What is not among them may be of the answer.
_OF_THE_REQUEST = (
    "id", "object", "created_at", "status", "background", "error", "incomplete_details", "instructions",
    "max_output_tokens", "max_tool_calls", "model", "output", "parallel_tool_calls", "previous_response_id", "prompt",
    "prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store",
    "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "usage", "user", "metadata",
    "conversation",
)  # fmt: skip


def working(body: bytes) -> bytes:
    """A response object, finished or not, as it was while the provider worked on it and had said nothing yet."""
    whole = loaded(body)
    found: dict[str, Any] = whole if isinstance(whole, dict) else {}
    said: dict[str, Any] = {"status": "in_progress", "output": [], "error": None, "incomplete_details": None}
    said |= {"usage": None} if "usage" in found else {}
    return msgspec.json.encode({name: said.get(name, found[name]) for name in _OF_THE_REQUEST if name in found} | said)
