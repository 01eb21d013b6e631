"""Owns the command that leads to the dashboard. Must not log in by itself: the proxy makes the link.

Invariant: what is printed works once, and for a quarter of an hour.
"""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from agentstate.cli.people import Config, Url, connected


def command(
    open_: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser too.")] = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Print a link that logs a browser in to the dashboard, once, as whoever the token is of."""
    control = connected(config, url)
    made = control.call("POST", "/api/logins")
    link = f"{control.url}{made['path']}"
    print(link)
    if open_:
        webbrowser.open(link)
