"""Owns the environment of the conformance tool and of the mocks that it is run against.

    python -m tests.clients.conformance.environment

Must not touch the project's own `.venv`. Invariant: the environment is ready if and only if its stamps name exactly
what is pinned here, so that a second run does nothing and a changed pin installs again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".venv-clients")) / "conformance"
# The tool; a mock that breaks answers on demand; the schema validator that decides how the tool words its findings.
PYTHON = ("llm-comply==0.5.0", "llmock==0.2.2", "jsonschema==4.26.0")
# A second mock, which speaks Gemini's interactions too and whose answers keep closer to the schemas. It needs Node.
NODE = ("@copilotkit/aimock@1.43.0",)
BOUND_S = 600.0
_STAMP, _NODE_STAMP = FOLDER / ".ready-for", FOLDER / ".ready-for-node"
HOW = "python -m tests.clients.conformance.environment"


def interpreter() -> Path:
    """The Python that has the tool; whether it is there is ``missing``'s to say."""
    return FOLDER / "bin" / "python"


def llmock() -> Path:
    """The command of the first mock."""
    return FOLDER / "bin" / "llmock"


def aimock() -> Path:
    """The script of the second mock, for ``node``."""
    return FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


def missing() -> str:
    """Why the tool cannot be run here, and what to do about it; empty when it can."""
    return "" if _is(_STAMP, PYTHON) else f"the conformance tool is not installed: {HOW}"


def missing_node() -> str:
    """The same of the second mock."""
    if not shutil.which("node"):
        return "node is not installed"
    return "" if _is(_NODE_STAMP, NODE) else f"the mock for Node is not installed: {HOW}"


def _is(stamp: Path, pins: tuple[str, ...]) -> bool:
    return stamp.is_file() and stamp.read_text() == "\n".join(pins)


def install() -> None:
    """Make the Python part anew. Raises ``CalledProcessError`` or ``TimeoutExpired`` when packages cannot be had."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    python = str(interpreter())
    if shutil.which("uv"):
        _call("uv", "venv", "--quiet", "--python", sys.executable, str(FOLDER))
        _call("uv", "pip", "install", "--quiet", "--python", python, *PYTHON)
    else:
        _call(sys.executable, "-m", "venv", str(FOLDER))
        _call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON)
    _STAMP.write_text("\n".join(PYTHON))


def install_node() -> None:
    """Make the Node part anew. Raises as ``install`` does."""
    shutil.rmtree(FOLDER / "node_modules", ignore_errors=True)
    _call("npm", "install", "--loglevel=error", "--no-fund", "--no-audit", "--prefix", str(FOLDER), *NODE)
    _NODE_STAMP.write_text("\n".join(NODE))


def _call(*command: str) -> None:
    subprocess.run(command, check=True, timeout=BOUND_S, stdin=subprocess.DEVNULL)


def main() -> int:
    """Install what is missing; 1 when something could not be had."""
    failed = 0
    parts = [("the tool and its mock", missing, install)]
    if shutil.which("npm"):
        parts.append(("the mock for Node", missing_node, install_node))
    for name, why, make in parts:
        if not why():
            print(f"{name}: ready", flush=True)
            continue
        print(f"{name}: installing ...", flush=True)
        try:
            make()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            failed = 1
            print(f"{name}: FAILED, its tests will be skipped: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{name}: ready", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
