"""Owns sending a conversation whole where its provider was to hold it. Must not decide when that is called for.

Invariant: all that was said in the chain stands in the new input in its order, each item as it was but for its own id;
every other byte of the request is as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from agentstate.dialects.base import fields_of, list_of
from agentstate.dialects.concealing import MARK, WITHHELD
from agentstate.dialects.responses_answer import loaded
from agentstate.errors import BadRequest

# Items whose own id is what others name: a reference says nothing else, an approval answers by it.
_NAMED_BY_ID = ("item_reference", "mcp_approval_request", "local_shell_call_output")
_BLANK = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


class Whole(NamedTuple):
    """A request with the whole conversation in it. ``starts``: where in its input each answer of the chain begins."""

    body: bytes
    starts: tuple[int, ...]


def transcript(chain: Sequence[tuple[bytes, bytes]], body: bytes, before: Sequence[bytes] | None = None) -> Whole:
    """The request ``body`` with the whole conversation as its input and no pointer to what the provider holds.

    ``chain``: (request body, plain answer body) pairs, oldest first; each request but the first points to the answer
    before it, and ``body`` to the last. ``before``: given where it is a conversation of the provider's that all of them
    name: the items that were in it before. Reasoning that only its provider could read in full is left out. Raises
    ``BadRequest`` where the chain does not hold all that was said: it begins with a pointer, credentials were taken out
    of it, or a body is no JSON object.
    """
    items: list[bytes] = list(sendable(before or ()))
    starts: list[int] = []
    for place, (request, answer) in enumerate(chain):
        said = _fields(request)
        if place == 0 and _names(said, "previous_response_id"):
            raise BadRequest("the conversation goes on from an answer that the journal does not hold; begin it anew")
        if before is None and _names(said, "conversation"):
            raise BadRequest("the conversation is held by the provider alone; send its messages in the input instead")
        asked, outputs = inputs(request), outputs_of(answer)
        if WITHHELD in said or any(MARK.encode() in raw for raw in (*asked, *outputs)):
            raise BadRequest("the conversation held credentials, which are not kept; begin it anew")
        items += sendable(asked)
        starts.append(len(items))
        items += sendable(outputs)
    present = _fields(body)
    items += sendable(_inputs(present))
    array = b"[" + b",".join(items) + b"]"
    pointer = "previous_response_id" if before is None else "conversation"
    if "input" in present:
        return Whole(edited(body, {"input": array, pointer: None}), tuple(starts))
    return Whole(edited(body, {pointer: b'"input":' + array}, whole=True), tuple(starts))


def inputs(request: bytes) -> list[bytes]:
    """The input items of a request, as they stand there. Raises ``BadRequest`` where it is no JSON object."""
    return [bytes(raw) for raw in _inputs(_fields(request))]


def outputs_of(answer: bytes) -> list[bytes]:
    """The output items of a plain answer. Raises ``BadRequest`` where it is no JSON object."""
    return [bytes(raw) for raw in list_of(_fields(answer).get("output", msgspec.Raw(b"null"))) or ()]


def conversation_of(request: bytes) -> str:
    """The name of the conversation, held by the provider, that a request goes on; empty: none."""
    if b'"conversation"' not in request:
        return ""
    value = loaded(request)
    named = value.get("conversation") if isinstance(value, dict) else None
    named = named.get("id") if isinstance(named, dict) else named
    return named if isinstance(named, str) else ""


def is_lost(status: int, body: bytes) -> bool:
    """Whether a provider's refusal says that it no longer holds the answer that a request goes on from."""
    if status not in (400, 404):
        return False
    value = loaded(body)
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and error.get("code") == "previous_response_not_found"


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error}; send it as UTF-8") from None
    fields = fields_of(body)
    if fields is None:
        raise BadRequest("the conversation holds text that cannot be written anew; begin it anew")
    return fields


def _names(fields: dict[str, msgspec.Raw], name: str) -> bool:
    return bytes(fields.get(name, b"null")) not in (b"null", b'""')


def _inputs(fields: dict[str, msgspec.Raw]) -> Sequence[bytes | msgspec.Raw]:
    """The input items of a request; a text is one message of the user."""
    raw = bytes(fields.get("input", b"null"))
    if raw[:1] == b'"':
        return (b'{"role":"user","content":' + raw + b"}",)
    return list_of(raw) or ()


def sendable(items: Sequence[bytes | msgspec.Raw]) -> Iterator[bytes]:
    """Items as they may be sent to a provider that has not seen them."""
    for raw in items:
        item = loaded(raw)
        if not isinstance(item, dict):
            yield bytes(raw)
            continue
        kind = item.get("type")
        if kind == "reasoning" and not item.get("encrypted_content"):
            continue
        refers = kind is None and "role" not in item
        if "id" not in item or refers or kind in _NAMED_BY_ID:
            yield bytes(raw)
        else:
            yield edited(bytes(raw), {"id": None})


def edited(body: bytes, changes: dict[str, bytes | None], whole: bool = False) -> bytes:
    """A JSON object with members replaced, or removed (``None``); all other bytes as they are.

    ``whole``: what is given replaces the name of the member too. Raises ``ValueError`` when ``body`` is no JSON object.
    """
    text = body.decode()
    members = list(_members(text))
    parts: list[str] = []
    for place, (name, start, value, end) in enumerate(members):
        change = changes.get(name, b"")
        if change is None:
            continue
        parts.append(text[members[place - 1][3] : start] if parts else text[: members[0][1]])
        parts.append(text[start:end] if name not in changes else ("" if whole else text[start:value]) + change.decode())
    if not parts:
        return b"{}"
    return "".join([*parts, text[members[-1][3] :]]).encode()


def member(body: bytes, name: str) -> bytes:
    """The bytes of a member of a JSON object, also of one that no strict parser takes; empty: it has none.

    Raises ``ValueError`` when ``body`` is no JSON object.
    """
    text = body.decode()
    return next((text[value:end].encode() for found, _, value, end in _members(text) if found == name), b"")


def _members(text: str) -> Iterator[tuple[str, int, int, int]]:
    """(name, start, start of the value, end) of each member of a JSON object."""
    at = _past(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not a JSON object")
    at = _past(text, at + 1)
    while text[at : at + 1] == '"':
        start = at
        name, at = _value(text, at)
        value = _past(text, _past(text, at) + 1)
        _, end = _value(text, value)
        yield name, start, value, end
        at = _past(text, end)
        if text[at : at + 1] == ",":
            at = _past(text, at + 1)


def _past(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int) -> tuple[Any, int]:
    return _decoder.raw_decode(text, at)
