"""Owns random agent programs: what an agent asks, in which order, and how that depends on what it was answered.

Must not know the proxy. Invariant: given equal answers in an equal order of completion, a program asks the same
questions; that is what makes its restart a replay.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

Question = tuple[str, ...]  # the messages of a request


@dataclass(frozen=True)
class Ask:
    """An independent prompt, ``times`` in sequence: 1, or self-consistency."""

    prompt: str
    times: int = 1


@dataclass(frozen=True)
class Poll:
    """The same prompt until the answer says so, ``most`` times at most, with a pause between."""

    prompt: str
    most: int
    pause: float


@dataclass(frozen=True)
class Chain:
    """A conversation of ``turns``; it begins with what the program knows so far when ``grounded``."""

    prompt: str
    turns: int
    grounded: bool = False


@dataclass(frozen=True)
class Equal:
    """Identical calls at the same time: five samples of one question."""

    prompt: str
    count: int


@dataclass(frozen=True)
class FanOut:
    """Different calls at the same time, joined in the order in which they come back."""

    prompts: tuple[str, ...]


@dataclass(frozen=True)
class Lanes:
    """Programs side by side (sub-agents), joined in their own order."""

    lanes: tuple[tuple[Op, ...], ...]


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Abandon:
    """A call that the agent gives up after a while, going on without its answer."""

    prompt: str


Op = Ask | Poll | Chain | Equal | FanOut | Lanes | Sleep | Abandon
Program = tuple[Op, ...]


@dataclass(frozen=True)
class Call:
    """What a lane waits for: the answer to a question. ``abandon``: it stops waiting after a while."""

    question: Question
    abandon: bool = False


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Spawn:
    """Lanes that run at once; the lane that spawns them goes on with their results, ``by`` lane or by completion."""

    lanes: tuple[Lane, ...]
    by_completion: bool = False


Lane = Generator[Call | Wait | Spawn, Any, list[str]]


def play(ops: Program) -> Lane:
    """A program as a lane: it yields what it waits for and returns the answers that it has seen."""
    known: list[str] = []
    for op in ops:
        yield from _play_one(op, known)
    return known


def _play_one(op: Op, known: list[str]) -> Generator[Call | Wait | Spawn, Any, None]:
    if isinstance(op, Ask):
        for _ in range(op.times):
            answer = yield Call((op.prompt,))
            known.append(answer)
    elif isinstance(op, Poll):
        for _ in range(op.most):
            answer = yield Call((op.prompt,))
            known.append(answer)
            if sha256(answer.encode()).digest()[0] % 3 == 0:
                return
            yield Wait(op.pause)
    elif isinstance(op, Chain):
        said = [op.prompt, *([digest(known)] if op.grounded else [])]
        for turn in range(op.turns):
            answer = yield Call(tuple(said))
            known.append(answer)
            said += [answer, f"go on {turn}"]
    elif isinstance(op, Equal):
        calls = tuple(_single((op.prompt,)) for _ in range(op.count))
        # A vote over samples: which of them came to which of the equal calls is nobody's business.
        known.extend(sorted(answer for found in (yield Spawn(calls)) for answer in found))
    elif isinstance(op, FanOut):
        lanes = tuple(_single((prompt,)) for prompt in op.prompts)
        found = [answer for lane in (yield Spawn(lanes, by_completion=True)) for answer in lane]
        known.extend(found)
        known.append((yield Call(("join", *found))))
    elif isinstance(op, Lanes):
        for found in (yield Spawn(tuple(play(lane) for lane in op.lanes))):
            known.extend(found)
    elif isinstance(op, Sleep):
        yield Wait(op.seconds)
    else:
        yield Call((op.prompt,), abandon=True)


def _single(question: Question) -> Lane:
    return [(yield Call(question))]


def digest(known: Sequence[str]) -> str:
    """What the program knows so far, short."""
    return sha256("\n".join(known).encode()).hexdigest()[:16]


def abandoned(program: Program) -> int:
    """How many calls of a program, nested ones included, are given up."""
    own = sum(isinstance(op, Abandon) for op in program)
    return own + sum(abandoned(lane) for op in program if isinstance(op, Lanes) for lane in op.lanes)


def prompts(program: Program) -> set[str]:
    """All prompts of a program, nested ones included."""
    found: set[str] = set()
    for op in program:
        if isinstance(op, Lanes):
            found = found.union(*(prompts(lane) for lane in op.lanes))
        elif isinstance(op, FanOut):
            found |= set(op.prompts)
        elif not isinstance(op, Sleep):
            found.add(op.prompt)
    return found


def joins_by_completion(program: Program, *, in_lanes_only: bool = False) -> bool:
    """Whether the order in which answers come back matters somewhere; ``in_lanes_only``: beside other lanes."""
    return any(
        (isinstance(op, FanOut) and not in_lanes_only)
        or (isinstance(op, Lanes) and any(joins_by_completion(lane) for lane in op.lanes))
        for op in program
    )


def lanes_apart(program: Program) -> bool:
    """Whether no two lanes that run side by side can ask the same; if they can, nobody knows whose answer is whose."""
    for op in program:
        if isinstance(op, Lanes):
            asked = [prompts(lane) for lane in op.lanes]
            if sum(map(len, asked)) != len(set().union(*asked)) or not all(lanes_apart(lane) for lane in op.lanes):
                return False
    return True


def random_program(rng: Random, *, abandons: bool = False, unique_first: bool = False, apart: bool = False) -> Program:
    """Three to eight operations over a few prompts, so that they recur.

    ``unique_first``: the first prompt never does. ``apart``: lanes that run side by side never ask the same.
    """
    ops = list(_random_ops(rng, rng.randint(3, 8), abandons, apart, "", 0))
    if unique_first:
        ops.insert(0, Ask("the task"))
    if rng.random() < 0.5:
        ops.append(Chain("sum up", 1, grounded=True))
    return tuple(ops)


def _random_ops(rng: Random, count: int, abandons: bool, apart: bool, lane: str, depth: int) -> Program:
    return tuple(_random_op(rng, abandons, apart, lane, depth) for _ in range(count))


def _random_op(rng: Random, abandons: bool, apart: bool, lane: str, depth: int) -> Op:
    prompt = rng.choice("abc") + lane
    kind = rng.randrange(12 if depth < 2 else 10)
    if kind < 3:
        return Ask(prompt, rng.randint(1, 4))
    if kind == 3:
        return Poll(prompt, rng.randint(2, 4), rng.choice((0.0, 0.3, 4.0)))
    if kind < 6:
        return Chain(prompt, rng.randint(1, 4), rng.random() < 0.4)
    if kind == 6:
        return Equal(prompt, rng.randint(2, 4))
    if kind == 7:
        return Sleep(rng.choice((0.2, 2.0, 30.0)))
    if kind == 8:
        # Its prompt is asked nowhere else: what an orphan may be claimed by is tested apart.
        return Abandon(f"given up {rng.randrange(10**9)}") if abandons else Ask(prompt)
    if kind == 9:
        return FanOut(tuple(f"part {number}{lane}" for number in range(rng.randint(2, 4))))
    names = [lane + (name if apart else "") for name in "xyz"[: rng.randint(2, 3)]]
    return Lanes(tuple(_random_ops(rng, rng.randint(2, 3), abandons, apart, name, depth + 1) for name in names))
