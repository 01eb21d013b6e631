"""Owns what a process tells of itself: versions, the libraries it stands on and their licences, the diagnostics bundle.

Must not change or send anything. Invariant: the bundle holds no secret, no body, no header, no name that an agent
chose, and of addresses scheme, host and port alone: it can be given to somebody who is asked for help.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from agentstate import __version__, clock
from agentstate.store.reader import Reader
from agentstate.store.sqlite import SQLITE

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

DISTRIBUTION = "agentstate-proxy"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_LICENCE = "License :: "
_LONGEST = 60  # characters of a licence's name; some packages put its whole text there
_COUNTED = ("session", "run", "step", "attempt", "approval", "blob", "node", "outbox", "audit")


class Library(NamedTuple):
    """A distribution that is installed. ``licence``: as it names its own; empty: it names none."""

    name: str
    version: str
    licence: str


class Versions(NamedTuple):
    agentstate: str
    python: str
    sqlite: str
    system: str


def versions() -> Versions:
    """What runs here."""
    system = f"{platform.system()} {platform.machine()}"
    return Versions(__version__, platform.python_version(), SQLITE, system)


def libraries() -> list[Library]:
    """What the project needs, and what that needs, by name; without what only extras ask for. In a thread: 50 ms."""
    from importlib import metadata  # slow to load

    known: dict[str, metadata.Distribution] = {}
    for each in metadata.distributions():
        known.setdefault(_folded(each.metadata["Name"] or ""), each)
    wanted, found = [DISTRIBUTION], {}
    while wanted:
        name = _folded(wanted.pop())
        if name in found or name not in known:
            continue
        found[name] = known[name]
        needs = [need for need in known[name].requires or () if "extra ==" not in need]
        wanted += [match[0] for need in needs if (match := _NAME.match(need)) is not None]
    found.pop(DISTRIBUTION, None)
    made = [Library(each.metadata["Name"], each.version, _licence(each.metadata)) for each in found.values()]
    return sorted(made, key=lambda library: library.name.lower())


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _licence(meta: Any) -> str:
    for field in ("License-Expression", "License"):
        text = str(meta.get(field) or "").strip()
        if text and "\n" not in text and len(text) <= _LONGEST and text != "UNKNOWN":
            return text
    named = [text.rpartition(" :: ")[2] for text in meta.get_all("Classifier") or () if text.startswith(_LICENCE)]
    return ", ".join(named)


# --- the bundle ---


def diagnostics(parts: Parts, reader: Reader) -> dict[str, Any]:
    """Everything that helps to find out what is wrong, as JSON values. In a thread."""
    from agentstate.engine.stats import stats

    total = stats(reader).total
    settings = plain(parts.settings.model_dump())
    settings["store"].pop("url")  # a path, which names somebody's folder
    return {
        "at": clock.now(),
        "versions": versions()._asdict(),
        "libraries": [library._asdict() for library in libraries()],
        "settings": settings,
        "store": sizes(parts.journal.path) | {"rows": counted(reader)},
        "calls": total.sent._asdict() | {"tokens": total.sent.tokens._asdict()},
        "replays": total.spared._asdict(),
        "approvals": reader.approval_states(),
        "breakers": [
            {"provider": held.candidate.provider, "state": held.breaker.state.value, "failures": held.breaker.failures}
            for held in parts.breakers.shown()
        ],
        "in_flight": len(parts.tasks),
        "open_sockets": len(parts.presence),
        "warnings": len(parts.routes.warnings()) + len(parts.foresight.warnings()),
    }


def sizes(path: Path) -> dict[str, int]:
    """Bytes of the journal's file and of what is not merged into it yet; 0 where there is none."""
    found = {"journal_bytes": path, "wal_bytes": path.with_name(path.name + "-wal")}
    return {name: file.stat().st_size if file.exists() else 0 for name, file in found.items()}


def counted(reader: Reader) -> dict[str, int]:
    """Rows of the journal's main tables."""
    return {name: reader.raw(f"select count(*) from {name}").fetchone()[0] for name in _COUNTED}  # noqa: S608 - ours


def plain(value: Any) -> Any:
    """A value of the settings as JSON, without secrets: of a secret whether it is set, of an address where it leads."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _ADDRESS.sub(lambda match: _place(match[0]), value)
    if hasattr(value, "get_secret_value"):
        return "(set)"
    return str(value)


def _place(url: str) -> str:
    """Scheme, host and port of an address; of a file nothing."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "(an address)"
    if not host:
        return f"{parts.scheme}://…"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
