"""Owns the two tools of the agents under test, and the place where a test can stop an agent between two calls.

Invariant: with ``PAUSE_AT`` set to n, the agent stands still in its n-th tool call (from 1) until it is killed.
"""

from __future__ import annotations

import os
import sys
from typing import Any

TASK = "Check the weather in Paris and email bob."


def _function(name: str, field: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"type": "function", "function": {"name": name, "description": f"{name}.", "parameters": schema}}


OFFERED = [_function("get_weather", "city"), _function("send_email", "to")]

_done = 0


def use(name: str, value: str) -> str:
    """Carry out one tool call: the same result in every life of the agent."""
    global _done
    _done += 1
    if os.environ.get("PAUSE_AT") == str(_done):
        print("paused", flush=True)
        sys.stdin.read()
    print(f"tool {name} {value}", flush=True)
    return f"{name} of {value} is done"
