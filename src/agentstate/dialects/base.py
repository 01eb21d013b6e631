"""Owns what every dialect offers, and the helpers they share. Must not know any one of them.

Invariant: ``parse`` never changes what is forwarded; a body that only a lenient parser understands still has a
fingerprint (that of its bytes), so that it is relayed and journaled rather than refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from agentstate.core.model import Call, Change, Item, OfferedTool, Shape, ToolResult, Verdict
from agentstate.errors import AgentStateError, BadRequest

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_decode_list = msgspec.json.Decoder(list[msgspec.Raw])


class Gate(Protocol):
    """Reads an answer while it streams. ``feed`` returns the bytes that may be shown before the whole is committed."""

    @property
    def done(self) -> bool:
        """Whether the dialect's end marker has come; nothing of meaning follows it."""
        ...

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> Verdict:
        """Judge the whole answer; call once, after the last byte."""
        ...

    # A gate may also have ``failure(error) -> bytes``: an error of ours as the end of what was shown so far, where that
    # cannot be said without knowing it; else ``Dialect.stream_error`` is used.

    def heartbeat(self) -> bytes:
        """What may be sent after what was shown so far to keep a client waiting; empty: nothing it would bear."""
        ...


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A message with its volatile text masked.

    ``digest``: of its canonical form, call ids left out, volatile literals masked where that is allowed; ``literals``:
    those, in order; ``plain``: the texts in which nothing was masked.
    """

    digest: bytes
    literals: tuple[str, ...]
    plain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Blanked:
    """A message less the content of the tool results in it; ``ids``: the calls that they answer."""

    digest: bytes
    ids: tuple[str, ...] = ()


class Filling(Protocol):
    """A dialect whose providers may leave out the ids of tool calls."""

    def filled(self, shape: Shape, body: bytes, make: Callable[[], str]) -> bytes:
        """The answer with an id from ``make`` for each call that has none; no other byte is changed."""
        ...


class Amending(Protocol):
    """A dialect whose answers may propose calls that the agent is to make: what the gate needs of it. Pure."""

    def offered(self, call: Call) -> tuple[OfferedTool, ...]:
        """The tools that the request offers the model and the agent is to run, in order."""
        ...

    def results(self, call: Call) -> tuple[ToolResult, ...]:
        """The results of calls that the request carries, in order: those after the last answer of the model."""
        ...

    def amended(self, call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
        """A finished answer (``body``, recorded in ``shape``) with calls edited or taken out.

        ``said``: not empty: a text that the model says in their place, after what it said before. What ``gate`` would
        show before the commit stays as it is, byte for byte, at the beginning; so does every event or member that
        concerns none of the changes. The result is a finished answer: places of calls have no gaps, and a choice that
        has no call left ends like one that had none.
        """
        ...

    def continued(self, call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
        """The body of the request that goes on from an answer: the question's, the answer's message as it came, and
        the results; one for each of its calls. Asks for the shape that the question asked for."""
        ...


class Dialect(Protocol):
    """A wire format, pure. Paths are normalised (see ``Call``). ``provider``: the kind of provider that speaks it, one
    of the values of the setting ``providers.NAME.dialects``. A dialect may also have ``early_heartbeat``, bytes: what
    may be sent to keep a client waiting before a stream of which its gates know no heartbeat yet."""

    name: str
    provider: str

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        """The call; ``BadRequest`` when no provider could understand it. ``path`` keeps a version other than v1.

        What counts of ``query`` becomes part of the call's path, see ``dialects.query``. A recorded call is read again
        with the path that it had then, and no query.
        """
        ...

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        """A message or a part of the context, masked. ``user_text``: what users say may be masked too."""
        ...

    def blanked(self, item: Item) -> Blanked: ...

    def spoken(self, body: bytes) -> Any:
        """What a plain answer says, as JSON: less ids, names of models, counts and the like."""
        ...

    def is_stream(self, call: Call, start: bytes) -> bool:
        """Whether an answer that begins so, blanks left out, is the stream that was asked for. Providers mislabel both
        ways, so the content type does not tell."""
        ...

    def gate(self, call: Call) -> Gate:
        """For an answer that is a stream."""
        ...

    def judge(self, call: Call, body: bytes) -> Verdict:
        """For an answer that is one body."""
        ...

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        """The recorded answer in the shape that is asked for."""
        ...

    def content_type(self, shape: Shape) -> str: ...

    def error(self, error: AgentStateError) -> bytes:
        """An error of ours as this dialect's body."""
        ...

    def stream_error(self, error: AgentStateError) -> bytes:
        """An error of ours as the last event of a stream that has begun."""
        ...


