"""An agent on the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

from tests.clients.matrix.agents.task import MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given


async def main() -> None:
    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(**given("base_url", "default_headers")), use_for_tracing=False)
    agent = Agent(
        name="Helper", instructions=SYSTEM, model=MODEL, tools=[function_tool(tool) for tool in TOOLS.values()]
    )
    if STREAM:
        result = Runner.run_streamed(agent, TASK)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, TASK)
    finish(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
