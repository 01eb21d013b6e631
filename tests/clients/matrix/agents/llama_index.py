"""An agent on LlamaIndex."""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

from tests.clients.matrix.agents.task import MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given


async def main() -> None:
    llm = OpenAI(model=MODEL, **given("api_base", "default_headers"))
    agent = FunctionAgent(tools=list(TOOLS.values()), llm=llm, system_prompt=SYSTEM, streaming=STREAM)
    finish(await agent.run(TASK))


if __name__ == "__main__":
    asyncio.run(main())
