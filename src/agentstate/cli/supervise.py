"""Owns one agent process and the signals around it: start, wait, pass on, end, and nothing of it left behind.

Must not know proxies, sessions or journals. Signals are blocked and fetched one by one (``Inbox``), so that nothing is
done in a handler. The agent stays in our process group, so that a terminal treats both as one job: the agent reads the
terminal, and Ctrl-C and Ctrl-Z reach it directly.
Invariant: of a life that crashed or was stopped, no process goes on.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from agentstate import clock
from agentstate.errors import AgentStateError

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
LEFTOVER_S = 5.0  # how long processes that a stopped agent left behind may take to end by themselves
TICK_S = 1.0
_LINUX = sys.platform == "linux"
_FROM_KERNEL = 0x80  # si_code of a signal that the terminal made
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.05


class CannotRun(AgentStateError):
    """The command cannot be started; ``exit_code`` is what a shell says: 127 not found, 126 not executable."""

    code = "command_not_runnable"
    retry_after = None

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Stopped(Exception):
    """A signal came while we waited for something else than the agent. ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(frozen=True, slots=True)
class Caught:
    """A signal, and whether the terminal made it: then the whole foreground group has it, the agent included."""

    number: int
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a life of the agent ended: its exit code as a shell gives it (128 + signal when killed).

    ``stopped``: we had been told to stop, so it must not be started again. ``forced``: more than once.
    """

    code: int
    stopped: bool = False
    forced: bool = False


class Inbox:
    """The signals meant for us, fetched in order. What our parent told us to ignore (``nohup``) stays ignored."""

    def __init__(self) -> None:
        heeded = {number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN}
        self._wanted = heeded | {signal.SIGCHLD}
        self.mask_before: set[int] = set()

    def __enter__(self) -> Inbox:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would cost us the agent's exit code
        self.mask_before = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, self._wanted)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)

    def get(self, seconds: float) -> Caught | None:
        """The next signal, waited for at most so long."""
        if sys.platform != "darwin":
            info = signal.sigtimedwait(self._wanted, max(0.0, seconds))
            return None if info is None else Caught(info.si_signo, info.si_code == _FROM_KERNEL)
        return self._polled(seconds)

    def pause(self, seconds: float) -> None:
        """Wait so long. Raises ``Stopped`` when a signal tells us to stop."""
        deadline = clock.monotonic() + seconds
        while (left := deadline - clock.monotonic()) > 0:
            caught = self.get(left)
            if caught is not None and caught.number in STOPS:
                raise Stopped(caught.number)

    def _polled(self, seconds: float) -> Caught | None:
        """For systems that cannot wait for blocked signals with a limit. They do not say who sent one either."""
        deadline = clock.monotonic() + seconds
        while not (pending := signal.sigpending() & self._wanted):
            if clock.monotonic() >= deadline:
                return None
            select.select([], [], [], _POLL_S)
        number = signal.sigwait({pending.pop()})
        return Caught(number, number in (signal.SIGINT, signal.SIGQUIT) and _in_foreground())


class Agent:
    """One life of the agent. ``spare``: which of our other children are not part of it. ``tell`` speaks to the user."""

    def __init__(
        self,
        run: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        inbox: Inbox,
        *,
        spare: Callable[[], set[int]],
        tell: Callable[[str], None],
    ) -> None:
        self._run = run
        self._inbox = inbox
        self._spare = spare
        self._tell = tell
        self._status: int | None = None
        self.pid = _spawn(command, environment, inbox.mask_before)

    def wait(self, meanwhile: Callable[[], None]) -> Ending:
        """Wait for its end, passing signals on; the second signal of a kind kills. ``meanwhile`` is called at times."""
        heard: Counter[int] = Counter()
        forced = False
        while not self._ended():
            caught = self._inbox.get(TICK_S)
            if caught is None or caught.number == signal.SIGCHLD:
                meanwhile()
                continue
            heard[caught.number] += 1
            if heard[caught.number] > 1 and caught.number != signal.SIGHUP:
                forced = True
                self._tell("killing the agent")
                _send(self.pid, signal.SIGKILL)
                continue
            if not (caught.terminal and self._in_our_group()):
                _send(self.pid, caught.number)
            name = signal.Signals(caught.number).name
            self._tell(f"{name}: waiting for the agent to end; the same signal again kills it")
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        return Ending(code if code >= 0 else 128 - code, stopped=bool(heard), forced=forced)

    def clear(self, *, gently: bool) -> None:
        """End what the agent left behind. ``gently``: SIGTERM first, and time to heed it unless we are told again."""
        number = signal.SIGTERM if gently else signal.SIGKILL
        deadline = clock.monotonic() + LEFTOVER_S
        told: set[int] = set()
        while left := self._left_behind():
            if clock.monotonic() >= deadline:
                if number == signal.SIGKILL:
                    self._tell(
                        f"processes {sorted(left)} of the run that ended cannot be killed; the proxy refuses them"
                    )
                    return
                number, deadline, told = signal.SIGKILL, clock.monotonic() + LEFTOVER_S, set()
            for pid in left - told:
                _send(pid, number)
            told |= left
            caught = self._inbox.get(_POLL_S)
            if caught is not None and caught.number in STOPS and number != signal.SIGKILL:
                number, told = signal.SIGKILL, set()
            self._ended()

    def _ended(self) -> bool:
        """Collect every child that has ended; orphans of the agent are ours to collect as well."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._status is not None
            if pid == 0:
                return self._status is not None
            if pid == self.pid:
                self._status = status

    def _in_our_group(self) -> bool:
        try:
            return os.getpgid(self.pid) == os.getpgrp()
        except ProcessLookupError:
            return False

    def _left_behind(self) -> set[int]:
        return _descendants(self._spare()) if _LINUX else _marked(self._run)


