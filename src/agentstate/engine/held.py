"""Owns what a provider holds for later requests and has lost: building the request that does without it.

Must not send. Invariant: what is built is the transcript of our branch, as the journal has it.
"""

from __future__ import annotations

import logging

from agentstate.core.model import Call, Shape
from agentstate.dialects import registry, responses_context
from agentstate.engine.core import Parts
from agentstate.errors import BadRequest

log = logging.getLogger("agentstate")
_LONGEST = 2000  # answers that are walked back


def restored(parts: Parts, session: int, call: Call, status: int, refusal: bytes) -> bytes | None:
    """The body with the whole transcript in the place of a pointer to an answer that the provider says it has lost.

    ``None``: it does not say that, or the journal does not hold every answer on the way.
    """
    if not call.previous or not responses_context.is_lost(status, refusal):
        return None
    read = parts.journal.read
    chain: list[tuple[bytes, bytes]] = []
    previous = call.previous
    seen: set[str] = set()
    while previous and len(chain) < _LONGEST and previous not in seen:
        seen.add(previous)
        held = read.held(session, previous)
        if held is None or (held.job and not held.body):
            log.warning("answer %s is lost at the provider and not in the journal", previous)
            return None
        name, method, path, asked = read.request(held.step)
        dialect = registry.BY_NAME[name]
        answer = read.answer(held.step)
        body = held.body if held.job else dialect.convert(answer.shape, Shape(), answer.body)
        chain.append((asked, body))
        previous = dialect.parse(method, path, asked).previous
    try:
        return responses_context.transcript(chain[::-1], call.body)
    except BadRequest as error:
        log.warning("the conversation before answer %s cannot be sent whole: %s", call.previous, error)
        return None
