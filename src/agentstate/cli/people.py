"""Owns how commands reach the proxy on behalf of a person: whose token, which proxy, all pages of a list.

Must not print. Invariant: what these commands do, the proxy does: none of them opens the journal's file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from agentstate.cli.control import Control, ProxyUnreachable, address, admin_token, find
from agentstate.settings import load

TOKEN = "AGENTSTATE_TOKEN"  # noqa: S105 - the name of a variable
_PAGE = 100

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
]
Url = Annotated[
    str | None, typer.Option("--url", help="Address of the proxy; default: that of the settings, or of the journal's.")
]


def connected(config: Path | None, url: str | None) -> Control:
    """The control plane, with the token of ``AGENTSTATE_TOKEN``, else the admin's.

    Raises ``ProxyUnreachable``, ``Unauthorized``, ``SettingsError``.
    """
    settings = load(config)
    token = os.environ.get(TOKEN, "").strip()
    if url is None:
        url = find(settings, token or None)
    if url is None:
        raise ProxyUnreachable(
            f"no proxy of yours answers at {address(settings)}; start it with `agentstate serve`, or name it with --url"
        )
    return Control(url.removesuffix("/").removesuffix("/v1"), token or admin_token(settings))


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def all_of(control: Control, path: str, **query: str) -> list[dict[str, Any]]:
    """All pages of a list, in order."""
    found: list[dict[str, Any]] = []
    while True:
        after = {"after": str(found[-1]["id"])} if found else {}
        page = control.call("GET", f"{path}?{urlencode({**query, **after, 'limit': _PAGE})}")
        found += page
        if len(page) < _PAGE:
            return found
