"""Owns comparing two sessions, runs or branches as the journal has them. Must not write, nor hold the rules of what
differs (``core.comparing`` does).

Invariant: steps are laid beside each other by their fingerprints; no body is read of steps whose bodies are equal, and
no more than two at a time of the others. For a thread with a reader of its own: it reads all steps of both sides.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from agentstate.core import comparing, usage
from agentstate.core.aligning import Beside, aligned
from agentstate.core.branching import lineage
from agentstate.core.comparing import Fields, Kind, Said
from agentstate.core.model import Call, Shape
from agentstate.dialects import registry
from agentstate.dialects.saying import said
from agentstate.errors import NotFound
from agentstate.store.comparing_reader import EDITED, ComparedRow
from agentstate.store.reader import Lineage, Reader

_ANSWER = ("state", "status", "error", "model", "finish", "parts", "calls", "rest")
_CALLED = {"parts": "text", "rest": "other", "calls": "tool calls"}


class Figures(NamedTuple):
    """A step in a list of pairs. Cost in USD, of all its attempts; ``None``: not known; latency in seconds."""

    number: int
    kind: str
    state: str
    model: str
    tokens: int | None
    cost: float | None
    latency: float | None


class Side(NamedTuple):
    """One of the two. ``reference``: as it was named; ``cost``: in USD, what is known of it; ``cost_unknown``: of how
    many answered steps it is not known; ``tokens``: added up; ``latency``: of the steps, added up, in seconds;
    ``models``: that answered, the most frequent first."""

    reference: str
    session: str
    run: str
    branch: int | None
    steps: int
    cost: float
    cost_unknown: int
    tokens: int
    latency: float
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two steps beside each other; ``None``: the side has none there. ``differs``: what, in a word each."""

    index: int
    kind: Kind
    left: Figures | None
    right: Figures | None
    differs: tuple[str, ...] = ()


class Comparison(NamedTuple):
    """``pairs``: a page of them, of ``total``; ``counts``: of all, by kind; ``first``: the first that is not the
    same."""

    left: Side
    right: Side
    pairs: list[Pair]
    total: int
    counts: dict[Kind, int]
    first: Pair | None

    @property
    def same(self) -> bool:
        return self.first is None


@dataclass(frozen=True, slots=True)
class PairDiff:
    """One pair in full. ``request``: what differs between the requests, also where it cannot change the answer;
    ``answer``: between the answers as they were received; ``released``: between those that the agents were given, where
    a person changed or refused one of them, else ``None``. ``left_text`` and ``right_text``: the texts of the answers
    that the agents were given."""

    pair: Pair
    request: Fields
    answer: Fields
    released: Fields | None
    left_text: str = ""
    right_text: str = ""


@dataclass(frozen=True, slots=True)
class _Chosen:
    side: Side
    rows: list[ComparedRow]


def compare(reader: Reader, a: str, b: str, start: int = 0, limit: int = 100) -> Comparison:
    """Two sessions, runs (``session#run``) or branches (``session@branch``) beside each other; ``start`` and ``limit``
    choose the pairs that are listed. Raises ``NotFound``, ``StoreError``."""
    left, right = chosen(reader, a), chosen(reader, b)
    places = _aligned(left, right)
    pairs: list[Pair] = []
    counts: Counter[Kind] = Counter()
    first: Pair | None = None
    for index, place in enumerate(places):
        listed = start <= index < start + limit
        kind, differs = _judged(reader, left, right, place)
        counts[kind] += 1
        if listed or (first is None and kind is not Kind.SAME):
            pair = _pair(index, kind, left, right, place, differs)
            if first is None and kind is not Kind.SAME:
                first = pair
            if listed:
                pairs.append(pair)
    return Comparison(left.side, right.side, pairs, len(places), dict(counts), first)


def pair(reader: Reader, a: str, b: str, index: int) -> PairDiff:
    """One pair of a comparison, field by field. Raises ``NotFound``, ``StoreError``."""
    left, right = chosen(reader, a), chosen(reader, b)
    places = _aligned(left, right)
    if not 0 <= index < len(places):
        there = f"there are the pairs 0 to {len(places) - 1}" if places else "neither side has a step"
        raise NotFound(f"there is no pair {index}; {there}")
    return _full(reader, left, right, index, places[index])


