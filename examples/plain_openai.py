"""A tool-using agent on the OpenAI client, crash-proof by one changed line.

Start the proxy:  agentstate serve --simulate         (no key needed; without --simulate, set OPENAI_API_KEY)
Start the agent:  python examples/plain_openai.py [SESSION]

Kill it at any moment (Ctrl-C, kill -9) and start it again: it goes on where it was, and nothing is paid twice.
Another SESSION is other work. MODEL chooses the model; with --simulate, MODEL=gpt-4o-mini-t6 takes six tool calls.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from agentstate import AgentStateOpenAI

TASK = "Plan Saturday in Lisbon: look at the weather, then write down what to do."

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The forecast for a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "note",
            "description": "Write down one line of the plan.",
            "parameters": {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]},
        },
    },
]


def weather(city: str) -> str:
    return f"{city}: sunny, 24 degrees, light wind from the sea"


def note(line: str) -> str:
    return f"written down: {line}"


def call(name: str, arguments: str) -> str:
    tool = {"weather": weather, "note": note}[name]
    return tool(**json.loads(arguments))


def main() -> None:
    session = sys.argv[1] if len(sys.argv) > 1 else "lisbon-plan"
    client = AgentStateOpenAI(session)  # instead of OpenAI()
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        answer = client.chat.completions.create(
            model=os.environ.get("MODEL", "gpt-4o-mini"), messages=messages, tools=TOOLS
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print(message.content)
            return
        for asked in message.tool_calls:
            result = call(asked.function.name, asked.function.arguments)
            print(f"{asked.function.name}({asked.function.arguments}) -> {result}", flush=True)
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": result})


if __name__ == "__main__":
    main()
