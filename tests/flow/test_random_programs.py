"""Random agent programs through a real proxy: lives that end anywhere cost nothing, and no answer is given twice.

The programs are those of the model in ``tests/unit/core``; the upstream gives every call a fresh sample.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.support import chat
from tests.support.client import Connection, chat_headers, chat_path
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Reply, Seen, Upstream, model, plain
from tests.unit.core.programs import Ask, Call, Chain, Equal, Lane, Lanes, Op, Poll, Program, Question, Spawn, play
from tests.unit.core.world import seeded

KINDS = ("before", "in flight", "mid-stream", "delivered")
BOUND_S = 20.0


class Dead(Exception):
    """This life of the agent is over."""


@dataclass(frozen=True)
class End:
    """A life ends at its ``at``-th call: before it is sent, in flight, in the middle of its stream, or after it."""

    at: int
    kind: str


@dataclass
class Life:
    """One life of an agent: plays a program over real sockets. ``run`` empty: it has no run id."""

    proxy: Proxy
    session: str
    run: str
    stream: bool
    end: End | None = None
    received: list[tuple[Question, str]] = field(default_factory=list)
    asked: int = 0
    dead: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[Connection] = field(default_factory=set)

    def play(self, program: Program) -> bool:
        """Whether the program came to its end."""
        try:
            self._drive(play(program))
        except Dead:
            return False
        return True

    def _drive(self, lane: Lane) -> list[str]:
        answer: object = None
        while True:
            try:
                wanted = lane.send(answer)
            except StopIteration as end:
                return list(end.value)
            if isinstance(wanted, Call):
                answer = self._ask(wanted.question)
            elif isinstance(wanted, Spawn):
                with ThreadPoolExecutor(len(wanted.lanes)) as pool:
                    futures = [pool.submit(self._drive, spawned) for spawned in wanted.lanes]
                answer = [future.result() for future in futures]
            else:
                answer = None

    def _ask(self, question: Question) -> str:
        kind = self._begin()
        if kind == "before":
            self._die()
        with Connection(self.proxy.port) as connection:
            self._hold(connection)
            body = chat.request([chat.user(text) for text in question], stream=self.stream)
            headers = chat_headers({"x-agent-session-id": self.session})
            self._checked(connection.request, "POST", chat_path(self.session, self.run or None), headers, body)
            if kind == "in flight":
                self._die()
            status, _ = self._checked(connection.read_head)
            if kind == "mid-stream":
                self._checked(connection.read_until, b"{")
                self._die()
            whole, complete = self._checked(connection.read_body)
            if self.dead:
                raise Dead
            assert status == 200 and complete, whole
            if kind == "delivered":
                self._die()
        text = chat.text_of(whole)
        with self._lock:
            if self.dead:
                raise Dead
            self.received.append((question, text))
        return text

    def _begin(self) -> str:
        with self._lock:
            if self.dead:
                raise Dead
            self.asked += 1
            return self.end.kind if self.end is not None and self.end.at == self.asked else ""

    def _hold(self, connection: Connection) -> None:
        with self._lock:
            if self.dead:
                raise Dead
            self._open.add(connection)

    def _checked(self, call: object, *arguments: object) -> tuple[object, ...]:
        """A socket operation; when it fails because this life ended meanwhile, that is why."""
        try:
            return call(*arguments)  # type: ignore[operator,no-any-return]
        except (OSError, AssertionError):
            if self.dead:
                raise Dead from None
            raise

    def _die(self) -> None:
        """All sockets end, as they do for a killed process."""
        with self._lock:
            self.dead = True
            for connection in self._open:
                with contextlib.suppress(OSError):  # it was closed already
                    connection._socket.shutdown(socket.SHUT_RDWR)  # wakes a lane that waits in it; a close does not
                connection.reset()
        raise Dead


def random_program(rng: Random) -> Program:
    """A short program; lanes that run side by side ask different things, so that every answer has its place."""

    def op(lane: str) -> Op:
        prompt = rng.choice("ab") + lane
        kind = rng.randrange(5)
        if kind < 2:
            return Ask(prompt, rng.randint(1, 3))
        if kind == 2:
            return Poll(prompt, 3, 0.0)
        if kind == 3:
            return Chain(prompt, rng.randint(2, 4), rng.random() < 0.5)
        return Equal(prompt, rng.randint(2, 4))

    ops: list[Op] = [op("") for _ in range(rng.randint(2, 4))]
    if rng.random() < 0.5:
        ops.append(Lanes(tuple(tuple(op(name) for _ in range(2)) for name in "xy")))
    return (*ops, Chain("sum up", 1, grounded=True))


def lives(proxy: Proxy, session: str, program: Program, rng: Random, *, named: bool) -> Iterator[Life]:
    """The agent's lives, until the program comes to its end."""
    stream = rng.random() < 0.5
    for number in range(rng.randint(1, 3)):
        end = End(rng.randint(1, 14), rng.choice(KINDS if stream else ("before", "in flight", "delivered")))
        life = Life(proxy, session, f"run-{number}" if named else "", stream, end)
        done = life.play(program)
        yield life
        if done:
            return
    last = Life(proxy, session, "run-last" if named else "", stream)
    assert last.play(program)
    yield last


