"""Owns what the Compare page shows: two journals beside each other, and one pair of steps in full. Must not compare.

Invariant: the pairs and fields are those of ``engine.comparing``; what is folded or shortened says how much it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from agentstate.core.comparing import Field, Kind, Segment
from agentstate.dashboard.approval_words import command_line
from agentstate.engine import comparing
from agentstate.engine.comparing import Comparison, Figures, Pair, PairDiff, Side
from agentstate.errors import NotFound
from agentstate.store.reader import Reader
from agentstate.store.rows import SessionRow

PAGE = 200  # rows of the list
_ALL = 1_000_000
_MOST_OFFERED = 50
_MOST_FIELDS = 100
_MOST_EQUAL = 240  # characters of equal text that stay whole between two differences
_MOST_VALUE = 20_000


@dataclass(frozen=True, slots=True)
class Delta:
    """One figure of both sides. ``left``, ``right``: USD, seconds or a count, ``None``: unknown; ``by``: how much more
    the right side has; ``part``: that, of the left side's."""

    name: str
    unit: str
    left: float | None
    right: float | None
    by: float | None
    part: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list: a pair, or ``count`` equal pairs folded. ``index``: of the (first) pair; ``kind``: ``same``,
    ``answer``, ``request``, ``left`` or ``right``; ``differs``: in a word each."""

    index: int
    kind: str
    count: int
    left: Figures | None
    right: Figures | None
    differs: tuple[str, ...]
    chosen: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of two texts: ``side`` is ``both``, ``left``, ``right``, or ``gap`` for equal text that is left out."""

    side: str
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """A place in which a pair differs. ``pieces``: of two texts; else ``left`` and ``right``, as JSON or text, empty
    where ``only`` the other side has it."""

    path: str
    place: str
    only: str
    left: str
    right: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What differs of a pair in one respect. ``more``: there is more than is listed."""

    name: str
    about: str
    places: tuple[Place, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """One pair in full. ``said``: the texts of the answers, where only one side has the step; ``previous``, ``next``:
    the differing pairs before and after, ``None``: there is none."""

    row: Row
    parts: tuple[Part, ...]
    left_text: str
    right_text: str
    previous: int | None
    next: int | None
    place: int
    of: int
    command: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Two references that belong together."""

    words: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class ComparePage:
    """``a``, ``b``: as they were given; ``fault``: why they cannot be compared; ``counts``: pairs by kind; ``start``:
    the first row that is shown, of ``rows_total``; ``open``: the index of a fold that is shown unfolded."""

    a: str
    b: str
    fault: str
    left: Side | None
    right: Side | None
    deltas: tuple[Delta, ...]
    rows: tuple[Row, ...]
    rows_total: int
    start: int
    open: int | None
    total: int
    counts: Mapping[str, int]
    chosen: Chosen | None
    references: tuple[str, ...]
    offers: tuple[Offer, ...]
    command: str


def compare_page(
    reader: Reader, a: str, b: str, pair: int | None = None, start: int = 0, unfolded: int | None = None
) -> ComparePage:
    """``pair``: the pair that is shown in full, ``None``: the first that differs; ``unfolded``: a fold, by its first
    pair."""
    offered, offers = _references(reader), _offers(reader, a)
    empty = ComparePage(
        a, b, "", None, None, (), (), 0, 0, None, 0, {}, None, offered, offers,
        command_line("diff", a or "A", b or "B"),
    )  # fmt: skip
    if not a or not b:
        return empty
    try:
        found = comparing.compare(reader, a, b, 0, _ALL)
    except NotFound as error:
        return replace(empty, fault=error.message)
    differing = [one.index for one in found.pairs if one.kind is not Kind.SAME]
    at = pair if pair is not None else differing[0] if differing else None
    rows = list(_rows(found.pairs, at, unfolded))
    first = min(start, max(0, len(rows) - 1))
    if start == 0 and at is not None:
        place = next((place for place, row in enumerate(rows) if row.index <= at < row.index + row.count), 0)
        first = place // PAGE * PAGE
    try:
        chosen = None if at is None else _chosen(reader, found, a, b, at, differing)
    except NotFound as error:
        return replace(empty, fault=error.message)
    return ComparePage(
        a, b, "", found.left, found.right, _deltas(found.left, found.right), tuple(rows[first : first + PAGE]),
        len(rows), first, unfolded, found.total, {_KINDS[kind]: count for kind, count in found.counts.items()}, chosen,
        offered, offers, empty.command,
    )  # fmt: skip


_KINDS = {Kind.SAME: "same", Kind.ANSWER: "answer", Kind.REQUEST: "request", Kind.LEFT: "left", Kind.RIGHT: "right"}


# --- the list ---


def _rows(pairs: Sequence[Pair], chosen: int | None, unfolded: int | None) -> Iterator[Row]:
    """Each pair that differs, equal ones in blocks but for the chosen one and what is unfolded."""
    start = 0
    while start < len(pairs):
        end = start
        while end < len(pairs) and pairs[end].kind is Kind.SAME and pairs[end].index != chosen:
            end += 1
        if end - start > 1 and start != unfolded:
            yield Row(start, "same", end - start, pairs[start].left, pairs[start].right, (), False)
        else:
            for one in pairs[start:end]:
                yield _row(one, chosen)
        if end < len(pairs):
            yield _row(pairs[end], chosen)
        start = end + 1