def _full(reader: Reader, left: _Chosen, right: _Chosen, index: int, place: Beside) -> PairDiff:
    kind, differs = _judged(reader, left, right, place)
    mine, theirs = _rows(left, right, place)
    shown = _pair(index, kind, left, right, place, differs)
    texts = ["" if row is None else _text(_said(reader, row, True)) for row in (mine, theirs)]
    if mine is None or theirs is None:
        return PairDiff(shown, Fields(), Fields(), None, *texts)
    changed = bool(mine.mode or theirs.mode)
    return PairDiff(
        shown,
        comparing.requests(_request(reader, mine.id), _request(reader, theirs.id)),
        comparing.answers(_said(reader, mine, False), _said(reader, theirs, False)),
        comparing.answers(_said(reader, mine, True), _said(reader, theirs, True)) if changed else None,
        *texts,
    )


def pair_of_step(reader: Reader, a: str, b: str, number: int) -> PairDiff:
    """The pair of the left side's step with that number; where the left side has none, of the right side's. Raises
    ``NotFound``, ``StoreError``."""
    left, right = chosen(reader, a), chosen(reader, b)
    places = _aligned(left, right)
    for side in (0, 1):
        for index, place in enumerate(places):
            row = _rows(left, right, place)[side]
            if row is not None and row.number == number:
                return _full(reader, left, right, index, place)
    raise NotFound(f"neither {a} nor {b} has a step {number}")


def between(reader: Reader, left: int, right: int) -> PairDiff:
    """Two steps, by their ids, laid beside each other. Raises ``NotFound``, ``StoreError``."""
    rows = [_of_step(reader, step) for step in (left, right)]
    one, other = (_Chosen(_side("", "", "", None, [row]), [row]) for row in rows)
    return _full(reader, one, other, 0, Beside(0, 0, rows[0].fingerprint == rows[1].fingerprint))


# --- the sides ---


def chosen(reader: Reader, reference: str) -> _Chosen:
    """What a reference names: a session of that id, whatever is in it; else what stands before its last ``#`` or ``@``,
    and the run or the branch behind it. Raises ``NotFound``."""
    session = reader.session(reference)
    if session is not None:
        return _of_branches(reader, reference, reference, None, reader.shown(session))
    key, mark, name = reference.rpartition("#")
    if mark and (session := reader.session(key)) is not None:
        run = reader.run(session.id, name)
        if run is None:
            raise NotFound(f"session {key!r} has no run {name!r}; `agentstate show {key}` lists those there are")
        rows = reader.compared_of_run(run.id)
        return _Chosen(_side(reference, key, name, None, rows), rows)
    key, mark, name = reference.rpartition("@")
    if mark and (session := reader.session(key)) is not None:
        branches = {row: found.branch for row, found in reader.branches(session.id).items()}
        if not name.isdecimal() or int(name) not in branches:
            there = ", ".join(map(str, sorted(branches)))
            raise NotFound(f"session {key!r} has no branch {name!r}; it has {there}")
        return _of_branches(reader, reference, key, int(name), lineage(branches, int(name)))
    raise NotFound(f"there is no session {reference!r}; `agentstate sessions` lists those there are")


def _of_branches(reader: Reader, reference: str, key: str, branch: int | None, shown: Lineage) -> _Chosen:
    rows, edits = reader.compared(shown), reader.revisions(shown)
    if edits:  # agents are given those, and what went on from the answers before them is left behind
        left = {one.step for one in reader.left_behind(shown)}
        rows = [
            row._replace(mode=EDITED, given=edits[row.id].body) if row.id in edits else row
            for row in rows if row.id not in left
        ]  # fmt: skip
    return _Chosen(_side(reference, key, "", branch, rows), rows)


