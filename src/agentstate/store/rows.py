"""Owns the frozen shapes of what the journal is told and what it tells. Must not query.

Invariant: times are seconds since the epoch; ``started``/``finished`` of steps are ticks of their session's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentstate.core.branching import Branch
from agentstate.core.model import Call, Fingerprint, RunState, SessionStatus, Shape, State, Verdict


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: int
    key: str
    status: SessionStatus
    head: int
    clock: int
    steps: int
    note: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class BranchRow:
    branch: Branch
    reason: str
    opening: bytes | None
    created_at: float


@dataclass(frozen=True, slots=True)
class RunRow:
    id: int
    name: str
    named: bool
    evidence: str
    owner: str
    supervisor: int | None
    state: RunState
    siblings: tuple[int, ...]
    base: int
    hint_min: int | None
    hint_max: int | None
    divergence: str | None
    exit_code: int | None
    started_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class NewRunRow:
    """A run that begins. ``generation``: it starts a new generation, so nothing recorded is replayed into it."""

    session: int
    name: str
    named: bool
    evidence: str
    owner: str = ""
    supervisor: int | None = None
    siblings: tuple[int, ...] = ()
    hint: int | None = None
    generation: bool = False
    replaces: int | None = None


class NewStep(NamedTuple):
    """A question that is about to be sent. ``opening``: it is the first of its branch."""

    session: int
    branch: int
    run: int
    kind: str
    provider: str
    call: Call
    fingerprint: Fingerprint
    outcome: str = "live"
    hint: int | None = None
    retry_key: bytes = b""
    opening: bool = False
    carried: tuple[int, ...] = ()


class Begun(NamedTuple):
    """A step that is in flight: its id, number and attempt."""

    step: int
    number: int
    attempt: int


class Ending(NamedTuple):
    """How an attempt ended. ``body``: the bytes received; ``released``: they are the answer that agents are given;
    ``job``: they say that the provider works on the answer."""

    session: int
    step: int
    attempt: int
    state: State
    status: int
    head: bytes
    body: bytes
    released: bool
    shape: Shape
    verdict: Verdict
    cost: float | None = None
    error: str = ""
    job: bool = False


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """How a job that a provider ran in the background ended. ``answer_id``: its name there; ``head``: headers."""

    session: int
    answer_id: str
    status: int
    head: bytes
    body: bytes
    model: str = ""
    usage: str = ""
    cost: float | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class HeldRow:
    """An answer that its provider holds. ``job``: its step's answer is a job; ``body``: how that ended, else empty."""

    step: int
    number: int
    job: bool
    status: int
    head: bytes
    body: bytes


class AnswerRow(NamedTuple):
    """A recorded answer. ``overlap``: its first and last tick are not neighbours, so other steps ended meanwhile."""

    number: int
    branch: int
    state: State
    dialect: str
    status: int
    head: bytes
    body: bytes
    shape: Shape
    model: str
    started: int
    finished: int
    usage: str
    cost: float | None


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as lists show it: no bodies."""

    id: int
    number: int
    branch: int
    run: int
    kind: str
    state: State
    dialect: str
    path: str
    asked_model: str
    shape: Shape
    fingerprint: bytes
    attempts: int
    created_at: float
    hint: int | None
    status: int
    model: str
    usage: str
    cost: float | None
    error: str
    started_at: float
    finished_at: float | None
    has_body: bool
    provider: str


def shape_of(code: int) -> Shape:
    """The shape in the ``stream`` column."""
    return Shape(code > 0, code == 2, code == 3)


def shape_code(shape: Shape) -> int:
    return (3 if shape.array else 2 if shape.usage else 1) if shape.stream else 0
