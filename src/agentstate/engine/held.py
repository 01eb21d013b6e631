"""Owns what a provider holds for later requests and has lost: building the request that does without it.

Must not send. Invariant: what is built is the transcript of our branch, as the journal has it.
"""

from __future__ import annotations

import logging

from agentstate.core.model import Shape
from agentstate.dialects import registry, responses_context
from agentstate.engine.core import Parts
from agentstate.errors import BadRequest

log = logging.getLogger("agentstate")
_LONGEST = 2000  # answers that are walked back


def restored(parts: Parts, session: int, first: str, sent: bytes, status: int, refusal: bytes) -> bytes | None:
    """The body ``sent`` with the whole transcript in the place of its pointer to an answer that the provider says it
    has lost, and whose name is ``first``.

    ``None``: it does not say that, or the journal does not hold every answer on the way.
    """
    if not first or not responses_context.is_lost(status, refusal):
        return None
    chain = _chain(parts, session, first)
    return None if chain is None else _transcript([pair[:2] for pair in chain], first, sent)


def amended(parts: Parts, session: int, first: str, sent: bytes) -> bytes | None:
    """The body ``sent`` with the whole transcript in the place of its pointer, where the provider holds something else
    than agents were given: an answer with a call that a person edited or refused. ``None``: it holds the same."""
    if not parts.journal.read.has_amended(session):
        return None
    chain = _chain(parts, session, first)
    if chain is None or not any(pair[2] for pair in chain):
        return None
    return _transcript([pair[:2] for pair in chain], first, sent)


def whole(parts: Parts, session: int, first: str, sent: bytes) -> bytes | None:
    """The body ``sent`` with the whole transcript in the place of its pointer, for a provider that holds nothing of it;
    ``None``: the journal does not hold every answer on the way."""
    chain = _chain(parts, session, first)
    return None if chain is None else _transcript([pair[:2] for pair in chain], first, sent)


def _chain(parts: Parts, session: int, first: str) -> list[tuple[bytes, bytes, bool]] | None:
    """(request, answer as agents were given it, whether that is another than the provider's), newest first; ``None``:
    the journal does not hold all."""
    read = parts.journal.read
    chain: list[tuple[bytes, bytes, bool]] = []
    previous = first
    seen: set[str] = set()
    while previous and len(chain) < _LONGEST and previous not in seen:
        seen.add(previous)
        held = read.held(session, previous)
        if held is None or (held.job and not held.body):
            log.warning("answer %s is not in the journal", previous)
            return None
        name, method, path, asked = read.request(held.step)
        dialect = registry.BY_NAME[name]
        answer = read.answer(held.step)
        body = held.body if held.job else dialect.convert(answer.shape, Shape(), answer.body)
        chain.append((asked, body, answer.release is not None and answer.body != read.received(held.step).body))
        previous = dialect.parse(method, path, asked).previous
    return chain


def _transcript(chain: list[tuple[bytes, bytes]], first: str, sent: bytes) -> bytes | None:
    try:
        return responses_context.transcript(chain[::-1], sent)
    except BadRequest as error:
        log.warning("the conversation before answer %s cannot be sent whole: %s", first, error)
        return None
