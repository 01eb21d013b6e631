"""Owns reading the list of messages of a request, fast where the conversation only goes on. Must not know their fields.

Invariant: a list is read as if it had never been seen; ``before + separator.join(raws) + after`` are its exact bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agentstate.core.model import Item
from agentstate.dialects.base import Cache, list_of, place_of, split_array
from agentstate.dialects.concealing import Exposed, exposed

_BEGINNING = 256  # bytes by which conversations are told apart
_ALIKE = 4  # most of them with the same beginning that are kept
_SHORT = 4096  # bytes of a list that is read anew sooner than looked up


@dataclass(frozen=True, slots=True)
class Messages:
    """A list of messages; ``split``: what is before, between and after them, ``None`` where that is not uniform."""

    items: tuple[Item, ...]
    split: tuple[bytes, bytes, bytes] | None

    def around(self, array: bytes, body: bytes) -> tuple[bytes, bytes, bytes]:
        """(before, separator, after) such that before + separator.join(raws) + after is ``body``, in which ``array``,
        the list that was read, stands; empty where that is not uniform."""
        if self.split is None:
            return b"", b"", b""
        start = place_of(array, body)
        before, separator, after = self.split
        return body[:start] + before, separator, after + body[start + len(array) :]


@dataclass(frozen=True, slots=True)
class _Known:
    """A list that was read; ``ends``: where each message ends in it."""

    array: bytes
    messages: Messages
    ends: tuple[int, ...]


class Conversations:
    """Reads lists of messages. ``item_of`` makes an item of a message's bytes and value."""

    def __init__(self, item_of: Callable[[bytes, dict[str, Any]], Item], most_bytes: int = 8 * 1024 * 1024) -> None:
        self._item_of = item_of
        self._items = Cache(8 * 1024 * 1024)
        self._most = most_bytes
        self._size = 0
        self._known: dict[bytes, deque[_Known]] = {}

    def read(self, array: bytes) -> Messages | None:
        """``array``: valid JSON. ``None``: not a list of objects, or an empty one.

        Raises ``Exposed`` where a message brings tools with credentials.
        """
        if len(array) < _SHORT:
            return self._anew(array)
        alike = self._known.get(array[:_BEGINNING])
        if alike:
            for known in alike:
                if (count := _shared(known, array)) and (found := self._continued(known, count, array)):
                    return found
        return self._anew(array)

    def _anew(self, array: bytes) -> Messages | None:
        raws = list_of(array)
        if not raws:
            return None
        messages = [bytes(raw) for raw in raws]
        items = self._items_of(messages)
        if items is None:
            return None
        split = split_array(array, messages)
        if split is not None and len(array) >= _SHORT and len(items) > 1:
            ends = []
            at = len(split[0]) - len(split[1])
            for message in messages:
                at += len(split[1]) + len(message)
                ends.append(at)
            self._keep(_Known(array, Messages(items, split), tuple(ends)))
        return Messages(items, split)

    def _continued(self, known: _Known, count: int, array: bytes) -> Messages | None:
        """The list whose first ``count`` messages are those of ``known``; ``None``: it must be read anew."""
        assert known.messages.split is not None
        before, separator, _ = known.messages.split
        at = known.ends[count - 1]
        rest = array[at:].lstrip(b" \t\r\n")
        raws: Sequence[msgspec.Raw] | None = list_of(b"[" + rest[1:]) if rest[:1] == b"," else ()
        if raws is None:
            return None
        messages = [bytes(raw) for raw in raws]
        ends = []
        for message in messages:
            if not array.startswith(separator, at) or not array.startswith(message, at + len(separator)):
                return None
            at += len(separator) + len(message)
            ends.append(at)
        after = array[at:]
        new = self._items_of(messages)
        if new is None or b'"' in after:
            return None
        found = Messages(known.messages.items[:count] + new, (before, separator, after))
        self._keep(_Known(array, found, known.ends[:count] + tuple(ends)))
        return found

    def _items_of(self, messages: list[bytes]) -> tuple[Item, ...] | None:
        items = []
        for raw in messages:
            item = self._items.get(raw)
            if item is None:
                value = msgspec.json.decode(raw)
                if not isinstance(value, dict):
                    return None
                if "tools" in value and exposed(raw):
                    raise Exposed
                item = self._item_of(raw, value)
                self._items.put(raw, item)
            items.append(item)
        return tuple(items)

    def _keep(self, known: _Known) -> None:
        self._size += len(known.array)
        if self._size > self._most:
            self._known.clear()
            self._size = len(known.array)
        alike = self._known.setdefault(known.array[:_BEGINNING], deque(maxlen=_ALIKE))
        if len(alike) == _ALIKE:
            self._size -= len(alike[-1].array)
        alike.appendleft(known)


def _shared(known: _Known, array: bytes) -> int:
    """How many of its leading messages a list has in common with a known one; 0: too few to be worth it.

    Mostly all, or all but the last: a conversation goes on, or its last message is another.
    """
    count = len(known.ends)
    for length in (count, count - 1, count - 2, count // 2):
        if length > 1 and array.startswith(known.array[: known.ends[length - 1]]):
            return length
    return 0
