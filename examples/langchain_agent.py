"""A tool-using agent on LangChain, crash-proof by one changed line.

Install:          pip install langchain-openai
Start the proxy:  agentstate serve --simulate         (no key needed; without --simulate, set OPENAI_API_KEY)
Start the agent:  python examples/langchain_agent.py [SESSION]

Kill it at any moment and start it again: it goes on where it was, and nothing is paid twice. The same keywords work in
every place that takes a ChatOpenAI, `create_agent` and LangGraph among them.
"""

from __future__ import annotations

import os
import sys

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from agentstate import wrap_langchain


@tool
def exchange_rate(currency: str) -> str:
    """How much one euro is worth in a currency."""
    return f"1 EUR = 1.25 {currency}"


@tool
def book(entry: str) -> str:
    """Write one entry into the ledger."""
    return f"booked: {entry}"


def main() -> None:
    session = sys.argv[1] if len(sys.argv) > 1 else "ledger-2026"
    model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-4o-mini"), **wrap_langchain(session))
    agent = model.bind_tools([exchange_rate, book])
    tools = {"exchange_rate": exchange_rate, "book": book}
    messages: list[BaseMessage] = [HumanMessage("Convert the 80 EUR invoice into dollars and book it.")]
    while True:
        answer = agent.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            print(answer.text)
            return
        for asked in answer.tool_calls:
            result = tools[asked["name"]].invoke(asked)
            print(f"{asked['name']}({asked['args']}) -> {result.content}", flush=True)
            messages.append(result)


if __name__ == "__main__":
    main()