def _row(one: Pair, chosen: int | None) -> Row:
    return Row(one.index, _KINDS[one.kind], 1, one.left, one.right, one.differs, one.index == chosen)


def _deltas(left: Side, right: Side) -> tuple[Delta, ...]:
    return (
        _delta("steps", "count", left.steps, right.steps),
        _delta("cost", "usd", left.cost, right.cost),
        _delta("tokens", "count", left.tokens, right.tokens),
        _delta("latency", "s", left.latency, right.latency),
    )


def _delta(name: str, unit: str, left: float, right: float) -> Delta:
    return Delta(name, unit, left, right, right - left, (right - left) / left if left else None)


# --- one pair ---


def _chosen(reader: Reader, found: Comparison, a: str, b: str, at: int, differing: Sequence[int]) -> Chosen:
    full = comparing.pair(reader, a, b, at)
    row = _row(full.pair, at)
    before = [index for index in differing if index < at]
    after = [index for index in differing if index > at]
    one_sided = full.pair.left is None or full.pair.right is None
    number = full.pair.left.number if full.pair.left is not None else 0
    return Chosen(
        row,
        parts_of(full),
        _shortened(full.left_text) if one_sided else "",
        _shortened(full.right_text) if one_sided else "",
        before[-1] if before else None,
        after[0] if after else None,
        len(before) + 1,
        len(differing),
        command_line("diff", a, b, "--step", number),
    )


def parts_of(full: PairDiff) -> tuple[Part, ...]:
    """In what a pair differs, part by part."""
    return tuple(_parts(full))


def _parts(full: PairDiff) -> Iterator[Part]:
    if full.request.found:
        same = full.pair.kind in (Kind.SAME, Kind.ANSWER)
        about = "in ways that cannot change the answer" if same else ""
        yield _part("Request", about, full.request.found, full.request.more)
    if full.answer.found:
        yield _part("Response", "as it was received" if full.released is not None else "", full.answer.found,
                    full.answer.more)  # fmt: skip
    if full.released is not None:
        yield _part("Released", "what the agents were given", full.released.found, full.released.more)


def _part(name: str, about: str, fields: Sequence[Field], more: bool) -> Part:
    return Part(name, about, tuple(_place(one) for one in fields[:_MOST_FIELDS]), more or len(fields) > _MOST_FIELDS)


def _place(one: Field) -> Place:
    if one.text:
        return Place(one.path, one.place, "", "", "", tuple(_pieces(one.text)))
    left = "" if one.only == "right" else _value(one.left)
    right = "" if one.only == "left" else _value(one.right)
    return Place(one.path, one.place, one.only, left, right, ())


def _pieces(segments: Sequence[Segment]) -> Iterator[Piece]:
    for place, one in enumerate(segments):
        text = one.text
        if one.side != "both" or len(text) <= _MOST_EQUAL:
            yield Piece(one.side, _shortened(text))
            continue
        half = _MOST_EQUAL // 2
        head, tail = (text[:half] if place else ""), (text[-half:] if place < len(segments) - 1 else "")
        if head:
            yield Piece("both", head)
        yield Piece("gap", f"{len(text) - len(head) - len(tail):,} equal characters")
        if tail:
            yield Piece("both", tail)


def _value(value: Any) -> str:
    return _shortened(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))


def _shortened(text: str) -> str:
    if len(text) <= _MOST_VALUE:
        return text
    return f"{text[:_MOST_VALUE]}\n… {len(text) - _MOST_VALUE:,} more characters; the step has them all"


# --- what can be compared ---


def _references(reader: Reader) -> tuple[str, ...]:
    return tuple(row.key for row in reader.sessions(_MOST_OFFERED))


def _offers(reader: Reader, reference: str) -> tuple[Offer, ...]:
    """What the session of a reference may be compared with: its runs one after the other, its branches, the session
    that it was forked from."""
    session = _session_of(reader, reference)
    if session is None:
        return ()
    offers = []
    fork = reader.fork_of(session.id)
    if fork is not None and fork.branch.parent is not None:
        source = reader.session_of(reader.session_of_branch(fork.branch.parent))
        if source is not None:
            offers.append(Offer(f"the session that it was forked from, {source.key}", source.key, session.key))
    runs = [run.name for run in reversed(reader.runs(session.id, 6))]
    for before, after in pairwise(runs):
        offers.append(Offer(f"runs {before} and {after}", f"{session.key}#{before}", f"{session.key}#{after}"))
    own = sorted(key for key, row in reader.branches(session.id).items() if row.session == session.id)
    offers += [
        Offer(f"branch {branch} and what it shows now", f"{session.key}@{branch}", session.key)
        for branch in own[-6:] if branch != session.head
    ]  # fmt: skip
    return tuple(offers)


def _session_of(reader: Reader, reference: str) -> SessionRow | None:
    for key in (reference, reference.rpartition("#")[0], reference.rpartition("@")[0]):
        if key and (found := reader.session(key)) is not None:
            return found
    return None
