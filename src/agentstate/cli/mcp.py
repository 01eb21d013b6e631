"""Owns ``agentstate mcp``: an MCP server over stdio whose tool calls are journaled. Must not speak the protocol: the
shim that it becomes does.

Invariant: what the shim prints is the server's; anything of ours goes to stderr.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from agentstate.errors import SettingsError


def command(
    words: Annotated[list[str], typer.Argument(metavar="wrap -- CMD…", help="The server's own command.")],
    server: Annotated[str, typer.Option("--server", help="What the server is called in the journal.")],
    session: Annotated[str | None, typer.Option("--session", help="Session id; default AGENTSTATE_SESSION_ID.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="The proxy's address; default AGENTSTATE_URL.")] = None,
) -> None:
    """Stand between an MCP client and a server over stdio: calls of its tools are held, journaled and replayed."""
    rest = words[1:] if words[:1] == ["wrap"] else []
    if not rest:
        raise SettingsError("say which server to wrap: agentstate mcp wrap --server NAME -- CMD…")
    environ = dict(os.environ)
    environ |= {"AGENTSTATE_SESSION_ID": session} if session else {}
    if not environ.get("AGENTSTATE_SESSION_ID"):
        raise SettingsError("say whose calls they are: --session SESSION, or AGENTSTATE_SESSION_ID in the environment")
    environ |= {"AGENTSTATE_URL": url} if url else {}
    shim = [sys.executable, "-m", "agentstate.sdk.stdio", server, "--", *rest]
    os.execve(sys.executable, shim, environ)  # noqa: S606 - the same process goes on
