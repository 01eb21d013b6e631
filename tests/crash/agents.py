"""Owns the agents of the crash tests: small programs of known questions, what they were told, and the final account.

Must not retry by itself: an agent whose call breaks is dead, as if it had been killed with the proxy. Invariant: every
byte that any agent received is kept, so that it can be held against what the journal says afterwards.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support import chat
from tests.support.client import Answer, Connection
from tests.support.proxy import Proxy
from tests.support.upstream import BOUND_S, Gate, Reply, Seen, Upstream, plain, stream

LEAVES = "leaves half-way"
FLAKY = "fails at first"
TOOL = "calls a tool"


@dataclass
class Received:
    """What one call brought: a whole answer, or the bytes that came before the connection broke."""

    session: str
    question: str
    body: bytes
    whole: bool
    status: int = 0  # 0: the connection broke before any head
    left: bool = False  # the client went away by itself

    @property
    def finished(self) -> bool:
        """Whether bytes were released that an agent may act on: a finish event, a tool call, or a whole answer."""
        return (self.whole and self.status == 200) or b'"finish_reason": "' in self.body or b"tool_calls" in self.body


@dataclass
class Ledger:
    """What all agents received and lost, and what the upstream was asked."""

    received: list[Received] = field(default_factory=list)
    lost: int = 0  # calls whose connection broke: they were in flight at the kill
    left: int = 0  # calls that their client left; they may have been draining at the kill
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, item: Received) -> None:
        """Keep one call's outcome."""
        with self._lock:
            self.received.append(item)
            self.lost += not item.whole and not item.left
            self.left += item.left


class Died(Exception):
    """The proxy went away under this agent."""


class Provider:
    """The upstream's script: a sample of its own for each call; some questions are odd. Counts calls by question."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.gates: dict[str, Gate] = {}
        self.patient = True
        self._lock = threading.Lock()

    def __call__(self, seen: Seen) -> Reply:
        question = str(seen.json()["messages"][-1]["content"])  # type: ignore[index]
        with self._lock:
            self.calls[question] += 1
            number = self.calls[question]
        name = f"{question} #{number}"
        if question.endswith(FLAKY) and number == 1:
            return plain(b'{"error": {"message": "busy", "type": "x", "param": null, "code": null}}', 503)
        if question.endswith(LEAVES):
            events = chat.chunks("one two three", name=name)
            return stream(*events[:2], self.gate(question), *events[2:])
        if question.endswith(TOOL):
            call = chat.tool_call("read_file", f'{{"name": "{name}"}}', call_id=f"call_{number}")
            return stream(*chat.chunks("", tool_calls=[call], name=name))
        if seen.json().get("stream"):
            return stream(*chat.chunks(f"{name} is answered", name=name))
        return plain(chat.completion(f"{name} is answered", name=name))

    def gate(self, question: str) -> Gate:
        """Where the answer to a left question waits until its client has gone."""
        with self._lock:
            gate = self.gates.setdefault(question, Gate())
        if not self.patient:
            gate.open()
        return gate

    def open_all(self) -> None:
        """No answer waits for its client to go any more."""
        self.patient = False
        with self._lock:
            gates = list(self.gates.values())
        for gate in gates:
            gate.open()


Program = Callable[["Agent"], None]


@dataclass
class Agent:
    """One life of an agent: it asks its questions in order and dies when the proxy does."""

    proxy: Proxy
    ledger: Ledger
    provider: Provider
    session: str
    run: str | None

    def __post_init__(self) -> None:
        self.client = self.proxy.client
        self.control = self.proxy.control

    def ask(self, question: str, *, stream: bool = False, statuses: tuple[int, ...] = (200,)) -> int:
        """Ask; the answer's status. Raises ``Died`` when the connection breaks."""
        connection = None
        body, head, whole = b"", 0, False
        try:
            connection = self.client.start(self.session, self.name(question), run=self.run, stream=stream)
            head, _ = connection.read_head()
            body, whole = connection.read_body()
        except ConnectionError:
            whole = False
        finally:
            if connection is not None:
                connection.close()
        if connection is not None:
            self.ledger.add(Received(self.session, question, body, whole, head))
        if not whole:
            raise Died(question)
        assert head in statuses, (question, head, body)
        return head

    def leave(self) -> None:
        """Ask a streamed question, go away in the middle of its answer, and come back when that is on record."""
        question = self.name(LEAVES)
        try:
            connection: Connection = self.client.start(self.session, question, run=self.run, stream=True)
        except ConnectionError as gone:
            raise Died(LEAVES) from gone
        try:
            connection.read_head()
            connection.read_until(b'"one"')
        except (ConnectionError, AssertionError) as broken:
            self.ledger.add(Received(self.session, LEAVES, b"", False))
            raise Died(LEAVES) from broken
        finally:
            connection.reset()
            self.provider.gate(question).open()
        self.ledger.add(Received(self.session, LEAVES, connection.received(), False, 200, left=True))
        self._wait_cut()

    def _wait_cut(self) -> None:
        """A process that was started again is never as quick as a thread: wait until the proxy knows who left."""
        tick = threading.Event()
        for _ in range(400):
            try:
                steps = self.control.steps(self.session)
            except OSError as gone:
                raise Died(LEAVES) from gone
            if any(served["cut"] for step in steps for served in step["served"]):
                return
            tick.wait(0.02)
        raise AssertionError(f"{self.session}: the proxy did not note that a client left")

    def name(self, question: str) -> str:
        """The text of a question, which no other session asks."""
        return f"{self.session}: {question}"


