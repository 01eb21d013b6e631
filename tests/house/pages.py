"""Owns reading the documentation for the tests of this folder: sections, tables, fenced blocks, links.

Must not judge what it reads. Invariant: what is asked for and is not there fails with the page's name, so that a table
that was renamed away can never make a comparison pass with nothing on either side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, empty for none, and its text."""

    kind: str
    text: str


@cache
def pages() -> tuple[Path, ...]:
    """Every page of the documentation, the README and its neighbours included."""
    found = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    assert len(found) > 10, found
    return found


@cache
def text(path: Path) -> str:
    """A page's text."""
    return path.read_text("utf-8")


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", text(path))


def headings(path: Path) -> list[str]:
    """The titles of a page, in order."""
    return [found[2].strip() for found in _HEADING.finditer(prose(path))]


def section(path: Path, title: str) -> str:
    """The text below a heading, up to the next one of the same or a higher level. Headings in fences do not count."""
    blanked = _FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text(path))
    marks = list(_HEADING.finditer(blanked))
    for place, mark in enumerate(marks):
        if mark[2].strip() == title:
            later = (other.start() for other in marks[place + 1 :] if len(other[1]) <= len(mark[1]))
            return text(path)[mark.end() : next(later, None)]
    raise AssertionError(f"{path.name} has no section {title!r}; it has {headings(path)}")


def table(path: Path, title: str) -> list[list[str]]:
    """The rows of the first table below a heading, header and rule left out; cells stripped, ``\\|`` unescaped."""
    rows: list[list[str]] = []
    for line in section(path, title).splitlines():
        if line.startswith("|"):
            rows.append([cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1]])
        elif rows:
            break
    assert len(rows) > 2, f"{path.name}: there is no table below {title!r}"
    return rows[2:]


def names(path: Path, title: str, column: int = 0) -> list[str]:
    """Everything in code marks in one column of a section's table."""
    found = [name for row in table(path, title) for name in _CODE.findall(row[column])]
    assert found, f"{path.name}: nothing is named below {title!r}"
    return found


def fences(content: str) -> list[Fence]:
    """The fenced blocks of a text."""
    return [Fence(found[1], found[2]) for found in _FENCE.finditer(content)]


def anchors(path: Path) -> set[str]:
    """The fragments under which a code host offers a page's headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings(path)}
