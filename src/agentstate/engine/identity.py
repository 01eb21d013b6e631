"""Owns finding, and where need be making, the run that a request belongs to. Must not decide by itself: core.runs does.

Invariant: a session's runs are made one at a time; what a run may not be given (living siblings) is fixed as it begins.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from agentstate import clock
from agentstate.core import runs
from agentstate.core.model import Fingerprint, RunState, State
from agentstate.core.runs import Arrival, Evidence, NewRun, RunFacts
from agentstate.engine import processes
from agentstate.engine.core import Parts
from agentstate.engine.presence import Connection
from agentstate.engine.request import Request
from agentstate.errors import SessionGone
from agentstate.store.rows import NewRunRow, RunRow, SessionRow

# Evidence that by itself says that the run before is over.
_SUCCESSION = frozenset({Evidence.STEP_NUMBER, Evidence.CUT_CALL, Evidence.FIRST_PROMPT})


log = logging.getLogger("agentstate")
_TURNS = 4  # of the event loop: a socket's end is read, its reader is told, and goes


@dataclass(slots=True)
class _Gate:
    lock: asyncio.Lock
    users: int = 0


class Identity:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gates: dict[int, _Gate] = {}

    async def of(self, request: Request, session: SessionRow, asked: Fingerprint) -> tuple[SessionRow, RunRow]:
        """The run of a request, and its session as it is now."""
        read, facts = self._parts.journal.read, self._parts.journal.facts
        if request.run:
            known = facts.run(session.id, request.run)
            if known is not None:
                return session, known
        gone = facts.gone
        owner = await request.connection.owner() if request.connection.local else ""
        if facts.gone != gone and not facts.current(session):
            return await self._anew(request, session, asked)
        verdict = self._known(request, session, asked, owner)
        if isinstance(verdict, RunRow):
            return session, verdict
        gate = self._gates.setdefault(session.id, _Gate(asyncio.Lock()))
        gate.users += 1
        waiting = gate.lock.locked()
        try:
            async with gate.lock:
                if waiting:
                    session = read.session(session.key) or session
                    verdict = self._known(request, session, asked, owner)
                    if isinstance(verdict, RunRow):
                        return session, verdict
                made = await self._begin(request, session, owner, verdict)
                if facts.gone == gone or facts.current(session):
                    return facts.session(session.key) or session, made
        except SessionGone:
            log.info("session %s was deleted while a request of it was on its way: a new one begins", session.key)
        finally:
            gate.users -= 1
            if not gate.users:
                self._gates.pop(session.id, None)
        return await self._anew(request, session, asked)

    async def _anew(self, request: Request, session: SessionRow, asked: Fingerprint) -> tuple[SessionRow, RunRow]:
        """The session was deleted while the request waited: it is the first one of a new session of that id."""
        return await self.of(request, await self._parts.journal.open_session(session.key), asked)

    def _known(self, request: Request, session: SessionRow, asked: Fingerprint, owner: str) -> RunRow | NewRun:
        known = self._parts.journal.facts
        if request.run:
            found = known.run(session.id, request.run)
            rows = (found,) if found else known.runs(session.id)
        else:
            rows = known.runs(session.id)
        facts = tuple([_facts(row) for row in rows])
        arrival = Arrival(
            name=request.run,
            owner=owner,
            hint=request.hint,
            unique_first=request.unique_first or self._parts.settings.replay.first_prompt == "unique",
            retry=request.retry > 0,
        )
        present = runs.present_run(arrival, facts)
        if present is not None and not request.run and not request.retry:
            arrival, closer = self._look_closer(request, session, asked, arrival, present)
            if closer is not present:
                present = closer
                facts = tuple(closer if fact.id == closer.id else fact for fact in facts)
        verdict = runs.identify(arrival, facts)
        if isinstance(verdict, NewRun):
            return verdict
        row = next(row for row in rows if row.id == verdict.run.id)
        if owner and not row.owner and not row.named:
            self._parts.journal.note_owner(session.id, row.id, owner)
        return row

    def _look_closer(
        self, request: Request, session: SessionRow, asked: Fingerprint, arrival: Arrival, present: RunFacts
    ) -> tuple[Arrival, RunFacts]:
        """Facts that cost a look-up, where they can matter."""
        read, floating = self._parts.journal.read, self._parts.floating
        shown, opening = self._parts.head(session)
        first = opening is not None and opening == asked.key
        if not first and request.hint is None:
            return arrival, present
        arrival = arrival._replace(first=first, talking=floating.talking(present.id))
        entries = floating.seen(read.entries(shown, asked.key, present.id), present.id, shown[0][0], asked.key)
        if request.hint is not None:
            used = any(
                entry.mine and entry.hint == request.hint and entry.state is State.COMPLETED and not entry.cut
                for entry in entries
            )
            arrival = arrival._replace(hint_used=used)
        if first:
            # A step of this run that lost its reader, or came to nothing, explains why it is asked again.
            orphan = any(
                entry.mine
                and (
                    entry.cut
                    or (entry.live and not entry.watched)
                    or (not entry.live and entry.state in (State.FAILED, State.INTERRUPTED))
                )
                for entry in entries
            )
            arrival = arrival._replace(
                claims_orphan=orphan,
                others_open=self._parts.presence.others_open(session.key, request.connection),
            )
            cut_at = floating.loose_cut(present.id) or read.loose_cut(present.id)
            # A socket that was open already when the call was cut belongs to somebody who lived on.
            cut = 0 < cut_at < request.connection.opened_at
            present = replace(present, loose_cut=cut, advanced=read.advanced(present.id))
        return arrival, present

    async def _begin(self, request: Request, session: SessionRow, owner: str, verdict: NewRun) -> RunRow:
        read, journal = self._parts.journal.read, self._parts.journal
        rows = journal.facts.all_runs(session.id)
        if rows:
            # The news that the sockets of the life before are closed may have come together with this request.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            session = read.session(session.key) or session  # how long ago it was used, and how many steps it has
        if verdict.evidence is Evidence.CUT_CALL and rows:
            before = next(row.id for row in rows if not row.named)
            self._parts.floating.claim_cuts(before)
            await journal.claim_cuts(before)
        name = request.run or clock.run_id()
        await journal.begin_run(
            NewRunRow(
                session.id,
                name,
                bool(request.run),
                verdict.evidence.value,
                owner,
                siblings=await self.siblings(rows, request.connection, owner, verdict.evidence),
                hint=request.hint,
                generation=self.new_generation(session),
            )
        )
        made = read.run(session.id, name)
        assert made is not None
        return made

    def new_generation(self, session: SessionRow) -> bool:
        """Whether a run that begins now must not be replayed into."""
        within = self._parts.settings.replay.replay_within_s
        old = runs.starts_generation(session.status, session.updated_at, clock.now(), within)
        return old and session.steps > 0

    async def siblings(
        self, rows: list[RunRow], connection: Connection | None, owner: str, evidence: Evidence
    ) -> tuple[int, ...]:
        """The runs that live beside one that begins: it is not given what is theirs."""
        if evidence is Evidence.NONE:
            return tuple(row.id for row in rows)
        found = []
        succeeded = evidence in _SUCCESSION
        for row in rows:
            if succeeded and not row.named:
                succeeded = False  # the newest unnamed run is the one that is over
                continue
            if await self.alive(row, connection, owner):
                found.append(row.id)
        return tuple(found)

    async def alive(self, row: RunRow, connection: Connection | None, owner: str) -> bool:
        """Whether a run visibly lives on: its reader waits, its socket is open, its process is there.

        A sign that comes from the newcomer's own process is none: a process may begin a new life by itself.
        """
        if self._parts.floating.talking(row.id):
            return True
        if row.state is not RunState.OPEN:
            return False
        for other in self._parts.presence.open_of(row.id):
            if other is connection:
                continue
            theirs = await other.owner()
            if not other.closed and not (owner and theirs == owner):
                return True
        return bool(row.owner) and row.owner != owner and processes.alive(row.owner)


async def present(parts: Parts, request: Request, session: SessionRow) -> RunRow | None:
    """The run that a request belongs to if nothing proves a new one; none is made. For requests that are no steps."""
    facts = parts.journal.facts
    if request.run:
        return facts.run(session.id, request.run)
    rows = facts.runs(session.id)
    owner = await request.connection.owner() if request.connection.local else ""
    found = runs.present_run(Arrival(owner=owner), tuple([_facts(row) for row in rows]))
    return next((row for row in rows if found is not None and row.id == found.id), None)


def _facts(row: RunRow) -> RunFacts:
    return RunFacts(row.id, row.name, row.named, row.owner, row.state, row.hint_min, row.hint_max)