def linear(agent: Agent) -> None:
    """Plain and streamed questions, a passing error, a tool call."""
    agent.ask("first")
    agent.ask("second", stream=True)
    if agent.ask(FLAKY, statuses=(200, 503)) == 503:
        agent.ask(FLAKY)
    agent.ask(TOOL, stream=True)
    agent.ask("last")


@dataclass
class Load:
    """Several agents at once before one proxy."""

    proxy: Proxy
    provider: Provider
    ledger: Ledger = field(default_factory=Ledger)
    faults: list[Exception] = field(default_factory=list)

    def run(self, programs: Sequence[tuple[str, str | None, Program]]) -> None:
        """Run (session, run, program) side by side until each is done or dead; raises what went wrong otherwise."""
        threads = [
            threading.Thread(
                target=self._live,
                args=(Agent(self.proxy, self.ledger, self.provider, session, run), program),
                daemon=True,
            )
            for session, run, program in programs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        assert not any(thread.is_alive() for thread in threads), "an agent hangs"
        if self.faults:
            raise self.faults[0]

    def _live(self, agent: Agent, program: Program) -> None:
        try:
            program(agent)
        except Died:
            return
        except Exception as fault:  # noqa: BLE001 - raised again by the thread that waits
            self.faults.append(fault)


def assert_states_after_restart(proxy: Proxy, ledger: Ledger, upstream: Upstream, sessions: Sequence[str]) -> None:
    """Nothing is in flight any more, and the upstream was asked nothing that the journal does not know."""
    known: dict[str, list[str]] = {}
    interrupted = 0
    listed = {row["id"] for row in proxy.control.get("/api/sessions")}
    for session in sessions:
        steps = proxy.control.steps(session) if session in listed else []
        known[session] = [str(step["prompt"]) for step in steps]
        states = Counter(step["state"] for step in steps)
        assert set(states) <= {"completed", "failed", "interrupted"}, (session, states)
        interrupted += states["interrupted"]
    assert interrupted <= ledger.lost + ledger.left, "more calls were interrupted than were in flight"
    for seen in upstream.requests:
        question = str(seen.json()["messages"][-1]["content"])  # type: ignore[index]
        session = question.partition(":")[0]
        assert any(question in prompt for prompt in known[session]), f"{question!r} was sent but is not in the journal"


def settle(
    proxy: Proxy, provider: Provider, ledger: Ledger, session: str, run: str, questions: Sequence[tuple[str, bool]]
) -> None:
    """A new run of a session: what was released before is repeated byte for byte, and costs nothing."""
    client = proxy.client
    for question, streamed in questions:
        text = f"{session}: {question}"
        before = provider.calls[text]
        answer = client.ask(session, text, run=run, stream=streamed)
        if question == FLAKY and answer.status == 503:
            answer = client.ask(session, text, run=run, stream=streamed)
        assert (answer.status, answer.complete) == (200, True), (question, answer)
        assert_kept(ledger, session, question, answer, paid=provider.calls[text] - before)


def assert_kept(ledger: Ledger, session: str, question: str, answer: Answer, paid: int) -> None:
    earlier = [item for item in ledger.received if (item.session, item.question) == (session, question)]
    for item in earlier:
        if not item.finished:
            continue
        assert paid == 0, f"{session} {question}: was released before the crash and is paid for again"
        assert answer.hit is True, (question, answer.outcome)
        same = item.body == answer.body if item.whole else answer.body.startswith(item.body)
        assert same, f"{session} {question}: {item.body!r} was released, {answer.body!r} is in the journal"
