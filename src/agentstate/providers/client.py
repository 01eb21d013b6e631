"""Owns what one attempt at a provider is, and the simulated kind. Must not retry, journal or judge an answer's content.

Invariant: what is sent are the agent's own bytes; what is yielded are the provider's, in the pieces in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from agentstate.providers.provider import Provider
from agentstate.settings import SimulateSettings

Headers = list[tuple[str, str]]

# They describe one connection, not the message (RFC 9110, section 7.6.1, and two of older practice).
HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip

# What a connection field nearly always says; it names no header that would have to go.
_NO_NAMES = frozenset({"close", "keep-alive", ""})


@dataclass(slots=True)
class Reply:
    """An answer that has begun. ``chunks`` yields its body and raises an ``UpstreamFault`` where that breaks off."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]


class Question(NamedTuple):
    """What is sent: ``headers`` are final but for host and length. ``raw``: hand on the body as it is encoded."""

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    raw: bool = False


class Client(Protocol):
    def attempt(self, provider: Provider, question: Question) -> Any:
        """An async context manager of a ``Reply``. Raises ``UpstreamFault``."""
        ...

    async def close(self) -> None: ...


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers less those that belong to the connection, the ones it names among them."""
    kept: Headers = []
    named: set[str] = set()
    for pair in headers:
        low = pair[0].lower()
        if low not in HOP_BY_HOP:
            kept.append(pair)
        elif low == "connection":
            named.update(token.strip().lower() for token in pair[1].split(","))
    if named - _NO_NAMES:
        return [pair for pair in kept if pair[0].lower() not in named]
    return kept


class SimulatedClient:
    """Attempts at the built-in simulator; chosen in the settings, never because a key is missing."""

    def __init__(self, settings: SimulateSettings) -> None:
        self._settings = settings

    async def close(self) -> None:
        return None

    @asynccontextmanager
    async def attempt(self, provider: Provider, question: Question) -> AsyncIterator[Reply]:
        if self._settings.latency_s:
            await asyncio.sleep(self._settings.latency_s)
        from agentstate.providers import simulator

        made = simulator.answer(question.method, question.path, question.body)
        yield Reply(made.status, list(made.headers), self._chunks(made.chunks))

    async def _chunks(self, chunks: tuple[bytes, ...]) -> AsyncIterator[bytes]:
        for place, chunk in enumerate(chunks):
            if place and self._settings.chunk_gap_s:
                await asyncio.sleep(self._settings.chunk_gap_s)
            yield chunk
