"""Owns noting what became of those who read an answer: the last byte was handed over, or they are gone. Must not give
anything.

Invariant: an answer that reached none of its readers counts as cut, and a restart of the proxy knows which did arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.engine.presence import Connection
from agentstate.engine.recording import Recording

if TYPE_CHECKING:
    from agentstate.engine.core import Parts


def left(
    parts: Parts, run: int, step: int, recording: Recording | None, connection: Connection, delivered: bool
) -> None:
    """A reader has its last byte, or is gone. ``recording``: which it had entered."""
    if recording is not None:
        recording.leave()
    if parts.floating.read(run, step, delivered):
        cut(parts, run, step, connection)
    elif delivered and not parts.journal.closed:
        # A restart of the proxy must know that it arrived.
        arrived = parts.floating.delivered
        if (run, step) in arrived:
            parts.journal.note_delivered(run, step, lambda: arrived.discard((run, step)))


def cut(parts: Parts, run: int, step: int, connection: Connection) -> None:
    """The last reader of a step is gone, and none of them had the last byte."""
    at = connection.closed_at or clock.now()
    parts.floating.cut(run, step, at, parts.journal.note_cut(run, step, at))
