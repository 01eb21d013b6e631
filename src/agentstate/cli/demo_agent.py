"""Owns the agent that ``agentstate demo`` kills: four support tickets, three model calls each, the stock OpenAI client.

Must not know AgentState: it reads ``OPENAI_BASE_URL`` as any program with that client does, and has no checkpoint, no
retry and no memory. The only unusual thing is ``--pause-at``, a place where it stands still so that it can be killed
there for certain. Invariant: it asks the same questions in the same order each time it is started.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from typing import Any

from agentstate import clock

MODEL = "gpt-4o-mini"
TICKETS = (
    "Order 1041 arrived broken, what now?",
    "Where is my order 1042?",
    "I was charged twice for order 1043.",
    "Please cancel order 1044.",
)
STEPS_A_TICKET = 3
STEPS = len(TICKETS) * STEPS_A_TICKET
_ORDER = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": "look_up_order", "description": "State of an order", "parameters": _ORDER},
    },
    {"type": "function", "function": {"name": "read_policy", "description": "What we may do", "parameters": _ORDER}},
]


class Work:
    """The agent's one conversation after another; every model call is announced and reported on stdout as JSON."""

    def __init__(self, client: Any, pause_at: str) -> None:
        self._client = client
        self._pause_at = pause_at
        self._step = 0

    def ticket(self, text: str) -> None:
        """Call the model until it answers with text instead of asking for a tool."""
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You answer support tickets. Look things up before you answer."},
            {"role": "user", "content": text},
        ]
        for _ in range(STEPS_A_TICKET - 1):
            message = self._ask(messages)
            messages.append(message)
            for call in message.get("tool_calls") or []:
                result = f"{call['function']['name']}: in transit, two days late"
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        self._ask_streamed(messages)

    def _ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        started = self._begin()
        raw = self._client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=messages,
            tools=TOOLS,
        )
        message = raw.parse().choices[0].message.model_dump(exclude_none=True)
        self._end(started, raw.headers, message)
        return dict(message)

    def _ask_streamed(self, messages: list[dict[str, Any]]) -> None:
        started = self._begin()
        raw = self._client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=messages,
            tools=TOOLS,
            stream=True,
            stream_options={"include_usage": True},
        )
        text = ""
        for chunk in raw.parse():
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            if text:
                self._maybe_pause("stream")
        self._end(started, raw.headers, text)

    def _begin(self) -> float:
        say(event="asking", step=self._step)
        return clock.monotonic()

    def _end(self, started: float, headers: Any, said: Any) -> None:
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        took = 1000 * (clock.monotonic() - started)
        outcome = headers.get("x-agentstate-outcome", "live")
        say(event="answered", step=self._step, outcome=outcome, ms=took, digest=digest)
        self._maybe_pause("after")
        self._step += 1

    def _maybe_pause(self, place: str) -> None:
        if self._pause_at == f"{place}:{self._step}":
            say(event="paused", step=self._step)
            sys.stdin.read()  # its other end is never written to


def say(**what: Any) -> None:
    """One line for whoever watches."""
    print(json.dumps(what), flush=True)


def main() -> None:
    """Answer all tickets."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause-at", default="", help="after:STEP or stream:STEP, counted from 0")
    arguments = parser.parse_args()
    from openai import OpenAI

    with OpenAI() as client:
        work = Work(client, arguments.pause_at)
        for text in TICKETS:
            work.ticket(text)
    say(event="done")


if __name__ == "__main__":
    main()
