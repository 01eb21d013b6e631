"""Owns how the translator reads and writes JSON: what it looks for, and what it does where something else is there.

Must not know any dialect. Invariant: numbers keep their value, however large; what is not what it should be is said by
``Untranslatable``, never guessed at.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from agentstate.dialects.base import UNREADABLE
from agentstate.errors import Untranslatable

Fields = dict[str, Any]

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?)(;base64)?,(.*)", re.DOTALL)


def loaded(body: bytes, what: str = "request") -> Fields:
    """The object that a body is; ``Untranslatable`` where it is none or a strict parser does not take it."""
    try:
        value = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise Untranslatable(f"the {what} is not JSON that every provider takes: {error}") from None
    if not isinstance(value, dict):
        raise Untranslatable(f"the {what} is not a JSON object")
    return value


def dumped(value: Any) -> bytes:
    """JSON text; ``UnicodeEncodeError`` for text that is not Unicode."""
    return msgspec.json.encode(value)


def value_of(text: bytes) -> Any:
    """What JSON text says that the translator has written itself."""
    return msgspec.json.decode(text)


def objects(value: Any, what: str) -> list[Fields]:
    """The objects of a list; absent or null: none. ``Untranslatable`` where it is anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise Untranslatable(f"{what} is not a list of objects")
    return value


def fields_in(value: Any) -> Fields:
    """An object, or an empty one where there is none."""
    return value if isinstance(value, dict) else {}


def text_in(value: Any) -> str:
    return value if isinstance(value, str) else ""


def texts_in(value: Any) -> tuple[str, ...]:
    """A text, or a list of texts."""
    if isinstance(value, str):
        return (value,)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def count_in(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def number_in(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def flag_in(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def object_of(arguments: str) -> Fields | None:
    """The arguments of a call as an object; ``None`` where they are none. No text at all is an empty object."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) else None


def data_url(url: str) -> tuple[str, str] | None:
    """(media type, base64) of a ``data:`` URL; ``None``: it is another URL."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return None
    if not found[3]:
        raise Untranslatable("a data: URL without base64 cannot be carried over")
    return found[1] or "text/plain", found[4]


def plain_text(data: str) -> str:
    """The text that base64 holds; ``Untranslatable`` where it holds none."""
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        raise Untranslatable("a text file holds no UTF-8 text") from None


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
