"""Owns the mock providers that the tool is run against: two programs that others wrote, as processes on loopback.

Must not change what they answer but by their own control interface. Invariant: a mock started here is ended here, by
its own pid.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.clients.conformance import environment
from tests.support.proxy import clean_environment

BOUND_S = 30.0
SUITES = ("openai-chat", "open-responses", "embeddings", "anthropic", "google-genai", "google-interactions")
Fault = Mapping[str, object]


class Mock(ABC):
    """A mock as a process, from ``with`` on. ``providers``: where the proxy is told that its providers are."""

    name: str

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.root = ""

    def __enter__(self) -> Mock:
        self._folder.mkdir(parents=True)
        port = _free_port()
        self.root = f"http://127.0.0.1:{port}"
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self.command(port),
                cwd=self._folder,
                env=clean_environment(self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait(BOUND_S)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + BOUND_S
        assert self._process is not None
        while True:
            try:
                self.ask("GET", "/health")
            except (urllib.error.URLError, ConnectionError) as error:
                log = (self._folder / "log").read_text(errors="replace")[-3000:]
                assert self._process.poll() is None, f"{self.name} ended with {self._process.returncode}:\n{log}"
                assert time.monotonic() < deadline, f"{self.name} does not answer: {error}\n{log}"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.1)
            else:
                return

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One call of the mock's control interface; its JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=BOUND_S) as answer:
            return json.loads(answer.read() or b"null")

    @abstractmethod
    def command(self, port: int) -> list[str]:
        """What starts it."""

    @property
    @abstractmethod
    def direct(self) -> dict[str, str]:
        """The address of each suite at the mock itself."""

    @property
    @abstractmethod
    def providers(self) -> dict[str, str]:
        """The proxy's variables."""

    @abstractmethod
    def begin(self, faults: Sequence[Fault]) -> None:
        """Forget what was asked, and from now on answer with these faults."""

    @abstractmethod
    def asked(self) -> list[dict[str, Any]]:
        """Every request since ``begin``, less its headers and times."""


class LLMock(Mock):
    """Breaks any answer on demand."""

    name = "llmock"

    def command(self, port: int) -> list[str]:
        return [str(environment.llmock()), "serve", "--port", str(port), "--log-level", "warning"]

    @property
    def direct(self) -> dict[str, str]:
        kinds = {"anthropic": "/anthropic/v1", "google-genai": "/gemini", "google-interactions": "/gemini"}
        return {suite: self.root + kinds.get(suite, "/v1") for suite in SUITES}

    @property
    def providers(self) -> dict[str, str]:
        return {
            "AGENTSTATE_OPENAI_URL": f"{self.root}/v1",
            "AGENTSTATE_ANTHROPIC_URL": f"{self.root}/anthropic/v1",
            "AGENTSTATE_GEMINI_URL": f"{self.root}/gemini/v1",
        }

    def begin(self, faults: Sequence[Fault]) -> None:
        self.ask("POST", "/_llmock/reset")
        if faults:
            self.ask("POST", "/_llmock/scenario", {"behaviors": [{"times": None, **fault} for fault in faults]})

    def asked(self) -> list[dict[str, Any]]:
        kept = ("method", "path", "stream", "body", "status", "fault")
        return [{name: seen[name] for name in kept} for seen in self.ask("GET", "/_llmock/requests")["requests"]]


class AIMock(Mock):
    """Answers from fixtures, in more wire formats."""

    name = "aimock"
    FIXTURES = (
        {
            "match": {"toolName": "get_weather"},
            "response": {"toolCalls": [{"name": "get_weather", "arguments": {"location": "San Francisco"}}]},
        },
        {
            "match": {"userMessage": "15 * 37"},
            "response": {"content": "It is 555.", "reasoning": "15 times 37 is 10 times 37 and 5 times 37."},
        },
        {
            "match": {"endpoint": "chat"},
            "response": {"content": "One, two, three, four, five: more than one chunk, “quoted”, with 漢字 and 🙂."},
        },
    )

    def command(self, port: int) -> list[str]:
        fixtures = self._folder / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": self.FIXTURES}))
        return ["node", str(environment.aimock()), "-p", str(port), "-f", str(fixtures), "--log-level", "warn"]

    @property
    def direct(self) -> dict[str, str]:
        return {suite: self.root + ("" if suite.startswith("google") else "/v1") for suite in SUITES}

    @property
    def providers(self) -> dict[str, str]:
        return {f"AGENTSTATE_{name}_URL": self.root for name in ("OPENAI", "ANTHROPIC", "GEMINI", "OLLAMA")}

    def begin(self, faults: Sequence[Fault]) -> None:
        self.ask("POST", "/__aimock/reset/journal")
        self.ask("DELETE", "/__aimock/chaos")
        for fault in faults:
            self.ask("POST", "/__aimock/chaos", fault)

    def asked(self) -> list[dict[str, Any]]:
        seen = self.ask("GET", "/__aimock/journal?limit=1000")
        return [
            {name: entry.get(name) for name in ("method", "path", "body")} | {"status": entry["response"]["status"]}
            for entry in seen
        ]


def _free_port() -> int:
    """One that was free a moment ago; neither mock can say which one it took by itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
