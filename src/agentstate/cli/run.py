"""Owns ``agentstate run``: an agent that is started again when it crashes, and pays for nothing twice.

Must not read or change what the agent asks: it gives the agent an address, and says to the proxy when a life begins
and ends. Invariant: every life is a run of its own that is registered before it starts, with the run it replaces known
dead by then, so the proxy never has to guess whether a request comes from a new life or an old one.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlsplit

import typer

from agentstate import clock
from agentstate.cli.control import Control, Server
from agentstate.cli.supervise import Agent, Ending, Inbox, Stopped, adopt_orphans, executable
from agentstate.errors import AgentStateError, BadRequest
from agentstate.settings import Settings, load

CONTEXT_SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""For ``app.command("run", …)``: everything from the agent's command on belongs to the agent, its ``--flags`` too."""

LONGEST_BACKOFF_S = 30.0
MAX_ID_CHARACTERS = 256
# Their clients add the version by themselves. The Vercel AI SDK and opencode do not, and want ANTHROPIC_BASE_URL with
# /v1: the proxy takes their calls without it as well.
_BARE = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_API_URL", "GOOGLE_GEMINI_BASE_URL", "OLLAMA_HOST")
_OF_PEOPLE = ("AGENTSTATE_TOKEN", "AGENTSTATE_ADMIN_TOKEN")  # an agent that had one could decide about itself
_SESSION_HEADER = "x-agent-session-id"
_RUN_HEADER = "x-agent-run-id"
T = TypeVar("T")


def command(
    agent: Annotated[list[str], typer.Argument(metavar="CMD", help="The agent's command line, best after `--`.")],
    session: Annotated[
        str | None,
        typer.Option(
            envvar="AGENTSTATE_SESSION_ID",
            help="The durable name of this work: give the same one to go on later. Default: a new one, printed.",
        ),
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Give up after so many restarts in a row that brought no new step.")
    ] = 5,
    backoff: Annotated[
        float, typer.Option(min=0.0, help="Seconds before the first restart; doubles each time, to 30 at most.")
    ] = 1.0,
    config: Annotated[Path | None, typer.Option(help="Settings file, as for `agentstate serve`.")] = None,
) -> None:
    """Run an agent so that a crash costs nothing: it is started again, and what it has paid for is replayed.

    Its client finds the proxy by environment variables; a proxy is started if none runs.
    """
    name = session or generated_session(agent)
    if not session:
        tell(f"session {name} (give --session {name} to go on with it later)")
    raise typer.Exit(run(name, agent, max_restarts, backoff=backoff, config=config))


def run(
    session: str,
    command: list[str],
    max_restarts: int = 5,
    *,
    backoff: float = 1.0,
    config: Path | None = None,
) -> int:
    """Supervise ``command`` until it succeeds, is stopped, or crashes too often; the exit code to end with.

    ``backoff``: seconds before the first restart. Expected faults are told on stderr: 2 for settings and arguments,
    1 when there is no proxy to be had, 126 or 127 when the command cannot be run, 128 + signal when stopped.
    """
    try:
        check_session(session)
        executable(command[0], os.environ.get("PATH", os.defpath))
        with Inbox() as inbox:
            return _Supervision(session, command, load(config), config, inbox).lives(max_restarts, backoff)
    except Stopped as stop:
        return 128 + stop.number
    except AgentStateError as error:
        tell(error.message)
        return error.exit_code


