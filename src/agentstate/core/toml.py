"""Owns writing a few tables as TOML, to be pasted into a settings file. Must not read TOML (``tomllib`` does).

Invariant: what is written here is read by ``tomllib`` as the same values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def table(name: str, values: Mapping[str, Any], many: bool = False) -> str:
    """One table: ``[name]``, or ``[[name]]`` where there may be ``many``. ``None`` is left out; values are texts,
    numbers, truths, days, or lists of them. Raises ``TypeError`` for others."""
    head = ".".join(key(part) for part in name.split(".", 1))
    lines = [f"[[{head}]]" if many else f"[{head}]"]
    lines += [f"{key(name)} = {value(part)}" for name, part in values.items() if part is not None]
    return "\n".join(lines) + "\n"


def key(name: str) -> str:
    """A name, quoted where it must be."""
    return name if _BARE.fullmatch(name) else _text(name)


def value(part: Any) -> str:
    """Raises ``TypeError`` for what TOML does not know."""
    if isinstance(part, bool):
        return "true" if part else "false"
    if isinstance(part, str):
        return _text(part)
    if isinstance(part, float):
        return repr(part) if math.isfinite(part) else str(part)
    if isinstance(part, int):
        return str(part)
    if isinstance(part, date):
        return part.isoformat()
    if isinstance(part, list | tuple):
        return "[" + ", ".join(value(each) for each in part) + "]"
    raise TypeError(f"TOML has no {type(part).__name__}")


def _text(text: str) -> str:
    # JSON's escapes are TOML's too, but for the one control character that JSON leaves as it is; half of a pair of
    # surrogates is no character in TOML.
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")
