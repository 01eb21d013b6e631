"""An agent on Pydantic AI: ``openai`` or ``anthropic`` is the argument."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent

from tests.clients.matrix.agents.task import MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given


def model() -> Any:
    """The model, on a client of its vendor's."""
    if sys.argv[1] == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(**given("base_url", "default_headers"))
        return AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(anthropic_client=client))
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=AsyncOpenAI(**given("base_url", "default_headers")))
    return OpenAIResponsesModel(MODEL, provider=provider)


async def main() -> None:
    agent: Any = Agent(model(), instructions=SYSTEM, tools=list(TOOLS.values()))
    if STREAM:
        async with agent.run_stream(TASK) as result:
            finish(await result.get_output())
    else:
        finish((await agent.run(TASK)).output)


if __name__ == "__main__":
    asyncio.run(main())
