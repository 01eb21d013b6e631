"""An agent on the OpenAI package, responses."""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI

from tests.clients.matrix.agents.task import MODEL, STREAM, TASK, TOOLS, finish, given, schema

OFFERED: Any = [
    {"type": "function", "name": name, "description": name, "parameters": schema(name), "strict": True}
    for name in TOOLS
]


def ask(client: OpenAI, items: list[Any]) -> Any:
    """The model's next response."""
    if not STREAM:
        return client.responses.create(model=MODEL, input=items, tools=OFFERED)
    with client.responses.stream(model=MODEL, input=items, tools=OFFERED) as events:
        for _ in events:
            pass
        return events.get_final_response()


def main() -> None:
    client = OpenAI(**given("base_url", "default_headers"))
    items: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        response = ask(client, items)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            finish(response.output_text)
            return
        for call in calls:
            items.append(
                {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
            )
            result = TOOLS[call.name](**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


if __name__ == "__main__":
    main()
