"""An agent on CrewAI."""

from __future__ import annotations

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from tests.clients.matrix.agents.task import MODEL, STREAM, TASK, TOOLS, finish, given


def main() -> None:
    llm = LLM(model=MODEL, stream=STREAM, **given("base_url", "default_headers"))
    tools = [tool(name)(function) for name, function in TOOLS.items()]
    agent = Agent(role="Helper", goal="Help", backstory="You help.", llm=llm, tools=tools)
    task = Task(description=TASK, expected_output="One sentence.", agent=agent)
    finish(Crew(agents=[agent], tasks=[task]).kickoff().raw)


if __name__ == "__main__":
    main()
