"""Functions whose calls are not made twice: the transfer of a restarted agent is not made again.

Install:          pip install 'agentstate-proxy[openai]'
Start the proxy:  agentstate serve --simulate         (no key needed; without --simulate, set OPENAI_API_KEY)
Start the agent:  python examples/tool_agent.py [SESSION]

Kill it at any moment and start it again: what `read_balance` and `transfer` gave back is given again, and neither is
called. A transfer that a crash cut off is in doubt: `agentstate approvals` shows it, and `agentstate settle` says what
became of it. Start it with `agentstate run --session SESSION -- python examples/tool_agent.py`, and crashes restart it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import agentstate
from agentstate import AgentStateOpenAI, tool, tool_key

TASK = "Pay the rent: look at the balance, then transfer it."


@tool(kind="read")
def read_balance(account: str) -> str:
    """What is on an account."""
    print(f"read_balance({account}) is called", flush=True)
    return f"{account}: 2,140 EUR"


@tool
def transfer(to: str) -> str:
    """Transfer the rent to a landlord."""
    # A bank that takes an idempotency key makes one transfer for it, however often it is asked.
    print(f"transfer({to}) is called with the key {tool_key()}", flush=True)
    return f"900 EUR went to {to}"


def _described(name: str, description: str, field: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _described("read_balance", "What is on an account.", "account"),
    _described("transfer", "Transfer the rent to a landlord.", "to"),
]


def call(name: str, arguments: str) -> str:
    function = {"read_balance": read_balance, "transfer": transfer}[name]
    return function(**json.loads(arguments))


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("AGENTSTATE_SESSION_ID", "rent-december")
    with agentstate.session(name):  # the calls of functions under @tool are this session's
        client = AgentStateOpenAI(name)
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
                print(f"{asked.function.name} gave: {result}", flush=True)
                messages.append({"role": "tool", "tool_call_id": asked.id, "content": result})


if __name__ == "__main__":
    main()
