"""Owns what differs between two requests, two answers and two texts, field by field. Must not read the journal, nor
know wire formats beyond the names under which requests carry messages and tools.

Invariant: equal values have no difference; every place in which two values differ is named, but for what is beyond a
bound, and then it is said that there is more; turned round, the sides change places and nothing else does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from agentstate.core.aligning import aligned, common
from agentstate.core.divergence import place_in_words, tool_name

MOST_FIELDS = 500  # of one request or answer
_MOST_WORDS = 4000  # of two texts whose difference is looked for word by word; longer ones, line by line
_WORDS = re.compile(r"\S+\s*|\s+")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_LISTS = ("messages", "input", "contents")
_ABSENT: Any = object()
_Path = tuple[str | int, ...]


class Kind(StrEnum):
    """How two steps are to each other."""

    SAME = "same"
    ANSWER = "answer differs"
    REQUEST = "request differs"
    LEFT = "only left"
    RIGHT = "only right"


class Segment(NamedTuple):
    """A piece of two texts: ``side`` is ``both``, ``left`` or ``right``."""

    side: str
    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A place in which the sides differ. ``path``: keys and places, as ``messages[2].content``; where a message stands
    at another place on the right side, that of the left; ``place``: the same in words; ``left`` and ``right``: what
    stands there, ``None`` where it does not (see ``only``); ``only``: the side that has it at all, empty: both;
    ``text``: of two texts, their pieces."""

    path: str
    place: str
    left: Any
    right: Any
    only: str = ""
    text: tuple[Segment, ...] = ()


class Fields(NamedTuple):
    """``more``: there are further ones, beyond the bound."""

    found: tuple[Field, ...] = ()
    more: bool = False

    def __bool__(self) -> bool:
        return bool(self.found)


class Call(NamedTuple):
    """A tool call of an answer. ``arguments``: parsed, or the text that could not be."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as it is compared: what a model said, and all else that its wire format carries, less names that are
    new for every answer. ``parts``: by what they are, as ``text`` or ``thinking``; ``rest``: as JSON value."""

    parts: Mapping[str, str]
    calls: tuple[Call, ...] = ()
    finish: tuple[str, ...] = ()
    model: str = ""
    status: int = 200
    state: str = "completed"
    error: str = ""
    rest: Any = None


def texts(left: str, right: str) -> tuple[Segment, ...]:
    """Two texts in pieces: word by word where they are short, else line by line. The pieces of ``both`` and of one
    side, joined, are that side's text."""
    mine, theirs = _WORDS.findall(left), _WORDS.findall(right)
    if len(mine) + len(theirs) > _MOST_WORDS:
        mine, theirs = _LINES.findall(left), _LINES.findall(right)
    found: list[Segment] = []

    def add(side: str, pieces: Sequence[str]) -> None:
        if pieces:
            if found and found[-1].side == side:
                found[-1] = Segment(side, found[-1].text + "".join(pieces))
            else:
                found.append(Segment(side, "".join(pieces)))

    at, to = 0, 0
    for one, other in [*common(mine, theirs), (len(mine), len(theirs))]:
        add("left", mine[at:one])
        add("right", theirs[to:other])
        add("both", mine[one : one + 1])
        at, to = one + 1, other + 1
    return tuple(found)


# --- requests ---


def requests(left: Any, right: Any) -> Fields:
    """What differs between two request bodies, parsed: messages beside each other, tools by name, the rest by key."""
    found: list[Field] = []
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            mine, theirs = left.get(key, _ABSENT), right.get(key, _ABSENT)
            if key in _LISTS and _objects(mine) and _objects(theirs):
                found += _messages(key, mine, theirs)
            elif key == "tools" and _named(mine) and _named(theirs):
                found += _tools(mine, theirs)
            else:
                found += _fields((key,), mine, theirs, left, right)
    else:
        found += _fields((), left, right, left, right)
    return Fields(tuple(found[:MOST_FIELDS]), len(found) > MOST_FIELDS)


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _named(value: Any) -> bool:
    """Whether it is a list of tools with a name of its own each."""
    names = [tool_name(one) for one in value] if _objects(value) else []
    return bool(names) and len(set(names)) == len(names)


def _messages(key: str, left: list[Any], right: list[Any]) -> list[Field]:
    pairs = aligned(
        [_spelled(one) for one in left], [_spelled(one) for one in right], [_speaks(one) for one in left],
        [_speaks(one) for one in right],
    )  # fmt: skip
    found: list[Field] = []
    for pair in pairs:
        if pair.equal:
            continue
        place = pair.left if pair.left is not None else pair.right
        assert place is not None
        mine = left[pair.left] if pair.left is not None else _ABSENT
        theirs = right[pair.right] if pair.right is not None else _ABSENT
        moved = f", message {pair.right + 1} on the right" if pair.right is not None and pair.right != place else ""
        # Each as if it stood there, so that a place in words is that of the message.
        sides = [one if one is not _ABSENT else other for one, other in ((mine, theirs), (theirs, mine))]
        wholes = [{key: [*([None] * place), one]} for one in sides]
        found += [replace(one, place=one.place + moved) for one in _fields((key, place), mine, theirs, *wholes)]
    return found


