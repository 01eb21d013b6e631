"""Owns which headers go on: to the provider, and back to the agent, live and replayed. Must not know ours of today.

Invariant: what describes one connection, one moment or one encoding does not outlive it.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from agentstate.core.model import Call, Shape, State
from agentstate.dialects import credentials
from agentstate.dialects.base import Dialect
from agentstate.engine.request import Request
from agentstate.providers.client import Headers, Question
from agentstate.providers.mcp import Server
from agentstate.providers.provider import Provider
from agentstate.store.rows import AnswerRow

# They speak of the moment or the connection in which the answer was given.
MOMENT = ("date", "content-length", "retry-after", "retry-after-ms", "x-ratelimit", "ratelimit", "set-cookie")

_NOT_REPLAYED = (*MOMENT, "x-agentstate-")  # the last: a provider must not speak in our name

_MADE_ANEW = frozenset({"host", "content-length", "expect"})
NEVER_STORED = frozenset({"set-cookie", "set-cookie2", "authorization", "x-api-key"})


def asked_shape(call: Call, recorded: AnswerRow) -> Shape:
    """Errors have one shape; answers are given in the shape asked now."""
    return call.shape if recorded.state is State.COMPLETED else recorded.shape


def forwarded(request: Request, kind: str, provider: Provider, raw: bool = False) -> Question:
    """What a provider is sent for a request, with the credentials that are for it; ``kind``: the one that it was chosen
    for. ``raw``: in whatever encoding the agent takes, else as it is. Raises ``SettingsError``."""
    ours = tuple(provider.credentials())
    headers, query = _sent(tuple(request.headers), kind, request.query, ours, raw)
    return Question(request.method, request.path, query, list(headers), request.body, raw)


@lru_cache(256)  # a client says much the same with each request
def _sent(
    headers: tuple[tuple[str, str], ...], kind: str, query: str, ours: tuple[tuple[str, str], ...], raw: bool
) -> tuple[Headers, str]:
    """Never to be changed."""
    dropped = _MADE_ANEW if raw else {*_MADE_ANEW, "accept-encoding"}
    kept = [pair for pair in headers if pair[0].lower() not in dropped]
    sent, query = credentials.sent(kind, kept, query, ours)
    if not raw:
        sent.append(("accept-encoding", "identity"))
    return sent, query


def forwarded_to(
    request: Request, server: Server, body: bytes, dropped: tuple[str, ...] = (), added: Headers | None = None,
    method: str = "",
) -> Question:  # fmt: skip
    """What an MCP server is sent for a request: the agent's headers, less cookies and those that begin with
    ``dropped``; ours take the place of the agent's. Raises ``SettingsError``."""
    ours = [*server.headers(), *(added or [])]
    replaced = {name for name, _ in ours} | _MADE_ANEW | credentials.NEVER_SENT | {"accept-encoding"}
    kept = [pair for pair in request.headers if not pair[0].lower().startswith(dropped or ("\0",))]
    headers = [pair for pair in kept if pair[0].lower() not in replaced]
    query = "&".join(part for part in (server.query, request.query) if part)
    return Question(method or request.method, "", query, [*headers, *ours, ("accept-encoding", "identity")], body)


def live_headers(headers: Headers) -> Headers:
    """The provider's headers; lengths are ours, and it must not speak in our name."""
    return [
        pair for pair in headers
        if pair[0].lower() != "content-length" and not pair[0].lower().startswith("x-agentstate-")
    ]  # fmt: skip


def packed_headers(headers: Headers) -> bytes:
    """The headers that may be kept, as JSON pairs."""
    return msgspec.json.encode([pair for pair in headers if pair[0].lower() not in NEVER_STORED])


def kept_headers(head: bytes) -> Headers:
    """What was packed, less what speaks of its moment."""
    pairs = msgspec.json.decode(head) if head else ()
    return [(name, value) for name, value in pairs if not name.lower().startswith(_NOT_REPLAYED)]


def recorded_headers(recorded: AnswerRow, dialect: Dialect, shape: Shape) -> Headers:
    """The recorded headers, less those of the moment; the content type follows the shape."""
    kept = kept_headers(recorded.head)
    if shape.stream != recorded.shape.stream:
        kept = [pair for pair in kept if pair[0].lower() != "content-type"]
        kept.append(("content-type", dialect.content_type(shape)))
    return kept
