"""Whatever is done to a session, and in whatever order, nothing that was given is lost: every branch there ever was
can be gone back to, and gives byte for byte what it gave, at no cost."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import chat
from tests.support.client import status_of
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain
from tests.unit.core.profile import examples

TURNS = 6
_names = itertools.count()
VERBS = ("live", "live", "live", "rollback", "undo", "edit", "fork", "pause", "complete", "switch")
_OPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 10**6)), min_size=4, max_size=18)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("property"), upstream.url, file="policies = []") as running:
        yield running
        assert "Traceback" not in running.log
        running.doctor()


@dataclass
class Line:
    """What a branch gives a run, turn for turn: (step number, text that is given, the bytes once they are known)."""

    given: list[tuple[int, str, bytes]] = field(default_factory=list)


class World:
    """The proxy's sessions as they should be."""

    def __init__(self, proxy: Proxy, upstream: Upstream) -> None:
        self.proxy, self.upstream = proxy, upstream
        self.lines: dict[tuple[str, int], Line] = {}
        self.heads: dict[str, int] = {}
        self.paused: set[str] = set()
        self.completed: set[str] = set()
        self.session = self.root = f"prop-{next(_names)}"
        self.sessions = [self.session]
        self._runs = itertools.count()
        self._edits = itertools.count()
        self.live(2)

    @property
    def line(self) -> Line:
        return self.lines[self.session, self.heads[self.session]]

    def _moved(self, line: Line) -> None:
        """The session goes on with a branch that is new."""
        branches = self.proxy.control.get(f"/api/sessions/{self.session}/branches")
        [head] = [one["id"] for one in branches if one["head"]]
        assert (self.session, head) not in self.lines
        self.heads[self.session] = head
        self.lines[self.session, head] = line

    def _numbers(self) -> list[int]:
        return [number for number, _, _ in self.line.given]

    def live(self, turns: int) -> None:
        """A run lives through so many turns."""
        turns = turns % TURNS + 1
        run, messages = f"run-{next(self._runs)}", []
        fresh = self.session in self.completed or self.session not in self.heads
        given: list[tuple[int, str, bytes]] = [] if fresh else self.line.given
        for turn in range(turns):
            messages.append(chat.user(f"{self.root}: turn {turn}"))
            before = self.upstream.calls
            answer = self.proxy.client.ask(self.session, messages, run=run)
            if self.session in self.paused and turn >= len(given):
                assert (answer.status, self.upstream.calls) == (400, before)
                break
            assert answer.status == 200, answer.body
            text, step = chat.text_of(answer.body), answer.step
            assert step is not None
            if turn < len(given):
                number, known, body = given[turn]
                assert (self.upstream.calls, step, text) == (before, number, known), answer.outcome
                assert body in (b"", answer.body)
                given[turn] = (number, known, answer.body)
            else:
                assert self.upstream.calls == before + 1
                given.append((step, text, answer.body))
            messages.append({"role": "assistant", "content": text})
            if fresh and turn == 0:
                self.completed.discard(self.session)
                self._moved(Line(given))

    def rollback(self, chance: int) -> None:
        numbers = self._numbers()
        at = chance % (len(numbers) + 1)
        step = numbers[at] if at < len(numbers) else (numbers[-1] + 1 if numbers else 0)
        self.proxy.control.post(f"/api/sessions/{self.session}/rollback", {"step_number": step})
        self._runs_on(Line([one for one in self.line.given if one[0] < step]))

    def undo(self, chance: int) -> None:
        mine = sorted(branch for key, branch in self.lines if key == self.session)
        self.go_back(mine[chance % len(mine)])

    def go_back(self, branch: int) -> None:
        self.proxy.control.post(f"/api/sessions/{self.session}/rollback", {"branch": branch})
        self._runs_on(Line(list(self.lines[self.session, branch].given)))

    def _runs_on(self, line: Line) -> None:
        """A rollback lets a session run."""
        self.paused.discard(self.session)
        self.completed.discard(self.session)
        self._moved(line)

    def edit(self, chance: int) -> None:
        given = self.line.given
        if not given:
            return
        at = chance % len(given)
        text = f"edit {next(self._edits)}"
        self.proxy.control.post(f"/api/sessions/{self.session}/steps/{given[at][0]}/edit", {"text": text})
        self.completed.discard(self.session)
        self._moved(Line([*given[:at], (given[at][0], text, b"")]))

    def fork(self, chance: int) -> None:
        given = self.line.given
        at = chance % (len(given) + 1)
        step = given[at][0] if at < len(given) else (given[-1][0] + 1 if given else 0)
        self.session = str(
            self.proxy.control.post(f"/api/sessions/{self.session}/fork", {"step_number": step})["session"]["id"]
        )
        self.sessions.append(self.session)
        self._moved(Line([one for one in given if one[0] < step]))

    def pause(self, chance: int) -> None:
        paused = self.session not in self.paused
        status = "PAUSED" if paused else "RUNNING"
        self.proxy.control.post(f"/api/sessions/{self.session}/status", {"status": status})
        self.completed.discard(self.session)
        (self.paused.add if paused else self.paused.discard)(self.session)

    def complete(self, chance: int) -> None:
        self.proxy.control.post(f"/api/sessions/{self.session}/status", {"status": "COMPLETED"})
        self.paused.discard(self.session)
        if self.line.given or self.session in self.completed:
            self.completed.add(self.session)

    def switch(self, chance: int) -> None:
        self.session = self.sessions[chance % len(self.sessions)]


def model(counter: Iterator[int]) -> object:
    def answered(seen: Seen) -> Reply:
        number = next(counter)
        return plain(chat.completion(f"answer {number}", name=str(number)))

    return answered


@given(ops=_OPS, seed=st.integers(0, 10**6))
@examples(12)
def test_every_branch_that_there_ever_was_gives_what_it_gave(
    proxy: Proxy, upstream: Upstream, ops: list[tuple[str, int]], seed: int
) -> None:
    upstream.reset(model(itertools.count()))  # type: ignore[arg-type]
    world = World(proxy, upstream)
    for verb, chance in ops:
        getattr(world, verb)(chance)
    chance = random.Random(seed)
    branches = list(world.lines)
    jumps = [chance.choice(branches) for _ in range(6)] + branches
    paid = upstream.calls
    for session, branch in jumps:
        world.session = session
        world.go_back(branch)
        if world.line.given:
            world.live(len(world.line.given) - 1)
    assert upstream.calls == paid
    for session in world.sessions:
        steps = proxy.control.session(session)["steps"]
        for step in steps:
            versions = proxy.control.get(f"/api/sessions/{session}/steps/{step['step_number']}/versions")
            assert len([one for one in versions if one["shown"]]) == 1
        assert status_of(proxy.control.get, f"/api/sessions/{session}/steps/{len(steps) + 99}/versions")[0] == 404


def test_a_hundred_random_jumps_lose_nothing(proxy: Proxy, upstream: Upstream) -> None:
    upstream.reset(model(itertools.count()))  # type: ignore[arg-type]
    chance = random.Random(7)
    world = World(proxy, upstream)
    for _ in range(100):
        verb = chance.choice(("live", "rollback", "undo", "undo", "edit"))
        getattr(world, verb)(chance.randrange(10**6))
    paid = upstream.calls
    for session, branch in list(world.lines):
        world.session = session
        world.go_back(branch)
        if world.line.given:
            world.live(len(world.line.given) - 1)
    assert upstream.calls == paid
    assert json.dumps(proxy.control.get(f"/api/sessions/{world.session}/branches"))
