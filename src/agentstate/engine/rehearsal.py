"""Owns what policies would say of answers that are recorded already. Must not write, hold or release anything.

Invariant: it is the ruling that the gate would make of the same call under these policies.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from agentstate.core.model import Action, ToolCall
from agentstate.core.policy import Place, Ruling
from agentstate.dialects import registry
from agentstate.engine.policies import Policies
from agentstate.engine.sessions import found
from agentstate.engine.settling import verdict_of
from agentstate.errors import AgentStateError, BadRequest, NotFound
from agentstate.store.reader import Reader
from agentstate.store.rows import StepRow

_PAGE = 1000
LAST = 1000  # calls
_MOST_LAST = 10_000
_LARGEST = 64 * 1024 * 1024  # bytes of requests and answers that are read for one look


class Met(NamedTuple):
    """A recorded call and what it would meet. ``ruling``: ``None`` where the answer cannot be read, which ``fault``
    says."""

    number: int
    call: ToolCall | None
    ruling: Ruling | None
    fault: str = ""


def rehearsed(reader: Reader, key: str, policies: Policies, number: int | None = None) -> list[Met]:
    """Each call that the answers of a session propose, in order; of one step where ``number`` is given.

    Raises ``NotFound``.
    """
    session = found(reader, key)
    place = Place(session.key, reader.labels(session.id))
    steps = _steps(reader, session.id, session.steps, number)
    if number is not None and not steps:
        raise NotFound(f"session {key!r} has no step {number}; it has the steps 0 to {session.steps - 1}")
    met: list[Met] = []
    for step in steps:
        if step.has_body:
            met += _met(reader, step.id, step.number, place, policies)
    return met


class Seen(NamedTuple):
    """A call of any session that was looked at. ``session``: as agents know it."""

    session: str
    met: Met


class Rehearsal(NamedTuple):
    """What the last calls would meet. ``looked``: how many calls; ``unread``: answers that could not be read;
    ``counts``: calls by what they meet; ``by_rule``: calls by the policy (its number, 0: none) and what they meet;
    ``kept``: the calls that would be held or denied, newest first; ``whole``: all the calls that were asked for, or
    that there are, were looked at."""

    looked: int
    unread: int
    counts: dict[Action, int]
    by_rule: dict[tuple[int, Action], int]
    kept: tuple[Seen, ...]
    whole: bool


class Proposal(NamedTuple):
    """A recorded call, and where it was proposed."""

    place: Place
    number: int
    call: ToolCall


class Proposals(NamedTuple):
    """The last calls, newest first. ``unread``, ``whole``: as in ``Rehearsal``."""

    calls: tuple[Proposal, ...]
    unread: int
    whole: bool


def rehearsed_last(reader: Reader, policies: Policies, last: int = LAST, shown: int = 50) -> Rehearsal:
    """What the ``last`` calls that answers of any session propose would meet; ``shown``: at most so many of those kept.

    Looks at no more than 64 MiB of requests and answers. Raises ``BadRequest``.
    """
    return judged(last_proposals(reader, last), policies, shown)


def last_proposals(reader: Reader, last: int = LAST) -> Proposals:
    """The calls themselves, to be judged under one set of policies or several. Raises ``BadRequest``."""
    if not 1 <= last <= _MOST_LAST:
        raise BadRequest(f"last is {last}; give 1 to {_MOST_LAST} calls")
    found: list[Proposal] = []
    unread = size = 0
    labels: dict[int, tuple[str, ...]] = {}
    for step in reader.last_proposing(last):
        if len(found) >= last or size > _LARGEST:
            break
        if step.key not in labels:
            labels[step.key] = reader.labels(step.key)
        place = Place(step.session, labels[step.key])
        try:
            calls, read = _proposed(reader, step.step)
        except AgentStateError:
            unread += 1
            continue
        size += read
        found += [Proposal(place, step.number, call) for call in reversed(calls)]
    return Proposals(tuple(found[:last]), unread, len(found) >= last or size <= _LARGEST)


def judged(proposals: Proposals, policies: Policies, shown: int = 50) -> Rehearsal:
    """What these calls would meet."""
    by_rule: Counter[tuple[int, Action]] = Counter()
    counts: Counter[Action] = Counter()
    kept: list[Seen] = []
    for place, number, call in proposals.calls:
        ruling = policies.ruling(call, place)
        counts[ruling.action] += 1
        by_rule[(ruling.rule.number if ruling.rule is not None else 0, ruling.action)] += 1
        if ruling.action is not Action.ALLOW and len(kept) < shown:
            kept.append(Seen(place.session, Met(number, call, ruling)))
    looked = len(proposals.calls)
    return Rehearsal(looked, proposals.unread, dict(counts), dict(by_rule), tuple(kept), proposals.whole)


def _met(reader: Reader, step: int, number: int, place: Place, policies: Policies) -> list[Met]:
    try:
        calls, _ = _proposed(reader, step)
    except AgentStateError as error:
        return [Met(number, None, None, str(error))]
    return [Met(number, call, policies.ruling(call, place)) for call in calls]


def _steps(reader: Reader, session: int, count: int, number: int | None) -> list[StepRow]:
    if number is not None:
        return [step for step in reader.steps(session, start=number, limit=1) if step.number == number]
    return [step for start in range(0, count, _PAGE) for step in reader.steps(session, start=start, limit=_PAGE)
            if step.number < start + _PAGE]  # fmt: skip


def _proposed(reader: Reader, step: int) -> tuple[tuple[ToolCall, ...], int]:
    """The calls of an answer, and how many bytes were read for them."""
    name, method, path, body = reader.request(step)
    dialect = registry.BY_NAME[name]
    answer = reader.received(step)
    return verdict_of(dialect, dialect.parse(method, path, body), answer).calls, len(body) + len(answer.body)
