"""Owns what is passed through: paths that no dialect knows, and calls without a session. Must not journal.

Invariant: bytes go both ways as they come, but for calls that policies hold in an answer that is looked up, and unless
another candidate answers; when the client leaves, the upstream call is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from agentstate import clock
from agentstate.core.model import Outcome
from agentstate.dialects import registry
from agentstate.engine import found, jobs
from agentstate.engine.core import Parts
from agentstate.engine.headers import forwarded
from agentstate.engine.relaying import Relaying
from agentstate.engine.request import Request, Told
from agentstate.errors import ShuttingDown, UpstreamFault
from agentstate.providers.client import Reply

# What only lists what there is costs nothing and does nothing, also while the session is paused.
_LISTS = ("GET", "HEAD", "OPTIONS")


@asynccontextmanager
async def relay(parts: Parts, request: Request) -> AsyncIterator[Reply]:
    """The provider's reply to a request that is not journaled, ours headers added. Raises ``AgentStateError``."""
    if parts.closing:
        raise ShuttingDown("the proxy is stopping; ask again")
    if request.session:
        parts.presence.speaks_for(request.connection, request.session, None)
        if request.method not in _LISTS or jobs.looks_up(request):
            await parts.pauses.allowed(request.session)
    kind = registry.provider_kind(request.normal, request.headers)
    provider = parts.providers.for_dialect(kind)
    unknown = found.unknown(parts, request)
    relaying = Relaying(parts, request, provider, forwarded(request, kind, provider, raw=unknown is None))
    began = clock.monotonic()
    status, heard = 0, began
    try:
        async with AsyncExitStack() as stack:
            stack.callback(relaying.left)
            reply = await relaying.reply(stack)
            heard = clock.monotonic()
            await jobs.note_deletion(parts, request, reply.status)
            reply.headers = [pair for pair in reply.headers if not pair[0].lower().startswith("x-agentstate-")]
            if unknown is not None and reply.status < 300:
                reply.headers = [pair for pair in reply.headers if pair[0].lower() != "content-length"]
                reply.chunks = found.judged(parts, request, unknown, reply.chunks)
            reply.headers += Told(Outcome.LIVE, model=relaying.model, detour=relaying.detour).headers()
            try:
                yield reply
            except (UpstreamFault, ConnectionAbortedError) as error:
                cause = error if isinstance(error, UpstreamFault) else error.__cause__
                if isinstance(cause, UpstreamFault):
                    await relaying.ended(cause)
                raise
            await relaying.ended(None)
            status = reply.status
    finally:
        parts.insight.relayed(relaying.way.provider.name, status, began, heard)