def questions(upstream: Upstream) -> dict[str, Question]:
    """What each sample is an answer to."""
    found = {}
    for seen in upstream.requests:
        messages = seen.json()["messages"]
        assert isinstance(messages, list)
        found[f"sample {seen.number}"] = tuple(message["content"] for message in messages)
    return found


def check_samples(life: Life, upstream: Upstream) -> None:
    """Each answer is a sample of its own question, and none was given twice within the life."""
    known = questions(upstream)
    for question, sample in life.received:
        assert known[sample] == question
    samples = [sample for _, sample in life.received]
    assert len(samples) == len(set(samples)), f"given twice: {sorted(samples)}"


@pytest.mark.parametrize("seed", range(40))
def test_lives_with_run_ids_pay_for_every_call_once(upstream: Upstream, proxy: Proxy, session: str, seed: int) -> None:
    rng = seeded(f"flow {seed}")
    program = random_program(rng)
    for life in lives(proxy, f"{session}-named-{seed}", program, rng, named=True):
        check_samples(life, upstream)
        last = life
    assert upstream.calls == len(last.received), "the bill of all lives is that of the last one"


@pytest.mark.parametrize("seed", range(25))
def test_lives_without_run_ids_are_never_answered_stale(
    upstream: Upstream, proxy: Proxy, session: str, seed: int
) -> None:
    rng = seeded(f"flow unnamed {seed}")
    program = random_program(rng)
    total = 0
    for life in lives(proxy, f"{session}-unnamed-{seed}", program, rng, named=False):
        check_samples(life, upstream)
        total += life.asked
    assert len(life.received) <= upstream.calls <= total


# --- the proxy dies as well -------------------------------------------------------------------------------------------