def environment(
    base: Mapping[str, str], url: str, session: str, run: str, *, agent_key: str | None = None
) -> dict[str, str]:
    """``base`` with every variable set by which a client library finds its provider: it finds the proxy instead.

    ``url``: the proxy's, without path. Session and run stand in the path, and in the custom headers of those clients
    that read them: no client is known to lose both. Keys are not touched. Ollama's own client takes an address with a
    path as its host (read in its releases for Python, 0.6.3 among them).
    """
    key = f"/k/{quote(agent_key, safe='')}" if agent_key else ""
    root = f"{url}{key}/s/{quote(session, safe='')}/r/{quote(run, safe='')}"
    made = {name: value for name, value in base.items() if name not in _OF_PEOPLE}
    made |= dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), root + "/v1")
    made |= dict.fromkeys(_BARE, root)
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        made[name] = _with_headers(base.get(name, ""), session, run)
    for name in ("NO_PROXY", "no_proxy"):
        made[name] = _without_proxy(base.get(name, ""), urlsplit(url).hostname or "")
    # Without the session's path: a wrapper may be given a session of its own, and sends the ids as headers.
    made |= {"AGENTSTATE_URL": f"{url}{key}/v1", "AGENTSTATE_RUN_ID": run, "AGENTSTATE_SESSION_ID": session}
    return made


def generated_session(command: Sequence[str]) -> str:
    """A readable new session name: what runs, when, and four characters of chance."""
    words = [Path(word).stem for word in command if not word.startswith("-")]
    scripts = [Path(word).stem for word in command[1:] if word.endswith((".py", ".js", ".mjs", ".ts", ".sh"))]
    stem = re.sub(r"[^A-Za-z0-9]+", "-", (scripts or words or ["agent"])[0]).strip("-")[:40] or "agent"
    return f"{stem}-{datetime.fromtimestamp(clock.now(), UTC):%Y%m%d-%H%M%S}-{clock.run_id()[-4:]}"


def check_session(session: str) -> None:
    """Raises ``BadRequest`` for a name that no path can carry."""
    odd = [letter for letter in session if unicodedata.category(letter) in ("Cc", "Cs")]
    if not session.strip() or len(session) > MAX_ID_CHARACTERS or odd:
        error = BadRequest(f"--session takes 1 to {MAX_ID_CHARACTERS} characters without control characters")
        error.exit_code = 2
        raise error


def tell(text: str) -> None:
    """Say something to the user, on stderr; stdout is the agent's."""
    try:
        print(f"agentstate: {text}", file=sys.stderr, flush=True)
    except OSError:
        return  # nobody reads stderr any more; that must not end the agent


@dataclass
class Tally:
    """What all lives together cost and spared. Money in USD; None when a price was unknown."""

    lives: int = 0
    replayed: int = 0
    joined: int = 0
    live: int = 0
    saved: float | None = 0.0
    unknown: bool = False

    def add(self, facts: Mapping[str, Any]) -> None:
        """Count one run as the control plane reports it."""
        self.replayed += int(facts.get("replayed") or 0)
        self.joined += int(facts.get("joined") or 0)
        self.live += int(facts.get("live") or 0)
        if facts.get("saved") is not None and self.saved is not None:
            self.saved += float(facts["saved"])
        elif facts.get("replayed") or facts.get("joined"):
            self.saved = None

    def summary(self) -> str:
        """One line for people."""
        parts = [
            f"{_counted(self.replayed, 'step')} replayed",
            f"{_counted(self.live, 'call')} paid",
            f"{self.joined} joined",
            "price unknown" if self.saved is None else f"{money(self.saved)} saved",
            _counted(max(0, self.lives - 1), "restart"),
        ]
        return ", ".join(parts) + (" (the proxy could not be asked about every run)" if self.unknown else "")


def money(usd: float) -> str:
    """US dollars with two digits that say something: $12.34, $0.0056, $0."""
    if usd <= 0:
        return "$0"
    digits = 2
    while digits < 8 and round(usd, digits) * 10 ** (digits - 1) < 1:
        digits += 1
    return f"${usd:.{digits}f}"


