"""Owns real proxy processes for tests: start, wait, kill, restart, always end.

Must not reach into the process: tests talk to it over HTTP and signals only. Invariant: a process started here is ended
here, by its own pid, whatever the test did.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.client import Client, ControlPlane
from tests.support.forking import Forked

ROOT = Path(__file__).parents[2]
LISTENING = "AgentState listening on "
BOUND_S = 30.0
CLI = (sys.executable, "-m", "agentstate")


def clean_environment(data: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without any of our settings, keys or HTTP proxies, plus ``more``.

    The data folder also stands in for the home folder, so that no settings file of the user is found.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENTSTATE_", "OPENAI_", "ANTHROPIC_", "COV_"))
        and name.lower() not in ("http_proxy", "https_proxy", "all_proxy", "xdg_config_home", "xdg_data_home")
    }
    kept |= {"AGENTSTATE_DATA": str(data), "HOME": str(data), "PYTHONUNBUFFERED": "1"}
    kept["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"  # the code beside these tests, whichever is installed
    return kept | dict(more or {})


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings named like ``upstream.idle_timeout_s`` as environment variables."""
    return {f"AGENTSTATE_{name.replace('.', '__').upper()}": str(value) for name, value in settings.items()}


class Proxy:
    """``agentstate serve`` as a process, with a data folder of its own that outlives restarts.

    ``command`` replaces ``python -m agentstate`` (the crash tests patch the writer that way). ``file``: the text of its
    settings file. ``retries``: as its settings say; else it makes one attempt for each call, so that what an upstream
    is scripted to say is what an agent is told.
    """

    def __init__(
        self,
        data: Path,
        upstream: str | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = CLI,
        file: str = "",
        retries: bool = False,
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        if file:
            (data / "agentstate.toml").write_text(file)
        self.data = data
        alone = {} if retries else {"retry.attempts": 1}
        self._environment = clean_environment(data, variables(alone | dict(settings or {})))
        if upstream is not None:
            for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "OLLAMA"):
                self._environment[f"AGENTSTATE_{provider}_URL"] = upstream
        self._environment.update(environment or {})
        self._arguments = list(arguments)
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self.url = ""

    def __enter__(self) -> Proxy:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    @property
    def pid(self) -> int:
        """The running process's id."""
        assert self._process is not None, "the proxy is not running"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def client(self) -> Client:
        """A client of the agent plane."""
        return Client(self.port)

    @property
    def control(self) -> ControlPlane:
        """A client of the control plane, with the admin token."""
        return ControlPlane(self.url, self.admin_token)

    @property
    def admin_token(self) -> str:
        """The token that the proxy made on its first start."""
        return (self.data / "admin_token").read_text().strip()

    @property
    def database(self) -> Path:
        """The journal's file."""
        return self.data / "agentstate.db"

    @property
    def log(self) -> str:
        """Everything that all lives of this proxy wrote to stderr."""
        path = self.data / "stderr.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stored_bytes(self) -> bytes:
        """All bytes of the journal on disk, with its write-ahead log."""
        files = [path for path in sorted(self.data.iterdir()) if path.name.startswith("agentstate.db")]
        return b"".join(path.read_bytes() for path in files)

    def start(self, *, command: Sequence[str] | None = None) -> Proxy:
        """Start it and wait until it listens. Fails with its stderr if it ends before."""
        assert not self.alive, "the proxy runs already"
        listening = threading.Event()
        ended = threading.Event()
        called = [*(command or self._command), "serve", "--port", "0", *self._arguments]
        self._process = self._started(called)
        reader = threading.Thread(
            target=self._read_output, args=(self._process, listening, ended), name="proxy-output", daemon=True
        )
        reader.start()
        there = listening.wait(BOUND_S)
        if not there or ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5 if ended.is_set() else 0)
            code = self._process.returncode
            self.kill()
            raise AssertionError(f"the proxy did not start (exit code {code}):\n{self.log[-3000:]}")
        return self

    def _started(self, called: list[str]) -> subprocess.Popen[bytes] | Forked:
        if called[:2] == [sys.executable, "-m"]:
            return Forked(called[2], called[3:], self.data, self._environment, self.data / "stderr.log")
        with (self.data / "stderr.log").open("ab") as log:
            return subprocess.Popen(
                called,
                cwd=self.data,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def _read_output(
        self, process: subprocess.Popen[bytes] | Forked, listening: threading.Event, ended: threading.Event
    ) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for raw in lines:
                line = raw.decode(errors="replace").strip()
                if line.startswith(LISTENING) and not listening.is_set():
                    self.url = line.removeprefix(LISTENING).rstrip("/")
                    listening.set()
        if not listening.is_set():
            ended.set()
            listening.set()

    def keep_port(self) -> Proxy:
        """Listen on the present port after every restart."""
        self._arguments += ["--port", str(self.port)]
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Harmless when it has ended already."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait(BOUND_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None, "the proxy is not running"
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(BOUND_S)

    def wait(self, timeout: float = BOUND_S) -> int:
        """Wait for it to end by itself; the exit code."""
        assert self._process is not None, "the proxy was never started"
        return self._process.wait(timeout)

    def restart(self, *, command: Sequence[str] | None = None) -> Proxy:
        """End it hard if it runs, and start it on the same data, with no clean-up in between."""
        self.kill()
        return self.start(command=command)

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run another command of the command line on the same data folder."""
        done = subprocess.run(
            [*CLI, *arguments],
            cwd=self.data,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        if check:
            assert done.returncode == 0, f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def doctor(self) -> str:
        """``agentstate doctor`` finds nothing wrong; its output."""
        done = self.cli("doctor")
        return done.stdout


_OTHER = """
import sys
from tests.support.client import Client
client = Client(int(sys.argv[1]))
connection = client.connect()
for line in sys.stdin:
    session, run, question = line.rstrip("\\n").split("\\t")
    answer = client.ask(session, question, run=run or None, on=connection)
    print(answer.status, answer.outcome, answer.run, flush=True)
"""


class OtherProcess:
    """An agent in a process of its own, which keeps its one connection open until the block ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> OtherProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OTHER, str(self._port)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()  # it ends at the end of its input
            try:
                process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def ask(self, session: str, question: str, *, run: str = "") -> str:
        """Ask, and return "status outcome run" of the answer."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{session}\t{run}\t{question}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


def lock_of(data: Path) -> dict[str, Any]:
    """What the serving process wrote into its lock file: ``pid`` and ``url``."""
    return dict(json.loads((data / "agentstate.db.lock").read_text()))
