"""Owns what the facts about tool calls write: claims, questions, results. A part of ``Journal``; must not decide.

Invariant: a claim is on disk before anything is sent under it, and so is a result before anybody is given it; a step
has one result, and a call one key.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple, TypeVar

from agentstate import clock
from agentstate.core import effects, lifecycle
from agentstate.core.model import State
from agentstate.errors import Conflict, StepTaken
from agentstate.store import bodies, decisions, transactions
from agentstate.store.counters import Counters
from agentstate.store.outgoing import Outgoing
from agentstate.store.rows import Begun, Ending, Message, NewApproval, NewStep
from agentstate.store.sqlite import named

T = TypeVar("T")
_SQL = named("write.sql")


class NewEffect(NamedTuple):
    """A call that is about to be made. ``session``: its session's id as agents know it; ``kind``: its class;
    ``arguments``: ``core.effects.spelled``; the others as in ``EffectRow``."""

    session: str
    server: str
    tool: str
    kind: str
    arguments: str
    holder: str = ""
    owner: str = ""
    sending: bytes = b""
    leave: str | None = None
    settled: str = ""


class Claimed(NamedTuple):
    """A call that may be made now, once, with this key."""

    begun: Begun
    key: str


class Kept(NamedTuple):
    """A result to be kept. ``failed``: it is an error; ``settled``: how a doubt about the call ended; ``given``: the
    run that executed the call itself, and so has its result already."""

    ending: Ending
    failed: bool
    settled: str = ""
    given: int | None = None


class Effects(Outgoing):
    """What ``Journal`` gives its part."""

    _counters: Counters

    def _began(self, new: NewStep) -> None:
        raise NotImplementedError

    async def claim(
        self, new: NewStep, effect: NewEffect, step: int | None = None, was: State | None = None
    ) -> Claimed:
        """A call is about to be made: for the first time, or as a further attempt of ``step``, which ``was`` in that
        state. Raises ``StepTaken`` when its state has changed."""
        if was is not None:
            lifecycle.move_step(was, State.IN_FLIGHT)
        return await self._write(
            "claim",
            lambda conn: _claim(conn, self._counters, new, effect, step, was),
            then=lambda: self._began(new),
            size=len(new.call.body),
        )

    async def abandon(self, step: int) -> None:
        """The process that executed a call gave it up in its middle: nobody knows what it came to."""

        def work(conn: sqlite3.Connection) -> None:
            transactions.interrupt_step(conn, step)
            conn.execute(_SQL["without_holder"], (step,))

        await self._write("abandon", work)

    async def hold_call(self, new: NewStep, effect: NewEffect) -> Begun:
        """A call waits for a person, or is refused at once by a policy; on disk before anybody is told."""

        def work(conn: sqlite3.Connection) -> Begun:
            begun = transactions.hold_step(conn, self._counters, new)
            _add_effect(conn, self._counters, new, effect, begun)
            return begun

        return await self._write("hold_call", work, then=lambda: self._began(new), size=len(new.call.body))

    async def doubt(self, session: int, step: int, asked: NewApproval, messages: tuple[Message, ...]) -> None:
        """A person is asked about a call that was claimed before: what became of it, or whether it may be made now."""

        def work(conn: sqlite3.Connection) -> None:
            transactions.interrupt_step(conn, step)
            try:
                decisions.ask(conn, self._counters, session, step, asked)
            except sqlite3.IntegrityError as error:
                raise StepTaken("it is asked already what became of this call; ask again") from error
            decisions.tell(conn, messages, clock.now())

        await self._write("doubt", work, then=self.posted if messages else None)

    async def keep_result(self, kept: Kept) -> bool:
        """What a call came to; false: that was known already, and says the same. Raises ``Conflict`` where another
        result is known, or the attempt is not the last one."""
        return await self._write(
            "keep_result", lambda conn: _keep(conn, self._counters, kept), size=len(kept.ending.body)
        )


def _claim(
    conn: sqlite3.Connection, counters: Counters, new: NewStep, effect: NewEffect, step: int | None, was: State | None
) -> Claimed:
    if step is None or was is None:
        begun = transactions.begin_step(conn, counters, new)
        return Claimed(begun, _add_effect(conn, counters, new, effect, begun))
    if was is State.HELD:
        begun = transactions.send_held(conn, new, step)
    else:
        begun = transactions.begin_attempt(conn, counters, step, was, new)
    occurrence, key, branch, before = conn.execute(_SQL["effect_of"], (step,)).fetchone()
    arguments = bodies.put_body(conn, counters, effect.arguments.encode())
    if arguments != before:  # a person edited them: it is another call to whoever honours the key
        key = effects.key_of(effect.session, branch, effect.server, effect.tool, effect.arguments, occurrence)
    values = {
        "step": step, "class": effect.kind, "key": key, "holder": effect.holder, "owner": effect.owner,
        "sending": effect.sending, "settled": effect.settled, "arguments": arguments,
    }  # fmt: skip
    conn.execute(_SQL["claim_effect"], values)
    return Claimed(begun, key)


def _add_effect(conn: sqlite3.Connection, counters: Counters, new: NewStep, effect: NewEffect, begun: Begun) -> str:
    values = {"branch": new.branch, "fingerprint": new.fingerprint.key, "number": begun.number}
    occurrence = conn.execute(_SQL["equal_calls"], values).fetchone()[0]
    key = effects.key_of(effect.session, new.branch, effect.server, effect.tool, effect.arguments, occurrence)
    try:
        conn.execute(
            _SQL["add_effect"],
            (
                begun.step, effect.server, effect.tool, effect.kind, key, occurrence,
                bodies.put_body(conn, counters, effect.arguments.encode()), effect.holder, effect.owner, effect.sending,
                effect.leave,
            ),
        )  # fmt: skip
    except sqlite3.IntegrityError as error:
        raise StepTaken("the approval of this call was used by an equal call meanwhile; ask again") from error
    return key


def _keep(conn: sqlite3.Connection, counters: Counters, kept: Kept) -> bool:
    ending, now = kept.ending, clock.now()
    row = conn.execute("select state, attempts from step where id = ?", (ending.step,)).fetchone()
    if row is None or row[1] != ending.attempt:
        raise Conflict("this attempt of the call is not the last one any more; its result is not taken")
    if row[0] == State.COMPLETED:
        known = conn.execute(
            "select b.hash = ? from attempt a join blob b on b.id = a.body where a.step = ? and a.n = ?",
            (bodies.hash_of(ending.body), ending.step, ending.attempt),
        ).fetchone()
        if known and known[0]:
            return False
        raise Conflict("another result of this call is known already, and stays")
    if row[0] != State.IN_FLIGHT:
        lifecycle.move_step(State(row[0]), State.COMPLETED)
        conn.execute(_SQL["unfinish"], {"step": ending.step, "n": ending.attempt})
        conn.execute(_SQL["unfinish_attempt"], {"step": ending.step, "n": ending.attempt})
    transactions.end_step(conn, counters, ending)
    values = {"step": ending.step, "failed": int(kept.failed), "settled": kept.settled, "now": now}
    conn.execute(_SQL["see_effect"], values)
    if kept.given is not None:
        conn.execute(_SQL["delivered"], (kept.given, ending.step))
    for (approval,) in conn.execute(_SQL["overtake"], {"step": ending.step, "now": now}).fetchall():
        decisions.audit(conn, "agentstate", "approval.overtaken", approval, {"step": ending.step})
    return True
