"""Owns an MCP server in a process of its own, made of the official package's classes: over streamable HTTP or stdio.

``python -m tests.support.mcp_server COUNTER http|json|stateless|stdio``. Its tools act on the world only through the
counter of ``tests.support.effects``. Invariant: the process ends when the test that started it does.
"""

# No lazy annotations here: the package reads those of the tools while they are made.
import asyncio
import os
import socket
import subprocess
import sys
import threading
import urllib.error
from types import TracebackType
from typing import Any, Self

from tests.support import effects

KEY = "io.agentstate/idempotency-key"
BOUND_S = 30.0


def made(counter: str) -> Any:
    """The server and its tools."""
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("bank")

    def key_of(ctx: Context[Any, Any]) -> str | None:
        meta = ctx.request_context.meta
        return dict(meta).get(KEY) if meta else None  # type: ignore[call-overload]

    async def act(*arguments: Any, **more: Any) -> int:
        return await asyncio.to_thread(effects.effect, counter, *arguments, **more)

    @server.tool()
    async def charge(amount: int, ctx: Context[Any, Any], memo: str = "") -> str:
        """Charge the card."""
        await act("charge", key_of(ctx), amount=amount, memo=memo)
        return f"charged {amount}"

    @server.tool()
    async def fail(ctx: Context[Any, Any]) -> str:
        """Do something and fail."""
        await act("fail", key_of(ctx))
        raise ValueError("the card was declined")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def balance(ctx: Context[Any, Any]) -> str:
        """Read the balance."""
        times = await act("balance", key_of(ctx))
        return f"read {times} times"

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def set_limit(limit: int, ctx: Context[Any, Any]) -> str:
        """Set the limit."""
        await act("set_limit", key_of(ctx), limit=limit)
        return f"limit {limit}"

    @server.tool()
    async def slow(steps: int, ctx: Context[Any, Any]) -> str:
        """Tell of progress, then act."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step}")
        await act("slow", key_of(ctx), steps=steps)
        return f"{steps} steps"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def find_charge(key: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Whether something was done under a key."""
        try:
            found = effects.ask(counter, f"/find/{key}")
        except urllib.error.HTTPError as error:
            error.close()
            return {"ran": False}
        return {"ran": True, "result": {"found": found["charged"]["amount"]}}

    return server


class McpServer:
    """The process. ``url``: its endpoint. ``kind``: as on its command line."""

    def __init__(self, counter: effects.EffectsCounter, kind: str = "http") -> None:
        self._counter, self._kind = counter, kind
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self._port = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def start(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.mcp_server", self._counter.url, self._kind, str(self._port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready", "the MCP server did not start"
        return self

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(BOUND_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _serve(server: Any, kind: str, port: int) -> None:
    import uvicorn

    app = server.streamable_http_app(json_response=kind == "json", stateless_http=kind == "stateless")

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)

    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), name="end", daemon=True).start()
    Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error")).run()


def main() -> None:
    """Serve as the command line says."""
    server = made(sys.argv[1])
    if sys.argv[2] == "stdio":
        server.run("stdio")
    else:
        _serve(server, sys.argv[2], int(sys.argv[3]))


if __name__ == "__main__":
    main()
