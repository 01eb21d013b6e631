"""Owns an agent in a process of its own that calls tools with the official MCP client.

``python -m tests.support.mcp_agent URL MODE CALLS``; ``CALLS``: JSON list of [tool, arguments]. It prints each result
as a line of JSON as soon as it has it, and lists the tools first. Must not retry. Invariant: it is killed or ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.life import Life

Calls = Sequence[tuple[str, dict[str, Any]]]


class McpAgent(Life):
    """The process. ``target``: the URL of an endpoint, or the command of a stdio server."""

    def __init__(
        self, target: str | Sequence[str], calls: Calls, mode: str = "auto", environ: dict[str, str] | None = None
    ) -> None:
        spelled = target if isinstance(target, str) else json.dumps(list(target))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mcp_agent", spelled, mode, json.dumps(list(calls))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ,
        )  # fmt: skip

    def results(self) -> list[dict[str, Any]]:
        """Wait for its end: each call's result, or its error."""
        return self.said()


def run(
    target: str | Sequence[str], calls: Calls, mode: str = "auto", environ: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """One whole life of such an agent."""
    with McpAgent(target, calls, mode, environ) as agent:
        return agent.results()


def text_of(result: dict[str, Any]) -> str:
    """What a result says."""
    return " ".join(part.get("text", "") for part in result.get("content", []))


async def _main(target: Any, mode: str, calls: Calls) -> None:
    from mcp import Client, MCPError

    async with Client(target, mode=mode) as client:
        await client.list_tools()
        for tool, arguments in calls:
            try:
                result = await client.call_tool(tool, arguments, progress_callback=_progress)
                print(result.model_dump_json(by_alias=True, exclude_none=True), flush=True)
            except MCPError as error:
                print(json.dumps({"error": str(error)}), flush=True)


async def _progress(progress: float, total: float | None, message: str | None) -> None:
    if message and message.startswith("step"):
        print(json.dumps({"progress": message}), flush=True)


if __name__ == "__main__":
    spelled = sys.argv[1]
    wanted: Any = spelled
    if spelled.startswith("["):
        import os

        from mcp import StdioServerParameters

        command = json.loads(spelled)
        wanted = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    asyncio.run(_main(wanted, sys.argv[2], json.loads(sys.argv[3])))
