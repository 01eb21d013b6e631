"""Owns the one form in which conversations of every wire format are exported, and when one goes on from another.

Must not know any wire format or file format. Invariant: equal conversations have equal digests, whatever a client does
to the ids of calls, the blanks around texts and the volatile text of its system prompt on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from agentstate.core import mask

Role = Literal["system", "user", "assistant", "tool"]

EMPTY = b""


class Picture(NamedTuple):
    """``url``: an address, or a ``data:`` URL with the picture in it."""

    url: str


class Document(NamedTuple):
    """A file that a message shows: its ``data:`` URL or address."""

    name: str
    url: str


Piece = str | Picture | Document


class Called(NamedTuple):
    """A call of a tool. ``arguments``: JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Spoken(NamedTuple):
    """One message. ``answers``: the id of the call whose result it is; ``failed``: that result is an error."""

    role: Role
    pieces: tuple[Piece, ...] = ()
    calls: tuple[Called, ...] = ()
    answers: str = ""
    failed: bool = False
    refusal: str = ""
    reasoning: str = ""

    @property
    def text(self) -> str:
        """Its text alone, pieces one after another."""
        return "".join(piece for piece in self.pieces if isinstance(piece, str))


class Offered(NamedTuple):
    """A tool that the model may call. ``schema``: JSON text of the schema of its arguments."""

    name: str
    description: str = ""
    schema: str = ""
    strict: bool | None = None


class Dialogue(NamedTuple):
    """What a model was given. ``parallel``: whether several calls may come at once; ``None``: not said."""

    messages: tuple[Spoken, ...]
    tools: tuple[Offered, ...] = ()
    parallel: bool | None = None


class Reply(NamedTuple):
    """One answer of a model. ``end``: ``stop``, ``tools``, ``length`` or ``refusal``."""

    message: Spoken
    end: str


def chain(messages: Iterable[Spoken], before: bytes = EMPTY) -> list[bytes]:
    """For each message the digest of the conversation up to it; the first follows ``before``."""
    found = []
    for message in messages:
        before = sha256(before + _digest(message)).digest()
        found.append(before)
    return found


def _digest(message: Spoken) -> bytes:
    """Of one message: ids of calls left out, as are reasoning and what a result says of having failed, which clients do
    not send back, or send in forms of their own."""
    text = message.text.strip()
    if message.role == "system":
        text = mask.scrub(text)[0]
    shown = [piece for piece in message.pieces if not isinstance(piece, str)]
    calls = [(call.name, same_arguments(call.arguments)) for call in message.calls]
    whole = json.dumps([message.role, text, message.refusal.strip(), shown, calls, bool(message.answers)])
    return sha256(whole.encode()).digest()


def same_arguments(arguments: str) -> str:
    """A text that is equal for arguments that say the same: clients write them anew, with blanks of their own."""
    value = object_of(arguments)
    return arguments.strip() if value is None else json.dumps(value, sort_keys=True)


def object_of(arguments: str) -> dict[str, Any] | None:
    """The arguments of a call as an object; ``None`` where they are none. No text at all is an empty object."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_number(name: str) -> None:
    """NaN and Infinity, which Python's parser takes, are not JSON."""
    raise ValueError(name)