def _speaks(message: dict[str, Any]) -> Hashable:
    return str(message.get("role") or message.get("type")), str(message.get("type") or "")


def _tools(left: list[Any], right: list[Any]) -> list[Field]:
    mine, theirs = ({tool_name(one): one for one in side} for side in (left, right))
    found: list[Field] = []
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        for path, one, other in _leaves(("tools", name), mine.get(name, _ABSENT), theirs.get(name, _ABSENT)):
            of = "the description of " if path[-1] == "description" else ""
            found.append(_field(path, one, other, f"{of}the tool {name}"))
    return found


def _fields(path: _Path, mine: Any, theirs: Any, left: Any, right: Any) -> list[Field]:
    """The leaves below a path. ``left`` and ``right``: what the path leads into, for the place in words."""
    return [
        _field(at, one, other, place_in_words(at, left, right) if at else "the whole request")
        for at, one, other in _leaves(path, mine, theirs)
    ]


# --- answers ---


def answers(left: Said, right: Said) -> Fields:
    """What differs between two answers: how they ended, their texts, tool calls by place and name, and what else."""
    found: list[Field] = []
    for name in ("state", "status", "error", "model", "finish"):
        mine, theirs = _plain(getattr(left, name)), _plain(getattr(right, name))
        if mine != theirs:
            found.append(_field((name,), mine, theirs, f"the {_CALLED.get(name, name)}"))
    for name in [*left.parts, *(name for name in right.parts if name not in left.parts)]:
        one, other = left.parts.get(name, _ABSENT), right.parts.get(name, _ABSENT)
        if one != other:
            found.append(_field((name,), one, other, f"the {name}"))
    found += _calls(left.calls, right.calls)
    found += [
        _field(path, one, other, f"{_path(path[1:]) or 'all'} of the answer")
        for path, one, other in _leaves(("answer",), left.rest, right.rest)
    ]
    return Fields(tuple(found[:MOST_FIELDS]), len(found) > MOST_FIELDS)


_CALLED = {"finish": "finish reason", "status": "status code"}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _calls(left: Sequence[Call], right: Sequence[Call]) -> list[Field]:
    pairs = aligned(
        [(one.name, _spelled(one.arguments)) for one in left], [(one.name, _spelled(one.arguments)) for one in right],
        [one.name for one in left], [one.name for one in right],
    )  # fmt: skip
    found: list[Field] = []
    for pair in pairs:
        mine = left[pair.left] if pair.left is not None else None
        theirs = right[pair.right] if pair.right is not None else None
        if pair.equal:
            continue
        if mine is None or theirs is None:
            one = mine or theirs
            assert one is not None
            place = pair.left if pair.left is not None else pair.right
            sides = [_ABSENT if side is None else side._asdict() for side in (mine, theirs)]
            found.append(_field(("calls", place or 0), sides[0], sides[1], f"the call of {one.name or 'a tool'}"))
            continue
        path: _Path = ("calls", pair.left or 0, "arguments")
        found += [
            _field(at, one, other, f"{_path(at[3:]) or 'the arguments'} in the call of {mine.name or 'a tool'}")
            for at, one, other in _leaves(path, mine.arguments, theirs.arguments)
        ]
    return found


# --- one field ---


def _leaves(path: _Path, left: Any, right: Any) -> Iterator[tuple[_Path, Any, Any]]:
    """Where two values differ, in document order: (path, left, right)."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            yield from _leaves((*path, key), left.get(key, _ABSENT), right.get(key, _ABSENT))
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            mine = left[index] if index < len(left) else _ABSENT
            theirs = right[index] if index < len(right) else _ABSENT
            yield from _leaves((*path, index), mine, theirs)
    elif left is not right and (left != right or isinstance(left, bool) is not isinstance(right, bool)):
        yield path, left, right


def _field(path: _Path, left: Any, right: Any, place: str) -> Field:
    only = "right" if left is _ABSENT else "left" if right is _ABSENT else ""
    pieces = texts(left, right) if isinstance(left, str) and isinstance(right, str) else ()
    mine, theirs = (None if side is _ABSENT else side for side in (left, right))
    return Field(_path(path), place, mine, theirs, only, pieces)


def _path(path: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
