"""An agent on Strands."""

from __future__ import annotations

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from tests.clients.matrix.agents.task import MODEL, SYSTEM, TASK, TOOLS, finish, given


def main() -> None:
    model = OpenAIModel(client_args=given("base_url", "default_headers"), model_id=MODEL)
    tools = [tool(function) for function in TOOLS.values()]
    agent = Agent(model=model, tools=tools, system_prompt=SYSTEM, callback_handler=None)
    finish(agent(TASK))


if __name__ == "__main__":
    main()
