"""Owns an open journal in a folder of its own, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate.store.journal import Journal
from tests.store.kit import Book, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agentstate.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    made = opened(path)
    yield made
    if not made.closed:
        made.close()


@pytest.fixture
async def book(journal: Journal) -> Book:
    return await Book.open(journal)
