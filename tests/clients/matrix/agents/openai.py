"""An agent on the OpenAI package, chat completions."""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI

from tests.clients.matrix.agents.task import MODEL, STREAM, TASK, TOOLS, chat_tools, finish, given


def ask(client: OpenAI, messages: list[Any]) -> dict[str, Any]:
    """The model's next message."""
    if not STREAM:
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=chat_tools())
        return answer.choices[0].message.model_dump(exclude_none=True)
    text, calls = "", {}
    for chunk in client.chat.completions.create(model=MODEL, messages=messages, tools=chat_tools(), stream=True):
        for delta in (choice.delta for choice in chunk.choices):
            text += delta.content or ""
            for part in delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": part.id, "type": "function", "function": {}})
                function = call["function"]
                function["name"] = function.get("name") or part.function.name
                function["arguments"] = function.get("arguments", "") + (part.function.arguments or "")
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls.values())} if calls else {})


def main() -> None:
    client = OpenAI(**given("base_url", "default_headers"))
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message = ask(client, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            finish(message["content"])
            return
        for call in message["tool_calls"]:
            result = TOOLS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


if __name__ == "__main__":
    main()
