"""Owns the wiring: which plane a request is for, and the life of the server. Must not do either plane's work.

Invariant: the agent plane is reached before any framework; after SIGTERM no new call begins, what came is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from agentstate import clock
from agentstate.core.approval import ADMIN
from agentstate.dialects import registry
from agentstate.engine.core import Parts
from agentstate.engine.sessions import Sessions
from agentstate.errors import AgentStateError, BadRequest, Forbidden, SettingsError
from agentstate.server import auth, logs
from agentstate.server.address import bare_path, routed
from agentstate.server.errors import rendered
from agentstate.server.logins import FIRST_LINK_S, Logins
from agentstate.server.protocol import protocol_for
from agentstate.server.proxy import Proxy, Receive, Scope, Send
from agentstate.server.sites import Sites
from agentstate.settings import Settings, data_folder

log = logging.getLogger("agentstate")
Said = Callable[[str, Callable[[], str]], None]
KEEP_ALIVE_S = 75  # an idle socket is a sign of life of its run; SDK pools drop theirs earlier by themselves
_CONTROL = ("/api/", "/approve/", "/hooks/", "/healthz", "/readyz", "/dashboard/")
_ITSELF = ("/api", "/metrics", "/dashboard", "/dashboard.json")
# Of any name: what says nothing, what others sign, and what no browser has the token for.
_OPEN = ("/hooks/", "/healthz", "/readyz", "/metrics")


class App:
    """The ASGI application of both planes."""

    def __init__(self, parts: Parts, token: str, logins: Logins) -> None:
        self._proxy = Proxy(parts)
        self._parts = parts
        self._token = token
        self._logins = logins
        self._sites = Sites(parts.settings)
        self._api: Any = None
        self._pages: Any = None

    def _make(self) -> None:
        """The control plane; its framework is not needed to start."""
        from agentstate.server.api import Api
        from agentstate.server.dashboard import Dashboard

        api = Api(self._parts, self._token, self._logins)
        self._api, self._pages = api.app(), Dashboard(self._parts, api.guard)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            path: str = scope["path"]
            if path.startswith(_CONTROL) or path in _ITSELF:
                if not path.startswith(_OPEN):
                    self._sites.check_host(scope["headers"])
                    self._sites.check_change(scope["method"], scope["headers"])
                if self._api is None:
                    self._make()
                if path.startswith("/api/") and b"%" in scope["raw_path"]:
                    scope = {**scope, "path": routed(scope["raw_path"])}
                await (self._pages if path.startswith("/dashboard") else self._api)(scope, receive, send)
            else:
                self._sites.check_agent(scope["method"], scope["headers"], scope["raw_path"].decode("latin-1"))
                await self._proxy(scope, receive, send)
        except (Forbidden, BadRequest) as error:
            self._parts.insight.refused(error)
            await _refuse(scope, send, error)
        except (ConnectionAbortedError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("a request failed")
            self._parts.insight.metrics.error(AgentStateError.code)
            await _last_resort(send, AgentStateError(f"the proxy failed ({type(error).__name__}); see its log"))


async def _refuse(scope: Scope, send: Send, error: AgentStateError) -> None:
    # The control plane speaks one way, whatever an address of it has in common with a provider's.
    raw = "" if scope["path"].startswith(_CONTROL) else scope["raw_path"].decode("latin-1")
    status, headers, body = rendered(error, registry.normalise(bare_path(raw)) if raw else "")
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _last_resort(send: Send, error: AgentStateError) -> None:
    status, headers, body = rendered(error)
    with contextlib.suppress(RuntimeError):  # an answer had begun: uvicorn closes the socket
        pairs = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body, "more_body": False})


class _Server(uvicorn.Server):
    """uvicorn, told by us when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def listen(settings: Settings) -> socket.socket:
    """Bind the address of the settings. Raises ``SettingsError``."""
    host, port = settings.server.host, settings.server.port
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        auth.check_binding(settings, str(address[0]))  # a name may lead anywhere
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}:{port} ({error.strerror or error}); choose another with --port or AGENTSTATE_PORT"
        ) from error
    return sock


async def serve(settings: Settings, linger_s: float | None = None, said: Said | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or, with ``linger_s``, until nobody has used it for so long (seconds).

    ``said`` is given the address once connections are accepted, and what makes a login link's path. Raises
    ``StoreError``, ``SettingsError``.
    """
    auth.check_settings(settings)
    token = auth.admin_token(settings, data_folder())
    logins = Logins(token, data_folder(), settings.dashboard.login_expires_s)
    parts = Parts(settings)
    sock = listen(settings)
    try:
        parts.open()
    except BaseException:
        sock.close()
        raise
    host, port = sock.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    parts.reached_at(url)
    server = _Server(_config(App(parts, token, logins), parts))
    loop = asyncio.get_running_loop()

    draining: list[asyncio.Task[None]] = []

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True
        parts.closing = True
        server.should_exit = True
        if not draining:
            draining.append(asyncio.create_task(parts.drain(settings.server.shutdown_grace_s), name="drain"))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    lingering = asyncio.create_task(_linger(parts, linger_s, stop), name="linger") if linger_s is not None else None
    announcing = asyncio.create_task(_announce(server, parts, url, said, logins), name="announce")
    try:
        await server.serve([sock])
    finally:
        await asyncio.gather(*draining)
        for task in (lingering, announcing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await parts.close()


def _config(app: App, parts: Parts) -> uvicorn.Config:
    return uvicorn.Config(
        app, http=protocol_for(parts.presence), ws="none", lifespan="off", log_config=None,
        access_log=False, proxy_headers=False,
        server_header=False, date_header=False, timeout_keep_alive=KEEP_ALIVE_S, backlog=2048,
        loop="none", timeout_graceful_shutdown=int(parts.settings.server.shutdown_grace_s) + 5,
    )  # fmt: skip


async def _announce(server: uvicorn.Server, parts: Parts, url: str, said: Said | None, logins: Logins) -> None:
    while not server.started:  # uvicorn has no event for it
        await asyncio.sleep(0.005)
    if said is not None:
        said(url, lambda: logins.link(ADMIN, FIRST_LINK_S))
    await asyncio.to_thread(parts.warm)


async def _linger(parts: Parts, seconds: float, stop: Callable[[], None]) -> None:
    """Stop when for so long no socket was open and no supervisor of an open run was alive."""
    sessions = Sessions(parts)
    used = clock.monotonic()
    while True:
        await asyncio.sleep(min(0.5, seconds / 4 + 0.05))
        if len(parts.presence) or len(parts.tasks) or parts.delivery.busy or sessions.supervised():
            used = clock.monotonic()
        elif clock.monotonic() - used >= seconds:
            stop()
            return


def run(settings: Settings, linger_s: float | None = None, said: Said | None = None) -> None:
    """``serve`` in an event loop of its own: uvloop where there is one."""
    logs.set_up(settings)
    _calm_collector()
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(settings, linger_s, said))
        return
    uvloop.run(serve(settings, linger_s, said))


def _calm_collector() -> None:
    """What a start has loaded stays for good: the collector need not look through it at every turn.

    Measured on the benchmark's live calls at concurrency 16: together with fewer wake-ups of the writer, a quarter less
    CPU a call. Requests leave next to no cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
