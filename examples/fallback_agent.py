"""An agent that goes on when its model does not: its calls are led to another provider, in the agent's own format.

Install:          pip install 'agentstate-proxy[openai]'
Start the proxy:  agentstate serve --simulate         (no key needed; without --simulate, see below)
Start the agent:  python examples/fallback_agent.py [SESSION]

`fallback_model` names who is asked where the model fails: first a smaller model of the same provider, then one of
Anthropic, whose format is another. For the latter the proxy needs a key of its own, in agentstate.toml:

    [providers.anthropic]
    key_env = "ANTHROPIC_API_KEY"

To see it, ask for a model that is down: with --simulate, MODEL=gpt-4o-mini-e503 is. Kill the agent and start it again:
a replay names the same model as the live answer did. `[[routes]]` in the settings do the same for every agent.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from agentstate import AgentStateOpenAI

INSTEAD = os.environ.get("INSTEAD", "gpt-4o-mini, anthropic/claude-sonnet-5-5")
QUESTIONS = ("Name a river in Portugal.", "And the city at its mouth?", "How old is it?")


def main() -> None:
    session = sys.argv[1] if len(sys.argv) > 1 else "three-questions"
    client = AgentStateOpenAI(session, fallback_model=INSTEAD)
    messages: list[Any] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        told = client.chat.completions.with_raw_response.create(
            model=os.environ.get("MODEL", "gpt-4o"), messages=messages
        )
        text = told.parse().choices[0].message.content
        by, because = told.headers.get("x-agentstate-model"), told.headers.get("x-agentstate-fallback")
        print(f"answered by {by}, {because or 'as asked'}: {text}", flush=True)
        messages.append({"role": "assistant", "content": text})


if __name__ == "__main__":
    main()
