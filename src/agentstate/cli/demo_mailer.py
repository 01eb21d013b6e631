"""Owns the agent whose mail is held in ``agentstate demo``: one order, one tool, the stock OpenAI client.

Must not know AgentState: it sends what the model tells it to send, once it is told. A mail sent is one line appended to
a file, so that the effects can be counted. Invariant: it has no memory; each life asks the same question again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from agentstate.cli.demo_agent import say

MODEL = "gpt-4o-mini-t1"  # the simulated model is content with one result
CALLS = 2  # what the work needs: one that proposes the mail, one that is told of it
PROPOSED = "all-customers@example.com"
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "send_email",
            "description": "Send a mail",
            "parameters": {
                "type": "object",
                "properties": {
                    "to": {"type": "string", "format": "email", "examples": [PROPOSED]},
                    "subject": {"type": "string", "examples": ["Your order 1041 was refunded"]},
                },
                "required": ["to", "subject"],
                "additionalProperties": False,
            },
        },
    }
]


def work(client: Any, outbox: Path) -> None:
    """Ask, do what is asked for, and tell the model, until it asks for nothing more."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Tell the customer that order 1041 was refunded."}]
    while True:
        say(event="asking")
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
        message = answer.choices[0].message.model_dump(exclude_none=True)
        messages.append(message)
        calls = message.get("tool_calls") or []
        for call in calls:
            result = send_email(outbox, json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not calls:
            return


def send_email(outbox: Path, mail: dict[str, Any]) -> str:
    """The effect: a line in the outbox, on disk before anybody is told."""
    with outbox.open("a", encoding="utf-8") as file:
        file.write(json.dumps(mail) + "\n")
        file.flush()
        os.fsync(file.fileno())
    say(event="sent", to=mail["to"])
    return f"sent to {mail['to']}"


def main() -> None:
    """Do the work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("outbox", type=Path, help="file that each mail is appended to")
    arguments = parser.parse_args()
    from openai import OpenAI

    with OpenAI() as client:
        work(client, arguments.outbox)
    say(event="done")


if __name__ == "__main__":
    main()
