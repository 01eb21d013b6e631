"""Owns what is pruned and what is kept, and why. Must not read, delete or measure anything.

Invariant: nothing goes that somebody may still need: what is pinned, asks a person, is in doubt, is under way, has
news that were not delivered, or is shown by a fork that stays. Rules only say which of the rest goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from agentstate.core.branching import Branch, lineage
from agentstate.core.model import SessionStatus

DAY_S = 86400.0


class Why(StrEnum):
    """Why a session goes, or stays."""

    OLD = "old"
    SURPLUS = "surplus"
    SIZE = "size"
    ASKED = "asked"
    RECENT = "recent"
    OTHER = "other"
    LABEL = "label"
    PAUSED = "paused"
    PINNED = "pinned"
    PENDING = "pending"
    IN_DOUBT = "in_doubt"
    IN_USE = "in_use"
    UNDELIVERED = "undelivered"
    RAISED = "raised"
    FORKED = "forked"
    USED_SINCE = "used_since"
    GONE = "gone"


WORDS: dict[Why, str] = {
    Why.OLD: "was not used for longer than the rules keep it",
    Why.SURPLUS: "is older than the newest ones that the rules keep",
    Why.SIZE: "is among the oldest, and the journal is larger than the rules allow",
    Why.ASKED: "somebody asked for it",
    Why.RECENT: "no rule asks for it to go",
    Why.OTHER: "is not among those that were asked for",
    Why.LABEL: "a label keeps it",
    Why.PAUSED: "is paused, and waits for somebody to resume it",
    Why.PINNED: "is pinned; unpin it first",
    Why.PENDING: "asks a person something; decide first",
    Why.IN_DOUBT: "a tool call of it is under way or in doubt; settle it first",
    Why.IN_USE: "its agent is connected or supervised, or a call of it is under way; end the agent first",
    Why.UNDELIVERED: "a message about it was not delivered yet; wait for it, or mend its target",
    Why.RAISED: "a person raised today's budget in it; it can go tomorrow (UTC)",
    Why.FORKED: "a fork shows its steps; delete the fork first",
    Why.USED_SINCE: "was used meanwhile",
    Why.GONE: "is gone already",
}


class Rules(NamedTuple):
    """What is to go. ``older_s``: seconds since the last use; ``most``: how many sessions stay, newest use first;
    ``most_bytes`` of the journal; ``None``: no such rule. ``label``, ``status``: only such sessions; empty: all.
    ``keep_labels``: patterns of labels that keep a session; ``by_label``: pattern → seconds since the last use in
    place of ``older_s``, ``None``: kept for good."""

    older_s: float | None = None
    most: int | None = None
    most_bytes: int | None = None
    label: str = ""
    status: str = ""
    keep_labels: tuple[str, ...] = ()
    by_label: tuple[tuple[str, float | None], ...] = ()

    @property
    def any(self) -> bool:
        """Whether they ask for anything to go."""
        ages = [seconds for _, seconds in self.by_label if seconds is not None]
        return bool(ages) or any(rule is not None for rule in (self.older_s, self.most, self.most_bytes))


class Stands(NamedTuple):
    """What is known of a session. Times are seconds since the epoch; ``pending``, ``doubts``, ``messages``: how many;
    ``raised``: it raised today's budget; ``in_use``: as far as the serving process knows; ``cost``: what is known of
    it, USD, where somebody asked."""

    id: int
    key: str
    status: str
    steps: int
    created_at: float
    used_at: float
    labels: tuple[str, ...] = ()
    pinned: bool = False
    pending: int = 0
    doubts: int = 0
    messages: int = 0
    raised: bool = False
    in_use: bool = False
    cost: float = 0.0


class Fate(NamedTuple):
    session: Stands
    goes: bool
    why: Why


def kept_by(found: Stands) -> Why | None:
    """What of a session itself keeps it, whoever asks for it to go; ``None``: nothing."""
    reasons = (
        (found.pinned, Why.PINNED),
        (found.pending > 0, Why.PENDING),
        (found.doubts > 0, Why.IN_DOUBT),
        (found.in_use, Why.IN_USE),
        (found.messages > 0, Why.UNDELIVERED),
        (found.raised, Why.RAISED),
    )
    return next((why for holds, why in reasons if holds), None)


def fates(
    rules: Rules, sessions: Sequence[Stands], forks: Mapping[int, Iterable[int]], now: float, used_bytes: int = 0
) -> list[Fate]:
    """What becomes of each session, in the order in which they go: a fork before what it was forked from.

    ``forks``: by session, those whose branches begin on one of its own; ``used_bytes`` of the journal, for
    ``most_bytes``: how much of it goes with a session is taken to be its share of all steps.
    """
    wanted = _wanted(rules, sessions, now, used_bytes)
    found = {one.id: _fate(one, wanted.get(one.id), rules) for one in sessions}
    # What a session that stays was forked from stays too, and so on.
    sources: dict[int, list[int]] = {}
    for source, made in forks.items():
        for fork in made:
            sources.setdefault(fork, []).append(source)
    left = [key for key, fate in found.items() if not fate.goes]
    while left:
        for source in sources.get(left.pop(), ()):
            fate = found.get(source)
            if fate is not None and fate.goes:
                found[source] = Fate(fate.session, False, Why.FORKED)
                left.append(source)
    return [found[key] for key in sorted(found, reverse=True)]


def _fate(found: Stands, wanted: Why | None, rules: Rules) -> Fate:
    if not _concerns(rules, found):
        return Fate(found, False, Why.OTHER)
    if wanted is None:
        return Fate(found, False, Why.LABEL if _labelled(rules, found) else Why.RECENT)
    if (kept := kept_by(found)) is not None:
        return Fate(found, False, kept)
    if found.status == SessionStatus.PAUSED and rules.status != SessionStatus.PAUSED:
        return Fate(found, False, Why.PAUSED)
    return Fate(found, True, wanted)


def _wanted(rules: Rules, sessions: Sequence[Stands], now: float, used_bytes: int) -> dict[int, Why]:
    """Which sessions the rules ask for, and by which of them. What keeps a session counts among what stays."""
    wanted: dict[int, Why] = {}
    newest = sorted((one for one in sessions if _concerns(rules, one)), key=lambda one: (one.used_at, one.id))[::-1]
    free = [one for one in newest if not _labelled(rules, one)]
    for one in free:
        age = _age_of(rules, one)
        if age is not None and now - one.used_at > age:
            wanted[one.id] = Why.OLD
    if rules.most is not None:
        for one in newest[rules.most :]:
            if not _labelled(rules, one):
                wanted.setdefault(one.id, Why.SURPLUS)
    if rules.most_bytes is not None and used_bytes > rules.most_bytes:
        steps = sum(one.steps for one in sessions) or 1
        left = used_bytes * (1 - sum(one.steps for one in free if one.id in wanted) / steps)
        for one in reversed(free):
            if left <= rules.most_bytes:
                break
            if one.id not in wanted and kept_by(one) is None and one.status != SessionStatus.PAUSED:
                wanted[one.id] = Why.SIZE
                left -= used_bytes * one.steps / steps
    return wanted


def _concerns(rules: Rules, found: Stands) -> bool:
    right_status = not rules.status or rules.status == found.status
    return right_status and (not rules.label or rules.label in found.labels)


def _labelled(rules: Rules, found: Stands) -> bool:
    """Whether a label of a session keeps it for good."""
    if any(fnmatchcase(name, pattern) for name in found.labels for pattern in rules.keep_labels):
        return True
    return None in _ages(rules, found)


def _ages(rules: Rules, found: Stands) -> list[float | None]:
    return [age for pattern, age in rules.by_label if any(fnmatchcase(name, pattern) for name in found.labels)]


def _age_of(rules: Rules, found: Stands) -> float | None:
    """After how many seconds a session goes: where several of its labels say something, the longest; none: the general
    rule."""
    ages = [age for age in _ages(rules, found) if age is not None]
    return max(ages) if ages else rules.older_s


def shown_by(
    branches: Mapping[int, Branch], head: int, forks: Iterable[Branch] = ()
) -> list[tuple[tuple[int, int], ...]]:
    """The lines of steps that somebody can still see: what the head shows, and what each fork does.

    ``forks``: branches of other sessions whose parent is one of ``branches``.
    """
    return [lineage(branches, head), *(lineage({**branches, fork.id: fork}, fork.id) for fork in forks)]


def superseded(steps: Iterable[tuple[int, int, int]], lines: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Those of ``steps`` (id, branch, number) that none of the lines shows."""
    upto: dict[int, int] = {}
    for line in lines:
        for branch, limit in line:
            upto[branch] = max(upto.get(branch, 0), limit)
    return [step for step, branch, number in steps if number >= upto.get(branch, 0)]
