"""Owns how events of a Responses stream are written, errors of ours among them. Must not read any.

Invariant: an event is one line of its name and one of its data.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.dialects.base import openai_error
from agentstate.errors import AgentStateError


def encoded(kind: str, data: bytes) -> bytes:
    """A server-sent event of valid JSON, on one line."""
    if b"\n" in data or b"\r" in data:
        data = msgspec.json.format(data, indent=-1)
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def failed_events(error: AgentStateError, begun: dict[str, Any] | None = None) -> bytes:
    """An error event and, for clients that end only by a response's last word, a failed response: that which has
    ``begun``, where one has.

    The first makes SDKs raise, the second makes command-line agents stop: its code says whether to ask again.
    """
    fields = msgspec.json.decode(openai_error(error))["error"]
    event = {"type": "error", "code": error.code, "message": error.message, "param": None, "sequence_number": 0}
    code = "invalid_prompt" if error.retry_after is None else "server_error"
    response = {
        "id": "resp_agentstate", "object": "response", "output": [], **(begun or {}),
        "status": "failed", "error": {"code": code, "message": error.message},
    }  # fmt: skip
    failed = {"type": "response.failed", "sequence_number": 0, "response": response}
    return encoded("error", msgspec.json.encode({**event, "error": fields})) + encoded(
        "response.failed", msgspec.json.encode(failed)
    )
