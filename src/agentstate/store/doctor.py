"""Owns the audit of a journal: every hash is derived anew. Must not mend or write anything.

Invariant: a journal that ``examine`` finds nothing wrong with gives back every request and answer byte for byte.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from agentstate.core import fingerprint
from agentstate.core.model import Call
from agentstate.errors import AgentStateError, StoreError
from agentstate.store import audit, bodies, references
from agentstate.store.reader import Reader

Parse = Callable[[str, str, str, bytes], Call]


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` is wrong with ``where``, and what it means for the user."""

    where: str
    what: str


def examine(reader: Reader, parse: Parse, progress: Callable[[str, int, int], None] | None = None) -> Iterator[Finding]:
    """What is wrong, if anything. ``parse`` is the dialects' reading of (dialect, method, path, body)."""
    told = progress or (lambda *_: None)
    yield from (Finding("database", text) for text in reader.check())
    yield from _blobs(reader, told)
    yield from _nodes(reader)
    yield from _steps(reader, parse, told)
    yield from _states(reader)
    yield from (Finding(fault.where, fault.what) for fault in audit.faults(reader))


def _blobs(reader: Reader, told: Callable[[str, int, int], None]) -> Iterator[Finding]:
    total = reader.raw("select count(*) from blob").fetchone()[0]
    for count, (blob, key, codec, size, data) in enumerate(reader.raw("select id, hash, codec, size, data from blob")):
        told("bodies", count + 1, total)
        try:
            content = bodies.unpacked(codec, size, data)
        except ValueError as error:
            yield Finding(f"body {blob}", f"cannot be unpacked: {error}")
            continue
        if sha256(content).digest() != key:
            yield Finding(f"body {blob}", "its content does not match its hash")


def _nodes(reader: Reader) -> Iterator[Finding]:
    known: dict[int, bytes] = {}
    rows = reader.raw(
        "select n.id, n.hash, n.parent, b.hash from node n left join blob b on b.id = n.blob order by n.id"
    )
    for node, key, parent, message in rows:
        known[node] = key
        above = bodies._ROOT if parent is None else known.get(parent)
        if message is None:
            yield Finding(f"transcript {node}", "its message is missing")
        elif above is None:
            yield Finding(f"transcript {node}", f"its parent {parent} is missing")
        elif sha256(above + message).digest() != key:
            yield Finding(f"transcript {node}", "does not match its hash")


def _steps(reader: Reader, parse: Parse, told: Callable[[str, int, int], None]) -> Iterator[Finding]:
    total = reader.raw("select count(*) from step").fetchone()[0]
    rows = reader.raw(
        "select s.id, e.key, s.number, s.fingerprint, s.state from step s join session e on e.id = s.session "
        "order by s.id"
    ).fetchall()
    for count, (step, session, number, key, state) in enumerate(rows):
        told("steps", count + 1, total)
        where = f"session {session!r} step {number}"
        try:
            dialect, method, path, body = reader.request(step)
            found = fingerprint.of(parse(dialect, method, path, body)).key
            if found != key:
                yield Finding(where, "its request does not match its fingerprint")
            answer = reader.answer(step)
        except (AgentStateError, sqlite3.Error, TypeError, LookupError) as error:
            yield Finding(where, f"cannot be read: {error}")
            continue
        if state == "completed" and not answer.body:
            yield Finding(where, "is completed but has no answer")


_CHECKS = (
    (
        "a step whose number is not below its session's count",
        "select s.id from step s join session e on e.id = s.session where s.number >= e.steps",
    ),
    (
        "a step without its last attempt",
        "select s.id from step s where not exists (select 1 from attempt a where a.step = s.id and a.n = s.attempts)",
    ),
    (
        "a session whose head is not one of its branches",
        "select e.id from session e where not exists (select 1 from branch b where b.id = e.head and b.session = e.id)",
    ),
    (
        "a branch whose parent is missing",
        "select b.id from branch b where b.parent is not null and not exists "
        "(select 1 from branch p where p.id = b.parent)",
    ),
    (
        "an edited answer whose branch, step or body is missing",
        "select r.step from revision r where not exists (select 1 from branch b where b.id = r.branch) "
        "or not exists (select 1 from step s where s.id = r.step) "
        "or not exists (select 1 from blob b where b.id = r.body)",
    ),
    (
        "a step that was given to nobody",
        "select s.id from step s where not exists (select 1 from served v where v.step = s.id)",
    ),
    (
        "a completed step that has no finishing tick",
        "select s.id from step s where s.state = 'completed' and s.finished <= s.started",
    ),
    (
        "a hand-out of a step that does not exist",
        "select v.step from served v where not exists (select 1 from step s where s.id = v.step)",
    ),
    (
        "a step whose session is not there",
        "select s.id from step s where not exists (select 1 from session e where e.id = s.session) "
        "and not exists (select 1 from doomed d where d.session = s.session)",
    ),
)


def _states(reader: Reader) -> Iterator[Finding]:
    for what, sql in _CHECKS:
        for (row,) in reader.raw(sql):
            yield Finding(f"row {row}", what)
    for table, column, missing in references.dangling():
        [count] = reader.raw(missing).fetchone()
        if count:
            yield Finding(f"table {table}", f"{count} rows whose {column} is missing")


def sound(reader: Reader, parse: Parse) -> bool:
    """Whether nothing is wrong. Raises ``StoreError`` when the file cannot be read at all."""
    try:
        return next(examine(reader, parse), None) is None
    except sqlite3.Error as error:
        raise StoreError(str(error)) from error
