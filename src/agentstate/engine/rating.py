"""Owns what people say of sessions and steps: ratings, and labels of steps. Must not render.

One scale: ``good`` or ``bad``, or ``none`` to take back what was said, with a note. Invariant: dashboard, API and
command line call these same functions; whoever says so is the person whose token came.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentstate.core.approval import Person
from agentstate.engine.core import Parts
from agentstate.engine.sessions import checked_label, found
from agentstate.errors import BadRequest, NotFound
from agentstate.store.rating_reader import RatingRow
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow

MOST_NOTE = 2000
VERDICTS = ("good", "bad", "none")


async def rate(parts: Parts, key: str, number: int | None, verdict: str, note: str, actor: Person) -> RatingRow | None:
    """What a person thinks of a session or, with ``number``, of a step. What is said then; ``None``: nothing.

    Raises ``NotFound``, ``BadRequest``.
    """
    if verdict not in VERDICTS:
        raise BadRequest(f"rating is {verdict[:40]!r}; use {', '.join(VERDICTS)}")
    if len(note) > MOST_NOTE:
        raise BadRequest(f"the note has {len(note)} characters; give {MOST_NOTE} at most")
    session, step = of(parts.journal.read, key, number)
    await parts.journal.rate(session, step, number or 0, "" if verdict == "none" else verdict, note, actor.name)
    return parts.journal.read.ratings(session.id).get(step)


async def label_step(
    parts: Parts, key: str, number: int, add: Sequence[str], remove: Sequence[str], actor: Person
) -> tuple[str, ...]:
    """Labels of a step; all that it has then. Raises ``NotFound``, ``BadRequest``."""
    for name in (*add, *remove):
        checked_label(name)
    session, step = of(parts.journal.read, key, number)
    if add or remove:
        await parts.journal.label_step(session, step, number, add, remove, actor.name)
    return parts.journal.read.step_labels(session.id).get(step, ())


def of(reader: Reader, key: str, number: int | None) -> tuple[SessionRow, int]:
    """(session, id of the step; 0 where none is meant). Raises ``NotFound``."""
    session = found(reader, key)
    if number is None:
        return session, 0
    step = reader.step_by_number(session.id, number)
    if step is None:
        raise NotFound(f"session {key!r} has no step {number}; it has the steps 0 to {session.steps - 1}")
    return session, step
