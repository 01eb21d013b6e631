"""Owns the folders in which the clients of the matrix from npm are installed.

    python -m tests.clients.matrix.node_environments [NAME...]    (all of them by default)

Must not touch anything outside its folders below `.venv-clients`. Invariant: as for the Python environments, a folder
is ready if and only if its stamp names exactly the requirements that the table asks for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.clients.matrix.environments import BOUND_S, FOLDER
from tests.clients.matrix.node_clients import NODE_CLIENTS, NodeClient

_STAMP = ".ready-for"
_OPTIONS = ("--loglevel=error", "--no-fund", "--no-audit", "--no-update-notifier", "--save-exact")


def wanted() -> dict[str, tuple[str, ...]]:
    """Requirements by folder, from the table of clients."""
    found: dict[str, tuple[str, ...]] = {}
    for client in NODE_CLIENTS:
        found[client.environment] = tuple(dict.fromkeys((*found.get(client.environment, ()), *client.requirements)))
    return found


def packages(client: NodeClient) -> Path:
    """The folder whose `node_modules` has the client; whether it is there is ``missing``'s to say."""
    return FOLDER / client.environment


def missing(client: NodeClient) -> str:
    """Why the client cannot be run here, and what to do about it; empty when it can."""
    if shutil.which("node") is None:
        return "node is not installed: version 20 or newer is needed"
    if ready(client.environment):
        return ""
    return f"{client.name} is not installed: python -m tests.clients.matrix.node_environments {client.environment}"


def ready(name: str) -> bool:
    """Whether a folder holds what the table asks for."""
    stamp = FOLDER / name / _STAMP
    return stamp.is_file() and stamp.read_text() == "\n".join(wanted()[name])


def version(client: NodeClient) -> str:
    """The version that is installed."""
    described = packages(client) / "node_modules" / client.package / "package.json"
    return str(json.loads(described.read_text())["version"])


def install(name: str) -> None:
    """Make one folder anew. Raises ``subprocess.SubprocessError`` or ``OSError`` when its packages cannot be had."""
    place, requirements = FOLDER / name, wanted()[name]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "package.json").write_text('{"private": true}\n')
    command = ["npm", "install", *_OPTIONS, *requirements]
    subprocess.run(command, check=True, cwd=place, timeout=BOUND_S, stdin=subprocess.DEVNULL)
    (place / _STAMP).write_text("\n".join(requirements))


def main(names: Sequence[str]) -> int:
    """Make the named folders that are not ready; 1 if one could not be made, 2 for a name that is not in the table."""
    odd = [name for name in names if name not in wanted()]
    if odd:
        print(f"no such environment: {', '.join(odd)}; there are {', '.join(wanted())}", file=sys.stderr)
        return 2
    failed = []
    for name in names or wanted():
        if ready(name):
            print(f"{name}: ready", flush=True)
            continue
        print(f"{name}: installing {' '.join(wanted()[name])} ...", flush=True)
        began = time.monotonic()
        try:
            install(name)
        except (subprocess.SubprocessError, OSError) as error:
            failed.append(name)
            print(f"{name}: FAILED, its tests will be skipped: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{name}: ready after {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
