"""Owns agent processes under test and the scripted model that they talk to.

Must not look inside an agent: its output, its exit code and what reached the provider are all there is to judge.
Invariant: no answer of the scripted model is like another, so equal output after a restart proves that nothing was paid
twice and nothing was made up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import pytest

from tests.support import chat
from tests.support.proxy import ROOT
from tests.support.upstream import Gate, Reply, Script, Seen, plain, stream

BOUND_S = 60.0
AGENTS = Path(__file__).parent / "agents"
TEST_KEY = "sk-test-0123456789abcdef"

# Where `make test-clients` installs what does not go together with this project's own packages: CrewAI, which brings
# an older generation of the OpenAI package, and openai-node.
OTHER = Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".venv-clients"))


class Life:
    """One agent process: its lines of output as they come, SIGKILL, and its end."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT) -> None:
        self._lines: list[str] = []
        self._grown = threading.Condition()
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._lines), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self._errors), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_line(self, start: str) -> None:
        """Block until a line of output that starts so has come. Fails if the agent ends before."""
        with self._grown:
            there = self._grown.wait_for(lambda: self._has(start) or not self._readers[0].is_alive(), BOUND_S)
        assert there and self._has(start), f"no line {start!r}:\n{self.report()}"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(BOUND_S)
        self._close()

    def output(self) -> list[str]:
        """The lines of an agent that ends well by itself."""
        code = self._process.wait(BOUND_S)
        self._close()
        assert code == 0, f"exit code {code}:\n{self.report()}"
        return self._lines

    def report(self) -> str:
        """Everything it said, for a failure's message."""
        return "\n".join(["stdout:", *self._lines, "stderr:", *self._errors[-40:]])

    def _has(self, start: str) -> bool:
        return any(line.startswith(start) for line in self._lines)

    def _read(self, source: IO[str], lines: list[str]) -> None:
        for line in source:
            with self._grown:
                lines.append(line.rstrip("\n"))
                self._grown.notify_all()
        with self._grown:
            self._grown.notify_all()

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(BOUND_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def environment(url: str, **more: str) -> dict[str, str]:
    """An agent's variables: the proxy's address, a key, and nothing of ours or the vendor's from outside."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENTSTATE_", "OPENAI_", "ANTHROPIC_"))
        and name.lower() not in ("http_proxy", "https_proxy", "all_proxy")
    }
    return (
        kept
        | {"AGENTSTATE_URL": f"{url}/v1", "OPENAI_API_KEY": TEST_KEY, "PYTHONUNBUFFERED": "1"}
        | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        | more
    )


def python(script: Path, *arguments: str) -> list[str]:
    """The command that runs a script with this interpreter."""
    return [sys.executable, str(script), *arguments]


def other_python(script: Path, *arguments: str, needs: str) -> list[str]:
    """The command that runs a script with the interpreter that has other packages; skips the test where it has not."""
    interpreter = OTHER / "bin" / "python"
    if not _has_package(interpreter, needs):
        pytest.skip(f"{needs} is not installed in {OTHER.name}: `make test-clients` installs it")
    return [str(interpreter), str(script), *arguments]


@cache
def _has_package(interpreter: Path, package: str) -> bool:
    if not interpreter.exists():
        return False
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([str(interpreter), "-c", code], check=False, timeout=BOUND_S).returncode == 0


def scripted(turns: int, *, gate: Gate | None = None, gate_at: int = -1) -> Script:
    """A model that calls the offered tools in turn until ``turns`` results are there, then answers with text.

    Call number ``gate_at`` stands still at ``gate`` in the middle of its answer.
    """

    def answer(seen: Seen) -> Reply:
        asked = seen.json()
        messages, offered = asked["messages"], asked.get("tools")
        assert isinstance(messages, list) and isinstance(offered, list)
        results = sum(message["role"] == "tool" for message in messages)
        name, text, calls = f"call-{seen.number}", None, []
        if results < turns:
            schema = offered[results % len(offered)]["function"]
            arguments = {field: f"{field} {seen.number}" for field in schema["parameters"]["properties"]}
            calls = [chat.tool_call(schema["name"], json.dumps(arguments), call_id=f"call_{seen.number}")]
        else:
            text = f"answer of call {seen.number} after {results} results"
        if asked.get("stream"):
            events = chat.chunks(text or "", name=name, tool_calls=calls)
            held = [events[0], gate, *events[1:]] if gate is not None and seen.number == gate_at else events
            return stream(*held)
        reply = plain(chat.completion(text, name=name, tool_calls=calls))
        return [reply[0], gate, *reply[1:]] if gate is not None and seen.number == gate_at else reply

    return answer
