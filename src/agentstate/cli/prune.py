"""Owns ``agentstate prune``, ``delete``, ``pin`` and ``unpin``. Must not decide what goes, nor write to the journal: a
running proxy does, or, where none serves the file, the same functions here.

Invariant: nothing is deleted that was not shown before, and agreed to, unless ``--yes`` was given.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from agentstate.cli.people import Url, part

if TYPE_CHECKING:
    from agentstate.cli.control import Control
    from agentstate.engine.core import Parts

T = TypeVar("T")
Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file; default ./agentstate.toml or the user's.")
]
Db = Annotated[str | None, typer.Option("--db", help="Journal of a stopped proxy: sqlite:///path or a path.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="Session id.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(h|d|w|)", re.IGNORECASE)
_DAYS = {"h": 1 / 24, "d": 1.0, "": 1.0, "w": 7.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?", re.IGNORECASE)
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LONG_S = 24 * 3600.0
_LOOK_S = 0.5
_SHOWN = 20


def prune(
    older_than: Annotated[str, typer.Option(help="Sessions that were not used for so long: 30d, 12h, 2w.")] = "",
    keep: Annotated[int | None, typer.Option(min=0, help="Keep so many, those that were used last.")] = None,
    max_size: Annotated[str, typer.Option(help="The oldest, until the journal's content is so small: 500MB.")] = "",
    label: Annotated[str, typer.Option(help="Only sessions with this label; alone: all of them.")] = "",
    status: Annotated[
        Literal["RUNNING", "PAUSED", "FAILED", "COMPLETED"] | None,
        typer.Option(case_sensitive=False, help="Only sessions of this status; alone: all of them."),
    ] = None,
    superseded: Annotated[
        str, typer.Option(help="Also steps of living sessions that a rollback left behind so long ago: 90d.")
    ] = "",
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Give the space back to the file system.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why the rest stays.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Delete old sessions; without options, those that [retention] in the settings names.

    What is pinned, waits for a person, is in doubt, is in use or is shown by a fork stays.
    """
    body: dict[str, Any] = {
        "older_than_days": _days(older_than), "keep": keep, "max_bytes": _bytes(max_size), "label": label or None,
        "status": status, "superseded_days": _days(superseded), "vacuum": vacuum,
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value is not None}
    with _Journal(config, url, db) as journal:
        if dry_run or not yes:
            foreseen = journal.prune({**body, "dry_run": True})
            if dry_run or not _agreed(foreseen, body, as_json):
                _show(foreseen, as_json)
                return
        report = journal.prune(body)
    if vacuum and not journal.serving:
        report["after"] = journal.rewrite()
    _show(report, as_json)


def delete(session: Session, yes: Yes = False, url: Url = None, db: Db = None, config: Config = None) -> None:
    """Delete one session, whatever the rules say, unless somebody may still need it. What it cost stays known."""
    with _Journal(config, url, db) as journal:
        if not yes and not typer.confirm(f"Delete session {session} with all its steps, for good?"):
            raise typer.Exit(1)
        gone = journal.call("DELETE", f"/api/sessions/{part(session)}", None)
    print(f"{session} is deleted: {gone['steps']} steps")


def pin(
    session: Session,
    reason: Annotated[str, typer.Option(help="Why it is kept.")] = "",
    url: Url = None,
    db: Db = None,
    config: Config = None,
) -> None:
    """Keep a session, whatever the rules of retention say."""
    with _Journal(config, url, db) as journal:
        journal.call("POST", f"/api/sessions/{part(session)}/pin", {"reason": reason})
    print(f"{session} is pinned")


def unpin(session: Session, url: Url = None, db: Db = None, config: Config = None) -> None:
    """Let the rules say again whether a session is kept."""
    with _Journal(config, url, db) as journal:
        journal.call("POST", f"/api/sessions/{part(session)}/unpin", {})
    print(f"{session} is not pinned")


