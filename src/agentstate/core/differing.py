"""Owns the difference of two texts, line by line, as people read it. Must not lay out or shorten a line.

Invariant: the lines that stand and those that came are the new text, those that stand and those that went are the old
one, less the stretches that are said to be left out; and it takes time in proportion to the texts, whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import NamedTuple

CONTEXT = 3  # equal lines that are shown before and after what differs
_MOST_MATCHED = 2000  # differing lines of a side; beyond it they are told as one block, for matching them is quadratic


class Mark(StrEnum):
    """What a line is: in both texts, in the old one alone, in the new one alone, or a stretch of equal lines that is
    left out."""

    SAME = "same"
    WENT = "went"
    CAME = "came"
    GAP = "gap"


class Line(NamedTuple):
    """``old``, ``new``: the line's number in each text, from 1; ``None``: it is not in it. Of a gap ``text`` says how
    many lines it stands for."""

    mark: Mark
    text: str
    old: int | None = None
    new: int | None = None


def differing(before: str, after: str, context: int = CONTEXT) -> tuple[Line, ...]:
    """The lines that differ, with ``context`` equal ones around them; empty where the texts are equal."""
    if before == after:
        return ()
    old, new = before.split("\n"), after.split("\n")
    return tuple(_folded(list(_lines(old, new)), context))


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    start = _shared(old, new)
    end = min(_shared(old[::-1], new[::-1]), len(old) - start, len(new) - start)
    for at in range(start):
        yield Line(Mark.SAME, old[at], at + 1, at + 1)
    yield from _middle(old, new, start, len(old) - end, len(new) - end)
    for at in range(end, 0, -1):
        yield Line(Mark.SAME, old[-at], len(old) - at + 1, len(new) - at + 1)


def _middle(old: Sequence[str], new: Sequence[str], start: int, old_end: int, new_end: int) -> Iterator[Line]:
    first, second = old[start:old_end], new[start:new_end]
    matched: list[tuple[int, int, int]] = []
    if max(len(first), len(second)) <= _MOST_MATCHED:
        matched += SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    a = b = 0
    for one, other, size in (*matched, (len(first), len(second), 0)):
        for at in range(a, one):
            yield Line(Mark.WENT, first[at], old=start + at + 1)
        for at in range(b, other):
            yield Line(Mark.CAME, second[at], new=start + at + 1)
        for at in range(size):
            yield Line(Mark.SAME, first[one + at], start + one + at + 1, start + other + at + 1)
        a, b = one + size, other + size


def _shared(first: Sequence[str], second: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _folded(lines: Sequence[Line], context: int) -> Iterator[Line]:
    """Equal lines further than ``context`` from what differs, as gaps."""
    near = [False] * len(lines)
    for at, line in enumerate(lines):
        if line.mark is not Mark.SAME:
            for place in range(max(0, at - context), min(len(lines), at + context + 1)):
                near[place] = True
    left_out = 0
    for at, line in enumerate(lines):
        if not near[at]:
            left_out += 1
            continue
        if left_out:
            yield _gap(left_out)
            left_out = 0
        yield line
    if left_out:
        yield _gap(left_out)


def _gap(count: int) -> Line:
    return Line(Mark.GAP, f"{count} equal line{'' if count == 1 else 's'}")
