"""Owns one attempt at one provider over HTTP, and the connections that attempts share. Must not retry, journal or
judge an answer's content; must not follow redirects, keep cookies or obey proxies of the environment.

Invariant: what is sent are the agent's own bytes, once; what is yielded are the provider's, decoded from any
content-encoding, in the pieces in which they came.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import ipaddress
import itertools
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import unquote, urlsplit

from agentstate.errors import (
    ShuttingDown,
    UpstreamCut,
    UpstreamFault,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamUnreachable,
    final,
)
from agentstate.providers.client import Question, Reply, end_to_end
from agentstate.providers.decoding import decoded
from agentstate.providers.provider import Provider
from agentstate.providers.wire import Exchange, Loss, Wire
from agentstate.settings import UpstreamSettings

_PORTS = {"http": 80, "https": 443}
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # methods whose empty body need not be announced
_ADDRESSES_S = 60.0  # how long the addresses of a host are believed
_NEXT_ADDRESS_S = 0.25  # after so long without a connection the next address is tried as well (RFC 8305, section 5)
_CLOSING_S = 1.0  # how long the end of the connections is waited for


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a provider is: ``fixed`` are the header lines that every question to it has."""

    key: str
    host: str
    port: int
    secure: bool
    fixed: str
    user: bool


def _origin(root: str) -> _Origin:
    """Raises ``ValueError`` for an address that is none."""
    url = urlsplit(root)
    host = url.hostname or ""
    host = host if host.isascii() else host.encode("idna").decode("ascii")
    port = url.port or _PORTS[url.scheme]
    shown = f"[{host}]" if ":" in host else host
    fixed = f"Host: {shown if port == _PORTS[url.scheme] else f'{shown}:{port}'}\r\n"
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        fixed += f"Authorization: Basic {base64.b64encode(pair).decode()}\r\n"
    return _Origin(root, host, port, url.scheme == "https", fixed, url.username is not None)


def _head(provider: Provider, origin: _Origin, question: Question) -> bytes:
    """The request line and header lines. Raises ``UpstreamInvalid`` for what would be read as something else."""
    target = "/" + provider.url(question.path, question.query).split("://", 1)[1].partition("/")[2]
    lines, sound = _lines(tuple(question.headers))
    first = f"{question.method} {target} HTTP/1.1\r\n{origin.fixed}"
    breaks = origin.fixed.count("\n") + 1
    if not sound or first.count("\n") != breaks or first.count("\r") != breaks or "\0" in first or " " in target:
        raise final(
            UpstreamInvalid(
                f"provider {provider.name} was not asked: the request's address or a header of it holds a line break "
                f"or another character that may not stand there"
            )
        )
    if origin.user and any(name.lower() == "authorization" for name, _ in question.headers):
        raise final(
            UpstreamInvalid(
                f"provider {provider.name} was not asked: its url holds a user and the request brings credentials of "
                f"its own; take the user out of providers.{provider.name}.url, or the credentials out of the request"
            )
        )
    size = ""
    if question.body:
        size = f"Content-Length: {len(question.body)}\r\n"
    elif question.method not in _BODILESS:
        size = "Content-Length: 0\r\n"
    return f"{first}{lines}{size}\r\n".encode("utf-8", "surrogateescape")


