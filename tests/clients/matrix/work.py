"""Owns an agent at work under one address form: its lives, how they are killed, what they said.

Must not judge: what was paid and what is in the journal is the test's to compare. Invariant: every process that is
started here is ended here, by its own pid, whatever the test did.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from pathlib import Path

from tests.clients.lives import BOUND_S, TEST_KEY, Life, environment
from tests.clients.matrix.clients import STREAM, Client
from tests.clients.matrix.environments import interpreter
from tests.support.proxy import CLI, Proxy

RUN, PATH, HEADER = "agentstate run", "path", "header"
FORMS = (RUN, PATH, HEADER)
AGENTS = Path(__file__).parent / "agents"
_BEGINS = "PID: "
_OURS = ("TOOL: ", "FINAL: ")

# Nothing here may ask any host but the proxy: no telemetry, no price lists from outside.
_QUIET = {
    "AGNO_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
_KEYS = {"OPENAI_API_KEY": TEST_KEY, "ANTHROPIC_API_KEY": TEST_KEY, "GEMINI_API_KEY": TEST_KEY}


class _Process(Life):
    """A process in which one or several lives run, each of which begins with a line ``PID: ...``."""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_in(self, life: int, start: str, count: int = 1) -> str:
        """The ``count``-th line that starts so of a life, both from 1, waited for. Fails if the process ends before."""
        with self._grown:
            there = self._grown.wait_for(
                lambda: len(self._of(life, start)) >= count or not self._readers[0].is_alive(), BOUND_S
            )
            found = self._of(life, start)
        assert there and len(found) >= count, f"life {life}: no line {start!r} number {count}:\n{self.report()}"
        return found[count - 1]

    def of_life(self, life: int) -> list[str]:
        """What the agent itself said in one life; packages print as well."""
        return [line for start in _OURS for line in self._of(life, start)]

    def _of(self, life: int, start: str) -> list[str]:
        now, found = 0, []
        for line in self._lines:
            now += line.startswith(_BEGINS)
            if now == life and line.startswith(start):
                found.append(line)
        return found


class Work:
    """One agent, session and address form. Lives are numbered from 1; ``next`` begins one, ``kill`` ends it."""

    def __init__(self, client: Client, mode: str, form: str, proxy: Proxy, folder: Path) -> None:
        self.client, self.form = client, form
        self.session = f"matrix-{uuid.uuid4().hex[:8]}"
        self.lives = 0
        self._proxy, self._folder = proxy, folder
        self._hold = folder / "hold"
        self._command = [*_command(client), *(["--stream"] if mode == STREAM else [])]
        self._processes: list[_Process] = []
        self._home = folder / "home"
        self._home.mkdir(exist_ok=True)

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hold(self, call: int | None) -> None:
        """From now on the agent stands still with the answer of a model call in hand; ``None``: nowhere."""
        if call is None:
            self._hold.unlink(missing_ok=True)
        else:
            self._hold.write_text(str(call))

    def next(self) -> None:
        """Begin the next life; under ``agentstate run`` it begins by itself, and is only waited for."""
        self.lives += 1
        if self.form != RUN:
            self._processes.append(_Process(self._command, self._given(), self._folder))
        elif not self._processes:
            supervisor = [*CLI, "run", "--session", self.session, "--backoff", "0", "--", *self._command]
            self._processes.append(_Process(supervisor, self._supervised(), self._folder))
        self.pid = int(self.wait(_BEGINS).removeprefix(_BEGINS))

    def wait(self, start: str, count: int = 1) -> str:
        """The ``count``-th line of the present life that starts so."""
        return self._processes[-1].wait_in(self._place, start, count)

    def kill(self) -> None:
        """SIGKILL the present life."""
        if self.form == RUN:
            os.kill(self.pid, signal.SIGKILL)
        else:
            self._processes[-1].kill()

    def finish(self) -> list[str]:
        """What the last life, which ends well by itself, did and answered."""
        self._processes[-1].output()
        return self._processes[-1].of_life(self._place)

    @property
    def alive(self) -> bool:
        """Whether the present life, or its supervisor, runs."""
        return self._processes[-1].alive

    def report(self) -> str:
        """Everything that was said, for a failure's message."""
        return self._processes[-1].report()

    def close(self) -> None:
        """End what still runs: the supervisor first, so that it begins no further life."""
        for process in self._processes:
            alive = process.alive
            process.kill()
            if alive and self.form == RUN:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    @property
    def _place(self) -> int:
        """Which life of its process the present one is."""
        return self.lives if self.form == RUN else 1

    def _variables(self) -> dict[str, str]:
        base = environment(self._proxy.url, HOME=str(self._home), MATRIX_HOLD=str(self._hold), **_QUIET, **_KEYS)
        # Without compiled files every life would compile all of a large package again.
        outside = ("GOOGLE_", "GEMINI_", "LANGCHAIN_", "LANGSMITH_", "PYTHONDONTWRITEBYTECODE")
        return {name: value for name, value in base.items() if name in _QUIET | _KEYS or not name.startswith(outside)}

    def _given(self) -> dict[str, str]:
        """Variables of a life that is told the address by its constructor's arguments."""
        run = f"run-{self.lives}"
        made = self._variables()
        del made["AGENTSTATE_URL"]
        if self.form == HEADER:
            headers = {"x-agent-session-id": self.session, "x-agent-run-id": run}
            return made | {
                "MATRIX_BASE_URL": self.client.base(self._proxy.url),
                "MATRIX_HEADERS": json.dumps(headers),
            }
        return made | {"MATRIX_BASE_URL": self.client.base(f"{self._proxy.url}/s/{self.session}/r/{run}")}

    def _supervised(self) -> dict[str, str]:
        """Variables of ``agentstate run``: where the proxy is; the agent gets its address from there."""
        made = self._variables()
        del made["AGENTSTATE_URL"]
        return made | {"AGENTSTATE_DATA": str(self._proxy.data), "AGENTSTATE_PORT": str(self._proxy.port)}


def _command(client: Client) -> list[str]:
    if client.agent.endswith(".py"):
        module = f"tests.clients.matrix.agents.{client.agent.removesuffix('.py')}"
        return [str(interpreter(client)), "-m", module, *client.arguments]
    return ["node", str(AGENTS / client.agent), *client.arguments]
