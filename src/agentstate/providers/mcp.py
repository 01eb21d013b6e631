"""Owns where the configured MCP servers are and which headers they are sent. Must not speak to them.

Invariant: a server's address comes from the settings alone, never from a request; a credential that the proxy holds for
one server is sent to no other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from agentstate.errors import NotFound, SettingsError
from agentstate.providers.provider import Provider
from agentstate.settings import McpSettings


@dataclass(frozen=True, slots=True)
class Server:
    """``provider``: its endpoint, asked with an empty path; ``query``: of its address; ``added``: (header, variable)
    of each header that the proxy adds."""

    name: str
    provider: Provider
    query: str = ""
    added: tuple[tuple[str, str], ...] = ()

    def headers(self, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        """The headers that the proxy adds. Raises ``SettingsError`` where a variable is not set."""
        known = os.environ if environ is None else environ
        missing = [variable for _, variable in self.added if not known.get(variable)]
        if missing:
            raise SettingsError(f"mcp.{self.name}.headers_env names {', '.join(missing)}, which is not set")
        return [(name, known[variable]) for name, variable in self.added]


def server_of(name: str, settings: McpSettings) -> Server:
    """Raises ``SettingsError``."""
    url = urlsplit(settings.url)
    if url.scheme not in ("http", "https") or not url.hostname or url.fragment:
        raise SettingsError(f"mcp.{name}.url must look like https://host/mcp, less what follows #")
    added = []
    for pair in settings.headers_env:
        header, found, variable = pair.partition("=")
        if not found or not header.strip() or not variable.strip():
            raise SettingsError(f"mcp.{name}.headers_env has {pair!r}; write it as header=VARIABLE")
        added.append((header.strip().lower(), variable.strip()))
    root = url._replace(query="").geturl()
    return Server(name, Provider(f"mcp:{name}", root, "", ("mcp",)), url.query, tuple(added))


class Servers:
    """The configured ones, by name."""

    def __init__(self, settings: Mapping[str, McpSettings]) -> None:
        self._servers = {name: server_of(name, part) for name, part in settings.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._servers

    def find(self, name: str) -> Server:
        """Raises ``NotFound``."""
        found = self._servers.get(name)
        if found is None:
            known = ", ".join(sorted(self._servers)) or "none"
            raise NotFound(
                f"no MCP server is called {name[:80]!r}; the settings name {known}: add [mcp.NAME] with its url"
            )
        return found
