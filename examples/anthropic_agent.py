"""A tool-using agent on the Anthropic client, crash-proof by one changed line.

Install:          pip install 'agentstate-proxy[anthropic]'
Start the proxy:  agentstate serve                    (set ANTHROPIC_API_KEY for the agent)
Start the agent:  python examples/anthropic_agent.py [SESSION]

Kill it at any moment (Ctrl-C, kill -9) and start it again: it goes on where it was, and nothing is paid twice.
Another SESSION is other work. MODEL chooses the model. The simulated model of `agentstate serve --simulate` speaks
OpenAI's formats only and cannot stand in here.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from agentstate import AgentStateAnthropic

TASK = "Check clause 7 of contract 81 and write down what is missing."


def _tool(name: str, description: str, field: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"name": name, "description": description, "input_schema": schema}


TOOLS = [_tool("read_clause", "The text of a clause.", "number"), _tool("remark", "Write down a remark.", "text")]


def read_clause(number: str) -> str:
    return f"clause {number}: payment is due on delivery"


def remark(text: str) -> str:
    return f"written down: {text}"


def call(name: str, arguments: dict[str, str]) -> str:
    tool = {"read_clause": read_clause, "remark": remark}[name]
    return tool(**arguments)


def main() -> None:
    session = sys.argv[1] if len(sys.argv) > 1 else "contract-81"
    client = AgentStateAnthropic(session)  # instead of Anthropic()
    model = os.environ.get("MODEL", "claude-sonnet-5-5")
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        answer = client.messages.create(model=model, max_tokens=1000, messages=messages, tools=TOOLS)
        messages.append({"role": "assistant", "content": answer.content})
        if answer.stop_reason != "tool_use":
            print("".join(block.text for block in answer.content if block.type == "text"))
            return
        results = []
        for asked in answer.content:
            if asked.type == "tool_use":
                result = call(asked.name, asked.input)
                print(f"{asked.name}({asked.input}) -> {result}", flush=True)
                results.append({"type": "tool_result", "tool_use_id": asked.id, "content": result})
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main()
