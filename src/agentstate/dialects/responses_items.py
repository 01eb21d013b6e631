"""Owns which items a Responses answer has, where its last event and those before it tell of different ones. Must not
judge them.

Invariant: an item that any event told of is one, whether the last event repeats it or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any


def identity(item: dict[str, Any]) -> tuple[str, ...]:
    """What an item and its repetition in the last event have in common; item ids may differ between the two."""
    return tuple(str(item.get(key)) for key in ("type", "call_id", "name"))


def merged(output: list[dict[str, Any]], finished: Iterable[tuple[int, dict[str, Any]]]) -> list[tuple[int, Any]]:
    """The items of an answer and their places: those of the last event, then those that only events before it told of.

    What an agent may have acted on by an event of its own counts, whether the last event repeats it or not; calls
    without ids are told apart by how many of them there are.
    """
    items: list[tuple[int, Any]] = list(enumerate(output))
    known = Counter(identity(item) for item in output)
    left = known.copy()
    for place, item in {(at, identity(item)): (at, item) for at, item in sorted(finished, key=itemgetter(0))}.values():
        name = identity(item)
        if not (known[name] if item.get("call_id") else left[name] > 0):
            items.append((place, item))
        left[name] -= 1
    return items
