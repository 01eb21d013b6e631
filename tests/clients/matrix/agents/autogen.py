"""An agent on AutoGen."""

from __future__ import annotations

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

from tests.clients.matrix.agents.task import MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given


async def main() -> None:
    client = OpenAIChatCompletionClient(model=MODEL, **given("base_url", "default_headers"))
    agent = AssistantAgent(
        "helper",
        model_client=client,
        tools=list(TOOLS.values()),
        system_message=SYSTEM,
        max_tool_iterations=5,
        model_client_stream=STREAM,
    )
    result = await agent.run(task=TASK)
    finish(result.messages[-1].content)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
