"""An agent on the Anthropic package."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic

from tests.clients.matrix.agents.task import STREAM, TASK, TOOLS, finish, given, schema

OFFERED: Any = [{"name": name, "description": name, "input_schema": schema(name)} for name in TOOLS]


def ask(client: Anthropic, messages: list[Any]) -> Any:
    """The model's next message."""
    asked: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 1000, "tools": OFFERED, "messages": messages}
    if not STREAM:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def main() -> None:
    client = Anthropic(**given("base_url", "default_headers"))
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message = ask(client, messages)
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            finish("".join(block.text for block in message.content))
            return
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": TOOLS[block.name](**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main()
