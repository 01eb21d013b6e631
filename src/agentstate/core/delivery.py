"""Owns what follows from one try to deliver a message: it arrived, it is tried again and when, or it is dead. Must not
send, wait or store.

Invariant: only a 2xx answer means that it arrived; every other try ends in a later one or, after a bounded number of
them, in a dead message that somebody can see.
"""

from __future__ import annotations

import email.utils
from enum import StrEnum
from typing import NamedTuple

MOST_ATTEMPTS = 12
FIRST_S = 10.0  # the longest wait before the second try; it doubles with each
LONGEST_S = 3600.0
_TOO_MANY = 429


class Fate(StrEnum):
    """What became of a message."""

    DELIVERED = "delivered"
    AGAIN = "again"
    DEAD = "dead"


class Next(NamedTuple):
    """``wait_s``: seconds until the next try, where there is one."""

    fate: Fate
    wait_s: float = 0.0


def after(status: int, retry_after: str, attempt: int, now: float, chance: float) -> Next:
    """What follows try number ``attempt``, from 1. ``status``: of the answer, 0 where none came; ``retry_after``: its
    header of that name, empty where it has none; ``now``: seconds since the epoch; ``chance``: uniform in [0, 1).

    The wait is uniform between nothing and a bound that doubles (full jitter), so that messages which failed together
    do not come back together; never less than the answer asks for, never more than an hour.
    """
    if 200 <= status < 300:
        return Next(Fate.DELIVERED)
    if status and status != _TOO_MANY and status < 500:
        return Next(Fate.DEAD)
    if attempt >= MOST_ATTEMPTS:
        return Next(Fate.DEAD)
    bound = min(LONGEST_S, FIRST_S * 2.0 ** (attempt - 1))
    return Next(Fate.AGAIN, max(bound * chance, min(LONGEST_S, asked_wait(retry_after, now))))


def asked_wait(header: str, now: float) -> float:
    """The seconds that a ``Retry-After`` asks for: a number of them, or a date; 0 where it says neither."""
    text = header.strip()
    if text.replace(".", "", 1).isdecimal() and text.isascii():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
