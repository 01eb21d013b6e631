"""Owns what is given of an answer that a session looks up at its provider and that the journal does not know: one that
was begun without a session, or whose end the proxy did not live to see. Must not journal it.

Invariant: no call that policies do not let pass is in it. Nobody can be asked about one, as no step proposes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentstate.core.model import Shape
from agentstate.core.policy import Place
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.base import Gate as Flow
from agentstate.dialects.lookups import CONVERSATION, RESPONSE, lookup
from agentstate.dialects.responses_answer import loaded
from agentstate.engine.core import Parts
from agentstate.engine.request import Request
from agentstate.errors import ApprovalUnavailable, UpstreamInvalid

SAYS_NOTHING = ("DELETE", "HEAD", "OPTIONS")  # methods whose answers hold nothing of what was said
_ASKED = b'{"background":true}', b'{"background":true,"stream":true}'  # all that need be known of the request


def unknown(parts: Parts, request: Request) -> Dialect | None:
    """The dialect of the answer that a request looks up, where the journal does not know that; ``None``: it does, or it
    is no such request, or there is no gate."""
    asked = lookup(request.normal) if request.session and parts.gate.policies.rules else None
    if asked is None or asked.kind == CONVERSATION or not asked.name or request.method in SAYS_NOTHING:
        return None
    if asked.below not in ("", "cancel"):
        return None
    read, session = parts.journal.read, parts.journal.facts.session(request.session)
    shared = parts.view(session).shared if session is not None else ()
    if asked.kind == RESPONSE and session is not None and read.held_shown(session.id, asked.name, shared) is not None:
        return None
    if read.was_withheld(asked.name):  # and is given as it came by now, or it would have been refused
        return None
    return registry.BY_NAME["openai_responses" if asked.kind == RESPONSE else "openai_chat"]


async def judged(
    parts: Parts, request: Request, dialect: Dialect, chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """What may be given of it, as it comes; text of a stream at once. Raises ``UpstreamFault`` where it cannot be told
    what it holds, ``ApprovalUnavailable`` where a call cannot be taken out."""
    plain, streamed = (dialect.parse("POST", "", asked) for asked in _ASKED)
    most = parts.settings.server.max_answer_bytes
    received, shown = bytearray(), 0
    flow: Flow | None = None
    sniffed = False
    async for chunk in chunks:
        received += chunk
        if len(received) > most:
            raise UpstreamInvalid(f"the provider's answer is larger than {most} bytes (server.max_answer_bytes)")
        if not sniffed and (start := bytes(received).lstrip()):
            sniffed = True
            if dialect.is_stream(streamed, start):
                flow, chunk = dialect.gate(streamed), bytes(received)
        free = flow.feed(chunk) if flow is not None else b""
        shown += len(free)
        if free:
            yield free
    whole = bytes(received)
    verdict = flow.finish() if flow is not None else dialect.judge(plain, whole)
    if verdict.fault and not verdict.calls and (flow is not None or not isinstance(loaded(whole), dict)):
        raise UpstreamInvalid(f"the answer cannot be given: {verdict.fault}")
    session = parts.journal.facts.session(request.session)
    place = parts.gate.place_of(session) if session is not None else Place(request.session)
    call, shape = (plain, Shape()) if flow is None else (streamed, streamed.shape)
    body = parts.gate.passed(place, dialect, call, verdict, whole, shape)
    if body[:shown] != whole[:shown]:
        raise ApprovalUnavailable("what was shown already of the answer would change; ask for it without stream")
    if body[shown:]:
        yield body[shown:]
