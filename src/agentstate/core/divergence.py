"""Owns what happens when a run asks what the journal does not hold while unread steps remain, and how it is reported.

Invariant: a run's first divergence is reported once, with the nearest recorded step by content; no effect that lies in
the unread tail is run again without the operator's policy or a person saying so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentstate.core.model import Match, ReplayMode


class Policy(StrEnum):
    AUTO = "auto"
    FORK = "fork"
    PAUSE = "pause"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Unread:
    """A step of an earlier life that the run has not been given.

    ``tip``: digest of its whole transcript. ``effects``: names of tools that its answer called and that may have acted.
    """

    step: int
    number: int
    started: int
    finished: int
    tip: bytes
    effects: tuple[str, ...] = ()
    completed: bool = True


@dataclass(frozen=True, slots=True)
class Diverged:
    """``policy`` is what happens now: fork, pause or strict."""

    policy: Policy
    unread: tuple[Unread, ...]
    effects: tuple[str, ...]


def carried(chain: Sequence[bytes], unread: Sequence[Unread]) -> tuple[Unread, ...]:
    """The unread steps whose whole transcript is the beginning of this request's: the agent kept them itself.

    An agent with a checkpoint of its own starts in the middle; that is no divergence.
    """
    known = set(chain)
    return tuple(step for step in unread if step.tip and step.tip in known)


def judge(chain: Sequence[bytes], unread: Sequence[Unread], policy: Policy, mode: ReplayMode) -> Diverged | None:
    """Whether a request that matched nothing diverges, and what then. ``None``: it only goes on from what there is."""
    gone = {step.step for step in carried(chain, unread)}
    left = tuple(step for step in unread if step.step not in gone)
    if not left:
        return None
    effects = tuple(dict.fromkeys(name for step in left for name in step.effects))
    if mode is ReplayMode.STRICT:
        policy = Policy.STRICT
    elif policy is Policy.AUTO:
        policy = Policy.PAUSE if effects else Policy.FORK
    return Diverged(policy, left, effects)


def window(unread: Sequence[Unread], most: int = 16) -> tuple[Unread, ...]:
    """Where a match that is not strict may be looked for: the first unread step and those that overlapped it."""
    ordered = sorted((step for step in unread if step.completed), key=lambda step: step.started)
    if not ordered:
        return ()
    first = ordered[0]
    return tuple(step for step in ordered if step is first or step.started < first.finished)[:most]


def nearest(chain: Sequence[bytes], candidates: Sequence[tuple[int, Sequence[bytes]]]) -> int | None:
    """The candidate (step, its chain) that shares most leading messages with the request; the earliest of equals."""
    best, shared = None, -1
    for step, other in candidates:
        same = 0
        for mine, theirs in zip(chain, other, strict=False):
            if mine != theirs:
                break
            same += 1
        if same > shared:
            best, shared = step, same
    return best


def only(matches: Sequence[tuple[int, Match]]) -> tuple[int, Match] | None:
    """The one match; ``None`` when there is none or a choice."""
    return matches[0] if len(matches) == 1 else None


def diff(recorded: Any, asked: Any, most: int = 20) -> list[dict[str, Any]]:
    """Leaves in which two JSON values differ, as ``{"path", "recorded", "asked"}``, in document order.

    ``most`` of them. Long texts are cut to the neighbourhood of their first difference.
    """
    found: list[dict[str, Any]] = []
    _walk("", recorded, asked, found, most)
    return found


_ABSENT = "(absent)"


def _walk(path: str, old: Any, new: Any, found: list[dict[str, Any]], most: int) -> None:
    if len(found) >= most or old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            _walk(f"{path}.{key}" if path else str(key), old.get(key, _ABSENT), new.get(key, _ABSENT), found, most)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was = old[index] if index < len(old) else _ABSENT
            is_ = new[index] if index < len(new) else _ABSENT
            _walk(f"{path}[{index}]", was, is_, found, most)
    else:
        was, is_ = _excerpt(old, new), _excerpt(new, old)
        found.append({"path": path, "recorded": was, "asked": is_})


def _excerpt(value: Any, other: Any, size: int = 120) -> Any:
    if not isinstance(value, str):
        return value if not isinstance(value, dict | list) else f"({type(value).__name__} of {len(value)})"
    if len(value) <= size:
        return value
    start = 0
    if isinstance(other, str):
        start = next((i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), 0)
    start = max(0, start - 40)
    return ("…" if start else "") + value[start : start + size] + "…"