def executable(command: str, search: str | None) -> str:
    """The file that a shell would run for ``command``. ``search``: a PATH. Raises ``CannotRun``."""
    found = shutil.which(command, path=search)
    if found is not None:
        return found
    shown = command.encode("utf-8", "backslashreplace").decode()
    places = [command] if "/" in command else [f"{folder}/{command}" for folder in (search or "").split(":") if folder]
    if any(Path(place).exists() for place in places):
        raise CannotRun(f"{shown} is there but is not an executable file", 126)
    raise CannotRun(f"command not found: {shown}", 127)


def adopt_orphans() -> set[int]:
    """Make orphans among our descendants our children, so that they are found; the processes that are there already."""
    if not _LINUX:
        return set()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return _descendants(set())


def _spawn(command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> int:
    path = executable(command[0], environment.get("PATH", os.defpath))
    try:
        # Python ignores SIGPIPE and SIGXFSZ for itself, and a child would inherit that.
        return os.posix_spawn(
            path, list(command), environment, setsigmask=mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    except OSError as error:
        shown = path.encode("utf-8", "backslashreplace").decode()
        why = (
            "is no program; a script needs a first line like #!/bin/sh"
            if error.errno == errno.ENOEXEC
            else error.strerror
        )
        raise CannotRun(f"{shown}: {why}", 126) from error


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended meanwhile, which is what the signal was for


def _descendants(spare: set[int]) -> set[int]:
    """Living processes below this one, without ``spare`` and what is below those."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            # "pid (name) state parent …"; the name may hold anything, even a bracket.
            state, parent = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it ended while we looked
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        below = [pid for pid in children.get(ahead.pop(), []) if pid not in spare]
        found.update(below)
        ahead += below
    return found


def _marked(run: str) -> set[int]:
    """Living processes whose environment names this run, on systems that do not give us the agent's orphans."""
    shown = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True, text=True, errors="replace")
    lines = [line.split(None, 1) for line in shown.stdout.splitlines() if f"AGENTSTATE_RUN_ID={run}" in line]
    return {int(line[0]) for line in lines} - {os.getpid()}


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False  # standard input is no terminal
