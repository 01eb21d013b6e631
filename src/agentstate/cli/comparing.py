"""Owns the commands that pause and resume sessions, compare them, and try a step with another model. Must not do the
work: the proxy does, and the comparison is the engine's.

Invariant: texts from agents and models are printed as text, never as markup or terminal codes.
"""

from __future__ import annotations

from typing import Annotated

import typer

from agentstate.cli.people import Config, Url, connected, part
from agentstate.core.visible import visible

Session = Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")]


def pause(
    session: Session,
    reason: Annotated[str, typer.Option("--reason", help="Why; whoever looks at the session is told.")] = "",
    url: Url = None,
    config: Config = None,
) -> None:
    """Pause a session: nothing of it is sent any more until it is resumed. Recorded answers are still given."""
    connected(config, url).call("POST", f"/api/sessions/{part(session)}/pause", {"reason": reason})
    print(f"{visible(session)} is paused; let it go on with: agentstate resume {visible(session)}")


def resume(session: Session, url: Url = None, config: Config = None) -> None:
    """Let a paused session go on. Requests that waited are judged anew, as if they came now."""
    connected(config, url).call("POST", f"/api/sessions/{part(session)}/resume", {})
    print(f"{visible(session)} goes on")
