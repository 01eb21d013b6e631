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
from agentstate.store.rows import SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
_MOST_LOOKED_AT = 256  # messages from the end: more calls than that no model proposes at once


def acts(settings: ToolSettings, tool: str) -> bool:
    """Whether a tool may have acted on the world: neither ``read`` nor ``idempotent`` in the settings."""
    return not any(fnmatchcase(tool, pattern) for pattern in (*settings.read, *settings.idempotent))


def _named_last(call: Call) -> list[str]:
    """The ids of calls that the messages after the model's last one speak of."""
    named: list[str] = []
    for item in call.items[: -_MOST_LOOKED_AT - 1 : -1]:
        if item.role in ("assistant", "model"):
            break
        named += item.call_ids
    return named


def note(parts: Parts, session: SessionRow, run: int, dialect: Dialect, call: Call) -> None:
    """Keep the results that a request carries with the calls that they answer. Nobody waits for it."""
    named = _named_last(call)
    if not named:
        return
    read, view = parts.journal.read, parts.view(session)
    revised = read.open_revised([branch for branch, _ in view.shown], run, named) if view.edits else {}
    waiting = read.open_invocations(session.id, run, named)
    if not waiting and not revised:
        return
    found, edited = [], []
    for result in dialect.results(call):  # type: ignore[attr-defined]
        content = result.content.encode("utf-8", "surrogatepass")
        if result.call_id in revised:
            step, branch, choice, place = revised[result.call_id]
            edited.append((branch, step, choice, place, content, result.failed))
        elif result.call_id in waiting:
            found.append((*waiting[result.call_id], content, result.failed))
    if found or edited:
        parts.journal.note_results(found, edited)
