"""Owns the frozen shapes of what the journal is told and what it tells. Must not query. Invariant: times are
seconds since the epoch; ``started``/``finished`` of steps are ticks of their session's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from agentstate.core.budget import Amount, Limit, Ruling
from agentstate.core.model import (
    ApprovalKind,
    ApprovalState,
    Call,
    Fingerprint,
    OnReject,
    Release,
    RunState,
    SessionStatus,
    Shape,
    State,
    ToolCall,
    Verdict,
)  # fmt: skip


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
    asked: NewApproval | None = None
    messages: tuple[Message, ...] = ()


class NewApproval(NamedTuple):
    """A question to put to a person; ``core.model`` says what its parts are. ``arguments``, of a request its body, and
    ``schema`` (JSON) are kept as contents; ``rule``: the policy that asks for it, as JSON."""

    id: str
    kind: ApprovalKind
    digest: bytes
    arguments: bytes
    on_reject: OnReject
    tool: str = ""
    choice: int = 0
    place: int = 0
    call_id: str = ""
    schema: bytes = b""
    rule: str = "{}"
    quorum: int = 1
    approvers: tuple[str, ...] = ()
    expires_at: float | None = None
    state: ApprovalState = ApprovalState.PENDING  # refused at once, by a policy
    reason: str = ""


class Reopened(NamedTuple):
    """An approval that is asked again before it was used. ``reason``: why; ``anew``: what was said so far does not
    count any more; the rest as in ``NewApproval``."""

    id: str
    rule: str
    reason: str = ""
    quorum: int = 1
    approvers: tuple[str, ...] = ()
    expires_at: float | None = None
    anew: bool = False
    messages: tuple[Message, ...] = ()


class Plan(NamedTuple):
    """What the budgets in force mean for one call. ``call``: what it may take at most; ``at``: when it is asked;
    ``hold``: at a limit a person is asked, else the call is denied; ``patient``: see ``core.budget.decide``;
    ``repeated``: it asks the same once too often.

    ``question(ruling, place)``: what a person is asked, with the messages that tell of it; ``told(ruling)``: the
    messages that a limit is reached; ``None``: nobody is told. Both are called in the writer's transaction, at a limit.
    """

    limits: tuple[Limit, ...]
    call: Amount
    at: float
    hold: bool
    question: Callable[[Ruling, int], tuple[NewApproval, tuple[Message, ...]]]
    told: Callable[[Ruling], tuple[Message, ...]] | None
    patient: bool = True
    repeated: Ruling | None = None


class Message(NamedTuple):
    """A message for one target's outbox. ``alert``: the message's id, equal for all targets; ``payload``: JSON."""

    alert: str
    target: str
    event: str
    payload: str
    session: str = ""
    subject: str = ""


class OutboxRow(NamedTuple):
    """A message of the outbox. ``attempts``: tries that have begun since it was written or revived; ``next_at``: when
    the next one is due; ``error``: how the last one failed, or why there is none any more."""

    id: int
    alert: str
    target: str
    event: str
    session: str
    subject: str
    payload: str
    attempts: int
    created_at: float
    next_at: float
    delivered_at: float | None
    dead_at: float | None
    error: str

    @property
    def state(self) -> str:
        """``pending``, ``delivered`` or ``dead``."""
        if self.delivered_at is not None:
            return "delivered"
        return "pending" if self.dead_at is None else "dead"


class Invoked(NamedTuple):
    """A call that agents are given. ``digest``: of tool and canonical arguments, see ``core.policy.call_digest``."""

    choice: int
    place: int
    arguments: bytes
    digest: bytes


class Released(NamedTuple):
    """What agents are given of a step that was held: ``body``, or what was received where that is ``None``; ``said``:
    what the agent or the model is told of a refusal, as JSON. ``invoked``: the calls that are left of it. ``job``: it
    is the end of a job that was held, not the step's own answer."""

    step: int
    mode: Release
    body: bytes | None = None
    said: str = "{}"
    invoked: tuple[Invoked, ...] = ()
    job: bool = False


RevisedResult = tuple[int, int, int, int, bytes, bool]  # (branch, step, choice, place, content, whether it is an error)


class Begun(NamedTuple):
    """A step that is in flight: its id, number and attempt."""

    step: int
    number: int
    attempt: int


class Ending(NamedTuple):
    """How an attempt ended. ``body``: the bytes received; ``released``: they are what agents are given, unless a
    release says otherwise; ``job``: they say that the provider works on the answer. ``asked``: what people must decide
    before anything of it is given; ``names``: under which the provider keeps it then; ``lost``: what was lost in its
    translation. ``cost``: USD, ``None``: unknown; ``prices``: whose, see the journal's schema. ``budgeted``: budgets
    are in force, and something may be reserved for it."""

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
    invoked: tuple[Invoked, ...] = ()
    asked: tuple[NewApproval, ...] = ()
    messages: tuple[Message, ...] = ()
    names: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    prices: str = ""
    budgeted: bool = False


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """How a job in the background ended. ``answer_id``: its provider's name for it; the rest as in ``Ending``."""

    session: int
    answer_id: str
    status: int
    head: bytes
    body: bytes
    model: str = ""
    usage: str = ""
    cost: float | None = None
    failed: bool = False
    calls: tuple[ToolCall, ...] = ()
    invoked: tuple[Invoked, ...] = ()
    asked: tuple[NewApproval, ...] = ()
    messages: tuple[Message, ...] = ()
    names: tuple[str, ...] = ()
    prices: str = ""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """An answer that its provider holds. ``job``: its step's answer is a job; ``body``: how that ended, else empty;
    ``release``, ``said``: as in ``AnswerRow``, of that end; ``amended``: what agents are given in its place."""

    step: int
    number: int
    job: bool
    status: int
    head: bytes
    body: bytes
    release: Release | None = None
    said: str = "{}"
    amended: bytes = b""

    @property
    def given(self) -> bytes:
        """The end of a job as agents are given it, once they may be."""
        return self.amended or self.body


class AnswerRow(NamedTuple):
    """A recorded answer; ``body``: as agents are given it; ``attempts``: made for it. ``release``: how,
    ``None`` where it was never held; ``said``: what is told of a refusal, as JSON. ``overlap``: its first and last tick
    are no neighbours, so others ended meanwhile."""

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
    release: Release | None = None
    said: str = "{}"
    attempts: int = 1


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
    prices: str


def shape_of(code: int) -> Shape:
    """The shape in the ``stream`` column."""
    return Shape(code > 0, code == 2, code == 3)


def shape_code(shape: Shape) -> int:
    return (3 if shape.array else 2 if shape.usage else 1) if shape.stream else 0


class ApprovalRow(NamedTuple):
    """An approval. ``session``: its session's id as agents know it; ``number``: of its step."""

    id: str
    session_id: int
    session: str
    step: int
    number: int
    kind: ApprovalKind
    choice: int
    place: int
    call_id: str
    tool: str
    arguments: str
    schema: str
    digest: bytes
    rule: str
    on_reject: OnReject
    quorum: int
    approvers: tuple[str, ...]
    state: ApprovalState
    effective: str
    decided_by: str
    reason: str
    created_at: float
    expires_at: float | None
    decided_at: float | None


class InvocationRow(NamedTuple):
    """A call that agents were given. ``arguments``: as they were given; ``result``: what came back, ``None``: nothing
    yet."""

    step: int
    choice: int
    place: int
    call_id: str
    tool: str
    arguments: str
    result: str | None
    failed: bool
    seen_at: float | None
