"""Owns how each target is found and started. Must not measure.

A peer that is not installed says where it was looked for, and is reported as not measured; nothing stands in for it.
Invariant: every peer listens on 127.0.0.1 only, on a free port, pinned to the proxies' core.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import procs

HERE = Path(__file__).resolve().parent
START_LIMIT_S = 90.0
KEY = "sk-test-bench"


@dataclass(frozen=True, slots=True)
class Bed:
    """Where a peer is put: the provider's port, a folder of its own, the core, the log its output goes to."""

    upstream: int
    folder: Path
    core: int | None

    @property
    def log(self) -> Path:
        return self.folder / "log"


@dataclass(frozen=True, slots=True)
class Target:
    """A running peer. ``path`` serves live calls, ``replay_path`` calls that are to be replayed by a later run."""

    name: str
    port: int
    process: subprocess.Popen[str] | None = None
    path: str = "/v1"
    replay_path: str = "/v1"
    headers: dict[str, str] = field(default_factory=dict)
    started_s: float = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0


class NotMeasured(Exception):
    """Why a peer is left out, in words for the report."""


class Peer:
    """What is common: a name, what to print for it, and how it is started."""

    name = ""
    title = ""

    def find(self) -> str:
        """The version found. Raises ``NotMeasured``."""
        raise NotImplementedError

    def launch(self, bed: Bed) -> Target:
        """Starts it and waits until it listens. Raises ``NotMeasured``."""
        raise NotImplementedError


class Direct(Peer):
    name, title = "direct", "no proxy"

    def find(self) -> str:
        return "this repository"

    def launch(self, bed: Bed) -> Target:
        return Target(self.name, bed.upstream)


class AgentState(Peer):
    """The proxy under test, with everything on: SQLite, an fsync before each answer."""

    name, title = "agentstate", "AgentState"

    def __init__(self) -> None:
        given = os.environ.get("BENCH_AGENTSTATE")
        self._command = shlex.split(given) if given else [sys.executable, "-m", "agentstate"]

    def find(self) -> str:
        try:
            return importlib.metadata.version("agentstate-proxy")
        except importlib.metadata.PackageNotFoundError as error:
            raise NotMeasured("agentstate-proxy is not installed here: run `make setup`") from error

    def launch(self, bed: Bed) -> Target:
        command = [*self._command, "serve", "--port", "0", "--db", str(bed.folder / "agentstate.db")]
        env = {
            "AGENTSTATE_DATA": str(bed.folder),
            "AGENTSTATE_OPENAI_URL": f"http://127.0.0.1:{bed.upstream}/v1",
            "AGENTSTATE_ADMIN_TOKEN": "bench-admin-token",
        }
        begin = time.monotonic()
        process = procs.start(command, core=bed.core, log=bed.log, env=env, cwd=bed.folder)
        line = _wait(process, bed.log, lambda: _listening_line(bed.log))
        port = int(line.rsplit(":", 1)[1].split()[0].rstrip("/"))
        took = time.monotonic() - begin
        return Target(self.name, port, process, "/s/{session}/v1", "/s/{session}/r/{run}/v1", {}, took)


