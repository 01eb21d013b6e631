"""Owns what a request and its answer look like between server and engine. Must not act.

Invariant: everything the agent said about itself is in ``Request``; nothing of it is read from headers again later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from agentstate.core.model import Match, Outcome, ReplayMode
from agentstate.engine.pausing import Rest
from agentstate.engine.presence import Connection
from agentstate.engine.recording import Recording
from agentstate.providers.client import Headers


class Request(NamedTuple):
    """``path`` and ``query`` are as sent, less the session prefix; ``normal`` is the path as dialects know it.

    ``headers`` are the agent's own, ours taken out.

    ``patience``: how many seconds of silence the client bears; ``retry``: how often it says it has sent this before;
    ``drain``: whether the answer is finished when its reader leaves (``None``: as the settings say); ``rounds``: how
    often the model was told of a refusal on the way to this question; ``fallback``: the models to ask where its own
    fails, as the request lists them, or ``none``; ``provider``: that is asked, by its name, empty: the first that
    speaks the wire format.
    """

    method: str
    path: str
    normal: str
    query: str
    headers: Headers
    body: bytes
    connection: Connection
    session: str = ""
    run: str = ""
    hint: int | None = None
    mode: ReplayMode = ReplayMode.AUTO
    unique_first: bool = False
    needs_approval: bool = False
    drain: bool | None = None
    retry: int = 0
    retry_key: bytes = b""
    patience: float = 15.0
    rounds: int = 0
    fallback: str = ""
    provider: str = ""


@dataclass(slots=True)
class Answer:
    """What the agent gets: ``body`` whole, or the bytes of ``recording`` as they may be shown.

    ``heartbeat``: given, the answer waits for a person: its status is kept back until there is something to give, or
    until this must be sent to keep the reader waiting; ``status`` and ``headers`` are for that case. ``converted``:
    what is done to the whole, where it is given in another shape than it was recorded; ``ours``: our own headers.
    ``told``: what they say, where the answer counts as one; ``saved``: what the provider was paid for it when it was
    recorded, in USD, ``None``: not known; ``waited_s``: of a whole live answer, how long the provider took, in seconds.
    ``rest``: given, this is no answer yet: the session is paused, and the request waits.

    ``close(delivered)`` must be called once, when the last byte is out or the reader is gone.
    """

    status: int
    headers: Headers
    body: bytes | None = None
    recording: Recording | None = None
    close: Callable[[bool], None] = field(default=lambda delivered: None)
    stream_error: Callable[[Exception], bytes] | None = None
    heartbeat: Callable[[], bytes] | None = None
    converted: Callable[[bytes], bytes] | None = None
    ours: Callable[[], Headers] = list
    told: Told | None = None
    saved: float | None = None
    waited_s: float = 0.0
    rest: Rest | None = None


class Told(NamedTuple):
    """What our response headers say of an answer. ``tool``: no header, the tool whose call it answers."""

    outcome: Outcome
    step: int | None = None
    run: str = ""
    model: str = ""
    match: Match = Match.STRICT
    replayed: bool = False
    sibling: bool = False
    evidence: str = ""
    detour: str = ""
    tool: str = ""

    def headers(self) -> Headers:
        found = [
            ("x-agentstate-cache-hit", "true" if self.replayed else "false"),
            ("x-agentstate-outcome", self.outcome.value),
        ]
        if self.step is not None:
            found.append(("x-agentstate-step", str(self.step)))
        if self.run:
            found.append(("x-agentstate-run", spelled(self.run)))
        if self.model:
            found.append(("x-agentstate-model", printable(self.model)))
        if self.match is not Match.STRICT:
            found.append(("x-agentstate-match", self.match.value))
        if self.sibling:
            found.append(("x-agentstate-sibling", "true"))
        if self.evidence:
            found.append(("x-agentstate-evidence", self.evidence))
        if self.detour:
            found.append(("x-agentstate-fallback", printable(self.detour)))
        return found


def spelled(name: str) -> str:
    """An id as a header may carry it: as it is, or percent-encoded as in an address where it has other characters."""
    return name if name.isascii() and name.isprintable() else quote(name, safe="")


def printable(text: str) -> str:
    """A text that may stand in a header: no control characters, ASCII only, 200 characters at most."""
    if text.isascii() and text.isprintable() and len(text) <= 200:
        return text
    return "".join(char if " " <= char <= "~" else "?" for char in text[:200])
