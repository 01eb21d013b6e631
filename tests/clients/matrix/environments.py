"""Owns the virtual environments of the clients that are not among this project's own development packages.

    python -m tests.clients.matrix.environments [NAME...]    (all of them by default)

Must not touch the project's own `.venv`. Invariant: an environment is ready if and only if its stamp names exactly the
requirements that the table asks for, so that a second run does nothing and a changed pin installs again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.clients.matrix.clients import CLIENTS, Client

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".venv-clients"))
BOUND_S = 1800.0  # for one environment
_STAMP = ".ready-for"


def wanted() -> dict[str, tuple[str, ...]]:
    """Requirements by environment, from the table of clients."""
    found: dict[str, tuple[str, ...]] = {}
    for client in CLIENTS:
        if client.environment:
            found[client.environment] = tuple(dict.fromkeys((*found.get(client.environment, ()), *client.requirements)))
    return found


def interpreter(client: Client) -> Path:
    """The Python that has the client's packages; whether it is there is ``missing``'s to say."""
    return FOLDER / client.environment / "bin" / "python" if client.environment else Path(sys.executable)


def missing(client: Client) -> str:
    """Why the client cannot be run here, and what to do about it; empty when it can."""
    if not client.environment or _ready(client.environment, wanted()[client.environment]):
        return ""
    return f"{client.name} is not installed: python -m tests.clients.matrix.environments {client.environment}"


def _ready(name: str, requirements: Sequence[str]) -> bool:
    stamp = FOLDER / name / _STAMP
    return stamp.is_file() and stamp.read_text() == "\n".join(requirements)


def install(name: str, requirements: Sequence[str]) -> None:
    """Make one environment anew. Raises ``subprocess.SubprocessError`` when its packages cannot be had."""
    place = FOLDER / name
    shutil.rmtree(place, ignore_errors=True)
    python = str(place / "bin" / "python")
    if shutil.which("uv"):
        _call("uv", "venv", "--quiet", "--python", sys.executable, str(place))
        _call("uv", "pip", "install", "--quiet", "--python", python, *requirements)
    else:
        _call(sys.executable, "-m", "venv", str(place))
        _call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    (place / _STAMP).write_text("\n".join(requirements))


def _call(*command: str) -> None:
    subprocess.run(command, check=True, timeout=BOUND_S, stdin=subprocess.DEVNULL)


def main(names: Sequence[str]) -> int:
    """Make the named environments that are not ready; how many could not be made."""
    known = wanted()
    odd = [name for name in names if name not in known]
    if odd:
        print(f"no such environment: {', '.join(odd)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or known:
        if _ready(name, known[name]):
            print(f"{name}: ready", flush=True)
            continue
        print(f"{name}: installing {' '.join(known[name])} ...", flush=True)
        began = time.monotonic()
        try:
            install(name, known[name])
        except subprocess.SubprocessError as error:
            failed.append(name)
            print(f"{name}: FAILED, its tests will be skipped: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{name}: ready after {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
