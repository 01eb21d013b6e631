"""Owns how commands reach a proxy: finding the one that runs, starting one, and calling its control plane.

Must not know agents or signals: whoever waits here passes the function that waits, and may raise from it.
Invariant: only a proxy that answers ``/healthz`` as AgentState does and takes our admin token is used, so that another
program, or another user's proxy, on the usual port is never mistaken for ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

from agentstate import clock
from agentstate.errors import AgentStateError, Unauthorized
from agentstate.settings import Settings, data_folder, store_path

LISTENING = "AgentState listening on "
LOG_NAME = "agentstate-serve.log"
LOG_BYTES = 1024 * 1024  # a log larger than this is begun anew
PROBE_S = 2.0
CALL_S = 10.0
SILENCE_S = 45.0  # three heartbeats
START_S = 30.0
POLL_S = 0.05
LINGER_S = 3
REVIVALS = 5  # times that a proxy which ends is started again within one life of the agent

Wait = Callable[[float], None]


class ProxyUnreachable(AgentStateError):
    """The proxy does not answer, or could not be started."""

    code = "proxy_unreachable"


class ControlRefused(AgentStateError):
    """The control plane answered with an error; the message is the proxy's own."""

    code = "control_refused"


class Control:
    """The control plane of one proxy. Every call is bounded in time and raises ``AgentStateError`` when it fails."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token

    def register(self, session: str, run: str, *, replaces: str | None, supervisor: int | None) -> None:
        """Say that ``run`` begins. ``replaces``: a run whose process is known dead, which is fenced from now on."""
        body = {"run": run, "replaces": replaces, "supervisor_pid": supervisor}
        self.call("POST", f"/api/sessions/{_part(session)}/runs", body)

    def end(self, session: str, run: str, exit_code: int | None) -> None:
        """Say that ``run`` has ended."""
        self.call("POST", f"/api/sessions/{_part(session)}/runs/{_part(run)}/end", {"exit_code": exit_code})

    def run(self, session: str, run: str) -> dict[str, Any]:
        """What the journal says of one run: how many steps were replayed, joined, live, and money in USD or None."""
        return dict(self.call("GET", f"/api/sessions/{_part(session)}/runs/{_part(run)}"))

    def session(self, session: str) -> dict[str, Any]:
        """One session with its steps and runs."""
        return dict(self.call("GET", f"/api/sessions/{_part(session)}"))

    def set_status(self, session: str, status: str) -> None:
        """Set the session's status, one of RUNNING, PAUSED, FAILED, COMPLETED."""
        self.call("POST", f"/api/sessions/{_part(session)}/status", {"status": status})

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float = CALL_S,
        headers: dict[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """The parsed answer. Raises ``Unauthorized``, ``ControlRefused`` or ``ProxyUnreachable``."""
        request = urllib.request.Request(  # noqa: S310 - the address comes from settings or from the proxy itself
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                **(headers or {}),
            },
            method=method,
        )
        try:
            return _fetched(request, timeout)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", error)
            raise ProxyUnreachable(
                f"the proxy at {self.url} does not answer ({why}); start it with `agentstate serve`"
            ) from error

    def lines(self, path: str, *, silence: float = SILENCE_S) -> Iterator[str]:
        """The lines of an answer that comes as long as it likes, while it is never silent for so long (seconds). Ends
        where the proxy ends it. Raises as ``call`` does."""
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310 - as in ``call``
        try:
            with _opened(request, silence) as reply:
                for line in reply:
                    yield line.decode("utf-8", "replace").rstrip("\r\n")
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error)
            raise ProxyUnreachable(f"the proxy at {self.url} does not answer any more ({why})") from error

    def _refusal(self, error: urllib.error.HTTPError) -> AgentStateError:
        if error.code == 401:
            return Unauthorized(
                f"the proxy at {self.url} refuses the token: set AGENTSTATE_TOKEN to your own, AGENTSTATE_ADMIN_TOKEN "
                f"to the one it was started with, or AGENTSTATE_DATA to its data folder"
            )
        try:
            found = json.loads(error.read())["error"]
            text = str(found["message"] if isinstance(found, dict) else found)
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            text = error.reason  # not our error shape, so the status line has to do
        return ControlRefused(f"the proxy at {self.url} answered {error.code}: {text}")


