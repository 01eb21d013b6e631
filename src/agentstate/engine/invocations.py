"""Owns the tool calls that agents make themselves, as far as the wire shows them: a call that was given, and the result
that comes back in a later request. Must not send or hold anything.

Invariant: a result is paired with a call that this run was given, by its id, once; nothing is guessed.
"""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agentstate.core.model import Call
from agentstate.dialects.base import Dialect
from agentstate.settings import ToolSettings

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")


def acts(settings: ToolSettings, tool: str) -> bool:
    """Whether a tool may have acted on the world: neither ``read`` nor ``idempotent`` in the settings."""
    return not any(fnmatchcase(tool, pattern) for pattern in (*settings.read, *settings.idempotent))


def note(parts: Parts, session: int, run: int, dialect: Dialect, call: Call) -> None:
    """Keep the results that a request carries with the calls that they answer. Nobody waits for it."""
    read = getattr(dialect, "results", None)
    results = read(call) if read is not None and call.items else ()
    if not results:
        return
    waiting = parts.journal.read.open_invocations(session, run, [result.call_id for result in results])
    found = [
        (*waiting[result.call_id], result.content.encode("utf-8", "surrogatepass"), result.failed)
        for result in results
        if result.call_id in waiting
    ]
    if found:
        parts.journal.note_results(found)
