"""Owns what policies would say of answers that are recorded already. Must not write, hold or release anything.

Invariant: it is the ruling that the gate would make of the same call under these policies.
"""

from __future__ import annotations

from typing import NamedTuple

from agentstate.core.model import ToolCall
from agentstate.core.policy import Place, Ruling
from agentstate.dialects import registry
from agentstate.engine.policies import Policies
from agentstate.engine.sessions import found
from agentstate.engine.settling import verdict_of
from agentstate.errors import AgentStateError, NotFound
from agentstate.store.reader import Reader
from agentstate.store.rows import StepRow

_PAGE = 1000


class Met(NamedTuple):
    """A recorded call and what it would meet. ``ruling``: ``None`` where the answer cannot be read, which ``fault``
    says."""

    number: int
    call: ToolCall | None
    ruling: Ruling | None
    fault: str = ""


def rehearsed(reader: Reader, key: str, policies: Policies, number: int | None = None) -> list[Met]:
    """Each call that the answers of a session propose, in order; of one step where ``number`` is given.

    Raises ``NotFound``.
    """
    session = found(reader, key)
    place = Place(session.key, reader.labels(session.id))
    steps = _steps(reader, session.id, session.steps, number)
    if number is not None and not steps:
        raise NotFound(f"session {key!r} has no step {number}; it has the steps 0 to {session.steps - 1}")
    met: list[Met] = []
    for step in steps:
        if not step.has_body:
            continue
        try:
            calls = _proposed(reader, step)
        except AgentStateError as error:
            met.append(Met(step.number, None, None, str(error)))
            continue
        met += [Met(step.number, call, policies.ruling(call, place)) for call in calls]
    return met


def _steps(reader: Reader, session: int, count: int, number: int | None) -> list[StepRow]:
    if number is not None:
        return [step for step in reader.steps(session, start=number, limit=1) if step.number == number]
    return [step for start in range(0, count, _PAGE) for step in reader.steps(session, start=start, limit=_PAGE)
            if step.number < start + _PAGE]  # fmt: skip


def _proposed(reader: Reader, step: StepRow) -> tuple[ToolCall, ...]:
    name, method, path, body = reader.request(step.id)
    dialect = registry.BY_NAME[name]
    return verdict_of(dialect, dialect.parse(method, path, body), reader.received(step.id)).calls