@pytest.fixture
def own(upstream: Upstream, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(tmp_path / "data", upstream.url) as running:
        yield running


def send(proxy: Proxy, session: str, run: str, question: str, retry: int = 0) -> Connection:
    connection = proxy.client.connect()
    headers = chat_headers({"x-stainless-retry-count": str(retry)})
    connection.request("POST", chat_path(session, run), headers, chat.request(question))
    return connection


def sample(connection: Connection) -> str:
    with connection:
        answer = connection.answer()
    assert answer.status == 200, answer.body
    return chat.text_of(answer.body)


@pytest.mark.parametrize("says_retry", [True, False])
def test_call_in_flight_as_the_proxy_dies_is_the_only_one_paid_again(
    upstream: Upstream, own: Proxy, session: str, says_retry: bool
) -> None:
    """A chain of calls; the proxy is killed in every second of them, and the agent in between."""
    given: list[str] = []
    kills = 0
    for run in ("first", "second"):
        given = []
        for place in range(4):
            question = f"step {place} after {given}"
            gate = Gate()

            def held(seen: Seen, gate: Gate = gate) -> Reply:
                return [gate, *plain(chat.completion(f"sample {seen.number}"))]

            if run == "first" and place % 2:
                upstream.script = held
                connection = send(own, session, run, question)
                gate.wait_reached()
                own.restart()
                kills += 1
                upstream.script = model
                gate.open()
                with connection, pytest.raises(ConnectionError):
                    connection.answer()
                given.append(sample(send(own, session, run, question, retry=int(says_retry))))
            else:
                given.append(sample(send(own, session, run, question)))
        assert len(set(given)) == 4
    assert upstream.calls == 4 + kills


@pytest.mark.parametrize("again", ["the same run", "a new run"])
def test_equal_calls_that_come_as_retries_after_an_outage_are_samples_of_their_own(
    upstream: Upstream, own: Proxy, session: str, again: str
) -> None:
    gate = Gate()
    upstream.script = lambda seen: [gate, *plain(chat.completion(f"sample {seen.number}"))]
    before = [send(own, session, "run", "vote") for _ in range(4)]
    upstream.wait_calls(4)
    own.kill()
    gate.open()
    for connection in before:
        connection.close()
    upstream.script = model
    own.start()
    run = "run" if again == "the same run" else "other"
    hold = Gate()
    upstream.script = lambda seen: [hold, *plain(chat.completion(f"sample {seen.number}"))]
    after = []
    for count in range(5, 9):
        after.append(send(own, session, run, "vote", retry=1))
        try:
            upstream.wait_calls(count, timeout=5.0)
        finally:
            if len(after) == 4 or upstream.calls < count:
                hold.open()
    samples = [sample(connection) for connection in after]
    assert len(set(samples)) == 4, samples


def test_next_poll_that_comes_as_a_retry_after_an_outage_is_a_new_sample(
    upstream: Upstream, own: Proxy, session: str
) -> None:
    """Its first sending found no proxy, so its retry header says nothing of the poll before."""
    first = sample(send(own, session, "run", "ready?"))
    marker = sample(send(own, session, "run", "something else"))
    assert own.stop() == 0
    own.start()
    second = sample(send(own, session, "run", "ready?", retry=1))
    assert len({first, marker, second}) == 3
    assert json.loads(upstream.requests[-1].body)["messages"][0]["content"] == "ready?"


# --- calls that are sent again without saying so are no restart -------------------------------------------------------


def unnamed(proxy: Proxy, session: str, question: str, number: int | None = None) -> Connection:
    """A request without run id, on a socket of its own."""
    connection = proxy.client.connect()
    headers = {"x-agent-session-id": session} | ({} if number is None else {"x-agent-step-number": str(number)})
    connection.request("POST", chat_path(None), chat_headers(headers), chat.request(question))
    return connection


def cut(proxy: Proxy, session: str, connection: Connection) -> None:
    """The client gives a call up; returns when the proxy has written that down."""

    def cuts() -> int:
        return sum(given["cut"] for step in proxy.control.steps(session) for given in step["served"])

    before = cuts()
    connection.reset()
    deadline = time.monotonic() + BOUND_S
    while cuts() == before:
        assert time.monotonic() < deadline, "the cut call was not noted"


def test_call_that_failed_and_is_sent_again_is_no_restart_though_another_was_given_up(
    upstream: Upstream, proxy: Proxy, session: str
) -> None:
    first = sample(unnamed(proxy, session, "ready?"))
    gate = Gate()
    upstream.script = lambda seen: [gate, *plain(chat.completion(f"sample {seen.number}"))]
    given_up = unnamed(proxy, session, "slow")
    upstream.wait_calls(2)
    upstream.script = lambda seen: plain(b'{"error":{"message":"busy"}}', 503)
    with unnamed(proxy, session, "ready?") as failed:
        assert failed.answer().status == 503
    cut(proxy, session, given_up)
    upstream.script = model
    second = sample(unnamed(proxy, session, "ready?"))
    gate.open()
    assert second != first


def test_numbered_call_whose_answer_another_one_claimed_is_no_restart(
    upstream: Upstream, proxy: Proxy, session: str
) -> None:
    """Two equal calls were given up; they are sent again in the other order."""
    gate = Gate()
    upstream.script = lambda seen: [gate, *plain(chat.completion(f"sample {seen.number}"))]
    calls = [unnamed(proxy, session, "vote", number) for number in (0, 1)]
    upstream.wait_calls(2)
    for connection in calls:
        cut(proxy, session, connection)
    gate.open()
    samples = [sample(unnamed(proxy, session, "vote", number)) for number in (1, 0)]
    assert len(set(samples)) == 2
