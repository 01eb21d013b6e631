"""Owns the session verbs that choose where a session goes on: going back, forking, editing an answer, and saying before
what each of them would mean. Must not render.

Invariant: nothing that was recorded is lost by any of them; what stands in the world is listed, never called undone; an
edited call is one that the policies let this person decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from agentstate.core import effects
from agentstate.core.approval import Person
from agentstate.core.branching import NO_LIMIT, lineage
from agentstate.core.effects import Settled, ToolClass
from agentstate.core.model import ApprovalKind, ApprovalState, State
from agentstate.engine import editing
from agentstate.engine.core import Parts
from agentstate.engine.editing import Editable
from agentstate.engine.invocations import acts
from agentstate.engine.sessions import MOST_ID, checked_id, found
from agentstate.errors import BadRequest, Conflict, NotFound
from agentstate.store.branches import BranchRow, PointRow, Shown, is_in
from agentstate.store.effect_reader import EffectRow
from agentstate.store.reader import Reader
from agentstate.store.rows import ApprovalRow, Message, SessionRow
from agentstate.store.steering import LEFT_BEHIND, NewRevision

T = TypeVar("T")
Verb = Literal["rollback", "fork", "edit"]
Left = list[tuple[int, bool]]  # see ``editing.left_behind``
VERBS: tuple[Verb, ...] = ("rollback", "fork", "edit")
MOST_REASON = 2000  # characters
_MOST_PENDING = 10_000
_LEAVE = (ApprovalKind.CALL, ApprovalKind.DUPLICATE)  # questions whether a call may be made


class MadeCall(NamedTuple):
    """A call that an agent was given in a model's answer, and makes by itself; of a tool that may act. ``seen``: its
    result came back, else it may have been made; ``failed``: with an error."""

    number: int
    tool: str
    call_id: str
    arguments: str
    seen: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """What a verb would mean. ``superseded``: numbers of the steps that are not shown, or not gone on from, any more
    (of a fork: not shared); ``restored``: of those that are shown again; ``cost``: what was paid for the superseded,
    USD, ``None``: not known of any; ``cost_unknown``: of how many it is not; ``replays``: how many recorded answers the
    next run finds; ``standing``: the calls after the point that did something, or may have, and that nothing undoes,
    ``made``: those that agents make by themselves; ``pending``: what people are asked no more."""

    verb: Verb
    session: str
    step: int
    branch: int | None
    superseded: tuple[int, ...]
    restored: tuple[int, ...]
    cost: float | None
    cost_unknown: int
    replays: int
    standing: list[EffectRow]
    pending: list[ApprovalRow]
    made: list[MadeCall]


class RolledBack(NamedTuple):
    """The session as it is now. ``standing``: the tool calls in the steps that are superseded which did something, or
    may have; a rollback undoes none of them. ``branch``: the one on which it goes on; ``made``: as in ``Preview``."""

    session: SessionRow
    standing: list[EffectRow]
    branch: int = 0
    made: Sequence[MadeCall] = ()


class Forked(NamedTuple):
    """The new session, and what it was forked from. ``standing``: calls after that point, made in the source."""

    session: SessionRow
    source: str
    step: int
    standing: list[EffectRow]
    made: Sequence[MadeCall] = ()


class Edited(NamedTuple):
    """The session as it is now, and the branch that shows the edit. ``standing``: calls made after the edited step."""

    session: SessionRow
    step: int
    branch: int
    standing: list[EffectRow]
    made: Sequence[MadeCall] = ()


class BranchView(NamedTuple):
    """A branch. ``upto``: its parent's steps below this number are shared, ``None``: it has no parent; ``session``:
    whose it is; ``steps``: of its own; ``shown``: the session shows it, ``head``: and goes on with it."""

    id: int
    session: str
    parent: int | None
    upto: int | None
    reason: str
    made_at: float
    made_by: str
    steps: int
    shown: bool
    head: bool


class Steering:
    """The verbs. ``reader``: for what is only looked at, in a thread; else the journal's own."""

    def __init__(self, parts: Parts, reader: Reader | None = None) -> None:
        self._parts = parts
        self._reader = reader

    @property
    def _read(self) -> Reader:
        return self._reader or self._parts.journal.read

    # --- looking ---

    def preview(self, key: str, step: int | None, *, branch: int | None = None, verb: Verb) -> Preview:
        """What a verb would mean at a step. A long read. Raises ``NotFound``, ``BadRequest``, ``Conflict``."""
        session = found(self._read, key)
        if verb == "edit":
            return self._preview_edit(session, _given_step(session, step, None))
        number = _given_step(session, step, branch)
        before = self._read.shown(session)
        after = _below(self._lineage(session, branch), number)
        if verb == "fork":
            before = self._lineage(session, branch)
            _check_forkable(self._read.points(after))
        old, new = self._read.points(before), self._read.points(after)
        gone = _without(old, new)
        pending = [] if verb == "fork" else self._withdrawn(session, after)
        return Preview(
            verb, session.key, number, branch, tuple(point.number for point in gone),
            tuple(point.number for point in _without(new, old)), *_cost(gone), _replays(new),
            self._standing(before, lambda effect: not is_in(after, effect.branch, effect.number)), pending,
            self._made(before, gone),
        )  # fmt: skip

    def _behind(self, shown: Shown, step: int, number: int) -> tuple[Left, list[EffectRow], list[MadeCall]]:
        """What goes on from a step's answer, and the calls that were made from there on: those of the answer too, which
        may be other ones then."""
        points = [point for point in self._read.points(shown) if point.number >= number]
        return (
            editing.left_behind(self._read, shown, step, number),
            self._standing(shown, lambda effect: effect.number > number),
            self._made(shown, points),
        )

    def _preview_edit(self, session: SessionRow, number: int) -> Preview:
        shown = self._read.shown(session)
        step = editing.step_of(self._read, session, shown, number)
        behind, standing, made = self._behind(shown, step, number)
        left = {one for one, _ in behind}
        points = self._read.points(shown)
        gone = [point for point in points if point.step in left]
        return Preview(
            "edit", session.key, number, None, tuple(point.number for point in gone), (), *_cost(gone),
            _replays([point for point in points if point.step not in left]),
            standing, [row for row in self._read.asked_about(left) if row.state is ApprovalState.PENDING], made,
        )  # fmt: skip

    def editable(self, key: str, step: int) -> Editable:
        """What of a step's answer can be edited, and the versions that there are of it. Raises ``NotFound``,
        ``Unprocessable``."""
        session = found(self._read, key)
        return editing.editable(self._read, session, self._read.shown(session), step)

    def versions(self, key: str, step: int) -> list[editing.Version]:
        """All that a step's answer has been, as it was recorded first. Raises ``NotFound``."""
        session = found(self._read, key)
        shown = self._read.shown(session)
        at = self._read.step_on(shown, step)
        at = self._read.step_by_number(session.id, step) if at is None else at
        if at is None:
            raise NotFound(f"session {key!r} has no step {step}")
        return editing.versions(self._read, shown, at)

    def branches(self, key: str) -> list[BranchView]:
        """The branches of a session, and those of others that it goes on from, oldest first. Raises ``NotFound``."""
        session = found(self._read, key)
        rows = self._read.branches(session.id)
        shown = dict(self._read.shown(session))
        counts: dict[int, int] = {}
        keys: dict[int, str] = {}
        for owner in {row.session for row in rows.values()}:
            counts |= self._read.steps_by_branch(owner)
            known = self._read.session_of(owner)
            keys[owner] = known.key if known is not None else ""
        return [
            BranchView(
                at, keys[row.session], row.branch.parent, row.branch.upto if row.branch.parent is not None else None,
                row.reason, row.created_at, row.made_by, counts.get(at, 0), at in shown, at == session.head,
            )
            for at, row in sorted(rows.items())
        ]  # fmt: skip

    # --- doing ---

    async def roll_back(self, key: str, step: int | None, actor: Person, *, branch: int | None = None) -> RolledBack:
        """Steps from ``step`` on are superseded. ``branch``: go back to this one of the session's, to all of it where
        no step is named. Raises ``NotFound``, ``BadRequest``, ``Conflict``."""
        session = found(self._parts.journal.read, key)
        number = _given_step(session, step, branch)
        after = _below(self._lineage(session, branch), number)
        seen = await self._in_thread(lambda looking: looking.preview(key, number, branch=branch, verb="rollback"))
        again = self._asked_again(session, self._parts.journal.read.shown(session), after)
        made = await self._parts.journal.roll_back(session, number, branch=branch, by=actor.name, again=again)
        self._parts.gate.look_again()
        return RolledBack(found(self._parts.journal.read, key), seen.standing, made, seen.made)

    async def fork(
        self, key: str, step: int, actor: Person, *, name: str | None = None, branch: int | None = None
    ) -> Forked:
        """A new session that shares the steps below ``step``, of a branch of the session, else of what it shows.
        ``name``: its id; without, ``<session>-fork-<n>``. Raises ``NotFound``, ``BadRequest``, ``Conflict``."""
        read = self._parts.journal.read
        session = found(read, key)
        number = _given_step(session, step, None)
        head = session.head if branch is None else branch
        seen = await self._in_thread(lambda looking: looking.preview(key, number, branch=head, verb="fork"))
        if name is None:
            start = f"{key[: MOST_ID - len('-fork-') - 6]}-fork-"  # policies may go by how the id begins
            taken = read.begins_with(start)
            name = next(new for at in range(1, len(taken) + 2) if (new := f"{start}{at}") not in taken)
        checked_id(name)
        await self._parts.journal.fork(session, head, number, name, actor.name)
        return Forked(found(read, name), key, number, seen.standing, seen.made)

    async def edit(
        self, key: str, step: int, actor: Person, *, text: str | None = None,
        arguments: Mapping[Any, Any] | None = None, reason: str = "",
    ) -> Edited:  # fmt: skip
        """Another answer of a recorded step from now on, on a new branch: with another text, with other arguments of
        its calls (by call id, or by place). Raises ``NotFound``, ``BadRequest``, ``Unprocessable``, ``Forbidden``, and
        ``Conflict``."""
        if len(reason) > MOST_REASON:
            raise BadRequest(f"the reason has {len(reason)} characters; {MOST_REASON} are taken")
        read = self._parts.journal.read
        session = found(read, key)
        shown = read.shown(session)
        at = editing.step_of(read, session, shown, step)
        new = await editing.edited(self._parts, session, shown, at, actor, text, arguments or {})
        left, standing, calls = await self._in_thread(lambda looking: looking._behind(shown, at, step))
        withdrawn = [row for row in read.asked_about(one for one, _ in left) if row.state is ApprovalState.PENDING]
        revision = NewRevision(
            at, step, session.head, session.steps, new.body, new.changed, reason, new.calls, tuple(left),
            tuple(row.id for row in withdrawn),
        )  # fmt: skip
        made = await self._parts.journal.edit(session, revision, actor.name)
        self._parts.gate.look_again()
        return Edited(found(read, key), step, made, standing, calls)

    # --- parts of it ---

    async def _in_thread(self, work: Callable[[Steering], T]) -> T:
        """A long look, in a thread with a connection of its own."""

        def run() -> T:
            reader = Reader(self._parts.journal.path, self._parts.settings.store.busy_s)
            try:
                return work(Steering(self._parts, reader))
            finally:
                reader.close()

        return await asyncio.to_thread(run)

    def _lineage(self, session: SessionRow, branch: int | None) -> Shown:
        """What a branch of the session shows. Raises ``NotFound``."""
        rows = self._read.branches(session.id)
        head = session.head if branch is None else branch
        if head not in rows or rows[head].session != session.id:
            raise NotFound(
                f"session {session.key!r} has no branch {head} of its own; `agentstate branches` lists those there are"
            )
        return _lineage_of(rows, head)

    def _standing(self, shown: Shown, after: Callable[[EffectRow], bool]) -> list[EffectRow]:
        """The calls on a lineage that did something, or may have, and that lie ``after`` a point."""
        read = self._read
        sessions = dict.fromkeys(read.session_of_branch(branch) for branch, _ in shown)
        return [
            effect for session in sessions for effect in read.effects(session)
            if is_in(shown, effect.branch, effect.number) and after(effect) and effects.stands(
                ToolClass(effect.kind), effect.state, effect.settled == Settled.ABORTED,
                [row.state for row in read.approvals_of(effect.step) if row.kind in _LEAVE],
            )
        ]  # fmt: skip

    def _made(self, shown: Shown, points: Sequence[PointRow]) -> list[MadeCall]:
        """The calls in the answers of these steps, of those that a lineage shows, that agents make by themselves."""
        numbers = {point.step: point.number for point in points}
        given = [row for row in self._read.invocations(numbers) if acts(self._parts.settings.tools, row.tool)]
        claims = self._standing(shown, lambda effect: True)
        proposed = [effects.Proposed(numbers[row.step], row.tool, row.arguments) for row in given]
        claimed = effects.paired(
            proposed, [effects.Made(one.number, one.server, one.tool, one.arguments) for one in claims]
        )
        return [
            MadeCall(numbers[row.step], row.tool, row.call_id, row.arguments, row.result is not None, row.failed)
            for place, row in enumerate(given) if place not in claimed
        ]  # fmt: skip

    def _withdrawn(self, session: SessionRow, after: Shown) -> list[ApprovalRow]:
        """What people are asked about steps that are not shown then."""
        rows = self._read.approvals("pending", session.key, _MOST_PENDING)
        return [row for row in rows if not is_in(after, self._read.received(row.step).branch, row.number)]

    def _asked_again(self, session: SessionRow, before: Shown, after: Shown) -> dict[str, tuple[Message, ...]]:
        """What is asked once more as its steps are shown again, with who is told of it."""
        again: dict[str, tuple[Message, ...]] = {}
        was, will = ({row.step for row in self._read.left_behind(shown)} for shown in (before, after))
        for key, branch, number in self._read.withdrawn(session.id):
            row = self._read.approval(key)
            if row is None or not is_in(after, branch, number) or row.step in will:
                continue
            if row.step in was if row.reason == LEFT_BEHIND else not is_in(before, branch, number):
                again[key] = self._parts.gate.messages(session.key, row)
        return again