@functools.lru_cache(256)  # a client says much the same with each request
def _lines(headers: tuple[tuple[str, str], ...]) -> tuple[str, bool]:
    """The header lines, and whether they are read as what they are."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return lines, lines.count("\n") == lines.count("\r") == len(headers) and "\0" not in lines


class _Attempt:
    """One question to one provider, as a context: entered when its answer has begun, left when nobody reads on."""

    __slots__ = ("_client", "_exchange", "_provider", "_question")

    def __init__(self, client: HttpClient, provider: Provider, question: Question) -> None:
        self._client = client
        self._provider = provider
        self._question = question
        explain = functools.partial(_explained, provider.name)
        self._exchange = Exchange(explain, bodiless=question.method == "HEAD")

    async def __aenter__(self) -> Reply:
        question, exchange, client = self._question, self._exchange, self._client
        origin = client.origin(self._provider)
        head = _head(self._provider, origin, question)
        wire = await client.take(origin, self._provider.name)
        limits = client.settings
        try:
            wire.ask(exchange, head, question.body, limits.first_byte_timeout_s, limits.idle_timeout_s)
            await exchange.begun()
        except BaseException:
            exchange.close()
            raise
        headers = end_to_end(exchange.fields)
        if question.raw or exchange.bodiless or not exchange.encoded:
            return Reply(exchange.status, headers, exchange)
        headers, chunks = decoded(headers, exchange)
        return Reply(exchange.status, headers, chunks)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exchange.close()


class HttpClient:
    """Attempts over the network. ``settings.connections`` of them go on at a time; others wait in the order in which
    they came."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self._free = settings.connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wires: set[Wire] = set()
        self._idle: dict[str, list[Wire]] = {}
        self._origins: dict[str, _Origin] = {}
        self._addresses: dict[tuple[str, int], tuple[float, list[str]]] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False
        self._all_gone: asyncio.Future[None] | None = None

    def attempt(self, provider: Provider, question: Question) -> _Attempt:
        """An async context manager of a ``Reply``. Entering it and reading it raise ``UpstreamFault``, and
        ``ShuttingDown`` after ``close``."""
        return _Attempt(self, provider, question)

    async def close(self) -> None:
        """Break off what is under way and close every connection."""
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(_stopping())
        self._waiting.clear()
        for wire in list(self._wires):
            wire.abort()
        if self._wires:
            self._all_gone = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_gone], timeout=_CLOSING_S)

    def origin(self, provider: Provider) -> _Origin:
        """Where a provider is. Raises ``UpstreamUnreachable`` for an address that is none."""
        found = self._origins.get(provider.root)
        if found is None:
            try:
                found = self._origins[provider.root] = _origin(provider.root)
            except ValueError as error:
                raise _unreachable(provider.name, error) from None
        return found

    async def take(self, origin: _Origin, name: str) -> Wire:
        """A connection for one question, from those that rest or a new one. Raises ``UpstreamUnreachable``."""
        if self._closed:
            raise _stopping()
        if self._free:
            self._free -= 1
        else:
            await self._turn()
        idle = self._idle.get(origin.key)
        while idle:
            wire = idle.pop()  # the one used last is the least likely to be closed by its other end
            if wire.ready():
                return wire
            wire.abort()
        try:
            return await self._connect(origin, name)
        except BaseException:
            self._pass_on()
            raise

    # --- turns ---

    async def _turn(self) -> None:
        """Wait for a place among ``settings.connections``. There is no free one while anybody waits."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.cancelled() and waiter.exception() is None:
                self._pass_on()  # the place was given to somebody who no longer wants it
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def _freed(self, wire: Wire, reusable: bool) -> None:
        if reusable and not self._closed:
            self._idle.setdefault(wire.key, []).append(wire)
        self._pass_on()

    def _gone(self, wire: Wire) -> None:
        self._wires.discard(wire)
        idle = self._idle.get(wire.key)
        if idle and wire in idle:
            idle.remove(wire)
        if not self._wires and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    # --- connecting ---

    async def _connect(self, origin: _Origin, name: str) -> Wire:
        limit = self.settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit):
                wire = await self._first(origin, await self._resolve(origin))
        except TimeoutError as error:
            raise UpstreamUnreachable(
                f"provider {name} could not be reached in time; check providers.{name}.url"
            ) from error
        except (OSError, ValueError) as error:
            self._addresses.pop((origin.host, origin.port), None)
            raise _unreachable(name, error) from error
        if self._closed:
            wire.abort()
            raise _stopping()
        return wire

    async def _resolve(self, origin: _Origin) -> list[str]:
        """The host's addresses, the families in turns. Raises ``OSError``."""
        try:
            ipaddress.ip_address(origin.host)
        except ValueError:
            loop, place = asyncio.get_running_loop(), (origin.host, origin.port)
            until, found = self._addresses.get(place, (0.0, []))
            if until < loop.time():
                rows = await loop.getaddrinfo(*place, type=socket.SOCK_STREAM)
                families: dict[int, list[str]] = {}
                for row in rows:
                    families.setdefault(row[0], []).append(str(row[4][0]))
                turns = itertools.zip_longest(*families.values())
                found = list(dict.fromkeys(address for turn in turns for address in turn if address))
                self._addresses[place] = (loop.time() + _ADDRESSES_S, found)
            return found
        return [origin.host]

    async def _first(self, origin: _Origin, addresses: list[str]) -> Wire:
        """The first connection that comes about; a slow address does not keep the next one waiting for long."""
        if len(addresses) == 1:
            return await self._dial(origin, addresses[0])
        left = deque(addresses)
        found: list[Wire] = []
        errors: list[Exception] = []

        async def tried(address: str) -> None:
            try:
                found.append(await self._dial(origin, address))
            except (OSError, ValueError) as error:
                errors.append(error)

        try:
            async with asyncio.TaskGroup() as group:
                pending: set[asyncio.Task[None]] = set()
                while (left or pending) and not found:
                    if left:
                        address = left.popleft()
                        pending.add(group.create_task(tried(address), name=f"connect {address}"))
                    wait = _NEXT_ADDRESS_S if left else None
                    _, pending = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                for task in pending:
                    task.cancel()
        except BaseException:
            for wire in found:
                wire.abort()
            raise
        for wire in found[1:]:
            wire.abort()
        if not found:
            raise errors[0]
        return found[0]

    async def _dial(self, origin: _Origin, address: str) -> Wire:
        """A connection to one address. Raises ``OSError``, ``ValueError``."""
        loop = asyncio.get_running_loop()
        wire = Wire(origin.key, self._freed, self._gone)
        tls = self._context() if origin.secure else None
        name = origin.host.rstrip(".") if origin.secure else None
        self._wires.add(wire)
        try:
            await loop.create_connection(lambda: wire, address, origin.port, ssl=tls, server_hostname=name)
        except BaseException:
            self._gone(wire)
            raise
        return wire

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _stopping() -> ShuttingDown:
    return ShuttingDown("the proxy is stopping; ask again")


def _unreachable(name: str, error: Exception) -> UpstreamUnreachable:
    text = str(getattr(error, "strerror", None) or error or type(error).__name__)[:200]
    return UpstreamUnreachable(f"provider {name} cannot be reached ({text}); check providers.{name}.url")


def _explained(name: str, loss: Loss, reason: str, begun: bool) -> UpstreamFault:
    """A loss as our error. Never shows the address's user part or a header."""
    where = f"provider {name}"
    if loss is Loss.SILENT:
        what = "fell silent in the middle of its answer" if begun else "did not begin to answer in time"
        return UpstreamTimeout(f"{where} {what}")
    if loss is Loss.CUT:
        return UpstreamCut(f"{where} closed the connection {'in the middle of' if begun else 'before'} its answer")
    if loss is Loss.STATUS:
        return UpstreamInvalid(f"{where} answered with status {reason}")
    return UpstreamInvalid(f"{where} sent what is not HTTP: {reason[:200]}")
