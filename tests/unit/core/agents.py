"""Owns the agents of the modelled world: lives of a program, their SDK with time-outs and retries, what kills them.

Must not decide what is right; the tests do. Invariant: a scenario is data, so that a failing one can be run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from agentstate.core.replay import TRANSIENT
from tests.unit.core.modelled_proxy import Proxy
from tests.unit.core.programs import Call, Lane, Program, Question, Wait, play
from tests.unit.core.world import HOP, Answer, Clock, Connection, Request, Rules, seeded

KEEP_ALIVE = 5.0  # how long an idle socket of a pool stays open
GIVEN_UP = "given up"
MOST_LIVES = 60


class Mode(StrEnum):
    """By what a restart can be known: the rungs of the ladder."""

    RUN_ID = "run-id"
    PROCESS = "process"
    STEP_NUMBER = "step-number"
    CUT_CALL = "cut-call"
    UNIQUE_FIRST = "unique-first"
    NONE = "none"


@dataclass(frozen=True)
class Death:
    """The end of one life of the agent, the first death that of the first life: ``at`` seconds after its start, or
    right after its ``received``-th answer."""

    at: float = 0.0
    received: int = 0
    restart: float = 1.0


@dataclass(frozen=True)
class Outage:
    """The proxy dies ``at`` (the world's time) and is back after ``down`` seconds."""

    at: float
    down: float


@dataclass(frozen=True)
class Sdk:
    """How calls are made: ``timeout`` of one attempt (0: none), ``retries`` after it, with ``says_retry`` the header
    that counts them; ``pool``: sockets are kept for a while."""

    timeout: float = 0.0
    retries: int = 3
    says_retry: bool = True
    pool: bool = True


@dataclass(frozen=True)
class Scenario:
    program: Program
    mode: Mode
    seed: str = ""
    sdk: Sdk = Sdk()
    deaths: tuple[Death, ...] = ()
    outages: tuple[Outage, ...] = ()
    flaky: bool = False  # transient failures of the provider, and final errors for some questions


@dataclass(eq=False)
class Life:
    """One life of the agent. ``received``: what its program was answered, in order; ``asked``: calls it began."""

    number: int
    started: float
    alive: bool = True
    received: list[tuple[Question, Answer]] = field(default_factory=list)
    asked: int = 0
    idle: list[Connection] = field(default_factory=list)
    open: list[Connection] = field(default_factory=list)


@dataclass(eq=False)
class History:
    """What happened. ``lost``: answers that were handed over but never read by an agent that lived on."""

    scenario: Scenario
    proxy: Proxy
    lives: list[Life] = field(default_factory=list)
    result: list[str] | None = None
    lost: int = 0
    times: list[float] = field(default_factory=list)


class World:
    """Runs one scenario until the program has ended once."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.proxy = Proxy(self.clock, rules, self._upstream)
        self.history = History(scenario, self.proxy)
        self._chance = seeded(scenario.seed + " upstream")

    def run(self) -> History:
        for outage in self.scenario.outages:
            self.clock.after(outage.at, self.proxy.crash)
            self.clock.after(outage.at + outage.down, self.proxy.start)
        self._begin()
        self.clock.run()
        self.history.times = self.clock.times
        return self.history

    def _upstream(self, question: Question) -> tuple[float, int]:
        latency = self._chance.uniform(0.05, 3.0)
        if self.scenario.flaky:
            # A final error speaks of the question: the same question has it every time.
            if sha256(repr(question).encode()).digest()[0] % 12 == 0:
                return latency, 400
            if self._chance.random() < 0.1:
                return latency, self._chance.choice((429, 503))
        return latency, 200

    # --- lives ---

    def _begin(self) -> None:
        assert len(self.history.lives) < MOST_LIVES, "the agent dies again and again"
        life = Life(len(self.history.lives), self.clock.now)
        self.history.lives.append(life)
        self.proxy.alive.add(_owner(life))
        death = self._death_of(life)
        if death is not None and not death.received:
            self.clock.after(death.at, lambda: self._die(life, death.restart))
        self._run(life, play(self.scenario.program), None, lambda result: self._finished(life, result))

    def _death_of(self, life: Life) -> Death | None:
        deaths = self.scenario.deaths
        return deaths[life.number] if life.number < len(deaths) else None

    def _finished(self, life: Life, result: list[str]) -> None:
        self.history.result = result
        self._end(life)

    def _die(self, life: Life, restart: float) -> None:
        if life.alive:
            self._end(life)
            self.clock.after(restart, self._begin)

    def _end(self, life: Life) -> None:
        life.alive = False
        self.proxy.alive.discard(_owner(life))
        for connection in life.open:
            connection.broken = None
            connection.close()

    # --- lanes ---

    def _run(self, life: Life, lane: Lane, value: object, done: Callable[[list[str]], None]) -> None:
        if not life.alive:
            return
        try:
            wanted = lane.send(value)
        except StopIteration as end:
            done(end.value)
            return

        def go_on(answer: object) -> None:
            self._run(life, lane, answer, done)

        if isinstance(wanted, Wait):
            self.clock.after(wanted.seconds, lambda: go_on(None))
        elif isinstance(wanted, Call):
            hint = life.asked
            life.asked += 1
            self._attempt(life, wanted, hint, 0, go_on)
        else:
            self._spawn(life, wanted.lanes, wanted.by_completion, go_on)

    def _spawn(self, life: Life, lanes: tuple[Lane, ...], by_completion: bool, go_on: Callable[[object], None]) -> None:
        results: dict[int, list[str]] = {}

        def done(place: int, result: list[str]) -> None:
            results[place] = result
            if len(results) == len(lanes):
                order = list(results) if by_completion else sorted(results)
                go_on([results[at] for at in order])

        for place, lane in enumerate(lanes):
            self._run(life, lane, None, lambda result, place=place: done(place, result))

    # --- the SDK ---

    def _attempt(self, life: Life, call: Call, hint: int, number: int, go_on: Callable[[object], None]) -> None:
        """One HTTP request of a call; ``number`` counts from 0."""
        if not life.alive:
            return
        if not self.proxy.up:
            self._again(life, call, hint, number, go_on)
            return
        connection = self._connection(life)
        over = arrived = False

        def finish() -> bool:
            nonlocal over
            was, over = over, True
            return not was and life.alive

        def note_loss() -> None:
            """Handed over and not read yet: the proxy cannot know that nobody saw it."""
            self.history.lost += arrived and connection.gone is None

        def answered(answer: Answer) -> None:
            if not finish():
                return
            self._keep(life, connection)
            if answer.status in TRANSIENT:
                self._again(life, call, hint, number, go_on)
            else:
                self._receive(life, call, answer, go_on)

        def broken() -> None:
            if finish():
                note_loss()
                self._again(life, call, hint, number, go_on)

        def timed_out() -> None:
            if not finish():
                return
            note_loss()
            connection.broken = None
            connection.close()
            if call.abandon:
                go_on(GIVEN_UP)
            else:
                self._again(life, call, hint, number, go_on)

        connection.broken = broken
        request = self._request(life, call.question, hint, number)

        def arrive() -> None:
            nonlocal arrived
            if connection.open and life.alive:
                arrived = True
                self.proxy.ask(request, connection, answered)

        self.clock.after(HOP, arrive)
        timeout = 0.7 if call.abandon else self.scenario.sdk.timeout
        if timeout:
            self.clock.after(timeout, timed_out)

    def _again(self, life: Life, call: Call, hint: int, number: int, go_on: Callable[[object], None]) -> None:
        """Try again after a while; when that has been done often enough, the program ends with an exception."""
        if number >= self.scenario.sdk.retries:
            self._die(life, 2.0)
            return
        self.clock.after(0.4 * 2**number, lambda: self._attempt(life, call, hint, number + 1, go_on))

    def _receive(self, life: Life, call: Call, answer: Answer, go_on: Callable[[object], None]) -> None:
        life.received.append((call.question, answer))
        death = self._death_of(life)
        if death is not None and death.received == len(life.received):
            self._die(life, death.restart)
            return
        go_on(GIVEN_UP if call.abandon else answer.sample)

    def _request(self, life: Life, question: Question, hint: int, number: int) -> Request:
        mode = self.scenario.mode
        return Request(
            question,
            name=f"run-{life.number}" if mode is Mode.RUN_ID else "",
            owner=_owner(life) if mode is Mode.PROCESS else "",
            hint=hint if mode is Mode.STEP_NUMBER else None,
            retry=number if self.scenario.sdk.says_retry else 0,
            unique_first=mode is Mode.UNIQUE_FIRST,
        )

    def _connection(self, life: Life) -> Connection:
        life.idle = [known for known in life.idle if known.open]
        if life.idle:
            return life.idle.pop()
        made = self.proxy.connect(_owner(life) if self.scenario.mode is Mode.PROCESS else "")
        life.open = [known for known in life.open if known.open] + [made]
        return made

    def _keep(self, life: Life, connection: Connection) -> None:
        """Back into the pool, for a while."""
        connection.broken = None
        if not self.scenario.sdk.pool:
            connection.close()
            return
        life.idle.append(connection)
        connection.idle_since = since = self.clock.now

        def expire() -> None:
            if connection in life.idle and connection.idle_since == since:
                connection.close()

        self.clock.after(KEEP_ALIVE, expire)


def _owner(life: Life) -> str:
    return f"{100 + life.number}:0"


def run(scenario: Scenario, rules: Rules | None = None) -> History:
    """What happens in a scenario."""
    return World(scenario, rules or Rules()).run()
