"""Owns what is known of a tool call while it is on its way, and what may come of asking for it. Must not act.

Invariant: leave and outcome exclude each other: a call that may be made has no outcome yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from agentstate.core import effects
from agentstate.core.effects import Hints, Holder
from agentstate.core.model import Call, Fingerprint, Outcome, ToolCall
from agentstate.engine.request import Request, Told
from agentstate.store.rows import Begun, RunRow, SessionRow


@dataclass(slots=True)
class AskedCall:
    """One tool call on its way. ``server``: of MCP, empty for a function; ``given``: a class that the agent's own code
    says; ``owner``: pid:start of the process that will execute it, where that is not the proxy."""

    request: Request
    call: Call
    print: Fingerprint
    session: SessionRow
    run: RunRow
    server: str
    tool: str
    arguments: dict[str, Any]
    hints: Hints | None = None
    schema: str = ""
    output: dict[str, Any] | None = None
    asker: Holder = effects.THE_PROXY
    owner: str = ""

    @property
    def proposed(self) -> ToolCall:
        return self.named(effects.readable(self.arguments))

    def named(self, arguments: str) -> ToolCall:
        """The call with these arguments, JSON text, for policies: under every name that a client may make of it."""
        return ToolCall(0, 0, "", self.tool, arguments, effects.names(self.server, self.tool)[1:])

    def told(self, outcome: Outcome, step: int | None, replayed: bool = False) -> Told:
        return Told(outcome, step, self.run.name, "", replayed=replayed, sibling=bool(self.run.siblings),
                    evidence=self.run.evidence, tool=self.tool)  # fmt: skip


class Leave(NamedTuple):
    """Leave to make a call once. ``edited``: the arguments (JSON text) that a person put in the place of the proposed
    ones; ``None``: as they were proposed."""

    begun: Begun
    key: str
    edited: str | None = None


class Known(NamedTuple):
    """What a call came to without being made now."""

    step: int
    number: int
    outcome: bytes
