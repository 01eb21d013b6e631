"""An agent on LangGraph, as LangChain makes it."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from tests.clients.matrix.agents.task import MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given


def main() -> None:
    model = ChatOpenAI(model=MODEL, **given("base_url", "default_headers"))
    agent: Any = create_agent(model, tools=list(TOOLS.values()), system_prompt=SYSTEM)
    asked = {"messages": [{"role": "user", "content": TASK}]}
    if not STREAM:
        finish(agent.invoke(asked)["messages"][-1].text)
        return
    text: dict[str, str] = {}
    for chunk, _ in agent.stream(asked, stream_mode="messages"):
        if chunk.type == "AIMessageChunk":
            text[chunk.id] = text.get(chunk.id, "") + chunk.text
    finish(list(text.values())[-1])


if __name__ == "__main__":
    main()
