"""Owns what a provider holds for later requests and has lost: building the request that does without it.

Must not send. Invariant: what is built is the transcript of our branch, as the journal has it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from agentstate.core.model import Release, Shape
from agentstate.dialects import registry, responses_context
from agentstate.engine import revised
from agentstate.errors import ApprovalUnavailable, BadRequest

if TYPE_CHECKING:
    from agentstate.engine.core import Parts
    from agentstate.store.rows import SessionRow

log = logging.getLogger("agentstate")
_LONGEST = 2000  # answers that are walked back


class Link(NamedTuple):
    """One exchange on the way to a request: ``answer`` as agents were given it, plain; ``differs``: whether that is
    another than the provider's."""

    step: int
    request: bytes
    answer: bytes
    differs: bool


class Whole(NamedTuple):
    """A request with the whole transcript in it. ``answers``: where in it the answers of which steps begin."""

    body: bytes
    answers: dict[int, int] = {}  # noqa: RUF012 - it never changes


def restored(parts: Parts, session: int, first: str, sent: bytes, status: int, refusal: bytes) -> Whole | None:
    """The request ``sent`` with the whole transcript in the place of its pointer to an answer that the provider says it
    has lost, and whose name is ``first``.

    ``None``: it does not say that, or the journal does not hold every answer on the way.
    """
    if not first or not responses_context.is_lost(status, refusal):
        return None
    chain = _chain(parts, session, first)
    return None if chain is None else _transcript(chain, first, sent)


def amended(parts: Parts, session: int, first: str, sent: bytes) -> Whole | None:
    """The request ``sent`` with the whole transcript in the place of its pointer, where the provider holds something
    else than agents were given: an answer, or a call in it, that a person edited or refused. ``None``: it holds the
    same. Raises ``ApprovalUnavailable`` where nobody has decided yet what agents are given."""
    row = parts.journal.facts.session_of(session)
    view = None if row is None else parts.view(row)
    if view is None or not (view.edits or parts.journal.read.has_withheld(session, view.shared)):
        return None
    chain = _chain(parts, session, first)
    if chain is None or not any(link.differs for link in chain):
        return None
    return _transcript(chain, first, sent)


def link_of(parts: Parts, session: SessionRow | None, step: int, request: bytes, job: bytes | None = None) -> Link:
    """The exchange of a step, as the session's branch has it; ``job``: the end of a job that it began."""
    answer = revised.answer(parts, session, step)
    body = job if job is not None else registry.BY_NAME[answer.dialect].convert(answer.shape, Shape(), answer.body)
    edited = revised.edit_of(parts, session, step) is not None
    differs = edited or (answer.release is not None and answer.body != parts.journal.read.received(step).body)
    return Link(step, request, body, differs)


def whole(parts: Parts, session: int, first: str, sent: bytes) -> Whole | None:
    """The request ``sent`` with the whole transcript in the place of its pointer, for a provider that holds nothing of
    it; ``None``: the journal does not hold every answer on the way."""
    chain = _chain(parts, session, first)
    return None if chain is None else _transcript(chain, first, sent)


def _chain(parts: Parts, session: int, first: str) -> list[Link] | None:
    """The exchanges on the way, oldest first; ``None``: the journal does not hold all."""
    read = parts.journal.read
    row = parts.journal.facts.session_of(session)
    shared = () if row is None else parts.view(row).shared
    chain: list[Link] = []
    previous = first
    seen: set[str] = set()
    while previous and len(chain) < _LONGEST and previous not in seen:
        seen.add(previous)
        held = read.held_shown(session, previous, shared)
        if held is None or (held.job and not held.body):
            log.warning("answer %s is not in the journal", previous)
            return None
        name, method, path, asked = read.request(held.step)
        if Release.HELD in (held.release, read.answer(held.step).release):
            raise ApprovalUnavailable(
                f"answer {previous} is held, and nothing goes on from it before somebody has decided; ask for it first"
            )
        link = link_of(parts, row, held.step, asked, held.given if held.job else None)
        chain.append(link._replace(differs=True) if held.amended else link)
        previous = registry.BY_NAME[name].parse(method, path, asked).previous
    return chain[::-1]


def _transcript(chain: list[Link], first: str, sent: bytes) -> Whole | None:
    try:
        return as_whole(chain, sent)
    except BadRequest as error:
        log.warning("the conversation before answer %s cannot be sent whole: %s", first, error)
        return None


def as_whole(chain: Sequence[Link], sent: bytes, before: Sequence[bytes] | None = None) -> Whole:
    """See ``responses_context.transcript``. Raises ``BadRequest``."""
    found = responses_context.transcript([(link.request, link.answer) for link in chain], sent, before)
    return Whole(found.body, {start: link.step for start, link in zip(found.starts, chain, strict=True)})
