"""Owns which sessions and steps an export takes, as a query or a command line says it. Must not look at any.

Invariant: an unknown name or value is an error that says what is known; equal texts give equal filters, and a session
is in the same part of a split in every export.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, get_args

from agentstate.core.model import SessionStatus
from agentstate.errors import BadRequest

Format = Literal["openai", "openai-dpo", "trl", "trl-dpo", "trajectory", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
PAIRED: tuple[Format, ...] = ("openai-dpo", "trl-dpo")
RATINGS = ("good", "bad", "none")
_FLAGS = {"1": True, "true": True, "yes": True, "": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Filters:
    """``sessions``: only these; ``status``: of sessions; ``labels``: a session or step has one of them; ``rating``:
    ``good``, ``bad``, or ``none`` for what nobody rated. ``model``: a pattern. ``since``, ``until``: when steps were
    asked, seconds since the epoch. ``min_cost``, ``max_cost``: of a line, USD. ``run``: its name. ``branch``: its
    number, ``None``: the one that the session shows. ``approved``: only where a person approved or edited a call and
    nobody refused one. ``finished``: only where the last answer ended by itself, without a call. ``min_steps``: trained
    answers in a line. ``per``: a line a ``trajectory`` or a ``step``. ``split``: the share of the sessions that are for
    validation; ``part``: only ``train`` or ``validation``."""

    sessions: tuple[str, ...] = ()
    status: str = ""
    labels: tuple[str, ...] = ()
    rating: str = ""
    model: str = ""
    since: float | None = None
    until: float | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    run: str = ""
    branch: int | None = None
    approved: bool = False
    finished: bool = False
    min_steps: int = 1
    per: str = "trajectory"
    dedupe: bool = True
    redact: bool = True
    split: float = 0.0
    part: str = ""

    def takes_step(self, model: str, at: float, run: str) -> bool:
        """Whether a step is asked for, as far as it alone tells."""
        return (
            (not self.model or fnmatch.fnmatchcase(model.lower(), self.model.lower()))
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (not self.run or run == self.run)
        )

    def takes_marks(self, of_session: tuple[str, Iterable[str]], of_step: tuple[str, Iterable[str]]) -> bool:
        """The same as far as its and its session's (rating, labels) tell; a step's own rating is the one that counts
        where it has one."""
        rating = of_step[0] or of_session[0]
        if self.rating and rating != ("" if self.rating == "none" else self.rating):
            return False
        return not self.labels or not set(self.labels).isdisjoint((*of_session[1], *of_step[1]))

    def takes_cost(self, cost: float) -> bool:
        return (self.min_cost is None or cost >= self.min_cost) and (self.max_cost is None or cost <= self.max_cost)


def in_validation(session: str, split: float) -> bool:
    """Whether a session is one of those for validation, by its id alone."""
    share = int.from_bytes(sha256(b"agentstate/split\0" + session.encode("utf-8", "replace")).digest()[:8], "big")
    return share < split * 2**64


def parsed(pairs: Iterable[tuple[str, str]]) -> tuple[Filters, Format]:
    """(filters, format) of the names and values of a query. Raises ``BadRequest``."""
    found: dict[str, Any] = {}
    format_: Format = "openai"
    for name, value in pairs:
        if name == "format":
            format_ = checked_format(value)
        elif name in ("session", "label"):
            field = "sessions" if name == "session" else "labels"
            found[field] = (*found.get(field, ()), value)
        elif name in _READ:
            found[name] = _READ[name](name, value)
        else:
            known = ", ".join(sorted({"format", "session", "label", *_READ}))
            raise BadRequest(f"there is no parameter {name[:40]!r}; use {known}")
    filters = replace(Filters(), **found)
    if filters.part and not filters.split:
        raise BadRequest("part is given without split; add split=0.1, or the share that is for validation")
    return filters, format_


def checked_format(value: str) -> Format:
    """Raises ``BadRequest``."""
    if value not in FORMATS:
        raise BadRequest(f"format is {value[:40]!r}; use {', '.join(FORMATS)}")
    return value


def _text(name: str, value: str) -> str:
    return value


def _one_of(*known: str) -> Any:
    def read(name: str, value: str) -> str:
        if value and value not in known:
            raise BadRequest(f"{name} is {value[:40]!r}; use {', '.join(known)}")
        return value

    return read


def _status(name: str, value: str) -> str:
    return str(_one_of(*SessionStatus)(name, value.upper()))


def _flag(name: str, value: str) -> bool:
    if value.lower() not in _FLAGS:
        raise BadRequest(f"{name} is {value[:40]!r}; use true or false")
    return _FLAGS[value.lower()]


def _amount(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise BadRequest(f"{name} is {value[:40]!r}, which is no number") from None
    if not 0 <= number < 1e12:
        raise BadRequest(f"{name} is {value[:40]!r}; give 0 or more")
    return number


def _share(name: str, value: str) -> float:
    number = _amount(name, value)
    if number >= 1:
        raise BadRequest(f"{name} is {value[:40]!r}; give the share that is for validation, as 0.1")
    return number


def _count(name: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 15:
        raise BadRequest(f"{name} is {value[:40]!r}; give a whole number")
    return int(value)


def _moment(name: str, value: str) -> float:
    """A day (UTC), of which ``until`` means the end, or a moment."""
    try:
        if len(value) == 10:
            day = date.fromisoformat(value) + timedelta(days=name == "until")
            return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{name} is {value[:40]!r}; give a day as 2026-01-31, or a moment as 2026-01-31T09:00Z"
        ) from None


_READ: dict[str, Any] = {
    "status": _status,
    "rating": _one_of(*RATINGS),
    "model": _text,
    "since": _moment,
    "until": _moment,
    "min_cost": _amount,
    "max_cost": _amount,
    "run": _text,
    "branch": _count,
    "approved": _flag,
    "finished": _flag,
    "min_steps": _count,
    "per": _one_of("trajectory", "step"),
    "dedupe": _flag,
    "redact": _flag,
    "split": _share,
    "part": _one_of("train", "validation"),
}
