"""An agent on smolagents."""

from __future__ import annotations

import os
from typing import Any

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

from tests.clients.matrix.agents.task import BASE_URL, HEADERS, MODEL, STREAM, TASK, TOOLS, finish


def main() -> None:
    more: dict[str, Any] = {"api_base": BASE_URL} if BASE_URL else {}
    if HEADERS:
        more["client_kwargs"] = {"default_headers": HEADERS}
    model = OpenAIModel(model_id=MODEL, api_key=os.environ["OPENAI_API_KEY"], **more)
    tools = [tool(function) for function in TOOLS.values()]
    agent = ToolCallingAgent(tools=tools, model=model, stream_outputs=STREAM, verbosity_level=LogLevel.OFF)
    finish(agent.run(TASK))


if __name__ == "__main__":
    main()
