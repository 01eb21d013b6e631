"""Owns what all wire formats share of telling the model what its agent was not shown: rounds in which it was told of a
refusal, calls that were taken out of an answer and their results, and that a person edited a call.

Must not read the journal, nor decide what is told. Invariant: of a request every byte that belongs to no message
concerned stays as it was, and so does every part of one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agentstate.core.model import Item, ToolCall, ToolResult
from agentstate.dialects.rewriting import elements, member, with_elements, with_members


class Fate(NamedTuple):
    """What became of one call of an answer. ``call``: as it was received, ``raw``: its part of that answer.

    ``refused``: what the model is told instead of a result; ``None``: the agent was given the call. ``note``: what the
    model is told about a call that was given, beside its result; empty: nothing.
    """

    call: ToolCall
    raw: bytes
    refused: ToolResult | None = None
    note: str = ""


class Heard(NamedTuple):
    """What messages of the model say. ``calls``: (id, digest of tool and canonical arguments) of each, in order."""

    text: str
    calls: tuple[tuple[str, bytes], ...] = ()


class Form(Protocol):
    """How a wire format spells a conversation. ``field``: the member of a request that is its list of messages."""

    field: str

    def said(self, plain: bytes) -> list[bytes]:
        """A plain answer, of its first choice, as messages of a request."""
        ...

    def pieces(self, plain: bytes) -> list[bytes]:
        """The calls of a plain answer, of its first choice, as they were written."""
        ...

    def end(self, items: Sequence[Item], start: int, ids: Collection[str]) -> int:
        """Where the messages end that the model said at ``start``; ``start`` itself: that is none of the model's.
        ``ids``: of the calls that are to be among them."""
        ...

    def heard(self, raws: Iterable[bytes]) -> Heard:
        """What messages say that the model said."""
        ...

    def told(self, raws: Sequence[bytes], start: int, end: int, fates: Sequence[Fate]) -> dict[int, list[bytes]]:
        """What stands in the places of messages of a request, once the calls that were refused and their results are in
        the messages from ``start`` to ``end`` and those after them, and notes at results. Raises ``ValueError``."""
        ...


class Naming(Protocol):
    """A form in which a request may name a part of an earlier answer instead of bringing it back."""

    def named(self, plain: bytes) -> dict[str, bytes]:
        """The parts of a plain answer by their names."""
        ...

    def name_of(self, raw: bytes) -> str:
        """The name that stands in the place of a message; empty: the message is there itself."""
        ...

    def written(self, raw: bytes) -> list[bytes]:
        """A part that was named, as a request may bring it back; none where only its provider can."""
        ...


def same(theirs: Heard, ours: Heard) -> bool:
    """Whether messages of a request are an answer that was given. Some clients drop a text that stands beside calls,
    and trim one that stands alone."""
    if not ours.calls:
        return not theirs.calls and theirs.text.strip() == ours.text.strip()
    if [call[1] for call in theirs.calls] != [call[1] for call in ours.calls]:
        return False
    pairs = zip(theirs.calls, ours.calls, strict=True)
    return all(not one[0] or not other[0] or one[0] == other[0] for one, other in pairs)


def placed(body: bytes, field: str, changes: Mapping[int, Sequence[bytes]]) -> bytes:
    """The request with other messages in the places of some. Raises ``ValueError`` where it has no such list."""
    array = member(body, field)
    if array.startswith(b'"') and field == "input":  # which is one message of the user
        array = b'[{"role":"user","content":' + array + b"}]"
    return with_members(body, {field: with_elements(array, changes)})


def listed_raws(body: bytes, field: str) -> list[bytes]:
    """The messages of a request as they stand there."""
    array = member(body, field)
    if array.startswith(b'"') and field == "input":
        return [b'{"role":"user","content":' + array + b"}"]
    return elements(array) if array.startswith(b"[") else []


class Woven(NamedTuple):
    """New parts for a list: ``before`` some of its places, and ``rest`` after its place ``last``; ``None``: none of its
    places is known, and ``rest`` is all there is."""

    before: dict[int, list[bytes]]
    last: int | None
    rest: list[bytes]

    def around(self, parts: Callable[[int], list[bytes]], also: Collection[int] = ()) -> dict[int, list[bytes]]:
        """What stands in the places concerned. ``parts``: what stands there of the list's own; ``also``: places where
        that is not what stood there."""
        places = {*self.before, *also, *(() if self.last is None or not self.rest else (self.last,))}
        return {
            place: [*self.before.get(place, ()), *parts(place), *(self.rest if place == self.last else ())]
            for place in sorted(places)
        }


def woven(places: Sequence[int | None], fates: Sequence[Fate], made: Callable[[Fate], bytes]) -> Woven:
    """What is made of refused calls, in order between the places of those that were given."""
    before: dict[int, list[bytes]] = {}
    last: int | None = None
    waiting: list[bytes] = []
    known = iter(places)
    for fate in fates:
        if fate.refused is not None:
            waiting.append(made(fate))
        elif (place := next(known, None)) is not None:
            if waiting:
                before.setdefault(place, []).extend(waiting)
                waiting = []
            last = place if last is None else max(last, place)
    return Woven(before, last, waiting)


def located(found: Sequence[tuple[int, str]], fates: Sequence[Fate]) -> list[int | None]:
    """Where the result of each call stands that was given. ``found``: place and call id of results, in order; those
    without an id answer their calls in their order."""
    left = list(found)
    places: list[int | None] = []
    for fate in fates:
        if fate.refused is None:
            one = next((one for one in left if not fate.call.call_id or one[1] in ("", fate.call.call_id)), None)
            if one is not None:
                left.remove(one)
            places.append(None if one is None else one[0])
    return places


def results_told(
    raws: Sequence[bytes], found: Sequence[tuple[int, str]], end: int, fates: Sequence[Fate],
    made: Callable[[Fate], bytes], noted: Callable[[bytes, str], list[bytes]],
) -> dict[int, list[bytes]]:  # fmt: skip
    """``Form.told`` for results that are messages of their own. ``end``: the place before which they begin."""
    places = located(found, fates)
    given = [fate for fate in fates if fate.refused is None]
    notes = {place: fate.note for fate, place in zip(given, places, strict=True) if fate.note and place is not None}
    new = woven(places, fates, made)
    out = new.around(lambda at: noted(raws[at], notes[at]) if at in notes else [raws[at]], notes)
    if new.last is None and new.rest:
        out[end - 1] = [raws[end - 1], *new.rest]
    return out


def merged(*changes: Mapping[int, list[bytes]]) -> dict[int, list[bytes]]:
    """Several sets of changes as one. Raises ``ValueError`` where two are for one place."""
    out: dict[int, list[bytes]] = {}
    for one in changes:
        if out.keys() & one.keys():
            raise ValueError("two changes are for one message")
        out |= one
    return out
