"""Owns how calls of an agent's own functions are told and kept: plain JSON. Pure; must not know HTTP.

Invariant: what a function gave back is given back again as the same JSON value.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentstate.core.model import Call
from agentstate.dialects.base import canonical, digest_of
from agentstate.errors import BadRequest

NAME = "function"


def body_of(arguments: dict[str, Any]) -> bytes:
    """What is kept of a call."""
    return json.dumps({"arguments": arguments}, ensure_ascii=True, sort_keys=True).encode()


def parse(method: str, path: str, body: bytes) -> Call:
    """A call as a step; ``path``: ``tools/NAME``."""
    try:
        arguments = json.loads(body)["arguments"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadRequest("a call of a function is kept as an object with its arguments") from None
    frame = digest_of((b"function", canonical(arguments)))
    return Call(NAME, method, path, body, frame, model=path.removeprefix("tools/"))


def result(value: Any) -> bytes:
    """The outcome of a call that gave something back."""
    return json.dumps({"result": value}, ensure_ascii=True, sort_keys=True).encode()


def error(told: dict[str, Any]) -> bytes:
    """The outcome of a call that raised; ``told``: type, message and what else makes it again."""
    return json.dumps({"error": told}, ensure_ascii=True, sort_keys=True).encode()


def refusal(text: str) -> bytes:
    """The outcome of a call that was not made."""
    return msgspec.json.encode({"refused": text})


def failed(outcome: bytes) -> bool:
    return "result" not in msgspec.json.decode(outcome)
