"""Owns the outcomes of the matrix: one JSON line a test while it runs, and the committed file that they make.

Must not judge or leave out: a failure is an outcome like any other. Invariant: the file's rows are sorted and hold
nothing that differs between two equal runs, so that a difference in it is a difference in what clients do.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.proxy import ROOT

COMMITTED = Path(__file__).parent / "results.json"
# Read when this is imported: the variables of this project are taken away before the first test.
FOLDER = Path(os.environ.get("AGENTSTATE_MATRIX_RESULTS", ROOT / ".pytest_cache" / "matrix"))


@dataclass(frozen=True, order=True)
class Outcome:
    """One test's. ``kills``: points like "1 before", in order. ``paid``: calls that reached the provider, or None."""

    client: str
    version: str
    mode: str
    form: str
    kills: tuple[str, ...]
    paid: int | None
    ok: bool
    why: str = ""


def write(outcome: Outcome) -> None:
    """Keep one outcome, in a file of its own: tests run in several processes."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{uuid.uuid4().hex}.json").write_text(json.dumps(asdict(outcome)) + "\n")


def read(lines: Iterable[str]) -> list[Outcome]:
    """Outcomes from JSON lines, the later one where two are of the same test."""
    found: dict[tuple[object, ...], Outcome] = {}
    for line in lines:
        raw = json.loads(line)
        outcome = Outcome(**raw | {"kills": tuple(raw["kills"])})
        found[outcome.client, outcome.mode, outcome.form, outcome.kills] = outcome
    return sorted(found.values(), key=lambda outcome: (outcome.client, outcome.mode, outcome.form, outcome.kills))


def collected(folder: Path = FOLDER) -> list[Outcome]:
    """What tests left in a folder, oldest first, so that the latest of each counts."""
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return read(path.read_text() for path in files)


def committed() -> list[Outcome]:
    """The committed outcomes."""
    return read(json.dumps(row) for row in json.loads(COMMITTED.read_text()))


def commit(outcomes: Iterable[Outcome]) -> None:
    """Write the committed file, one row a line."""
    rows = ",\n".join(json.dumps(asdict(outcome)) for outcome in outcomes)
    COMMITTED.write_text(f"[\n{rows}\n]\n")
