"""Owns laying two lists side by side: which entries of one belong to which of the other. Must not know what they are.

Invariant: every entry of both is in exactly one pair, in its order; mirrored lists give the mirrored pairs; the time is
linear for equal beginnings and ends, and bounded for the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple

# Pairs of equal entries up to which the longest common part is looked for; with more (long lists that repeat a few
# entries) the first occurrence is laid beside the first one, the second beside the second.
MOST_MATCHES = 200_000


class Beside(NamedTuple):
    """Places in the two lists; ``None``: nothing stands there. ``equal``: the entries are."""

    left: int | None
    right: int | None
    equal: bool = False


def aligned(
    left: Sequence[Hashable], right: Sequence[Hashable], left_shape: Sequence[Hashable] = (),
    right_shape: Sequence[Hashable] = (),
) -> list[Beside]:  # fmt: skip
    """Equal entries beside each other, as many as can be in order. What is left between them is laid side by side
    where its shapes are equal, in order too; without shapes nothing is."""
    found: list[Beside] = []
    at, to = 0, 0
    for mine, theirs in [*common(left, right), (len(left), len(right))]:
        found += _between(range(at, mine), range(to, theirs), left_shape, right_shape)
        if mine < len(left):
            found.append(Beside(mine, theirs, True))
        at, to = mine + 1, theirs + 1
    return found


def common(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Places of equal entries, in order in both lists; the longest such list within ``MOST_MATCHES``."""
    if _turned(left, right):
        return [(mine, theirs) for theirs, mine in common(right, left)]
    start, most = 0, min(len(left), len(right))
    while start < most and left[start] == right[start]:
        start += 1
    end = 0
    while end < most - start and left[-1 - end] == right[-1 - end]:
        end += 1
    middle = _longest(left[start : len(left) - end], right[start : len(right) - end])
    found = [(place, place) for place in range(start)]
    found += [(mine + start, theirs + start) for mine, theirs in middle]
    found += [(len(left) - place, len(right) - place) for place in range(end, 0, -1)]
    return found


def _turned(left: Sequence[Hashable], right: Sequence[Hashable]) -> bool:
    """Whether the lists are to change places, so that both ways round give the same: the shorter one is the left."""
    if len(left) != len(right):
        return len(left) > len(right)
    for mine, theirs in zip(left, right, strict=True):
        if mine != theirs:
            return repr(mine) > repr(theirs)
    return False


def _longest(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """By the matches in order (Hunt and Szymanski): the work grows with their number, not with the product."""
    places: dict[Hashable, list[int]] = {}
    for place, entry in enumerate(right):
        places.setdefault(entry, []).append(place)
    if sum(len(places.get(entry, ())) for entry in left) > MOST_MATCHES:
        places, left, right = _numbered(left, right)
    ends: list[int] = []  # by length, the lowest place in the right list at which a common part ends
    links: list[tuple[int, int, int]] = []  # (left, right, link before it)
    heads: list[int] = []
    for mine, entry in enumerate(left):
        for theirs in reversed(places.get(entry, ())):
            length = bisect_left(ends, theirs)
            links.append((mine, theirs, heads[length - 1] if length else -1))
            if length == len(ends):
                ends.append(theirs)
                heads.append(len(links) - 1)
            else:
                ends[length], heads[length] = theirs, len(links) - 1
    found = []
    at = heads[-1] if heads else -1
    while at >= 0:
        mine, theirs, at = links[at]
        found.append((mine, theirs))
    return found[::-1]


def _numbered(
    left: Sequence[Hashable], right: Sequence[Hashable]
) -> tuple[dict[Hashable, list[int]], list[Hashable], list[Hashable]]:
    """The entries with how often they came before, so that each equals one other at most."""

    def numbered(entries: Sequence[Hashable]) -> list[Hashable]:
        seen: dict[Hashable, int] = {}
        found: list[Hashable] = []
        for entry in entries:
            seen[entry] = seen.get(entry, -1) + 1
            found.append((entry, seen[entry]))
        return found

    mine, theirs = numbered(left), numbered(right)
    return {entry: [place] for place, entry in enumerate(theirs)}, mine, theirs


def _between(
    left: range, right: range, left_shape: Sequence[Hashable], right_shape: Sequence[Hashable]
) -> list[Beside]:
    """What stands between two pairs of equal entries."""
    if not left or not right or not left_shape:
        return [Beside(place, None) for place in left] + [Beside(None, place) for place in right]
    pairs = common([left_shape[place] for place in left], [right_shape[place] for place in right])
    found: list[Beside] = []
    at, to = 0, 0
    for mine, theirs in [*pairs, (len(left), len(right))]:
        found += [Beside(left[place], None) for place in range(at, mine)]
        found += [Beside(None, right[place]) for place in range(to, theirs)]
        if mine < len(left):
            found.append(Beside(left[mine], right[theirs]))
        at, to = mine + 1, theirs + 1
    return found
