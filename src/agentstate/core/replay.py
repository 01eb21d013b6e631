"""Owns the decision what a request is answered with. Must not look anything up: it gets a view and returns a decision.

Invariant: within a run no recorded answer is handed out twice, unless its reader is known to have left early or the
client proves that it sends the same request again; across runs an answer that was paid for is not paid for again.
When it cannot be known, the call is executed: a wrong answer is worse than a bill.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from agentstate.core.model import Deletion, Entry, Match, ReplayMode, State

# Statuses that say "try again": the same question asked again is a further attempt of the same step.
TRANSIENT = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504, 529})
# They speak of the moment or of the key, not of the question: never part of a later run's history.
NEVER_HISTORY = frozenset({0, 401, 402, 403, 407, 429})
DEADLY = 2  # this many runs that died right after receiving a step make it a poison step


@dataclass(frozen=True, slots=True)
class Replay:
    """Give the completed recording of ``step``. ``match`` says how sure it is that it is the same question."""

    step: int
    match: Match = Match.STRICT
    again: bool = False  # handed to the same run once more: an orphan or a proven retry


@dataclass(frozen=True, slots=True)
class Follow:
    """Read the recording of ``step`` that is growing."""

    step: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Execute:
    """Ask the provider: a further attempt of ``step``, or a new step."""

    step: int | None = None
    poison: int | None = None  # the step whose recorded answer was passed over because it kills runs


@dataclass(frozen=True, slots=True)
class Miss:
    """The journal does not hold it: execute, once it is known whether the run has diverged."""


Decision = Replay | Follow | Execute | Miss


class Ask(NamedTuple):
    """The request, as far as the decision needs it.

    ``retry``: how often the client says that it has sent this request before; ``retry_key``: digest of its
    idempotency key.
    """

    mode: ReplayMode = ReplayMode.AUTO
    retry: int = 0
    retry_key: bytes = b""
    hint: int | None = None
    pure: bool = False


def decide(ask: Ask, run: int, entries: Iterable[Entry]) -> Decision:
    """What to do with a request of ``run``; ``entries`` are the steps of equal fingerprint, in recorded order."""
    known = tuple(entries)
    if ask.mode is ReplayMode.OFF:
        return Execute()
    if ask.pure:
        return _memo(known)
    mine = [entry for entry in known if entry.mine]
    return (
        _keyed(ask, mine)
        or _retried(ask, run, mine)
        or _orphan(mine)
        or _failed_here(mine)
        or _recorded(ask, run, known)
        or Miss()
    )


def is_history(entry: Entry) -> bool:
    """Whether a failed step is part of what later runs are shown: an error that the run survived by going on."""
    return entry.state is State.FAILED and entry.went_on and entry.status not in NEVER_HISTORY


def is_poison(entry: Entry) -> bool:
    """Whether runs die of this step's answer."""
    return entry.state is State.COMPLETED and entry.deaths >= DEADLY


def tells_end(deletion: Deletion | None, run: int | None, given: bool) -> bool:
    """Whether the recorded end of a job may answer a poll of a run (``None``: of no known run).

    After a deletion only to a run that lives through it again: it began later, was ``given`` the job's beginning by the
    journal, and has not come to the deletion yet. Anybody else is told what the provider says now.
    """
    if deletion is None:
        return True
    return run is not None and run > deletion.upto and given and not deletion.mine


def _memo(entries: tuple[Entry, ...]) -> Decision:
    """A pure endpoint: any completed answer serves, any number of times."""
    for entry in entries:
        if entry.state is State.COMPLETED:
            return Replay(entry.step)
    for entry in entries:
        if entry.live:
            return Follow(entry.step)
    return Miss()


def _give(entry: Entry, again: bool) -> Decision | None:
    """Hand out the entry as it stands; ``None`` where somebody else reads it."""
    if entry.state is State.COMPLETED:
        return Replay(entry.step, again=again)
    if entry.state is State.IN_FLIGHT and entry.live:
        return Follow(entry.step, again=again)
    return Execute(entry.step)


def _keyed(ask: Ask, mine: list[Entry]) -> Decision | None:
    """The same idempotency key names the same call, in flight or done."""
    if not ask.retry_key:
        return None
    for entry in mine:
        if entry.retry_key == ask.retry_key:
            return _give(entry, again=True)
    return None


def _retried(ask: Ask, run: int, mine: list[Entry]) -> Decision | None:
    """A proven retry joins the call that it repeats, as far as that is unambiguous.

    The header does not prove that the earlier sending ever arrived here: while the proxy was down, or over a connection
    that had just been closed, it did not. So what has a reader or was delivered counts only if it is the run's sole
    step of this fingerprint, was the sending right before this one (``tries``), and is ``fresh`` or ``lost``.
    """
    if not ask.retry:
        return None
    growing = [entry for entry in mine if entry.live]
    lost = [entry for entry in growing if not entry.watched]
    lost = lost or [entry for entry in mine if entry.cut or (entry.unreleased and not entry.watched)]
    if lost:
        return _give(lost[0], again=True)
    if len(mine) != 1:
        return None
    sole, right_before = mine[0], mine[0].tries == ask.retry - 1
    if sole.live:
        return Follow(sole.step, again=True) if right_before else None
    recent = sole.fresh and sole.run == run and right_before
    return _give(sole, again=True) if recent or sole.lost else None


def _orphan(mine: list[Entry]) -> Decision | None:
    """An answer of this run that never reached its reader."""
    for entry in mine:
        if entry.unreleased and not entry.watched:
            return Replay(entry.step, again=True)
        if entry.live and not entry.watched:
            return Follow(entry.step, again=True)
        if entry.cut and not entry.live:
            return _give(entry, again=True)
    return None


def _failed_here(mine: list[Entry]) -> Decision | None:
    """What failed in passing, or died with the proxy, is tried again as the same step."""
    for entry in mine:
        if entry.live or entry.state is State.COMPLETED:
            continue
        if entry.state is State.FAILED and entry.status not in TRANSIENT:
            continue
        return Execute(entry.step)
    return None


def _recorded(ask: Ask, run: int, known: tuple[Entry, ...]) -> Decision | None:
    """The first step of an earlier life that this run has not been given. The step number breaks ties only."""
    open_ = [entry for entry in known if not entry.mine and not entry.excluded and entry.run < run]
    usable = [entry for entry in open_ if not ((entry.live or entry.unreleased) and entry.watched)]
    if ask.hint is not None and len({entry.hint for entry in usable}) > 1:
        usable.sort(key=lambda entry: entry.hint != ask.hint)
    for entry in usable:
        if is_poison(entry) and entry.broken:
            return Execute(poison=entry.step)
        if entry.state is State.FAILED:
            return Replay(entry.step) if is_history(entry) else Execute(entry.step)
        return _give(entry, again=False)
    return None
