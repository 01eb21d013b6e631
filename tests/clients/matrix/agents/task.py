"""Owns what all agents of the matrix share: the task, its two tools, where the model is, how the end is told.

Must not import any client. Invariant: the tools are deterministic, and at most one line is printed a tool execution.

Variables: ``MATRIX_BASE_URL`` and ``MATRIX_HEADERS`` (JSON) are given to the client's constructor; where they are
missing, the client finds the proxy by its own variables. ``MATRIX_HOLD`` names a file: while it holds the number of a
model call, the agent stands still where it has that call's answer in hand.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TASK = "Check the weather in Paris, then email bob about it."
SYSTEM = "You are a helper."
MODEL = "gpt-4o"
STREAM = "--stream" in sys.argv
BASE_URL = os.environ.get("MATRIX_BASE_URL")
HEADERS: dict[str, str] = json.loads(os.environ.get("MATRIX_HEADERS", "{}"))
LONGEST_HOLD_S = 60.0  # an agent that nobody kills ends by itself

_calls = 0


def tell(line: str) -> None:
    """Print a line of our own. It begins on a new one: a package that prints too may have left its own unfinished."""
    print(f"\n{line}", flush=True)


tell(f"PID: {os.getpid()}")


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city to look up.
    """
    return _use("get_weather", city)


def send_email(to: str) -> str:
    """Send an email.

    Args:
        to: Who gets it.
    """
    return _use("send_email", to)


TOOLS = {"get_weather": get_weather, "send_email": send_email}


def schema(name: str) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    field = {"get_weather": "city", "send_email": "to"}[name]
    return {
        "type": "object",
        "properties": {field: {"type": "string"}},
        "required": [field],
        "additionalProperties": False,
    }


def chat_tools() -> list[dict[str, Any]]:
    """The tools as chat completions take them."""
    return [
        {"type": "function", "function": {"name": name, "description": name, "parameters": schema(name)}}
        for name in TOOLS
    ]


def given(url: str, headers: str) -> dict[str, Any]:
    """Keyword arguments for a client's constructor, named ``url`` and ``headers`` there; only what was given."""
    return ({url: BASE_URL} if BASE_URL else {}) | ({headers: HEADERS} if HEADERS else {})


def finish(text: object) -> None:
    """Tell the final answer, on one line."""
    tell(f"FINAL: {' '.join(str(text).split())}")
    _hold(_calls + 1)


def _use(name: str, value: str) -> str:
    global _calls
    _calls += 1
    _hold(_calls)
    tell(f"TOOL: {name} {value}")
    return f"[{name}: {value} done]"


def _hold(call: int) -> None:
    place = os.environ.get("MATRIX_HOLD")
    if place and Path(place).exists() and Path(place).read_text() == str(call):
        tell(f"HOLDS: {call}")
        time.sleep(LONGEST_HOLD_S)
        sys.exit(f"was held for {LONGEST_HOLD_S} s and nobody killed it")
