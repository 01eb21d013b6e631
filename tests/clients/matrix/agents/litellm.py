"""An agent on LiteLLM."""

from __future__ import annotations

import json
from typing import Any

import litellm

from tests.clients.matrix.agents.task import MODEL, STREAM, TASK, TOOLS, chat_tools, finish, given


def ask(messages: list[Any]) -> Any:
    """The model's next message."""
    asked = {"model": f"openai/{MODEL}", "messages": messages, "tools": chat_tools()}
    answer = litellm.completion(**asked, stream=STREAM, **given("api_base", "extra_headers"))
    if STREAM:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def main() -> None:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    while True:
        message = ask(messages)
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            finish(message.content)
            return
        for call in message.tool_calls:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    main()
