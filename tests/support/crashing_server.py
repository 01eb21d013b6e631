"""Owns a proxy that kills itself at a chosen journal write: ``python -m tests.support.crashing_server NAME:N:WHEN …``.

What follows the first argument is the normal command line. ``WHEN`` is one of

* ``before``: when the n-th write of that name is about to be made, inside its transaction;
* ``inside``: when it was made and its transaction is not committed;
* ``after``: when its transaction is committed and nobody has been told.

Must not change anything else of the program. Invariant: the process ends by SIGKILL at that point, so that nothing of
it can clean up.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentstate.store import writer

WHEN = ("before", "inside", "after")
STORE = Path(writer.__file__).parent


def written_names() -> set[str]:
    """The names of all writes that the journal's source makes."""
    call = re.compile(r"""\b(?:_write|submit|note|write_now)\(\s*"([a-z_]+)\"""")
    return {name for file in STORE.glob("*.py") for name in call.findall(file.read_text())}


def command(name: str, count: int, when: str) -> tuple[str, ...]:
    """The command that stands for ``python -m agentstate``; it dies at the ``count``-th write of that name."""
    assert when in WHEN, when
    return (sys.executable, "-m", "tests.support.crashing_server", f"{name}:{count}:{when}")


def die() -> None:
    """End this process as the kernel ends one: at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(name: str, count: int, when: str) -> None:
    """Patch the writer so that the process dies at that write."""
    assert name in written_names(), f"the journal has no write named {name!r}, only {sorted(written_names())}"
    assert when in WHEN, when
    transaction = writer.Writer._transaction
    seen: set[int] = set()
    keep: list[object] = []  # ids are compared, so what they name has to stay alive

    def is_the_one(item: writer.Write) -> bool:
        if item.name != name or id(item) in seen:
            return False
        seen.add(id(item))
        keep.append(item)
        return len(seen) == count

    def patched(self: writer.Writer, group: list[writer.Write]) -> None:
        doomed = False
        for item in group:
            if is_the_one(item):
                doomed = True
                item.work = _dying(item.work, when)
        transaction(self, group)
        if doomed and when == "after":
            die()

    writer.Writer._transaction = patched  # type: ignore[method-assign]


def _dying(work: Callable[[sqlite3.Connection], Any], when: str) -> Callable[[sqlite3.Connection], Any]:
    def dying(conn: sqlite3.Connection) -> Any:
        if when == "before":
            die()
        result = work(conn)
        if when == "inside":
            die()
        return result

    return dying


def miss_first_owner() -> None:
    """Let the first look-up of a socket's process find nothing: only then is an owner written down later."""
    from agentstate.engine import processes

    look_up = processes.owner_of
    seen: list[object] = []

    def patched(client: tuple[str, int], server: tuple[str, int]) -> str:
        seen.append(client)
        return look_up(client, server) if len(seen) > 1 else ""

    processes.owner_of = patched


def main() -> None:
    """Arm the writer as the first argument says, and run the command line with the rest."""
    name, count, when = sys.argv.pop(1).split(":")
    arm(name, int(count), when)
    if name == "set_owner":
        miss_first_owner()
    from agentstate.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
