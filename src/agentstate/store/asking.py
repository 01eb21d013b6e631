"""Owns what every part of ``Reader`` asks its questions with. Must not ask any.

Invariant: there is one implementation of it, ``Reader``; the parts are never used apart from that.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any


class Asking(ABC):
    """What ``Reader`` gives its parts."""

    path: Path
    sql: dict[str, str]
    _conn: sqlite3.Connection

    @abstractmethod
    def _all(self, name: str, values: Any) -> list[Any]:
        """All rows of a named question."""

    @abstractmethod
    def _one(self, name: str, values: Any) -> Any:
        """Its first row, or ``None``."""

    @abstractmethod
    def _content(self, codec: int, size: int, data: bytes) -> bytes:
        """The content of a body as it is stored."""