class Server:
    """The proxy that a supervisor uses: found or started, and started again should it end.

    ``wait`` is called with seconds while something is waited for, and may raise to give up.
    """

    def __init__(self, settings: Settings, config: Path | None, wait: Wait) -> None:
        self._settings = settings
        self._config = config
        self._wait = wait
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None
        self._revived = 0
        self.pids: set[int] = set()
        """The processes started here."""

    def ensure(self) -> Control:
        """The control plane of a proxy that answers now: the one used so far, one that is found, or one started here.

        Raises ``ProxyUnreachable``, ``Unauthorized``, and whatever ``wait`` raises.
        """
        self._revived = 0
        if self._url is None or not self._answers(self._url):
            self._url = find(self._settings) or self._start()
        return Control(self._url, admin_token(self._settings))

    def revive(self) -> bool:
        """Start the proxy again if it is ours and has ended, on the port that the agent knows; whether it was.

        Does not wait for it. A proxy that ends again and again is left alone after ``REVIVALS`` times.
        """
        if self._process is None or self._running() or self._url is None or self._revived >= REVIVALS:
            return False
        self._revived += 1
        with tempfile.TemporaryFile() as output:
            self._spawn(urlsplit(self._url).port or 0, output)
        return True

    def _running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _answers(self, url: str) -> bool:
        """Whether the proxy answers; one of ours that has just been started again gets time for that."""
        deadline = clock.monotonic() + START_S
        while not _healthy(url):
            if not self._running() or clock.monotonic() >= deadline:
                return False
            self._wait(POLL_S)
        return True

    def _start(self) -> str:
        """Start a proxy; its URL once it listens. An address that was in use before is taken again if it is free."""
        known = [] if self._process is None or self._url is None else [urlsplit(self._url).port or 0]
        for port in [*known, 0]:
            url = self._listening(port)
            if url is not None:
                return url
        raise ProxyUnreachable(f"the proxy could not be started; the end of its log {log_path()}:\n{_tail(log_path())}")

    def _listening(self, port: int) -> str | None:
        """The URL once it listens; None when it ended before that and no other proxy of ours is there either."""
        with tempfile.TemporaryFile() as output:
            process = self._spawn(port, output)
            deadline = clock.monotonic() + START_S
            while clock.monotonic() < deadline:
                url = _announced(output)
                if url is not None:
                    return url
                if process.poll() is not None:
                    # Most likely another command started one on the same journal at the same moment.
                    return self._found_soon()
                self._wait(POLL_S)
        process.kill()
        return None

    def _found_soon(self) -> str | None:
        """A proxy that is about to listen: the winner of the journal's lock writes its address a moment later."""
        deadline = clock.monotonic() + PROBE_S
        while (url := find(self._settings)) is None and clock.monotonic() < deadline:
            self._wait(POLL_S)
        return url

    def _spawn(self, port: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
        self._process = spawn_server(port, self._config, output)
        self.pids.add(self._process.pid)
        return self._process


def spawn_server(port: int, config: Path | None, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start ``agentstate serve`` in a session of its own, its log in the data folder, what it prints in ``output``."""
    log = log_path()
    log.parent.mkdir(parents=True, exist_ok=True)
    fresh = not log.exists() or log.stat().st_size > LOG_BYTES
    command = [sys.executable, "-m", "agentstate", "serve", "--port", str(port), "--linger", str(LINGER_S)]
    if config is not None:
        command += ["--config", str(config)]
    # An outer run's ids are the agent's, not the proxy's.
    environment = {k: v for k, v in os.environ.items() if k not in ("AGENTSTATE_RUN_ID", "AGENTSTATE_SESSION_ID")}
    with log.open("wb" if fresh else "ab") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment,
            start_new_session=True,
            # The caller may have blocked signals for itself, and a blocked SIGTERM would make the proxy unstoppable.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, set()),
        )


def find(settings: Settings, token: str | None = None) -> str | None:
    """The URL of a running proxy: the one at the settings' address, else the one that holds the journal's lock.

    ``token``: a person's, instead of the admin's. Raises ``Unauthorized`` when it, or the settings' own admin token, is
    refused at such an address, and no other one takes it: somebody else's proxy may stand at the usual port.
    """
    candidates = [] if settings.server.port == 0 else [address(settings)]
    with contextlib.suppress(AgentStateError):  # a journal that is no file has no lock; serving will say so
        candidates += _from_lock(store_path(settings))
    refused: Unauthorized | None = None
    for url in candidates:
        try:
            if _healthy(url) and _accepts(url, settings, token):
                return url
        except Unauthorized as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return None


def address(settings: Settings) -> str:
    """The URL under which the settings' own proxy is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.server.host, settings.server.host)  # noqa: S104
    return f"http://[{host}]:{settings.server.port}" if ":" in host else f"http://{host}:{settings.server.port}"


def admin_token(settings: Settings) -> str:
    """The control plane's token: the settings' one, else the one the proxy keeps in the data folder, else empty."""
    if settings.server.admin_token is not None:
        return settings.server.admin_token.get_secret_value()
    try:
        return (data_folder() / "admin_token").read_text("utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Unauthorized(f"the admin token cannot be read: {error}; set AGENTSTATE_ADMIN_TOKEN") from error


def log_path() -> Path:
    """Where a proxy that was started by a command logs to."""
    return data_folder() / LOG_NAME


def _from_lock(store: Path) -> list[str]:
    """The address that the process serving ``store`` wrote into its lock file; of a dead one it is harmless."""
    try:
        return [str(json.loads(Path(f"{store.resolve()}.lock").read_text("utf-8"))["url"])]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # no proxy, or one that has not written its address yet


def _healthy(url: str) -> bool:
    try:
        answer = _fetched(urllib.request.Request(url + "/healthz"), PROBE_S)  # noqa: S310 - http address of ours
    except (OSError, HTTPException, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("status") == "ok" and "version" in answer


def _accepts(url: str, settings: Settings, token: str | None) -> bool:
    try:
        Control(url, token or admin_token(settings)).call("GET", "/api/sessions?limit=1", timeout=PROBE_S)
    except Unauthorized:
        if token or settings.server.admin_token is not None:
            raise
        return False
    except AgentStateError:
        return False
    return True


def _fetched(request: urllib.request.Request, timeout: float) -> Any:
    with _opened(request, timeout) as reply:
        text = reply.read()
    return json.loads(text) if text else None


def _opened(request: urllib.request.Request, timeout: float) -> Any:
    # No HTTP proxy of the environment stands between us and a proxy on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=timeout)


def _announced(output: IO[bytes]) -> str | None:
    text = os.pread(output.fileno(), 65536, 0).decode(errors="replace")
    lines = [line for line in text.split("\n")[:-1] if line.startswith(LISTENING)]
    return lines[0].removeprefix(LISTENING).strip().rstrip("/") if lines else None


def _tail(path: Path, most: int = 2000) -> str:
    try:
        return path.read_bytes()[-most:].decode(errors="replace").strip() or "(empty)"
    except OSError as error:
        return f"({error})"


def _part(name: str) -> str:
    return quote(name, safe="")
