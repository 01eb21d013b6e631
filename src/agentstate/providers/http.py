"""Owns one attempt at one provider over HTTP. Must not retry, journal or judge an answer's content.

Invariant: what is sent are the agent's own bytes; what is yielded are the provider's, decoded from any
content-encoding, in the pieces in which they came. One shared session serves all attempts.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import zstandard
from multidict import CIMultiDict
from yarl import URL

from agentstate.errors import UpstreamCut, UpstreamFault, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable
from agentstate.providers.client import Headers, Question, Reply, end_to_end
from agentstate.providers.provider import Provider
from agentstate.settings import UpstreamSettings

_AUTO = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_SLICE = 256 * 1024  # most decoded bytes handed on at once, so that a compression bomb meets the size limit early
_ZSTD_SLICE = 256  # bytes of zstd fed at once: a block of 4 bytes can stand for 128 KiB, so at most 8 MiB come out
_WINDOW = 128 * 1024 * 1024


class _Connector(aiohttp.TCPConnector):
    """Reuses a connection only if nothing has arrived on it since its last answer.

    What a provider sends unasked must not be taken for the next answer, and a connection that it has closed meanwhile
    must not swallow a call that cannot be repeated blindly.
    """

    async def _get(self, key: Any, traces: Any) -> Any:
        while True:
            connection = await super()._get(key, traces)
            if connection is None:
                return None
            # Bytes may wait in the library already, or in the socket still.
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close and _quiet(connection.transport):
                return connection
            connection.close()


def _quiet(transport: asyncio.Transport | None) -> bool:
    """Whether a socket has neither data nor an end to be read."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poll.poll(0)


class HttpClient:
    """Attempts over the network."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=self._settings.connections, ttl_dns_cache=60),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_AUTO,
                read_bufsize=256 * 1024,  # pausing the socket costs more than a chunk
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=self._settings.connect_timeout_s,
                    sock_read=self._settings.first_byte_timeout_s,
                ),
                max_line_size=64 * 1024,
                max_field_size=64 * 1024,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def attempt(self, provider: Provider, question: Question) -> AsyncIterator[Reply]:
        url = URL(provider.url(question.path, question.query), encoded=True)
        try:
            response = await self._open().request(
                question.method, url, headers=CIMultiDict(question.headers), data=question.body or None,
                allow_redirects=False,
            )  # fmt: skip
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _mapped(error, provider, begun=False) from error
        try:
            if not 200 <= response.status <= 599:
                raise UpstreamInvalid(f"provider {provider.name} answered with status {response.status}")
            connection = response.connection
            if connection is not None and connection.protocol is not None:
                connection.protocol.read_timeout = self._settings.idle_timeout_s
            headers = end_to_end(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
            )
            chunks = self._chunks(response, provider)
            if not question.raw:
                headers, chunks = _decoded(headers, chunks)
            yield Reply(response.status, headers, chunks)
        finally:
            response.close() if not response.content.at_eof() else response.release()

    async def _chunks(self, response: aiohttp.ClientResponse, provider: Provider) -> AsyncIterator[bytes]:
        content = response.content
        try:
            while True:
                chunk = await content.readany()
                if not chunk:
                    return
                yield chunk
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise _mapped(error, provider, begun=True) from error


def _mapped(error: BaseException, provider: Provider, begun: bool) -> UpstreamFault:
    """The library's error as ours. Never shows the address's user part or a header."""
    where = f"provider {provider.name}"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return UpstreamUnreachable(f"{where} could not be reached in time; check providers.{provider.name}.url")
    if isinstance(error, asyncio.TimeoutError | aiohttp.ServerTimeoutError):
        what = "fell silent in the middle of its answer" if begun else "did not begin to answer in time"
        return UpstreamTimeout(f"{where} {what}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamUnreachable(f"{where} cannot be reached ({_short(error)}); check providers.{provider.name}.url")
    if isinstance(
        error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | OSError | aiohttp.ClientOSError
    ):
        return UpstreamCut(f"{where} closed the connection {'in the middle of' if begun else 'before'} its answer")
    return UpstreamInvalid(f"{where} sent what is not HTTP: {_short(error)}")


def _short(error: BaseException) -> str:
    cause = getattr(error, "os_error", None)
    text = getattr(cause, "strerror", None) or str(cause or error) or type(error).__name__
    return str(text)[:200]


def _decoded(headers: Headers, chunks: AsyncIterator[bytes]) -> tuple[Headers, AsyncIterator[bytes]]:
    """The body without its content-encoding, and headers that say so."""
    encoding = ",".join(value for name, value in headers if name.lower() == "content-encoding").strip().lower()
    if encoding in ("", "identity"):
        return headers, chunks
    kept = [(name, value) for name, value in headers if name.lower() not in ("content-encoding", "content-length")]
    return kept, _decode(encoding, chunks)


async def _decode(encoding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """One stateful decoder for the whole body."""
    if encoding == "zstd":
        unzstd = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        try:
            async for chunk in chunks:
                for at in range(0, len(chunk), _ZSTD_SLICE):
                    if data := unzstd.decompress(chunk[at : at + _ZSTD_SLICE]):
                        yield data
        except zstandard.ZstdError as error:
            raise UpstreamInvalid(f"the provider's zstd body is damaged: {error}") from error
        if not unzstd.eof:
            raise UpstreamCut("the provider's zstd body ended early")
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UpstreamInvalid(f"the provider used content-encoding {encoding!r} though identity was asked for")
    inflate = zlib.decompressobj(47 if encoding != "deflate" else 15)
    try:
        async for chunk in chunks:
            data = inflate.decompress(chunk, _SLICE)
            while data or inflate.unused_data:
                if data:
                    yield data
                if inflate.eof and inflate.unused_data:  # gzip may have several members
                    rest, inflate = inflate.unused_data, zlib.decompressobj(47 if encoding != "deflate" else 15)
                    data = inflate.decompress(rest, _SLICE)
                else:
                    data = inflate.decompress(inflate.unconsumed_tail, _SLICE)
    except zlib.error as error:
        raise UpstreamInvalid(f"the provider's {encoding} body is damaged: {error}") from error
    if not inflate.eof:
        raise UpstreamCut(f"the provider's {encoding} body ended early")