def _side(reference: str, key: str, run: str, branch: int | None, rows: list[ComparedRow]) -> Side:
    models = Counter(row.model or row.asked_model for row in rows if row.kind == "model")
    known = [row.cost for row in rows if row.cost is not None]
    unknown = sum(row.cost is None and row.kind == "model" and 200 <= row.status < 300 for row in rows)
    tokens = sum(_tokens(row) or 0 for row in rows)
    latency = sum(row.latency or 0.0 for row in rows)
    return Side(
        reference, key, run, branch, len(rows), sum(known, 0.0), unknown, tokens, round(latency, 6),
        tuple(name for name, _ in models.most_common() if name),
    )  # fmt: skip


def _tokens(row: ComparedRow) -> int | None:
    if not row.usage:
        return None
    counted = usage.counted(json.loads(row.usage))
    return None if counted is None else counted.total


# --- the pairs ---


def _aligned(left: _Chosen, right: _Chosen) -> list[Beside]:
    return aligned(
        [row.fingerprint for row in left.rows], [row.fingerprint for row in right.rows],
        [_shape(row) for row in left.rows], [_shape(row) for row in right.rows],
    )  # fmt: skip


def _shape(row: ComparedRow) -> tuple[str, str]:
    """What two steps have in common that may be the same one asked otherwise: a question, or a call of one tool."""
    return row.kind, row.asked_model if row.kind == "tool" else ""


def _rows(left: _Chosen, right: _Chosen, place: Beside) -> tuple[ComparedRow | None, ComparedRow | None]:
    mine = None if place.left is None else left.rows[place.left]
    theirs = None if place.right is None else right.rows[place.right]
    return mine, theirs


def _pair(index: int, kind: Kind, left: _Chosen, right: _Chosen, place: Beside, differs: tuple[str, ...]) -> Pair:
    mine, theirs = _rows(left, right, place)
    return Pair(index, kind, _figures(mine), _figures(theirs), differs)


def _figures(row: ComparedRow | None) -> Figures | None:
    if row is None:
        return None
    model = row.model or row.asked_model
    return Figures(row.number, row.kind, row.state.value, model, _tokens(row), row.cost, row.latency)


def _judged(reader: Reader, left: _Chosen, right: _Chosen, place: Beside) -> tuple[Kind, tuple[str, ...]]:
    mine, theirs = _rows(left, right, place)
    if mine is None or theirs is None:
        return (Kind.RIGHT if mine is None else Kind.LEFT), ()
    if not place.equal:
        return Kind.REQUEST, ("request",)
    if _of_answer(mine) == _of_answer(theirs):
        return Kind.SAME, ()
    differs = _differing(_said(reader, mine, False), _said(reader, theirs, False))
    if mine.mode or theirs.mode:
        given = _differing(_said(reader, mine, True), _said(reader, theirs, True))
        differs += ("released",) if given and given != differs else ()
    return (Kind.ANSWER if differs else Kind.SAME), differs


def _of_answer(row: ComparedRow) -> tuple[Any, ...]:
    return row.state, row.status, row.error, row.model, row.shape, row.body, row.mode, row.given


def _differing(left: Said, right: Said) -> tuple[str, ...]:
    names = (name for name in _ANSWER if getattr(left, name) != getattr(right, name))
    return tuple(_CALLED.get(name, name) for name in names)


# --- their bodies ---


def _said(reader: Reader, row: ComparedRow, given: bool) -> Said:
    """``given``: as the agent was given it, else as it was received."""
    answer = reader.answer(row.id) if given else reader.received(row.id)
    if given and row.mode == EDITED and row.given is not None:
        answer = answer._replace(body=reader.blob(row.given), shape=Shape())
    dialect = registry.BY_NAME.get(row.dialect) if row.kind == "model" else None
    call = Call(row.dialect, "POST", row.path, b"", b"", model=row.asked_model)
    error = row.error
    if given and row.mode in ("error", "continue"):
        error = f"refused: {json.loads(answer.said).get('text', '')}"
    return said(
        dialect, call, answer.shape, answer.body, status=row.status, state=row.state.value, error=error,
        model=row.model,
    )  # fmt: skip


def _text(answer: Said) -> str:
    return answer.parts.get("text", "")


def _request(reader: Reader, step: int) -> Any:
    body = reader.request(step)[3]
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")


def _of_step(reader: Reader, step: int) -> ComparedRow:
    row = reader.compared_step(step)
    if row is None:
        raise NotFound(f"there is no step with id {step}")
    return row
