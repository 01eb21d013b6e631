"""Owns what a pause means: whose it is, and what becomes of a request meanwhile. Must not store it, nor wait.

Invariant: a pause by a person names them, and the requests of their agent wait; a pause without a name is the proxy's
own, whose reason somebody must see to first, or a bare status, and requests are refused.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

from agentstate.core.model import SessionStatus


class Handling(StrEnum):
    """What becomes of a request that would be sent now."""

    GO = "go"
    WAIT = "wait"
    REFUSE = "refuse"


class Pause(NamedTuple):
    """``by``: who paused the session; empty: nobody did, the proxy itself. ``text``: why; ``at``: when, in seconds
    since the epoch; ``None``: not known."""

    by: str = ""
    text: str = ""
    at: float | None = None


def spelled(pause: Pause) -> str:
    """A person's pause as the session's note."""
    return json.dumps({"reason": "paused", "text": pause.text, "by": pause.by, "at": pause.at})


def read(note: str) -> Pause:
    """What a session's note says of its pause; a note that is no object of ours is a bare reason."""
    try:
        said: Any = json.loads(note) if note else {}
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return Pause(text=note)
    at = said.get("at")
    return Pause(str(said.get("by", "")), str(said.get("text", "")), at if isinstance(at, int | float) else None)


def handling(status: SessionStatus, note: str, waits: bool) -> Handling:
    """What becomes of a request of a session. ``waits``: requests wait for people, as the settings say."""
    if status is not SessionStatus.PAUSED:
        return Handling.GO
    return Handling.WAIT if waits and read(note).by else Handling.REFUSE


def sentence(session: str, note: str) -> str:
    """Why a request is refused, and what to do next."""
    pause = read(note)
    by = f" by {pause.by}" if pause.by else ""
    return f"session {session} is paused{by}" + (f": {pause.text}" if pause.text else "")