class _Journal:
    """The journal, through the proxy that serves it, or by itself where none does."""

    def __init__(self, config: Path | None, url: str | None, db: str | None) -> None:
        from agentstate.settings import load

        self._config, self._url, self._db = config, url, db
        self._settings = load(config, {"store": {"url": db}} if db is not None else {})
        self._control: Control | None = None
        self._parts: Parts | None = None
        self._runner: asyncio.Runner | None = None

    @property
    def serving(self) -> bool:
        return self._control is not None

    def __enter__(self) -> _Journal:
        from agentstate.cli.control import find
        from agentstate.cli.people import connected
        from agentstate.engine.core import Parts
        from agentstate.settings import store_path

        if self._url is not None or (self._db is None and find(self._settings) is not None):
            self._control = connected(self._config, self._url)
            return self
        from agentstate.store.sqlite import connect

        connect(store_path(self._settings), self._settings.store.busy_s, write=False).close()  # it is there
        self._runner = asyncio.Runner()

        async def opened() -> Parts:
            parts = Parts(self._settings)
            parts.open()
            return parts

        self._parts = self._runner.run(opened())
        return self

    def __exit__(self, *_: object) -> None:
        if self._runner is not None and self._parts is not None:
            self._runner.run(self._parts.close())
            self._runner.close()

    def call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """One of the routes of retention. Raises ``AgentStateError``."""
        if self._control is not None:
            return self._control.call(method, path, body, timeout=_LONG_S)
        assert self._parts is not None
        from urllib.parse import unquote

        from agentstate.core.approval import ADMIN, Person, Role

        retention, admin = self._parts.retention, Person(ADMIN, Role.ADMIN)
        key, _, verb = path.removeprefix("/api/sessions/").partition("/")
        key = unquote(key)
        if method == "DELETE":
            gone = self._run(retention.delete(key, admin))
            self._run(retention.finish())
            return {"steps": gone.steps}
        if verb == "pin":
            return self._run(retention.pin(key, admin, (body or {})["reason"]))
        return self._run(retention.unpin(key, admin))

    def prune(self, body: dict[str, Any]) -> dict[str, Any]:
        """Its report. How far it has come is shown meanwhile, on a terminal."""
        if self._control is not None:
            control = self._control
            return _watched(
                lambda: control.call("POST", "/api/prune", body, timeout=_LONG_S),
                lambda: control.call("GET", "/api/retention").get("working"),
            )
        assert self._parts is not None
        from agentstate.core.approval import ADMIN
        from agentstate.server.api_retention import asked_of, report_view

        retention = self._parts.retention
        asked = asked_of(retention, body)
        report = self._run(
            retention.prune(
                asked.rules, ADMIN, dry_run=asked.dry_run, vacuum=asked.vacuum, superseded_s=asked.superseded_s
            )
        )
        return report_view(report)

    def rewrite(self) -> dict[str, Any]:
        """Write the file anew; its size then."""
        from agentstate.server.api_retention import size_view
        from agentstate.settings import store_path
        from agentstate.store.reader import Reader
        from agentstate.store.wal import rewrite

        path = store_path(self._settings)
        rewrite(path, self._settings.store.busy_s)
        reader = Reader(path, self._settings.store.busy_s)
        try:
            return size_view(reader.size())
        finally:
            reader.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._runner is not None
        return self._runner.run(work)


def _watched(work: Callable[[], Any], working: Callable[[], Any]) -> dict[str, Any]:
    """Do the work in a thread; on a terminal, say how far it has come."""
    done = threading.Event()
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below, where it can be told
            found.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="prune", daemon=True)
    thread.start()
    while not done.wait(_LOOK_S):
        if sys.stderr.isatty() and (now := working()):
            print(f"\r{now['what']}: {now['done']} of {now['total']}    ", end="", file=sys.stderr, flush=True)
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return dict(found[0])


def _agreed(foreseen: dict[str, Any], body: dict[str, Any], as_json: bool) -> bool:
    """Whether the person at the terminal says yes to what would go."""
    if not foreseen["sessions"] and not body.get("vacuum") and "superseded_days" not in body:
        return False
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is nobody to ask: give --yes, or --dry-run to only look")
    if not as_json:
        _show(foreseen, False)
    if not typer.confirm("Delete that, for good?"):
        raise typer.Exit(1)
    return True


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    from agentstate.core.visible import visible

    would = "would go" if report["dry_run"] else "are gone"
    for row in report["gone"][:_SHOWN]:
        print(f"  {visible(row['id'])}: {row['steps']} steps, last used {row['used_at'][:19]} ({row['why']})")
    if len(report["gone"]) > _SHOWN:
        print(f"  … and {report['sessions'] - _SHOWN} more")
    print(f"{report['sessions']} sessions with {report['steps']} steps {would}")
    for row in report["kept"]:
        print(f"{row['sessions']} stay: each {row['text']}")
    if report["superseded_steps"]:
        print(f"{report['superseded_steps']} superseded steps {would}")
    if not report["dry_run"]:
        before, after = report["before"], report["after"]
        print(
            f"{report['bodies']} bodies are gone; the file has {_mb(after['bytes'])}, of which "
            f"{_mb(after['free_bytes'])} are free (before: {_mb(before['bytes'])}, {_mb(before['free_bytes'])})"
        )


def _mb(size: float) -> str:
    return f"{size / 1024**2:.1f} MB"


def _days(text: str) -> float | None:
    if not text:
        return None
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no time; give it as 30d, 12h or 2w")
    return float(found[1]) * _DAYS[found[2].lower()]


def _bytes(text: str) -> int | None:
    if not text:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size; give it as 500MB or 2GB")
    return int(float(found[1]) * _BYTES[found[2].lower()])