class _Supervision:
    """All lives of one agent under one session."""

    def __init__(self, session: str, command: list[str], settings: Settings, config: Path | None, inbox: Inbox) -> None:
        self._session = session
        self._command = command
        self._inbox = inbox
        self._server = Server(settings, config, inbox.pause)
        self._not_ours = adopt_orphans()
        self._agent_key = settings.server.agent_keys[0].get_secret_value() if settings.server.agent_keys else None
        self._tally = Tally()

    def lives(self, max_restarts: int, backoff: float) -> int:
        """Start the agent until nothing is left to do; its last exit code."""
        spent, previous = 0, None
        try:
            while True:
                run = clock.run_id()
                ending, progress = self._life(run, previous)
                previous = run
                if ending.stopped or ending.code == 0:
                    self._finish("COMPLETED" if not ending.stopped else None)
                    return ending.code
                spent = 0 if progress else spent
                if spent >= max_restarts:
                    self._give_up(ending, max_restarts)
                    return ending.code
                spent += 1
                self._restart_later(ending, spent, max_restarts, backoff)
        finally:
            if self._tally.lives:
                tell(f"{self._tally.summary()} (session {self._session})")

    def _life(self, run: str, previous: str | None) -> tuple[Ending, bool]:
        """One start of the agent to its end, and whether it brought the work forward: paid for steps that are new."""
        control = self._server.ensure()
        control.register(self._session, run, replaces=previous, supervisor=os.getpid())
        ending = Ending(126)
        try:
            variables = environment(os.environ, control.url, self._session, run, agent_key=self._agent_key)
            agent = Agent(run, self._command, variables, self._inbox, spare=self._spare, tell=tell)
            self._tally.lives += 1
            ending = agent.wait(self._revive)
            if ending.code != 0 or ending.stopped:
                agent.clear(gently=ending.stopped and not ending.forced)
        finally:
            facts = self._closing(lambda control: self._ended(control, run, ending))
        if facts is None:
            self._tally.unknown = True
            return ending, False
        self._tally.add(facts)
        return ending, bool(facts.get("live"))

    def _ended(self, control: Control, run: str, ending: Ending) -> dict[str, Any]:
        control.end(self._session, run, ending.code)
        return control.run(self._session, run)

    def _closing(self, act: Callable[[Control], T]) -> T | None:
        """Tell a proxy that answers; None when there is none to be had, which must not hide how the agent ended."""
        try:
            return act(self._server.ensure())
        except AgentStateError as error:
            tell(error.message)
            return None

    def _finish(self, status: str | None) -> None:
        if status is not None:
            self._closing(lambda control: control.set_status(self._session, status))

    def _give_up(self, ending: Ending, max_restarts: int) -> None:
        self._finish("FAILED")
        tell(
            f"gave up: the agent ended with exit code {ending.code} and {_counted(max_restarts, 'restart')} brought no "
            f"new step. What it has paid for is kept: mend it and run it again with --session {self._session}"
        )

    def _restart_later(self, ending: Ending, spent: int, max_restarts: int, backoff: float) -> None:
        # Half of the delay is chance, so that agents which crashed together do not come back together.
        delay = min(LONGEST_BACKOFF_S, backoff * 2 ** (spent - 1)) * (0.5 + clock.jitter() / 2)
        tell(f"the agent ended with exit code {ending.code}; restart {spent} of {max_restarts} in {delay:.1f} s")
        self._inbox.pause(delay)

    def _revive(self) -> None:
        if self._server.revive():
            tell("the proxy had ended and is started again")

    def _spare(self) -> set[int]:
        return self._not_ours | self._server.pids


def _with_headers(given: str, session: str, run: str) -> str:
    """``name: value`` lines: those of the user, without an outer run's ids, and ours."""
    ours = {_RUN_HEADER: run}
    # A header value is ASCII in practice, and parsers strip blanks at its ends; the path carries any name.
    if session.isascii() and session.isprintable() and session == session.strip():
        ours = {_SESSION_HEADER: session} | ours
    kept = [line for line in given.splitlines() if line.strip()]
    kept = [line for line in kept if line.partition(":")[0].strip().lower() not in (_SESSION_HEADER, _RUN_HEADER)]
    return "\n".join([*kept, *(f"{name}: {value}" for name, value in ours.items())])


def _without_proxy(given: str, host: str) -> str:
    """A NO_PROXY list with this machine and the proxy's host in it."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if "*" in names:
        return given
    return ",".join(names + [name for name in dict.fromkeys(("127.0.0.1", "localhost", host)) if name not in names])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
