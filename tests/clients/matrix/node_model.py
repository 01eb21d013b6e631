"""Owns what the scripted model answers to coding CLIs, which offer tools of their own.

Must not know any CLI: a request is told by the tools that it offers. Invariant: as for every client, no answer is like
another; calls that are no part of the task (a title) are answered with a text, and counted apart.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tests.clients.matrix.model import BEFORE, DURING, Model, Stops, decide, read
from tests.clients.matrix.spelling import Said, plain, streamed
from tests.support import upstream
from tests.support.upstream import Reply, Seen

# How a shell tool names its command, by the tool's name.
_SHELLS = {"Bash": "command", "bash": "command", "exec_command": "cmd"}


class CodingModel(Model):
    """The scripted model, for clients that offer the task's tools and for those that offer a shell."""

    def __init__(self) -> None:
        super().__init__()
        self._beside: list[Seen] = []

    @property
    def beside(self) -> int:
        """How many calls that are no part of the task were paid since ``begin``."""
        with self._lock:
            return len(self._beside)

    def begin(self, tag: str, stops: Stops | None = None) -> None:
        """A new task; see ``Model.begin``. Stops count the task's calls only."""
        with self._lock:
            self._beside = []
        super().begin(tag, stops)

    def _answer(self, seen: Seen) -> Reply:
        wire, stream, name = read(seen)
        offered = _offered(seen.body) if wire else frozenset()
        shell = next(iter(offered & set(_SHELLS)), "")
        if not wire or (not shell and "get_weather" in offered):
            return super()._answer(seen)
        with self._lock:
            kept = self._paid if shell else self._beside
            kept.append(seen)
            number, tag, stops = len(kept), self._tag, self._stops if shell else {}
        if shell:
            said = _in_shell(decide(seen.body, f"{tag}-{number}", name), shell)
        else:
            said = Said(f"{tag}-beside-{number}", name, text=f"Aside {tag}-beside-{number}")
        pieces = streamed(wire, said) if stream else [plain(wire, said)]
        before, during = stops.get((number, BEFORE)), stops.get((number, DURING))
        head, *rest = upstream.stream(
            pieces[0],
            *([during] if during is not None else []),
            *pieces[1:],
            content_type="text/event-stream; charset=utf-8" if stream else "application/json",
        )
        return [*([before] if before is not None else []), head, *rest]


def _offered(body: bytes) -> frozenset[str]:
    """Names of the tools that a request offers."""
    tools = json.loads(body).get("tools") or []
    return frozenset(tool.get("name") or tool.get("function", {}).get("name", "") for tool in tools)


def _in_shell(said: Said, shell: str) -> Said:
    """The same answer, its tool called as a command of the project folder."""
    if not said.tool or said.arguments is None:
        return said
    (value,) = said.arguments.values()
    arguments = {_SHELLS[shell]: f"./tools {said.tool} {value}"}
    if shell != "exec_command":
        arguments["description"] = f"Runs {said.tool}"
    return replace(said, tool=shell, arguments=arguments)
