"""Owns what the page of retention shows: rules, sizes, what is pinned, what a pruning would do or did.

Must not decide what goes, nor delete. Invariant: what is shown as going is what ``engine.retention`` says at that
moment, and every session that stays is counted under why it does.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from agentstate.core.retention import DAY_S, WORDS, Fate, Why
from agentstate.engine.retention import Overview, Report
from agentstate.store.pruning_reader import Size

_MOST = 100  # sessions that are listed


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """Bytes: of the file, of which ``free`` are free pages, and of its write-ahead log."""

    file: int
    free: int
    log: int
    sessions: int
    steps: int


@dataclass(frozen=True, slots=True)
class RuleFigures:
    """The settings' rules, ages in days; ``None``: no such rule."""

    sessions_days: float | None
    max_sessions: int | None
    max_bytes: int | None
    keep_labels: tuple[str, ...]
    by_label: tuple[LabelRule, ...]
    superseded_days: float | None
    every_h: float
    any: bool


@dataclass(frozen=True, slots=True)
class LabelRule:
    label: str
    days: float | None


@dataclass(frozen=True, slots=True)
class GoingFigures:
    session: str
    steps: int
    status: str
    used_at: float
    why: str


@dataclass(frozen=True, slots=True)
class KeptFigures:
    """How many sessions stay, and why, in words."""

    sessions: int
    why: str


@dataclass(frozen=True, slots=True)
class PinFigures:
    session: str
    by: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class PruningFigures:
    """What a pruning would do; ``going``: the first of ``sessions``."""

    sessions: int
    steps: int
    going: tuple[GoingFigures, ...]
    kept: tuple[KeptFigures, ...]


@dataclass(frozen=True, slots=True)
class RetentionPage:
    """``asked``: the form's fields as they stand; ``foreseen``: what they would do, ``None``: nothing was asked;
    ``by_rules``: what the settings' rules would do now; ``working``: what is being done at this moment."""

    rules: RuleFigures
    size: SizeFigures
    by_rules: PruningFigures
    pinned: tuple[PinFigures, ...]
    asked: dict[str, str]
    foreseen: PruningFigures | None
    command: str
    working: str


FIELDS = ("older_than_days", "keep", "label", "status")


def retention_page(found: Overview, asked: dict[str, str], foreseen: Report | None) -> RetentionPage:
    rules = found.rules
    return RetentionPage(
        RuleFigures(
            _days(rules.older_s), rules.most, rules.most_bytes, rules.keep_labels,
            tuple(LabelRule(label, _days(age)) for label, age in rules.by_label), _days(found.superseded_s),
            found.every_s / 3600, rules.any or found.superseded_s is not None,
        ),
        size_figures(found.size),
        pruning(found.fates),
        tuple(PinFigures(pin.key, pin.actor, pin.reason, pin.at) for pin in found.pinned),
        dict.fromkeys(FIELDS, "") | asked,
        None if foreseen is None else _pruning(foreseen.gone, foreseen.kept),
        command(asked),
        "" if found.working is None else f"{found.working.what}: {found.working.done:,} of {found.working.total:,}",
    )  # fmt: skip


def pruning(fates: Iterable[Fate]) -> PruningFigures:
    kept: dict[Why, int] = {}
    gone = []
    for fate in fates:
        if fate.goes:
            gone.append(fate)
        else:
            kept[fate.why] = kept.get(fate.why, 0) + 1
    return _pruning(tuple(gone), kept)


def _pruning(gone: tuple[Fate, ...], kept: dict[Why, int]) -> PruningFigures:
    return PruningFigures(
        len(gone), sum(fate.session.steps for fate in gone),
        tuple(
            GoingFigures(fate.session.key, fate.session.steps, fate.session.status, fate.session.used_at,
                         WORDS[fate.why])
            for fate in gone[:_MOST]
        ),
        tuple(KeptFigures(count, WORDS[why]) for why, count in sorted(kept.items(), key=lambda one: -one[1])),
    )  # fmt: skip


def size_figures(size: Size) -> SizeFigures:
    return SizeFigures(size.file, size.free, size.log, size.sessions, size.steps)


def command(asked: dict[str, str]) -> str:
    """The same on the command line."""
    words = ["agentstate", "prune"]
    for name, option in (("keep", "--keep"), ("label", "--label"), ("status", "--status")):
        if value := asked.get(name):
            words += [option, value]
    if days := asked.get("older_than_days"):
        words += ["--older-than", f"{days}d"]
    return shlex.join(words)


def _days(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / DAY_S
