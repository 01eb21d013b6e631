"""Owns what the command tests share: a stand-in for the proxy's control plane, and supervisors as real processes.

Invariant: every process started here is ended here, by its own pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import clean_environment

BOUND_S = 20.0
TOKEN = "test-admin-token"
SUPERVISOR = (
    "import sys; from agentstate.cli.run import run; "
    "sys.exit(run(sys.argv[1], sys.argv[4:], int(sys.argv[2]), backoff=float(sys.argv[3])))"
)


class FakeProxy:
    """Answers the control plane's calls that a supervisor makes, and keeps them as (method, path, body).

    ``facts`` is what it says of each run; ``refuse`` makes it answer 401 whatever the token.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.facts: dict[str, Any] = {"replayed": 0, "joined": 0, "live": 0, "cost": 0.0, "saved": 0.0}
        self.refuse = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Stay silent."""

            def reply(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                text = self.rfile.read(size)
                status, answer = outer.answer(self.command, self.path, text, self.headers.get("authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = reply

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def answer(self, method: str, path: str, text: bytes, authorization: str | None) -> tuple[int, Any]:
        if path == "/healthz":
            return 200, {"status": "ok", "version": "0"}
        if self.refuse or authorization != f"Bearer {TOKEN}":
            return 401, {"error": {"message": "no"}}
        body = json.loads(text) if text else None
        if not path.startswith("/api/sessions?"):
            self.calls.append((method, path, body))
        return 200, self.facts | {"run": path.rsplit("/", 1)[-1]}

    def bodies(self, ending: str, method: str = "POST") -> list[Any]:
        return [body for how, path, body in self.calls if how == method and path.endswith(ending)]

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.bodies("/runs")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Supervisor:
    """``agentstate run`` as a process of its own session, its output in files."""

    def __init__(self, data: Path, variables: dict[str, str], arguments: list[str | bytes], **options: Any) -> None:
        self.out = data / "out.txt"
        self.err = data / "err.txt"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            given = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err} | options
            self.process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISOR, *arguments],
                cwd=data,
                env=clean_environment(data, variables),
                start_new_session=True,
                **given,
            )

    def end(self) -> int:
        return self.process.wait(BOUND_S)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    @property
    def output(self) -> str:
        return self.out.read_text(errors="replace")

    @property
    def log(self) -> str:
        return self.err.read_text(errors="replace")

    def close(self) -> None:
        """End it and what it started: all of it is in the session that it leads."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(BOUND_S)


def until(condition: Callable[[], Any], what: str) -> Any:
    """What ``condition`` gives once it is true; fails after a bound."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {BOUND_S} s in vain: {what}")


@pytest.fixture
def fake() -> Iterator[FakeProxy]:
    proxy = FakeProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def supervise(tmp_path: Path, fake: FakeProxy) -> Iterator[Callable[..., Supervisor]]:
    """Starts supervisors that find the stand-in; arguments: the agent's command."""
    started: list[Supervisor] = []

    def start(
        *command: str | bytes,
        session: str = "work",
        restarts: int = 2,
        backoff: float = 0.05,
        variables: dict[str, str] | None = None,
        **options: Any,
    ) -> Supervisor:
        ours = {"AGENTSTATE_PORT": str(fake.port), "AGENTSTATE_ADMIN_TOKEN": TOKEN} | (variables or {})
        supervisor = Supervisor(tmp_path, ours, [session, str(restarts), str(backoff), *command], **options)
        started.append(supervisor)
        return supervisor

    yield start
    for supervisor in started:
        supervisor.close()
