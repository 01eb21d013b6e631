"""Owns the journal: one method for each fact that is written and each question that is read. Must not decide anything.

Invariant: every write is one transaction, named after its fact; a durable one is on disk when its method returns.
Reads see committed facts only and are made in the caller's thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentstate import clock
from agentstate.core import lifecycle
from agentstate.core.budget import Ruling
from agentstate.core.durations import Durations
from agentstate.core.model import Release, RunState, SessionStatus, State
from agentstate.errors import StoreError, StoreReadOnly
from agentstate.store import budgets, changes, decisions, reserving, transactions
from agentstate.store.changes import Change, changed
from agentstate.store.counters import Counters
from agentstate.store.deciding import Deciding
from agentstate.store.detouring import Detouring
from agentstate.store.effects import Effects
from agentstate.store.facts import Facts
from agentstate.store.lock import Lock
from agentstate.store.pausing import Pausing
from agentstate.store.pruning import Pruning
from agentstate.store.ratings import Rating
from agentstate.store.reader import Reader
from agentstate.store.rows import (
    Begun,
    Ending,
    FinishedJob,
    Message,
    NewRunRow,
    NewStep,
    Plan,
    RevisedResult,
    SessionRow,
)  # fmt: skip
from agentstate.store.sqlite import named, size_of
from agentstate.store.steering import Steering
from agentstate.store.writer import Writer

T = TypeVar("T")
log = logging.getLogger("agentstate")
_SQL = named("write.sql")


class Journal(Effects, Deciding, Detouring, Rating, Pruning, Pausing, Steering):
    """The open journal of one serving process. ``read`` answers questions; the other methods write."""

    def __init__(self, path: Path, busy_s: float = 5.0) -> None:
        super().__init__()
        self.path = path = Path(os.path.realpath(path))  # one file has one lock, whatever link leads to it
        self.lock = Lock(path)
        self._busy_s = busy_s
        self._counters = Counters()
        self._writer = Writer(path, busy_s, self._counters.forget)
        self.closed = False
        self.read: Reader
        self.facts: Facts

    def open(self) -> None:
        """Claim the file, migrate it, mark what an earlier proxy left in flight. Raises ``StoreError``."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreReadOnly(f"the folder {self.path.parent} cannot be made: {error.strerror}") from error
        self.lock.take()
        try:
            self._writer.start()
            self._writer.write_now("interrupt_steps", transactions.recover)
            self.read = Reader(self.path, self._busy_s, self._writer.lend)
            self.facts = Facts(self.read)
        except BaseException:
            self._writer.stop()
            self.lock.release()
            raise

    def check(self) -> None:
        """Whether the file is still there and can be read. Raises ``StoreError``."""
        self._writer.check_place()
        self.read.raw("select 1").fetchone()

    def tell(self, told: Callable[[list[Change]], None]) -> None:
        """``told`` is called in the event loop with what each transaction changed, after its commit."""
        self._writer.told = told

    @property
    def durations(self) -> tuple[Durations, Durations]:
        """How long commits (one of ``writer.MEASURE_EVERY``) and fsyncs took since the start."""
        return self._writer.commits, self._writer.fsyncs

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the file, and of its write-ahead log."""
        return size_of(self.path), size_of(self.path.with_name(self.path.name + "-wal"))

    def close(self) -> None:
        """Write what is queued and let go of the file."""
        self.closed = True
        try:
            self._writer.write_now("close", lambda conn: transactions.remember_boot(conn, ""))
        except StoreError as error:
            log.warning("the journal could not be closed cleanly: %s", error)
        # The last connection to close folds the write-ahead log into the file, and must be one that may write.
        self.read.close()
        self._writer.stop()
        self.lock.release()

    async def _write(
        self,
        name: str,
        work: Callable[[sqlite3.Connection], T],
        durable: bool = True,
        then: Callable[[], None] | None = None,
        size: int = 0,
    ) -> T:
        """Commit ``work``, then do ``then``: even if the caller is cancelled, as the commit happens."""
        return await self._writer.submit(name, work, durable, size, then)  # type: ignore[no-any-return]

    # --- sessions and runs ---

    async def open_session(self, key: str, reason: str = "first") -> SessionRow:
        """A session of that id; made, with its first branch, where there is none."""

        def work(conn: sqlite3.Connection) -> None:
            if conn.execute("select 1 from session where key = ?", (key,)).fetchone():
                return
            now = clock.now()
            session = conn.execute(_SQL["add_session"], {"key": key, "now": now}).lastrowid
            transactions.new_branch(conn, session or 0, None, 0, reason, None, now)

        await self._write("open_session", work, durable=False)
        found = self.read.session(key)
        assert found is not None
        return found

    async def begin_run(self, run: NewRunRow) -> None:
        """A run begins; a replaced one is fenced, a new generation gets a branch of its own. Known names are kept."""

        def work(conn: sqlite3.Connection) -> None:
            now = clock.now()
            if conn.execute("select 1 from run where session = ? and name = ?", (run.session, run.name)).fetchone():
                return
            steps, status = transactions.session_now(conn, run.session)
            if run.replaces is not None:
                transactions.move_run(conn, run.replaces, RunState.FENCED, None, now)
            if run.generation:
                transactions.new_branch(conn, run.session, None, 0, "generation", None, now)
            base = 0 if run.generation or run.evidence == "none" else steps
            made = conn.execute(
                _SQL["add_run"],
                {
                    "session": run.session, "name": run.name, "named": int(run.named), "evidence": run.evidence,
                    "owner": run.owner, "supervisor": run.supervisor, "siblings": json.dumps(run.siblings),
                    "base": base, "hint": run.hint, "now": now,
                },
            )  # fmt: skip
            changed(conn, changes.RUN_BEGAN, run.session, run=made.lastrowid or 0, state=run.evidence)
            if status in (SessionStatus.COMPLETED.value, SessionStatus.FAILED.value):
                decisions.set_status(conn, run.session, SessionStatus.RUNNING, "", ())

        await self._write("begin_run", work, durable=False, then=lambda: self._forget(run.session))

    async def claim_cuts(self, run: int) -> None:
        """The cut calls of a run have proved a restart; they prove no other."""
        await self._write("claim_cuts", lambda conn: conn.execute(_SQL["claim_cuts"], {"run": run}) and None, False)

    def note_owner(self, session: int, run: int, owner: str) -> None:
        """Which process owns the sockets of a run; the first one known stays."""
        self._writer.note(
            "set_owner",
            lambda conn: conn.execute(_SQL["set_owner"], {"run": run, "owner": owner}),
            lambda: self.facts.forget_runs(session),
        )

    async def end_run(self, session: int, run: int, state: RunState, exit_code: int | None) -> None:
        """A run is over, or fenced off. Raises ``IllegalTransition``."""
        await self._write(
            "end_run",
            lambda conn: transactions.move_run(conn, run, state, exit_code, clock.now()),
            then=lambda: self._forget(session),
        )

    async def report_divergence(self, session: int, run: int, report: str, told: Sequence[Message] = ()) -> None:
        """The first divergence of a run; a later one does not replace it, and nobody is ``told`` of it."""
        await self._write(
            "report_divergence",
            partial(decisions.report_divergence, run=run, report=report, told=told),
            then=lambda: self._forget(session, told),
        )

    async def set_status(
        self, session: int, status: SessionStatus, note: str = "", told: Sequence[Message] = ()
    ) -> None:
        """The status of a session; where that changes it, people are ``told``."""
        await self._write(
            "set_status",
            partial(decisions.set_status, session=session, status=status, note=note, told=told),
            then=lambda: self._forget(session, told),
        )

    def _forget(self, session: int, told: Sequence[Message] = ()) -> None:
        """Rows of the session that are kept in memory may have changed; and people may have been told."""
        self.facts.forget_session(session)
        self.facts.forget_runs(session)
        if told:
            self.posted()

    # --- steps ---

    def begin_step(self, new: NewStep, alone: bool = False) -> asyncio.Future[Begun]:
        """A question is about to be sent for the first time. Committed when this is done, so that it survives the
        process; the fsync comes at the latest with that of its answer, before anything is released."""
        return self._writer.submit(
            "begin_step",
            lambda conn: transactions.begin_step(conn, self._counters, new),
            durable=False,
            size=len(new.call.body),
            then=lambda: self._began(new),
            alone=alone,
        )

    async def begin_attempt(self, step: int, was: State, new: NewStep) -> Begun:
        """A failed or interrupted step is about to be sent again. Raises ``StepTaken`` when its state has changed."""
        lifecycle.move_step(was, State.IN_FLIGHT)
        return await self._write(
            "begin_attempt",
            lambda conn: transactions.begin_attempt(conn, self._counters, step, was, new),
            durable=False,
            then=lambda: self._began(new),
            size=len(new.call.body),
        )

    async def begin_budgeted(self, new: NewStep, plan: Plan, again: tuple[int, State] | None) -> Begun | Ruling:
        """A question is about to be sent, as a step of its own or as a further attempt of ``again``, and what it may
        cost is reserved. Where the budgets do not let it: it is held, or what stands in its way. People are told of it
        by a message whose delivery puts all of it on disk first."""
        return await self._write(
            "begin_budgeted",
            lambda conn: budgets.begin(conn, self._counters, new, plan, again),
            durable=False,
            then=lambda: self._budgeted(new),
            size=len(new.call.body),
        )

    async def send_budgeted(self, step: int, new: NewStep, plan: Plan) -> Begun | Ruling:
        """A question that waited is about to be sent, if the budgets let it now; else what stands in its way. Raises
        ``StepTaken`` when its state has changed."""
        return await self._write(
            "send_budgeted",
            lambda conn: budgets.send(conn, self._counters, new, plan, step),
            durable=False,
            then=lambda: self._budgeted(new),
        )

    def _budgeted(self, new: NewStep) -> None:
        """Whatever it came to: a step has begun, or people are told."""
        self._began(new)
        self.posted()

    def _began(self, new: NewStep) -> None:
        self.facts.begun(new.branch, new.fingerprint.key)
        if new.hint is not None:
            self.facts.forget_runs(new.session)
        if new.messages:
            self.posted()

    async def end_step(self, ending: Ending, alone: bool = False) -> None:
        """An attempt is over: its answer, usage, cost and state, in one transaction. On disk when this returns, if it
        is an answer; that an attempt failed gets there with the next fact that is."""
        lifecycle.move_step(State.IN_FLIGHT, ending.state)

        def work(conn: sqlite3.Connection) -> None:
            transactions.end_step(conn, self._counters, ending)

        then = self.posted if ending.messages else None
        if ending.state is State.COMPLETED:
            await self._writer.submit("end_step", work, then=then, alone=alone)
        else:
            await self._writer.submit("fail_step", work, durable=False, then=then, alone=alone)

    def hold_step(self, new: NewStep) -> asyncio.Future[Begun]:
        """A question waits for a person before it is sent; on disk before anybody is told."""
        return self._writer.submit(
            "hold_step",
            lambda conn: transactions.hold_step(conn, self._counters, new),
            size=len(new.call.body),
            then=lambda: self._began(new),
        )

    async def send_held(self, step: int, new: NewStep) -> Begun:
        """A question that waited is about to be sent. Raises ``StepTaken`` when its state has changed."""
        return await self._write(
            "send_held",
            lambda conn: transactions.send_held(conn, new, step),
            durable=False,
            then=lambda: self._began(new),
        )

    async def refuse_step(self, ending: Ending, mode: Release, said: str) -> None:
        """A question that waited is not sent: the refusal is its answer. Raises ``StepTaken``."""
        await self._write(
            "refuse_step", lambda conn: transactions.refuse_step(conn, self._counters, ending, mode, said)
        )

    def note_results(
        self, results: Sequence[tuple[int, int, int, bytes, bool]], revised: Sequence[RevisedResult] = ()
    ) -> asyncio.Future[Any]:
        """Results of calls came back: (step, choice, place, content, whether it is an error); the first one stays.
        ``revised``: of calls that a person edited. Nobody waits for it: it goes to disk with what follows from it."""
        future = self._writer.submit(
            "note_results", lambda conn: decisions.note_results(conn, self._counters, results, revised), durable=False
        )
        future.add_done_callback(_log_loss)
        return future

    async def finish_job(self, job: FinishedJob) -> None:
        """A job that the provider ran in the background ended, how, and what people are asked about it."""
        then = self.posted if job.messages else None
        await self._write("finish_job", lambda conn: transactions.finish_job(conn, self._counters, job), then=then)

    async def delete_job(self, session: int, answer_id: str, run: str, status: int) -> None:
        """A run had a job deleted at its provider, which said so with ``status``. ``run``: its name."""
        values = {"session": session, "id": answer_id, "run": run, "status": status, "now": clock.now()}
        await self._write("delete_job", partial(decisions.delete_job, values=values))

    async def interrupt_step(self, step: int) -> None:
        """A step whose end could not be recorded is not in flight any more."""

        def work(conn: sqlite3.Connection) -> None:
            reserving.forget(conn, self._counters, step)
            transactions.interrupt_step(conn, step)

        await self._write("interrupt_step", work)

    def serve(
        self,
        session: int,
        run: int,
        step: int,
        outcome: str,
        match: str = "strict",
        hint: int | None = None,
        alone: bool = False,
    ) -> asyncio.Future[Any]:
        """A recorded answer is handed to a run. Committed before it is released, without an fsync of its own."""

        def work(conn: sqlite3.Connection) -> None:
            values = {"run": run, "step": step, "outcome": outcome, "match": match, "hint": hint, "now": clock.now()}
            conn.execute(_SQL["serve"], values)
            changed(conn, changes.REPLAYED, session, step, run, "", outcome)
            if hint is not None:
                conn.execute(_SQL["widen_hint"], {"run": run, "hint": hint})

        then = None if hint is None else (lambda: self.facts.forget_runs(session))
        return self._writer.submit("serve", work, durable=False, then=then, alone=alone)

    def note_cut(self, run: int, step: int, at: float) -> asyncio.Future[Any]:
        """The run's reader of the step left before the last byte, ``at`` that time. Nobody waits for it: it is kept on
        best effort, its loss only costs money."""
        work = partial(transactions.note_cut, run=run, step=step, at=at)
        future = self._writer.submit("cut", work, durable=False)
        future.add_done_callback(_log_loss)
        return future

    def note_delivered(self, run: int, step: int, then: Callable[[], None]) -> None:
        """The last byte of a step was handed to an open socket of the run. ``then`` is called when that is kept."""
        self._writer.note("delivered", lambda conn: conn.execute(_SQL["delivered"], (run, step)), then)


def _log_loss(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("a note was not kept: %s", error)
