"""Owns the outcomes of the matrix: one JSON line a test while it runs, and the committed file that they make.

Must not judge or leave out: a failure is an outcome like any other. Invariant: the file's rows are sorted and hold
nothing that differs between two equal runs, so that a difference in it is a difference in what clients do.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.proxy import ROOT

COMMITTED = Path(__file__).parent / "results.json"
# Read when this is imported: the variables of this project are taken away before the first test.
FOLDER = Path(os.environ.get("AGENTSTATE_MATRIX_RESULTS", ROOT / ".pytest_cache" / "matrix"))


@dataclass(frozen=True, order=True)
class Outcome:
    """One test's. ``kills``: points like "1 before", in order. ``paid``: calls that reached the provider."""

    client: str
    version: str
    mode: str
    form: str
    kills: tuple[str, ...]
    paid: int
    ok: bool
    why: str = ""


def write(outcome: Outcome) -> None:
    """Keep one outcome, in the file of its test: tests run in several processes, and the latest outcome counts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(repr(_place(outcome)).encode()).hexdigest()[:16]
    (FOLDER / f"{name}.json").write_text(json.dumps(asdict(outcome)) + "\n")


def read(lines: Iterable[str]) -> list[Outcome]:
    """Outcomes from JSON lines, sorted."""
    raw = [json.loads(line) for line in lines]
    return sorted((Outcome(**row | {"kills": tuple(row["kills"])}) for row in raw), key=_place)


def _place(outcome: Outcome) -> tuple[str, str, tuple[str, ...], str]:
    return outcome.client, outcome.mode, outcome.kills, outcome.form


def collected(folder: Path = FOLDER) -> list[Outcome]:
    """What tests left in a folder."""
    return read(path.read_text() for path in folder.glob("*.json"))


def committed() -> list[Outcome]:
    """The committed outcomes; none where there is no file yet."""
    rows = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else []
    return read(json.dumps(row) for row in rows)


def taken_over(old: Iterable[Outcome], new: Sequence[Outcome]) -> list[Outcome]:
    """The new outcomes, and the old ones of the clients that were not tested this time."""
    tested = {outcome.client for outcome in new}
    kept = [outcome for outcome in old if outcome.client not in tested]
    return sorted([*kept, *new], key=_place)


def commit(outcomes: Iterable[Outcome]) -> None:
    """Write the committed file, one row a line."""
    rows = ",\n".join(json.dumps(asdict(outcome)) for outcome in outcomes)
    COMMITTED.write_text(f"[\n{rows}\n]\n")
