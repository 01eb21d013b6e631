"""Builds CrewAI's ``LLM`` from our keywords in each documented form: ``crewai_forms.py SESSION``. Prints one line."""

from __future__ import annotations

import json
import sys
from typing import Any

from crewai import LLM, Agent

from agentstate import wrap_crewai


def main() -> None:
    (session,) = sys.argv[1:]
    forms: list[tuple[str, dict[str, Any]]] = [
        ("gpt-4o", {}),
        ("openai/gpt-4o", {}),
        ("llama3.2", {}),
        ("claude-sonnet-5-5", {"custom_openai": True}),
    ]
    answers = [LLM(model=model, **wrap_crewai(session, **more)).call("hello") for model, more in forms]
    agent = Agent(role="r", goal="g", backstory="b", llm_config=wrap_crewai(session)["config"])
    told = {"answers": answers, "llm_config": {"accepted": True, "base_url": agent.llm.base_url}}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
