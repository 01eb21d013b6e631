"""Owns the questions that are asked of the journal. Must not write, and must not run long on the event loop.

Invariant: an answer shows committed facts only. Questions on the path of a request read a few indexed rows; lists and
bodies of many steps are for threads with a ``Reader`` of their own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from agentstate.core.branching import NO_LIMIT, lineage
from agentstate.core.divergence import Unread
from agentstate.core.model import Deletion, Entry, Release, RunState, SessionStatus, State
from agentstate.errors import StoreCorrupt
from agentstate.store import bodies
from agentstate.store.branches import BranchReader
from agentstate.store.change_reader import ChangeReader
from agentstate.store.comparing_reader import ComparingReader
from agentstate.store.detours import DetourReader
from agentstate.store.effect_reader import EffectReader
from agentstate.store.journal_reader import JournalReader
from agentstate.store.outbox_reader import OutboxReader
from agentstate.store.overview_reader import OverviewReader
from agentstate.store.pruning_reader import PruningReader
from agentstate.store.rating_reader import RatingReader
from agentstate.store.rows import AnswerRow, HeldRow, RunRow, SessionRow, StepRow, shape_of
from agentstate.store.sqlite import connect, errors, mapped, named
from agentstate.store.standing_reader import StandingReader
from agentstate.store.stats_reader import StatsReader

_SQL = named("read.sql") | named("pages.sql")
Lineage = Sequence[tuple[int, int]]


class Reader(
    EffectReader, OutboxReader, DetourReader, StatsReader, StandingReader, RatingReader, ChangeReader, PruningReader,
    OverviewReader, ComparingReader, JournalReader, BranchReader,
):  # fmt: skip
    """One read connection; use it in one thread at a time.

    ``lent`` gives the writer's connection while it is free, in the thread that also writes: what was written last is
    in its memory, where another connection would have to read it from the file again.
    """

    def __init__(
        self, path: Path, busy_s: float = 5.0, lent: Callable[[], sqlite3.Connection | None] = lambda: None
    ) -> None:
        self.path = path
        self.sql = _SQL
        self._conn = connect(path, busy_s, write=False)
        self._lent = lent
        self._decompressor = zstandard.ZstdDecompressor()

    def close(self) -> None:
        self._conn.close()

    def _all(self, name: str, values: Any) -> list[Any]:
        try:
            return (self._lent() or self._conn).execute(self.sql[name], values).fetchall()
        except sqlite3.Error as error:
            raise mapped(error, self.path) from error

    def _one(self, name: str, values: Any) -> Any:
        try:
            return (self._lent() or self._conn).execute(self.sql[name], values).fetchone()
        except sqlite3.Error as error:
            raise mapped(error, self.path) from error

    def _content(self, codec: int, size: int, data: bytes) -> bytes:
        try:
            return bodies.unpacked(codec, size, data, self._decompressor)
        except ValueError as error:
            raise StoreCorrupt(f"a body in {self.path} is damaged ({error}); run `agentstate doctor`") from error

    # --- sessions and runs ---

    def session(self, key: str) -> SessionRow | None:
        row = self._one("session", (key,))
        return _session(row) if row else None

    def session_of(self, session: int) -> SessionRow | None:
        row = self._one("session_of", (session,))
        return _session(row) if row else None

    def sessions(self, limit: int, after: SessionRow | None = None, status: str = "") -> list[SessionRow]:
        """Latest change first; ``after``: the last row of the page before."""
        values = {
            "limit": limit, "status": status,
            "updated": after.updated_at if after else None, "id": after.id if after else 0,
        }  # fmt: skip
        return [_session(row) for row in self._all("sessions", values)]

    def run(self, session: int, name: str) -> RunRow | None:
        row = self._one("run_by_name", (session, name))
        return _run(row) if row else None

    def runs(self, session: int, limit: int = 50) -> list[RunRow]:
        """Newest first."""
        return [_run(row) for row in self._all("runs", (session, limit))]

    def runs_before(self, session: int, before: int, limit: int) -> list[RunRow]:
        """A page of them: newest first, those that began before the one with that id."""
        values = {"session": session, "before": before, "limit": limit}
        return [_run(row) for row in self._all("runs_before", values)]

    def loose_cut(self, run: int) -> float:
        """When the run lost a reader early and has asked nothing since; 0: it did not."""
        return float(self._one("loose_cut", {"run": run})[0] or 0.0)

    def advanced(self, run: int) -> bool:
        return bool(self._one("served_count", (run,))[0] >= 2)

    # --- the decision ---

    def fingerprints(self, shown: Lineage) -> set[bytes]:
        """Of all steps on the shown branches."""
        found: set[bytes] = set()
        for branch, upto in shown:
            found.update(row[0] for row in self._all("fingerprints", {"branch": branch, "upto": upto}))
        return found

    def entries(self, shown: Lineage, fingerprint: bytes, run: int, siblings: tuple[int, ...] = ()) -> list[Entry]:
        """The steps of a fingerprint on the shown branches, in recorded order, as ``run`` sees them."""
        rows: list[Any] = []
        for branch, upto in shown:
            rows += self._all("entries", {"branch": branch, "fingerprint": fingerprint, "run": run, "upto": upto})
        if len(shown) > 1:
            rows.sort(key=lambda row: row[1])
        taken = self._taken(rows, siblings)
        return [self._entry(row, run, taken, siblings) for row in rows]

    def _taken(self, rows: Sequence[Any], siblings: tuple[int, ...]) -> set[int]:
        if not siblings or not rows:
            return set()
        values = {"steps": json.dumps([row[0] for row in rows]), "runs": json.dumps(siblings)}
        return {row[0] for row in self._all("served_to_any", values)}

    def _entry(self, row: Any, run: int, taken: set[int], siblings: tuple[int, ...]) -> Entry:
        step, number, asker, state, status, started, finished, hint, retry_key, broken, cut, delivered, release = row
        went_on = deaths = 0
        if state == State.FAILED:
            values = {"run": asker, "step": step, "finished": finished}
            went_on = self._one("went_on", values) is not None
        if broken:
            deaths = self.deaths(step, run)
        return Entry(
            step, number, asker, State(state), status, started, finished, cut is not None, bool(cut),
            step in taken or asker in siblings, went_on=bool(went_on), deaths=deaths, hint=hint,
            retry_key=retry_key, broken=bool(broken), lost=delivered == 0, unreleased=release == Release.HELD,
        )  # fmt: skip

    def deaths(self, step: int, run: int) -> int:
        """How many other runs were given nothing after this step."""
        return int(self._one("deaths", {"step": step, "run": run})[0])

    def last_given(self, session: int) -> dict[int, int]:
        """By step: how many runs, other than the newest, were given nothing after it."""
        return {row[0]: row[1] for row in self._all("last_given", {"session": session})}

    def unread(self, session: int, shown: Lineage, run: RunRow, start: int = 0, limit: int = NO_LIMIT) -> list[Unread]:
        """Completed steps of earlier lives that ``run`` was not given, without the effects of their answers.

        Living siblings' steps are not among them, nor what an earlier run left behind when it diverged and went on.
        """
        found = []
        for branch, upto in shown:
            values = {
                "session": session, "from": start, "upto": min(upto, run.base), "branch": branch, "run": run.id,
                "limit": limit, "siblings": json.dumps(run.siblings),
            }  # fmt: skip
            found += self._all("unread", values)
        found.sort(key=lambda row: row[1])
        return [Unread(row[0], row[1], row[2], row[3], row[4], author=row[5]) for row in found]

    def first_unread(self, session: int, run: RunRow, start: int, shared: Lineage = ()) -> int | None:
        """The lowest number, from ``start`` on, of a step that existed when the run began and was not given to it.
        ``shared``: see ``shared``."""
        values = {"session": session, "from": start, "base": run.base, "run": run.id}
        numbers = [self._one("first_unread_number", values)[0]]
        for branch, upto in shared:
            values = {"branch": branch, "from": start, "base": min(upto, run.base), "run": run.id}
            numbers.append(self._one("first_unread_on", values)[0])
        return min((int(number) for number in numbers if number is not None), default=None)

    def tool_names(self, steps: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """The tools that the answers of these steps call."""
        found: dict[int, tuple[str, ...]] = {}
        for step, name in self._all("call_names", {"steps": json.dumps(list(steps))}):
            found[step] = (*found.get(step, ()), name)
        return found

    def call_owners(self, session: int, ids: Iterable[str], shared: Lineage = ()) -> list[tuple[int, str, str]]:
        """(step, call id, tool) of the answers of this session, and of those that it shares, that handed out these call
        ids."""
        values = {"session": session, "ids": json.dumps(list(ids)), "shared": json.dumps(list(shared))}
        rows = self._all("call_owners", values)
        return [(row[0], row[1], row[2]) for row in rows]

    def overlapped(self, branch: int, number: int, started: int, finished: int) -> list[int]:
        """The steps that overlapped one and finished before it."""
        values = {"branch": branch, "number": number, "started": started, "finished": finished}
        return [row[0] for row in self._all("overlapped", values)]

    def served_among(self, run: int, steps: Iterable[int]) -> set[int]:
        return {row[0] for row in self._all("served_steps", {"run": run, "steps": json.dumps(list(steps))})}

    # --- bodies ---

    def answer(self, step: int) -> AnswerRow:
        """The recorded answer of a step, as agents are given it. Raises ``StoreCorrupt``."""
        return self._answer("answer", step)

    def received(self, step: int) -> AnswerRow:
        """The same as it was received, whatever was decided about it."""
        return self._answer("received", step)

    def proposed(self, step: int) -> tuple[AnswerRow, bool]:
        """The answer whose calls people are asked about, as it was received, and whether it is the end of a job."""
        answer = self.received(step)
        row = self._one("job_end", (step,))
        if row is None:
            return answer, False
        return answer._replace(
            status=row[1], head=self.head_of(row[2]), body=self._content(*row[3:6]), shape=shape_of(0)
        ), True

    def _answer(self, question: str, step: int) -> AnswerRow:
        (
            status, head, codec, size, data, stream, model, number, started, finished, branch, usage, cost, dialect,
            state, _hash, release, said, attempts,
        ) = self._one(question, (step,))  # fmt: skip
        body = b"" if data is None else self._content(codec, size, data)
        return AnswerRow(
            number, branch, State(state), dialect, status, self.head_of(head), body, shape_of(stream), model, started,
            finished, usage, cost, None if release is None else Release(release), said or "{}", attempts,
        )  # fmt: skip

    def held_shown(self, session: int, answer_id: str, shared: Lineage) -> HeldRow | None:
        """The answer of this session, or one that it shares with the session that it was forked from, that its provider
        holds under that name."""
        row = self.held(session, answer_id)
        if row is None:
            for branch, upto in shared:
                found = self.held(self._one("branch", (branch,))[6], answer_id)
                if found is not None and found.number < upto and self.received(found.step).branch == branch:
                    return found
        return row

    def held(self, session: int, answer_id: str) -> HeldRow | None:
        """The answer of this session that its provider holds under that name."""
        row = self._one("held", (session, answer_id))
        if row is None:
            return None
        body, given = (b"" if data[2] is None else self._content(*data) for data in (row[4:7], row[10:13]))
        release = None if row[8] is None else Release(row[8])
        return HeldRow(row[0], row[7], bool(row[1]), row[2], self.head_of(row[3]), body, release, row[9] or "{}", given)

    def job_owner(self, answer_id: str) -> str:
        """The session, by its id, that began the job which its provider knows by that name; empty: none did."""
        row = self._one("job_owner", (answer_id,))
        return "" if row is None else str(row[0])

    def deletion(self, session: int, answer_id: str, run: str = "") -> Deletion | None:
        """Whether that answer was deleted at its provider, as a run of that name sees it."""
        upto, mine, done = self._one("deletion", {"session": session, "id": answer_id, "run": run})
        return None if upto is None else Deletion(upto, bool(mine), bool(done))

    def was_given(self, run: int, step: int) -> bool:
        return self._one("was_given", {"run": run, "step": step}) is not None

    def head_of(self, stored: bytes | None) -> bytes:
        if not stored:
            return b""
        if stored[0] == 0:
            return bytes(stored[1:])
        try:
            return self._decompressor.decompress(stored[1:])
        except zstandard.ZstdError as error:
            raise StoreCorrupt(f"response headers in {self.path} are damaged; run `agentstate doctor`") from error

    def blob(self, blob: int) -> bytes:
        row = self._one("blob", (blob,))
        if row is None:
            raise StoreCorrupt(f"a body in {self.path} is missing; run `agentstate doctor`")
        return self._content(row[0], row[1], row[2])

    def request(self, step: int) -> tuple[str, str, str, bytes]:
        """(dialect, method, path, exact body) of a step's request. Raises ``StoreCorrupt``."""
        dialect, method, path, frame, node, _fingerprint, _tip = self._one("request", (step,))
        messages = []
        if node is not None:
            messages = [self._content(*row) for row in self._all("transcript", {"node": node})]
        return dialect, method, path, bodies.join(self.blob(frame), messages)

    # --- lists ---

    def steps(self, session: int, start: int = 0, upto: int = NO_LIMIT, limit: int = 1000) -> list[StepRow]:
        """A session's own steps by number, without bodies."""
        values = {"session": session, "from": start, "upto": upto, "limit": limit}
        return [_step(row) for row in self._all("steps", values)]

    def all_steps(self, session: int, start: int = 0, limit: int = 1000) -> list[StepRow]:
        """The same with those before them that it shares with the session that it was forked from."""
        found: list[StepRow] = []
        for branch, upto in self.shared(session):
            values = {"branch": branch, "from": start, "upto": upto, "limit": limit}
            found += [_step(row) for row in self._all("steps_on", values)]
        found.sort(key=lambda step: step.number)
        return (found + self.steps(session, start, limit=limit))[:limit]

    def step_by_number(self, session: int, number: int) -> int | None:
        """The step of that number, of the session's own or of those that it shares."""
        row = self._one("step_by_number", (session, number))
        return self.step_on(self.shared(session), number) if row is None else int(row[0])

    def run_counts(self, run: int) -> dict[str, tuple[int, int, float | None, int]]:
        """By outcome: (steps, handed out again, cost in USD of the calls that were not made for it, of how many it is
        unknown)."""
        return {row[0]: (row[1], row[2] or 0, row[3], row[4] or 0) for row in self._all("run_counts", (run,))}

    def run_paid(self, run: int) -> tuple[int, float | None, int]:
        """(attempts sent, their known cost in USD, answered ones whose cost is unknown)."""
        row = self._one("run_paid", (run, run))
        return int(row[0]), row[1], int(row[2] or 0)

    def session_totals(self, session: int) -> tuple[int, int, float | None, int]:
        """(steps, failed ones, known cost in USD, runs)."""
        row = self._one("session_totals", {"session": session})
        return int(row[0]), int(row[1] or 0), row[2], int(row[3])

    def served_of(self, steps: Iterable[int]) -> list[tuple[int, str, str, str, bool, int, float]]:
        """(step, run, outcome, match, cut, joins, time) of each hand-out."""
        rows = self._all("served_of_steps", {"steps": json.dumps(list(steps))})
        return [(row[0], row[1], row[2], row[3], bool(row[4]), row[5], row[6]) for row in rows]

    def shown(self, session: SessionRow) -> tuple[tuple[int, int], ...]:
        """The branches that the session's head shows."""
        return lineage({key: row.branch for key, row in self.branches(session.id).items()}, session.head)

    def check(self) -> list[str]:
        """SQLite's own integrity check; empty: sound."""
        with errors(self.path):
            rows = self._conn.execute("pragma integrity_check(20)").fetchall()
        return [row[0] for row in rows if row[0] != "ok"]

    def raw(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """For ``doctor`` and tests: a statement of their own."""
        with errors(self.path):
            return self._conn.execute(sql, values)


def _session(row: Any) -> SessionRow:
    return SessionRow(row[0], row[1], SessionStatus(row[2]), *row[3:])


def _run(row: Any) -> RunRow:
    return RunRow(
        row[0], row[1], bool(row[2]), row[3], row[4], row[5], RunState(row[6]), tuple(json.loads(row[7])), *row[8:]
    )


def _step(row: Any) -> StepRow:
    fields: tuple[Any, ...] = (
        *row[:5], State(row[5]), *row[6:9], shape_of(row[9]), *row[10:21], row[21] is not None, *row[22:],
    )  # fmt: skip
    return StepRow(*fields)
