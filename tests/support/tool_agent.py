"""Owns an agent in a process of its own whose tools are its own functions, journaled by ``@tool``.

``python -m tests.support.tool_agent COUNTER CALLS``; the session comes from the environment. ``CALLS``: JSON list of
[tool, arguments]. It prints what each call gives back, or raises, as a line of JSON. Must not retry. Invariant: its
tools act on the world through the counter alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.support import effects
from tests.support.life import Life

Calls = Sequence[tuple[str, dict[str, Any]]]


class ToolAgent(Life):
    """The process. ``proxy``: the proxy's address; ``run``: its run id, ``None``: it makes one up."""

    bound_s = 60.0

    def __init__(self, counter: str, proxy: str, session: str, calls: Calls, run: str | None = None) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSTATE_")}
        environ |= {"AGENTSTATE_URL": proxy, "AGENTSTATE_SESSION_ID": session}
        if run is not None:
            environ["AGENTSTATE_RUN_ID"] = run
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tool_agent", counter, json.dumps(list(calls))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ,
        )  # fmt: skip

    def results(self) -> list[Any]:
        """Wait for its end: what each call gave back."""
        return self.said()


def run(counter: str, proxy: str, session: str, calls: Calls, run: str | None = None) -> list[Any]:
    """One whole life of such an agent."""
    with ToolAgent(counter, proxy, session, calls, run) as agent:
        return agent.results()


def _main(counter: str, calls: Calls) -> None:
    from agentstate import tool, tool_key

    @tool
    def charge(amount: int, memo: str = "") -> dict[str, Any]:
        effects.effect(counter, "charge", tool_key(), amount=amount, memo=memo)
        return {"charged": amount}

    @tool
    async def charge_async(amount: int) -> dict[str, Any]:
        await asyncio.to_thread(effects.effect, counter, "charge_async", tool_key(), amount=amount)
        return {"charged": amount}

    @tool
    def fail() -> None:
        effects.effect(counter, "fail", tool_key())
        raise LookupError("no such card", 7)

    @tool(kind="read")
    def balance() -> int:
        return effects.effect(counter, "balance", tool_key())

    known = {"charge": charge, "charge_async": charge_async, "fail": fail, "balance": balance}
    for name, arguments in calls:
        try:
            value = known[name](**arguments)
            value = asyncio.run(value) if asyncio.iscoroutine(value) else value
            print(json.dumps({"gave": value}), flush=True)
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            print(json.dumps({"raised": type(error).__name__, "text": str(error)}), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], json.loads(sys.argv[2]))
