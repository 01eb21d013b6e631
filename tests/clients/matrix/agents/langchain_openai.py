"""An agent on LangChain's model for OpenAI."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.matrix.agents.task import MODEL, STREAM, TASK, TOOLS, finish, given


def main() -> None:
    tools = {name: tool(function) for name, function in TOOLS.items()}
    model = ChatOpenAI(model=MODEL, **given("base_url", "default_headers")).bind_tools(list(tools.values()))
    messages: list[BaseMessage] = [HumanMessage(TASK)]
    while True:
        answer: Any = reduce(add, model.stream(messages)) if STREAM else model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            finish(answer.text)
            return
        messages += [tools[call["name"]].invoke(call) for call in answer.tool_calls]


if __name__ == "__main__":
    main()
