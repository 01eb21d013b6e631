"""An agent on Agno."""

from __future__ import annotations

import os

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from tests.clients.matrix.agents.task import MODEL, STREAM, SYSTEM, TASK, TOOLS, finish, given


def main() -> None:
    model = OpenAIChat(id=MODEL, **given("base_url", "default_headers"))
    agent = Agent(model=model, tools=list(TOOLS.values()), instructions=SYSTEM, telemetry=False)
    if STREAM:
        finish(
            "".join(str(event.content or "") for event in agent.run(TASK, stream=True) if event.event == "RunContent")
        )
    else:
        finish(agent.run(TASK).content)


if __name__ == "__main__":
    main()
