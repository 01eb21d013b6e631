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
    """A step of an earlier life that the run has not been given; ``author``: the run that it was recorded of.

    ``tip``: digest of its whole transcript. ``effects``: names of tools that its answer called and that may have acted.
    """

    step: int
    number: int
    started: int
    finished: int
    tip: bytes
    effects: tuple[str, ...] = ()
    completed: bool = True
    author: int = 0


@dataclass(frozen=True, slots=True)
class Diverged:
    """``policy`` is what happens now: fork, pause or strict."""

    policy: Policy
    unread: tuple[Unread, ...]
    effects: tuple[str, ...]


def carried(chain: Sequence[bytes], unread: Sequence[Unread]) -> tuple[Unread, ...]:
    """The unread steps whose whole transcript is the beginning of this request's: the agent kept them itself.

    An agent with a checkpoint of its own starts in the middle; that is no divergence. The same transcript asked again,
    with another system text or temperature, is one: nothing shows that the agent has the answer.
    """
    known = set(chain[:-1])
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


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where two JSON values differ: ``path``, keys and indexes, and what stands there. ``ABSENT``: nothing does."""

    path: tuple[str | int, ...]
    recorded: Any
    asked: Any

    def shown(self) -> dict[str, Any]:
        """For a report: long texts are cut to the neighbourhood of their first difference."""
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).removeprefix(".")
        recorded, asked = _excerpt(self.recorded, self.asked), _excerpt(self.asked, self.recorded)
        return {"path": path, "recorded": recorded, "asked": asked}


ABSENT = "(absent)"


def diff(recorded: Any, asked: Any, most: int = 20) -> list[dict[str, Any]]:
    """Leaves in which two JSON values differ, as ``{"path", "recorded", "asked"}``, in document order.

    ``most`` of them. Long texts are cut to the neighbourhood of their first difference.
    """
    return [leaf.shown() for leaf in leaves(recorded, asked, most)]


def leaves(recorded: Any, asked: Any, most: int) -> list[Leaf]:
    """Leaves in which two JSON values differ, in document order; ``most`` of them."""
    found: list[Leaf] = []
    _walk((), recorded, asked, found, most)
    return found


def _walk(path: tuple[str | int, ...], old: Any, new: Any, found: list[Leaf], most: int) -> None:
    if len(found) >= most or old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            _walk((*path, key), old.get(key, ABSENT), new.get(key, ABSENT), found, most)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was = old[index] if index < len(old) else ABSENT
            is_ = new[index] if index < len(new) else ABSENT
            _walk((*path, index), was, is_, found, most)
    else:
        found.append(Leaf(path, old, new))


def with_leaf(recorded: Any, path: Sequence[str | int], asked: Any) -> Any:
    """The recorded value, with what is asked in one place of it; the value itself stays as it is."""
    if not path:
        return asked
    key, rest = path[0], path[1:]
    copied = recorded.copy()
    if isinstance(copied, list):
        index = int(key)
        if asked == ABSENT and not rest:
            del copied[index]
        elif index < len(copied):
            copied[index] = with_leaf(copied[index], rest, asked)
        else:
            copied.append(asked)
    elif asked == ABSENT and not rest:
        del copied[key]
    else:
        copied[key] = with_leaf(copied.get(key), rest, asked)
    return copied


_MESSAGES = ("messages", "input", "contents")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_SPEAKERS = {
    "user": "the user's text",
    "system": "the system text",
    "developer": "the system text",
    "tool": "what a tool returned",
    "function": "what a tool returned",
    "assistant": "what the model said before",
    "model": "what the model said before",
    "function_call": "a tool call of the model",
}


def place_in_words(path: Sequence[str | int], recorded: Any, asked: Any) -> str:
    """What a person would call the place of a leaf in a request."""
    name = str(path[0]) if path else ""
    if name in _SYSTEM:
        return "the system text"
    if len(path) < 2 or not isinstance(path[1], int):
        return "the user's text" if name in ("input", "prompt") else f"the field {name}"
    in_recorded, in_asked = _at(recorded, path[:2]), _at(asked, path[:2])
    if name == "tools":
        tool = in_asked if isinstance(in_asked, dict) else in_recorded
        whole = f"the tool {tool_name(tool)}"
        return f"the description of {whole}" if path[-1] == "description" else whole
    if name not in _MESSAGES:
        return f"the field {name}"
    which = f"(message {path[1] + 1})"
    if in_recorded is None or in_asked is None:
        side = "the recorded" if in_asked is None else "this"
        return f"{_speaker(in_recorded or in_asked, ())} {which}, which only {side} request has"
    return f"{_speaker(in_asked, path[2:], asked, path)} {which}"


def _speaker(message: Any, within: Sequence[str | int], whole: Any = None, path: Sequence[str | int] = ()) -> str:
    if not isinstance(message, dict):
        return "a message"
    block = _at(whole, path[:4]) if len(within) > 1 else None
    kind = str(block.get("type") if isinstance(block, dict) else message.get("type"))
    if kind.endswith(("_result", "_output")) or (isinstance(block, dict) and "functionResponse" in block):
        return "what a tool returned"
    return _SPEAKERS.get(str(message.get("role", message.get("type"))), "a message")


def tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return "?"
    function = tool.get("function")
    return str(tool.get("name") or (function.get("name") if isinstance(function, dict) else None) or tool.get("type"))


def _at(value: Any, path: Sequence[str | int]) -> Any:
    """What stands there; ``None``: nothing."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        else:
            return None
    return value


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
