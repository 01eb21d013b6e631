"""An agent on LangChain: ``langchain_agent.py plain|stream SESSION``."""

from __future__ import annotations

import sys
from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from agentstate import wrap_langchain
from tests.clients.agents.tools import OFFERED, TASK, use


def main() -> None:
    mode, session = sys.argv[1:]
    agent = ChatOpenAI(model="gpt-4o-test", **wrap_langchain(session)).bind_tools(OFFERED)
    messages: list[BaseMessage] = [HumanMessage(TASK)]
    while True:
        answer: Any = agent.invoke(messages) if mode == "plain" else reduce(add, agent.stream(messages))
        messages.append(answer)
        for call in answer.tool_calls:
            (value,) = call["args"].values()
            messages.append(ToolMessage(use(call["name"], value), tool_call_id=call["id"]))
        if not answer.tool_calls:
            print("final", answer.text, flush=True)
            return


if __name__ == "__main__":
    main()