def fields_of(body: bytes) -> dict[str, msgspec.Raw] | None:
    """The top-level fields of a JSON object as raw slices.

    ``None``: valid JSON that a strict parser does not take (lone surrogates, numbers beyond range).
    Raises ``BadRequest`` for what is not a JSON object.
    """
    try:
        return _decode_fields.decode(body)
    except msgspec.ValidationError:
        raise BadRequest("the request body must be a JSON object") from None
    except UNREADABLE as strict:
        lenient(body, strict)
        return None


# What a strict parser raises; the second and third also while it decodes a part of what it took as a whole.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def lenient(body: bytes, strict: BaseException) -> dict[str, Any]:
    """The body as a lenient parser reads it. ``BadRequest``, with the strict one's reason, if even that fails."""
    try:
        value = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None
    except ValueError:
        raise BadRequest(f"the request body is not valid JSON: {strict}") from None
    if not isinstance(value, dict):
        raise BadRequest("the request body must be a JSON object") from None
    return value


def _no_constant(name: str) -> None:
    """NaN and Infinity, which Python's parser takes, are not JSON."""
    raise ValueError(name)


def unquoted(text: str) -> str:
    """A path or query without its percent-encoding."""
    raw = text.encode("utf-8", "replace")
    return _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), raw).decode("utf-8", "replace")


def list_of(raw: msgspec.Raw | bytes) -> list[msgspec.Raw] | None:
    """The elements of a JSON array as raw slices; ``None`` when it is none."""
    try:
        return _decode_list.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces; equal for equal values."""
    return msgspec.json.encode(value, order="sorted")


def split_array(array: bytes, items: Sequence[bytes]) -> tuple[bytes, bytes, bytes] | None:
    """(before, separator, after) such that before + separator.join(items) + after is ``array``; ``None``: no such."""
    if not items:
        return None
    joined = [b", ", b","] if len(items) > 1 else [b""]
    first = array.find(items[0])
    if len(items) > 1:
        second = array.find(items[1], first + len(items[0]))
        joined.insert(0, array[first + len(items[0]) : second])
    before = array[:first]
    for separator in joined:
        middle = separator.join(items)
        after = array[len(before) + len(middle) :]
        if array == before + middle + after and b'"' not in after and b'"' not in separator:
            return before, separator, after
    return None


def place_of(part: bytes, whole: bytes) -> int:
    """Where ``part`` first occurs in ``whole``; -1: nowhere. Made for large parts, for which ``find`` takes long."""
    start = part[:64]
    place = whole.find(start)
    while place >= 0 and not whole.startswith(part, place):
        place = whole.find(start, place + 1)
    return place


class Cache:
    """Values by key, bounded in bytes: when the young half is full it becomes the old half, and the old half goes."""

    __slots__ = ("_half", "_old", "_size", "_young")

    def __init__(self, most_bytes: int) -> None:
        self._half = most_bytes // 2
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}
        self._size = 0

    def get(self, key: bytes) -> Any:
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: bytes, value: Any) -> None:
        self._young[key] = value
        self._size += len(key) + 400  # 400: the objects around it, measured generously
        if self._size > self._half:
            self._old, self._young, self._size = self._young, {}, 0


def unmarked(value: Any) -> Any:
    """An object without nulls and cache marks, on its own level only: below may be a user's JSON schema or data."""
    if not isinstance(value, dict):
        return value
    return {key: part for key, part in value.items() if part is not None and key != "cache_control"}


def tool_set(tools: Any) -> bytes:
    """The canonical form of a tool set: its order cannot change the answer, nor can marks of the prompt cache."""
    if not isinstance(tools, list):
        return canonical(tools)
    return b"set\0" + b"\0".join(sorted(canonical(unmarked(tool)) for tool in tools))


def frame_key(named: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Named fields as one length-prefixed key, so that no two sets of fields collide."""
    return b"".join(b"%d,%d:%b%b" % (len(name), len(raw), name, raw) for name, raw in named)


def digest_of(parts: Iterable[bytes]) -> bytes:
    """sha256 over length-prefixed parts, so that no two lists collide."""
    state = sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


def check_content_type(value: str) -> None:
    """A JSON endpoint takes JSON; an absent content type is let pass, as providers do."""
    kind = value.partition(";")[0].strip().lower()
    if kind and not (kind == "application/json" or kind.endswith("+json") or kind == "text/json"):
        raise BadRequest(f"content-type is {kind!r}; send application/json")


def check_model(name: str) -> None:
    """A model has a name that can be written down. Raises ``BadRequest`` for half a character, which has no bytes."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRequest("the model's name has half a character (a surrogate without its other half)") from None


def openai_error(error: AgentStateError) -> bytes:
    """The error object that OpenAI clients understand."""
    fields: dict[str, Any] = {"message": error.message, "type": error.kind, "param": None, "code": error.code}
    if error.detail:
        fields["agentstate"] = error.detail
    return msgspec.json.encode({"error": fields})