def _lineage_of(rows: Mapping[int, BranchRow], head: int) -> Shown:
    return lineage({key: row.branch for key, row in rows.items()}, head)


def _below(shown: Shown, number: int) -> Shown:
    return tuple((branch, min(upto, number)) for branch, upto in shown)


def _given_step(session: SessionRow, step: int | None, branch: int | None) -> int:
    """The step number that was given; of a branch alone, all of it. Raises ``BadRequest``."""
    if step is None and branch is not None:
        return min(session.steps, NO_LIMIT)
    if step is None:
        raise BadRequest("name a step number, or a branch to go back to")
    if step < 0 or step > session.steps:
        raise BadRequest(f"step_number is {step}; session {session.key!r} has the steps 0 to {session.steps - 1}")
    return step


def _check_forkable(points: Sequence[PointRow]) -> None:
    """Raises ``Conflict`` where a step that would be shared is not settled: two sessions cannot wait for one decision,
    nor for one answer."""
    for point in points:
        why = ""
        if point.state is State.IN_FLIGHT:
            why = "is in flight: wait until it has ended"
        elif point.asked or point.state is State.HELD or point.release == "held":
            why = "is held: decide about it, and let its agent have what is released"
        elif point.kind == "tool" and point.state is State.INTERRUPTED:
            why = "is a call in doubt: say what became of it (`agentstate settle`)"
        if why:
            raise Conflict(f"step {point.number} {why}; or fork at step {point.number} or before")


def _without(points: Iterable[PointRow], others: Iterable[PointRow]) -> list[PointRow]:
    known = {point.step for point in others}
    return [point for point in points if point.step not in known]


def _cost(points: Sequence[PointRow]) -> tuple[float | None, int]:
    costs = [point.cost for point in points if point.cost is not None]
    return (sum(costs) if costs or not points else None), sum(point.unpriced for point in points)


def _replays(points: Iterable[PointRow]) -> int:
    return sum(point.state is State.COMPLETED for point in points)
