"""An agent on CrewAI: ``crewai_agent.py plain|stream SESSION``."""

from __future__ import annotations

import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from agentstate import wrap_crewai
from tests.clients.agents.tools import TASK, use


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return use("get_weather", city)


@tool("send_email")
def send_email(to: str) -> str:
    """Send an email."""
    return use("send_email", to)


def main() -> None:
    mode, session = sys.argv[1:]
    llm = LLM(model="gpt-4o", stream=mode == "stream", **wrap_crewai(session))
    agent = Agent(role="Helper", goal="Help", backstory="You help.", llm=llm, tools=[get_weather, send_email])
    task = Task(description=TASK, expected_output="One sentence.", agent=agent)
    print("final", Crew(agents=[agent], tasks=[task]).kickoff().raw, flush=True)


if __name__ == "__main__":
    main()