class Nginx(Peer):
    name, title = "nginx", "nginx, one worker, buffering off"

    def _program(self) -> str:
        found = os.environ.get("BENCH_NGINX") or shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not found:
            raise NotMeasured("no nginx on PATH (BENCH_NGINX=path of the program)")
        return found

    def find(self) -> str:
        shown = subprocess.run([self._program(), "-v"], capture_output=True, text=True, check=False)
        return (shown.stderr or shown.stdout).strip().rpartition("/")[2]

    def launch(self, bed: Bed) -> Target:
        port = _free_port()
        places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        scratch = "\n".join(f"  {place}_temp_path {bed.folder}/{place};" for place in places)
        user = "user root;\n" if os.geteuid() == 0 else ""
        (bed.folder / "nginx.conf").write_text(
            f"""{user}worker_processes 1;
daemon off;
pid {bed.folder}/pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
{scratch}
  client_body_buffer_size 1m;
  client_max_body_size 64m;
  keepalive_requests 100000000;
  upstream provider {{ server 127.0.0.1:{bed.upstream}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://provider;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
        )
        command = [self._program(), "-p", str(bed.folder), "-c", str(bed.folder / "nginx.conf"), "-e", "stderr"]
        process = procs.start(command, core=bed.core, log=bed.log)
        _wait(process, bed.log, lambda: _accepts(port))
        return Target(self.name, port, process)


class LiteLLM(Peer):
    """The LiteLLM proxy without database; ``cached`` answers repeats from its in-memory cache."""

    def __init__(self, cached: bool = False) -> None:
        self._cached = cached
        self.name = "litellm-cache" if cached else "litellm"
        self.title = "LiteLLM, local cache" if cached else "LiteLLM, no cache, no database"

    def _program(self) -> str:
        found = os.environ.get("BENCH_LITELLM") or shutil.which("litellm")
        if not found or not Path(found).is_file():
            raise NotMeasured("no litellm on PATH (BENCH_LITELLM=path of the program)")
        return str(Path(found).absolute())

    def find(self) -> str:
        python = Path(self._program()).parent / "python"
        ask = "import importlib.metadata as m; print(m.version('litellm'))"
        shown = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        return shown.stdout.strip() or "unknown version"

    def launch(self, bed: Bed) -> Target:
        port = _free_port()
        config = f"""model_list:
  - model_name: "*"
    litellm_params:
      model: "openai/*"
      api_base: "http://127.0.0.1:{bed.upstream}/v1"
      api_key: "{KEY}"
"""
        if self._cached:
            config += "litellm_settings:\n  cache: true\n  cache_params:\n    type: local\n"
        (bed.folder / "config.yaml").write_text(config)
        env = {
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        command = [
            self._program(),
            "--config",
            str(bed.folder / "config.yaml"),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        process = procs.start(command, core=bed.core, log=bed.log, env=env, cwd=bed.folder)
        _wait(process, bed.log, lambda: _accepts(port))
        return Target(self.name, port, process)


class Portkey(Peer):
    name, title = "portkey", "Portkey gateway"

    def _package(self) -> Path:
        given = os.environ.get("BENCH_PORTKEY")
        if not shutil.which("node"):
            raise NotMeasured("no node on PATH")
        if given:
            folder = Path(given).absolute()
        elif shutil.which("npm"):
            root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False).stdout.strip()
            folder = Path(root)
        else:
            raise NotMeasured("no npm on PATH (BENCH_PORTKEY=folder of @portkey-ai/gateway)")
        for place in (folder, folder / "@portkey-ai/gateway", folder / "node_modules/@portkey-ai/gateway"):
            if (place / "build/start-server.js").is_file():
                return place
        raise NotMeasured(f"no @portkey-ai/gateway in {folder} (BENCH_PORTKEY=its folder)")

    def find(self) -> str:
        version: str = json.loads((self._package() / "package.json").read_text())["version"]
        return version

    def launch(self, bed: Bed) -> Target:
        port = _free_port()
        server = self._package() / "build/start-server.js"
        command = ["node", "--require", str(HERE / "portkey_preload.cjs"), str(server), "--headless", f"--port={port}"]
        env = {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1", "NODE_ENV": "production"}
        process = procs.start(command, core=bed.core, log=bed.log, env=env, cwd=bed.folder)
        _wait(process, bed.log, lambda: _accepts(port))
        headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{bed.upstream}/v1"}
        return Target(self.name, port, process, headers=headers)


class Seed(Peer):
    """The first public AgentState (one ``server.py`` and ``db.py``), as its README installs it."""

    name, title = "seed", "the first AgentState"

    def _folder(self) -> Path:
        given = os.environ.get("BENCH_SEED")
        if not given or not (Path(given) / "server.py").is_file():
            raise NotMeasured("no server.py (BENCH_SEED=folder with server.py, db.py and venv/)")
        return Path(given).absolute()

    def find(self) -> str:
        self._folder()
        return "server.py"

    def launch(self, bed: Bed) -> Target:
        source, port = self._folder(), _free_port()
        for part in ("server.py", "db.py"):  # it keeps its database beside its code: each start gets a copy
            shutil.copy(source / part, bed.folder / part)
        python = source / "venv/bin/python"
        command = [str(python) if python.exists() else sys.executable, "-m", "uvicorn", "server:app"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        env = {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"http://127.0.0.1:{bed.upstream}/v1"}
        process = procs.start(command, core=bed.core, log=bed.log, env=env, cwd=bed.folder)
        _wait(process, bed.log, lambda: _accepts(port))
        headers = {"x-agent-session-id": "{session}", "x-agent-step-number": "{step}"}
        return Target(self.name, port, process, headers=headers)


def every() -> dict[str, Peer]:
    """All targets by name, in the order of the report."""
    peers = (Direct(), AgentState(), Nginx(), LiteLLM(), LiteLLM(cached=True), Portkey(), Seed())
    return {peer.name: peer for peer in peers}


@contextlib.contextmanager
def running(peer: Peer, bed: Bed) -> Iterator[Target]:
    """``peer`` in a fresh folder, ended on the way out. Raises ``NotMeasured``."""
    bed.folder.mkdir(parents=True, exist_ok=True)
    target = peer.launch(bed)
    try:
        yield target
    finally:
        if target.process is not None:
            procs.stop(target.process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts(port: int) -> str:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return "yes" if probe.connect_ex(("127.0.0.1", port)) == 0 else ""


def _listening_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines(keepends=True)
    return next((line for line in lines if "listening on http" in line and line.endswith("\n")), "")


def _wait(process: subprocess.Popen[str], log: Path, ready: object) -> str:
    """What ``ready`` says once it says anything. Raises ``NotMeasured`` when the process ends or takes too long."""
    assert callable(ready)
    until = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until:
        said: str = ready()
        if said:
            return said
        if process.poll() is not None:
            break
        time.sleep(0.002)
    procs.stop(process, 1.0)
    tail = log.read_text(errors="replace").strip().splitlines()[-3:]
    raise NotMeasured(f"did not start ({' / '.join(tail) or 'it said nothing'})")
