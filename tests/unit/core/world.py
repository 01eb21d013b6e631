"""Owns the parts of a discrete-event model of agents, the network and a proxy around the real decision functions.

Must not decide anything: ``Rules`` are the real functions, or a mutation of them. Invariant: what happens is a function
of the script and the seed. Times are seconds of the world's own clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from agentstate.core import fingerprint as fingerprints
from agentstate.core import model, replay, runs
from agentstate.core.model import Item, State
from agentstate.core.replay import Ask
from agentstate.core.runs import Arrival, NewRun, RunFacts
from tests.unit.core.programs import Question

HOP = 0.001  # one way between agent and proxy
FRESH = 65.0  # how long a completed step may be the one that a proven retry repeats
UNSEEN = 10**6  # sendings of a request that this life of the proxy has not seen: no retry can follow them
NOTE = 0.005  # how soon it is written down that an answer arrived
ORDER_WAIT = 0.2  # how long a replayed answer lets overlapping ones go first, at most


def real_fingerprint(question: Question) -> bytes:
    """The question's key by the real rule, from messages as the dialect would hand them over."""
    items = tuple(Item(text.encode(), b"", sha256(text.encode()).digest(), "user") for text in question)
    return fingerprints.of(model.Call("openai_chat", "POST", "chat/completions", b"", b"frame", items)).key


@dataclass(frozen=True)
class Rules:
    """The functions under test."""

    identify: Callable[[Arrival, tuple[RunFacts, ...]], runs.SameRun | NewRun] = runs.identify
    decide: Callable[[Ask, int, Any], replay.Decision] = replay.decide
    fingerprint: Callable[[Question], bytes] = real_fingerprint


@dataclass(eq=False)
class Connection:
    """One socket, one request at a time. ``run``: whom the latest request on it spoke for.

    ``gone`` tells the proxy that the agent closed it, ``broken`` tells the agent that the proxy is no more.
    """

    owner: str
    open: bool = True
    spoke: bool = False
    run: int = 0
    opened: float = 0.0
    idle_since: float = 0.0
    gone: Callable[[], None] | None = None
    broken: Callable[[], None] | None = None

    def close(self) -> None:
        """The agent closes it."""
        if self.open:
            self.open = False
            if self.gone is not None:
                self.gone()

    def cut(self) -> None:
        """The proxy dies."""
        if self.open:
            self.open = False
            if self.broken is not None:
                self.broken()


@dataclass(frozen=True)
class Answer:
    """What came back: a sample (or a final error, which also has an id), or a transient failure."""

    status: int
    sample: str
    question: Question


@dataclass(frozen=True)
class Request:
    """One HTTP request of an agent."""

    question: Question
    name: str = ""
    owner: str = ""
    hint: int | None = None
    retry: int = 0
    unique_first: bool = False


@dataclass(eq=False)
class Step:
    id: int
    run: int
    key: bytes
    question: Question
    started: int
    hint: int | None
    state: State = State.IN_FLIGHT
    finished: int = 0
    answer: Answer | None = None


@dataclass(eq=False)
class Run:
    id: int
    name: str
    owner: str
    siblings: tuple[int, ...]
    hint_min: int | None = None
    hint_max: int | None = None
    asked_at: float = 0.0


@dataclass(eq=False)
class Served:
    """A step given to a run. ``cut_at``: when its reader left before the last byte, and no later one has come;
    ``lost``: the proxy died before it was written down whether it arrived."""

    hint: int | None
    lost: bool = False
    cut_at: float | None = None


@dataclass(eq=False)
class Reading:
    count: int = 0
    delivered: bool = False


@dataclass(eq=False)
class Reader:
    """Somebody who waits for the answer to one request."""

    run: int
    step: Step
    connection: Connection
    give: Callable[[Answer], None]
    over: bool = False


class Clock:
    """The world's time: what happens next, in order of time, then of planning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.times: list[float] = []

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, act))

    def run(self, most: int = 200_000) -> None:
        """Until nothing is left to happen."""
        for _ in range(most):
            if not self._events:
                return
            at, _, act = heapq.heappop(self._events)
            if at > self.now:
                self.times.append(at)
            self.now = at
            act()
        raise AssertionError("the world does not come to rest")


def seeded(seed: str) -> Random:
    """Chance that depends on the seed alone."""
    return Random(int.from_bytes(sha256(seed.encode()).digest()[:8], "big"))
