"""Owns reuse of what was worked out for the beginning of a conversation. Must not know what that is.

Invariant: what it gives is what working it out anew would give: results belong to a sequence of the very same items,
and each depends on the items up to it alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentstate.core.model import Item

_SHORT = 8  # items that are worked out sooner than looked up


class Prefixes:
    """One result for each prefix of the sequences that came last; at most ``most`` sequences."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int = 256) -> None:
        self._most = most
        # By the identity of the first two items, which the entry keeps alive; equal items are mostly the same object.
        self._kept: dict[tuple[int, int], tuple[Sequence[Item], Sequence[bytes]]] = {}

    def known(self, items: Sequence[Item]) -> Sequence[bytes]:
        """The results of the longest beginning of ``items`` that is known."""
        if len(items) < _SHORT:
            return ()
        kept = self._kept.get((id(items[0]), id(items[1])))
        if kept is None:
            return ()
        count = 0
        for item, other in zip(items, kept[0], strict=False):
            if item is not other:
                break
            count += 1
        return kept[1][:count]

    def keep(self, items: Sequence[Item], results: Sequence[bytes]) -> None:
        """``results``: one for each prefix of ``items``."""
        if len(items) < _SHORT:
            return
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[(id(items[0]), id(items[1]))] = (items, results)
