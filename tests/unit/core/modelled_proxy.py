"""Owns the proxy of the modelled world: a journal in memory, recordings, who reads what, and what the rules are shown.

Must not repeat the rules: it asks ``Rules``. Invariant: the rules are shown the facts that store and engine would show,
no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from agentstate.core import replay, runs
from agentstate.core.model import Entry, State
from agentstate.core.replay import Ask, Execute, Follow, Replay
from agentstate.core.runs import Arrival, Evidence, NewRun, RunFacts
from tests.unit.core.programs import Question
from tests.unit.core.world import (
    FRESH,
    HOP,
    NOTE,
    ORDER_WAIT,
    UNSEEN,
    Answer,
    Clock,
    Connection,
    Reader,
    Reading,
    Request,
    Rules,
    Run,
    Served,
    Step,
)


class Proxy:
    """The proxy: ``ask`` is one request on one connection. ``crash`` takes everything but the journal."""

    def __init__(self, clock: Clock, rules: Rules, upstream: Callable[[Question], tuple[float, int]]) -> None:
        self.clock = clock
        self.rules = rules
        self._upstream = upstream
        self.up = True
        self.steps: list[Step] = []
        self.runs: list[Run] = []
        self.served: dict[int, dict[int, Served]] = {}  # by run, then step
        self.alive: set[str] = set()  # owners of living processes
        self.paid = 0
        self.lost_in_flight = 0
        self.lost_hand_overs = 0
        self.unknown: set[int] = set()  # steps of which the proxy died without knowing whether their reader had it all
        self._connections: list[Connection] = []
        self._ticks = 0
        self._keys: dict[Question, bytes] = {}
        self._by_key: dict[bytes, list[Step]] = {}
        self._forget()

    def _forget(self) -> None:
        self._live: dict[int, list[Reader]] = {}
        self._not_noted: set[tuple[int, int]] = set()
        self._ended: dict[int, float] = {}
        self._sendings: dict[tuple[int, int], int] = {}
        self._reading: dict[tuple[int, int], Reading] = {}
        self._talking: Counter[int] = Counter()
        self._moved: dict[int, list[Callable[[], None]]] = {}
        self._life = object()

    def connect(self, owner: str) -> Connection:
        self._connections = [known for known in self._connections if known.open]
        made = Connection(owner, opened=self.clock.now)
        self._connections.append(made)
        return made

    def crash(self) -> None:
        """All sockets are cut, what was in flight is interrupted; readers of finished answers are forgotten."""
        self.up = False
        self.lost_in_flight += len(self._live)
        on_the_way = {key for key in self._reading if key[1] not in self._live} | self._not_noted
        self.lost_hand_overs += len(on_the_way)
        for run, step in on_the_way:
            self.served[run][step].lost = True
            self.unknown.add(step)
        for step in self._live:
            self.steps[step].state = State.INTERRUPTED
        self._forget()
        for connection in self._connections:
            connection.cut()

    def start(self) -> None:
        self.up = True

    # --- one request ---

    def ask(self, request: Request, connection: Connection, give: Callable[[Answer], None]) -> None:
        key = self._keys.setdefault(request.question, b"") or self.rules.fingerprint(request.question)
        self._keys[request.question] = key
        run = self._identify(request, key, connection)
        connection.spoke, connection.run = True, run.id
        ask = Ask(retry=request.retry, hint=request.hint)
        decision = self.rules.decide(ask, run.id, self._entries(key, run))
        if isinstance(decision, Replay):
            reader = self._enter(run, self.steps[decision.step], connection, give)
            self._serve(run, decision.step, request)
            self._hand_over_in_order(reader)
        elif isinstance(decision, Follow):
            reader = self._enter(run, self.steps[decision.step], connection, give)
            self._live[decision.step].append(reader)
            self._serve(run, decision.step, request)
        else:
            self._execute(request, key, run, connection, give, decision)

    def _execute(
        self, request: Request, key: bytes, run: Run, connection: Connection, give: Callable[[Answer], None],
        decision: replay.Decision,
    ) -> None:  # fmt: skip
        if isinstance(decision, Execute) and decision.step is not None:
            step = self.steps[decision.step]
            assert step.state in (State.FAILED, State.INTERRUPTED), "a step that is not over is asked again"
            # It keeps its start: what it overlapped is what the agent waited for at the same time.
            step.state, step.finished = State.IN_FLIGHT, 0
        else:
            step = Step(len(self.steps), run.id, key, request.question, self._tick(), request.hint)
            self.steps.append(step)
            self._by_key.setdefault(key, []).append(step)
        reader = self._enter(run, step, connection, give)
        self._live[step.id] = [reader]
        self._serve(run, step.id, request)
        latency, status = self._upstream(request.question)
        life = self._life
        self.clock.after(latency, lambda: self._finish(step, status) if life is self._life else None)

    def _finish(self, step: Step, status: int) -> None:
        step.finished = self._tick()
        sample = f"sample {self.paid} of {step.id}" if status == 200 else f"error {status} of {step.id}"
        if status == 200:
            self.paid += 1
        step.state = State.COMPLETED if status == 200 else State.FAILED
        step.answer = Answer(status, sample, step.question)
        self._ended[step.id] = self.clock.now
        for reader in self._live.pop(step.id):
            self._hand_over(reader)

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _serve(self, run: Run, step: int, request: Request) -> None:
        hint, retry = request.hint, request.retry
        known = self.served[run.id].setdefault(step, Served(hint))
        known.hint, known.cut_at, known.lost = hint, None, False
        self._not_noted.discard((run.id, step))
        # Each further hand-out uses up one sending of the request.
        self._sendings[run.id, step] = self._sendings[run.id, step] + 1 if (run.id, step) in self._sendings else retry
        run.asked_at = self.clock.now
        if hint is not None:
            run.hint_min = min(hint, hint if run.hint_min is None else run.hint_min)
            run.hint_max = max(hint, hint if run.hint_max is None else run.hint_max)

    # --- who reads what ---

    def _enter(self, run: Run, step: Step, connection: Connection, give: Callable[[Answer], None]) -> Reader:
        reader = Reader(run.id, step, connection, give)
        self._reading.setdefault((run.id, step.id), Reading()).count += 1
        self._talking[run.id] += 1
        life = self._life

        def gone() -> None:
            if life is self._life and not reader.over:
                self._leave(reader, delivered=False)

        connection.gone = gone
        return reader

    def _leave(self, reader: Reader, *, delivered: bool) -> None:
        reader.over = True
        reader.connection.gone = None
        key = (reader.run, reader.step.id)
        self._talking[reader.run] -= 1
        if reader in self._live.get(reader.step.id, ()):
            self._live[reader.step.id].remove(reader)
        reading = self._reading[key]
        reading.delivered = reading.delivered or delivered
        reading.count -= 1
        if not reading.count:
            del self._reading[key]
            if reading.delivered:
                self._note(key)
            else:
                self.served[reader.run][reader.step.id].cut_at = self.clock.now
        for look in self._moved.pop(reader.run, []):
            look()

    def _note(self, key: tuple[int, int]) -> None:
        """That an answer arrived is written down a moment later."""
        self._not_noted.add(key)
        life = self._life
        self.clock.after(NOTE, lambda: self._not_noted.discard(key) if life is self._life else None)

    def _hand_over(self, reader: Reader) -> None:
        """The last byte goes to an open socket; the agent reads it a moment later."""
        life = self._life

        def out() -> None:
            if life is self._life and not reader.over:
                answer = reader.step.answer
                assert answer is not None
                self._leave(reader, delivered=True)
                self.clock.after(HOP, lambda: reader.give(answer) if reader.connection.open else None)

        self.clock.after(HOP, out)

    def _hand_over_in_order(self, reader: Reader) -> None:
        """Those go first that overlapped this answer in the recording and were finished before it.

        Those that have not been asked for are waited for a while only.
        """
        step = reader.step
        before = [
            other.id for other in self.steps
            if other.state is State.COMPLETED and step.started < other.finished < step.finished
        ]  # fmt: skip
        until = self.clock.now + ORDER_WAIT
        life = self._life
        done = False

        def look() -> None:
            nonlocal done
            if done or reader.over or life is not self._life:
                return
            asked = any((reader.run, other) in self._reading for other in before)
            missing = any(other not in self.served[reader.run] for other in before)
            if asked or (missing and self.clock.now < until):
                self._moved.setdefault(reader.run, []).append(look)
                return
            done = True
            self._hand_over(reader)

        look()
        if not done:
            self.clock.after(ORDER_WAIT, look)

    # --- what the rules are shown ---

    def _entries(self, key: bytes, run: Run) -> list[Entry]:
        return [self._entry(step, run) for step in self._by_key.get(key, ())]

    def _entry(self, step: Step, run: Run) -> Entry:
        served = self.served[run.id].get(step.id)
        live = step.id in self._live
        return Entry(
            step.id, step.id, step.run, step.state,
            step.answer.status if step.answer and step.state is not State.IN_FLIGHT else 0, step.started, step.finished,
            mine=served is not None,
            cut=served is not None and served.cut_at is not None and (run.id, step.id) not in self._reading,
            excluded=step.run in run.siblings or any(step.id in self.served[other] for other in run.siblings),
            live=live,
            watched=live and bool(self._live[step.id]),
            went_on=step.state is State.FAILED and self._went_on(step),
            hint=step.hint if served is None or served.hint is None else served.hint,
            tries=self._sendings.get((run.id, step.id), UNSEEN),
            fresh=self.clock.now - self._ended.get(step.id, -FRESH) < FRESH,
            lost=served is not None and served.lost,
        )  # fmt: skip

    def _went_on(self, step: Step) -> bool:
        return any(other > step.id and self.steps[other].started > step.finished for other in self.served[step.run])

    def _identify(self, request: Request, key: bytes, connection: Connection) -> Run:
        if request.name:
            known = next((run for run in self.runs if run.name == request.name), None)
            if known is not None:
                return known
        facts = tuple(self._facts(run) for run in reversed(self.runs))
        arrival = Arrival(request.name, request.owner, request.hint, unique_first=request.unique_first,
                          retry=request.retry > 0)  # fmt: skip
        present = runs.present_run(arrival, facts)
        if present is not None and not request.name and not request.retry:
            arrival, closer = self._look_closer(request, key, connection, arrival, present)
            facts = tuple(closer if fact.id == closer.id else fact for fact in facts)
        verdict = self.rules.identify(arrival, facts)
        if isinstance(verdict, NewRun):
            return self._begin(request, connection, verdict.evidence, present)
        run = self.runs[verdict.run.id - 1]
        run.owner = run.owner or request.owner
        return run

    def _facts(self, run: Run) -> RunFacts:
        return RunFacts(run.id, run.name, bool(run.name), run.owner, hint_min=run.hint_min, hint_max=run.hint_max)

    def _look_closer(
        self, request: Request, key: bytes, connection: Connection, arrival: Arrival, present: RunFacts
    ) -> tuple[Arrival, RunFacts]:
        row, mine = self.runs[present.id - 1], self.served[present.id]
        first = bool(self.steps) and self.steps[0].key == key
        arrival = arrival._replace(first=first, talking=self._talking[present.id] > 0)
        if not first and request.hint is None:
            return arrival, present
        entries = [entry for entry in self._entries(key, row) if entry.mine]
        done = [entry for entry in entries if entry.state is State.COMPLETED and not entry.cut]
        last_cut = max((served.cut_at for served in mine.values() if served.cut_at is not None), default=-1.0)
        arrival = arrival._replace(
            # A number is used up by an answer that arrived; one that did not is asked for again by the same life.
            hint_used=any(mine[entry.step].hint == request.hint for entry in done),
            # A step that failed or was interrupted is asked again by the same life as well.
            claims_orphan=any(
                entry.cut or (not entry.watched and entry.state is not State.COMPLETED) for entry in entries
            ),
            others_open=any(other.open and other.spoke for other in self._connections if other is not connection),
        )
        # What a run asks after a cut says that its life has gone on; so does a socket that is older than the cut.
        loose = row.asked_at < last_cut < connection.opened
        return arrival, replace(present, loose_cut=loose, advanced=len(mine) >= 2)

    def _begin(self, request: Request, connection: Connection, evidence: Evidence, present: RunFacts | None) -> Run:
        if evidence is Evidence.CUT_CALL and present is not None:
            for row in self.served[present.id].values():
                row.cut_at = None
        succeeded = evidence in (Evidence.STEP_NUMBER, Evidence.CUT_CALL, Evidence.FIRST_PROMPT)
        siblings = []
        for run in reversed(self.runs):
            if succeeded and not run.name:
                succeeded = False
                continue
            if self._lives(run, request, connection):
                siblings.append(run.id)
        made = Run(len(self.runs) + 1, request.name, request.owner, tuple(siblings))
        self.runs.append(made)
        self.served[made.id] = {}
        return made

    def _lives(self, run: Run, request: Request, connection: Connection) -> bool:
        if self._talking[run.id]:
            return True
        for other in self._connections:
            same_process = bool(request.owner) and other.owner == request.owner
            if other is not connection and other.open and other.run == run.id and not same_process:
                return True
        return bool(run.owner) and run.owner != request.owner and run.owner in self.alive
