"""Owns the last messages of a recorded request, as a person who decides about its answer reads them. Must not judge.

Every dialect's messages are read the same way, by the names that texts and calls have in all of them. Invariant: what
is shown of a message is said by it, and what is left out is said to be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentstate.dialects import registry
from agentstate.errors import AgentStateError
from agentstate.store.reader import Reader

MOST_TEXT = 4000  # characters of a message
_DEEP = 8


@dataclass(frozen=True, slots=True)
class Told:
    """A message. ``role``: as its dialect calls it; ``more``: characters that are left out at its end."""

    role: str
    text: str
    more: int = 0


def last_messages(reader: Reader, step: int, count: int = 3) -> tuple[Told, ...]:
    """The last messages of a step's request, oldest first; none where it cannot be read."""
    try:
        name, method, path, body = reader.request(step)
        dialect = registry.BY_NAME.get(name)
        items = dialect.parse(method, path, body).items if dialect is not None else ()
    except (AgentStateError, ValueError):
        return ()
    found = []
    for item in items[-count:]:
        text = said_by(item.raw)
        found.append(Told(item.role or "message", text[:MOST_TEXT], max(0, len(text) - MOST_TEXT)))
    return tuple(found)


def said_by(raw: bytes) -> str:
    """What a message says, as text: its texts, its calls as ``tool(arguments)``, what results hold."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")
    return "\n".join(part for part in _parts(value) if part).strip()


def _parts(value: Any, deep: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _parts(one, deep)
    elif isinstance(value, dict) and deep < _DEEP:
        yield from _of_object(value, deep + 1)


def _of_object(value: dict[str, Any], deep: int) -> Iterator[str]:
    called = value.get("function") or value.get("functionCall") or value.get("function_call") or value
    if isinstance(called, dict) and (line := _call(called)):
        yield line
        return
    kind = str(value.get("type", ""))
    if "image" in kind or "file" in kind or "audio" in kind or "inlineData" in value:
        yield f"[{kind or 'file'}]"
        return
    for one in (
        "thinking",
        "reasoning_content",
        "text",
        "refusal",
        "content",
        "parts",
        "output",
        "response",
        "summary",
    ):
        if one in value:
            yield from _parts(value[one], deep)
    for one in ("tool_calls", "functionCall", "function_call", "functionResponse"):
        if one in value:
            yield from _parts(value[one], deep)


def _call(value: dict[str, Any]) -> str:
    """A call of a tool on one line; empty: it is none."""
    given = [value[one] for one in ("arguments", "input", "args") if one in value]
    if not given or not isinstance(value.get("name"), str):
        return ""
    return f"{value['name']}({given[0] if isinstance(given[0], str) else json.dumps(given[0], ensure_ascii=False)})"
