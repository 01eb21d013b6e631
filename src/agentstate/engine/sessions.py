"""Owns the session verbs that people and supervisors use: list, show, set status, register and end runs. Going back,
forking and editing are for ``steering``.

Must not render. Invariant: dashboard, API and command line call these same functions, so they cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentstate import clock
from agentstate.core import pausing
from agentstate.core.approval import Person
from agentstate.core.model import RunState, SessionStatus
from agentstate.core.runs import Evidence
from agentstate.engine import processes
from agentstate.engine.core import Parts
from agentstate.engine.identity import Identity
from agentstate.errors import BadRequest, NotFound
from agentstate.store.reader import Reader
from agentstate.store.rows import NewRunRow, RunRow, SessionRow

MOST_ID = 256
MOST_LABEL = 100
MOST_REASON = 2000
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def checked_id(value: str, what: str = "session id") -> str:
    """A session or run id as agents may choose it. Raises ``BadRequest``."""
    if not value:
        raise BadRequest(f"the {what} is empty; give 1 to {MOST_ID} characters")
    if len(value) > MOST_ID:
        raise BadRequest(f"the {what} has {len(value)} characters; give {MOST_ID} at most")
    if _CONTROL.search(value):
        raise BadRequest(f"the {what} has control characters; use letters, digits and punctuation")
    if value in (".", ".."):  # browsers and HTTP clients take it out of an address, and nobody could pause that session
        raise BadRequest(f"the {what} is {value!r}, which no address can name; use letters and digits")
    return value


def checked_label(name: str) -> None:
    """Raises ``BadRequest`` for what cannot be a label."""
    if not name.strip() or len(name) > MOST_LABEL or _CONTROL.search(name):
        raise BadRequest(f"{name[:80]!r} cannot be a label; give 1 to {MOST_LABEL} characters, none of control")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run cost and what it did not have to. Money in USD; ``None``: unknown."""

    row: RunRow
    replayed: int
    joined: int
    live: int
    cost: float | None
    saved: float | None


def found(reader: Reader, key: str) -> SessionRow:
    """Raises ``NotFound``."""
    session = reader.session(key)
    if session is None:
        raise NotFound(f"there is no session {key!r}; `agentstate sessions` lists those there are")
    return session


def summary(reader: Reader, run: RunRow) -> RunSummary:
    """Counted from what was handed out and sent, never from intentions."""
    counts = reader.run_counts(run.id)
    paid, cost, unpriced = reader.run_paid(run.id)
    replayed = sum(counts.get(name, (0, 0, None, 0))[0] for name in ("replay", "memo", "edited"))
    joined = counts.get("joined", (0, 0, None, 0))
    joins = joined[0] + sum(row[1] for name, row in counts.items() if name in ("live", "diverged"))
    unknown = sum(part[3] for part in counts.values())
    saved = sum((part[2] or 0.0 for part in counts.values()), 0.0)
    return RunSummary(
        run,
        replayed,
        joins,
        paid,
        None if unpriced else (cost or 0.0),
        None if unknown else saved,
    )


class Sessions:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._identity = Identity(parts)

    @property
    def _read(self) -> Reader:
        return self._parts.journal.read

    async def pause(self, key: str, actor: Person, reason: str = "") -> SessionRow:
        """Nothing of the session is sent any more until it is resumed: requests wait, or are refused, as the settings
        say. What is in flight comes to its end. Raises ``NotFound``, ``BadRequest``, ``Conflict`` for a session that
        is over."""
        session = found(self._read, key)
        reason = reason.strip()
        if len(reason) > MOST_REASON:
            raise BadRequest(f"the reason has {len(reason)} characters; give {MOST_REASON} at most")
        note = pausing.spelled(pausing.Pause(actor.name, reason, clock.now()))
        told = self._parts.outbox.messages("session.paused", key, key, {"by": actor.name, "reason": reason})
        await self._parts.journal.pause_session(session, note, actor.name, reason, told)
        self._parts.gate.look_again()
        return found(self._read, key)

    async def resume(self, key: str, actor: Person) -> SessionRow:
        """A paused session goes on, whoever paused it; requests that wait are judged anew. Raises ``NotFound``,
        ``Conflict`` for a session that is over."""
        session = found(self._read, key)
        told = self._parts.outbox.messages("session.resumed", key, key, {"by": actor.name})
        await self._parts.journal.resume_session(session, actor.name, told)
        self._parts.gate.look_again()
        return found(self._read, key)

    async def set_status(self, key: str, status: str, actor: Person | None = None) -> SessionRow:
        """The bare status: paused by it, a session refuses requests instead of keeping them waiting. Raises
        ``NotFound``, ``BadRequest``."""
        session = found(self._read, key)
        try:
            wanted = SessionStatus(status.upper())
        except ValueError:
            names = ", ".join(member.value for member in SessionStatus)
            raise BadRequest(f"status is {status!r}; use one of {names}") from None
        failed = wanted is SessionStatus.FAILED
        told = self._parts.outbox.failed(key, self._read.runs(session.id, 1)) if failed else ()
        by = actor.name if actor is not None else "agentstate"
        await self._parts.journal.set_status_by(session, wanted, by, told)
        self._parts.gate.look_again()
        return found(self._read, key)

    async def set_labels(self, key: str, add: Sequence[str], remove: Sequence[str], actor: Person) -> tuple[str, ...]:
        """Labels that policies may go by; all that the session has then. Raises ``NotFound``, ``BadRequest``."""
        session = found(self._read, key)
        for name in (*add, *remove):
            checked_label(name)
        if add or remove:
            await self._parts.journal.set_labels(session, add, remove, actor.name)
        return self._read.labels(session.id)

    async def register_run(
        self, key: str, name: str, replaces: str | None, supervisor: int | None
    ) -> tuple[RunRow, list[str]]:
        """A supervised run begins; ``replaces`` is known dead and is fenced. Its row, and which runs were fenced."""
        checked_id(key)
        checked_id(name, "run id")
        session = self._read.session(key) or await self._parts.journal.open_session(key)
        known = self._read.run(session.id, name)
        if known is not None:
            return known, []
        rows = self._read.runs(session.id)
        old = next((row for row in rows if row.name == replaces), None) if replaces else None
        others = [row for row in rows if old is None or row.id != old.id]
        siblings = await self._identity.siblings(others, None, "", Evidence.SUPERVISOR)
        await self._parts.journal.begin_run(
            NewRunRow(
                session.id, name, True, Evidence.SUPERVISOR.value if rows else Evidence.FIRST.value,
                supervisor=supervisor, siblings=siblings, generation=self._identity.new_generation(session),
                replaces=old.id if old else None,
            )
        )  # fmt: skip
        made = self._read.run(session.id, name)
        assert made is not None
        return made, [old.name] if old else []

    async def end_run(self, key: str, name: str, exit_code: int | None) -> RunRow:
        """Raises ``NotFound``."""
        session = found(self._read, key)
        run = self.run(key, name)
        if run.state is not RunState.FENCED:
            await self._parts.journal.end_run(session.id, run.id, RunState.ENDED, exit_code)
        return self._read.run(session.id, name) or run

    def run(self, key: str, name: str) -> RunRow:
        """Raises ``NotFound``."""
        session = found(self._read, key)
        run = self._read.run(session.id, name)
        if run is None:
            raise NotFound(f"session {key!r} has no run {name!r}")
        return run

    def supervised(self) -> bool:
        """Whether a supervisor of an open run is alive."""
        rows = self._read.raw("select distinct supervisor from run where state = 'open' and supervisor is not null")
        return any(processes.identity(int(row[0])) for row in rows)
