"""A tool-using crew on CrewAI, crash-proof by one changed line.

Install:          pip install crewai                   (best in a virtual environment of its own)
Start the proxy:  agentstate serve --simulate         (no key needed; without --simulate, set OPENAI_API_KEY)
Start the agent:  python examples/crewai_agent.py [SESSION]

Kill it at any moment and start it again: it goes on where it was, and nothing is paid twice.
"""

from __future__ import annotations

import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from agentstate import wrap_crewai


@tool("search_flights")
def search_flights(destination: str) -> str:
    """Flights to a destination."""
    print(f"search_flights({destination})", flush=True)
    return f"{destination}: 09:40 for 120 EUR, 17:05 for 85 EUR"


@tool("hold_seat")
def hold_seat(flight: str) -> str:
    """Hold a seat on a flight for one hour."""
    print(f"hold_seat({flight})", flush=True)
    return f"held a seat on {flight}"


def main() -> None:
    session = sys.argv[1] if len(sys.argv) > 1 else "trip-to-oslo"
    llm = LLM(model=os.environ.get("MODEL", "gpt-4o-mini"), **wrap_crewai(session))
    planner = Agent(
        role="Travel planner",
        goal="Find a cheap flight and hold a seat on it",
        backstory="You plan trips and answer in one sentence.",
        llm=llm,
        tools=[search_flights, hold_seat],
    )
    task = Task(description="Find a flight to Oslo and hold a seat.", expected_output="One sentence.", agent=planner)
    print(Crew(agents=[planner], tasks=[task]).kickoff().raw)


if __name__ == "__main__":
    main()
