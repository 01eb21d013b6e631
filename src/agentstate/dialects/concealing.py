"""Owns credentials that travel in request bodies: finding them, and the body without them. Must not touch what is sent.

They stand where a request names remote tools, data sources or another provider: in members that are called like a
credential, in headers, in the query or user part of an address. What is said (messages, prompts) and schemas are not
looked at, as members there are data: a call of a tool with another ``token`` is another question.

Invariant: a body that ``conceal`` gives back holds no credential that it has found, and is given back unchanged when it
is concealed again. Where it cannot be told for certain what is one, the body is replaced by its hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from agentstate.dialects.base import Cache, lenient, unquoted

MARK = "[credential]"
WITHHELD = "agentstate_withheld"  # stands in the place of a body that is not kept
SHORTEST_SECRET = 8  # shorter ones would blot out ordinary text wherever they are repeated

_SECRET = re.compile(
    r"authorization|auth|token|secret|cookies?|bearer|jwt|pat"
    r"|.*(?:api|secret|secretaccess|access|account|subscription|private|serviceaccount)key"
    r"|.*(?:access|auth|authorization|bearer|session|security|refresh|id|oauth)token"
    r"|.*(?:clientsecret|password|passwd|passphrase|credentials?|connectionstring|apikeystring|accesskeyid)"
)
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\s*(?:bearer|basic)\s+\S", re.IGNORECASE)  # in a header, whatever its name
_IN_AUTH = frozenset({"key", "value"})  # too common to be credentials anywhere else
_IN_QUERY = frozenset({"key", "sig", "signature"})
# What is said, to the model or as an example for it.
_SAID = frozenset(
    {
        "messages", "input", "contents", "content", "prompt", "prompts", "system", "systeminstruction", "instructions",
        "suffix", "template", "context", "images", "documents", "prediction", "description", "examples",
        "inputexamples", "definition",
    }
)  # fmt: skip
_SCHEMAS = frozenset(
    {
        "parameters", "parametersjsonschema", "inputschema", "response", "responseschema", "responsejsonschema",
        "responseformat", "schema", "jsonschema", "format", "guidedjson", "properties", "default", "enum", "const",
        "logitbias",
    }
)  # fmt: skip
_ADDRESS = re.compile(r"(?P<user>(?<=://)[^/?#@\s]+(?=@))|(?<=[?&;])(?P<name>[^=&;#\s]+)=(?P<value>[^&;#\s]+)")
_BLANK = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(?P<name>[ \t\r\n]*:)?', re.DOTALL)
_MEMBER = re.compile(rb'[ \t\r\n]*[{,][ \t\r\n]*"([^"\\]*)"[ \t\r\n]*:[ \t\r\n]*')
_END = re.compile(rb"[ \t\r\n]*\}[ \t\r\n]*")
_OPENING = frozenset((b'"', b"{", b"["))
_DEEPEST = 100  # levels of objects and lists that are looked through
_ESCAPED = "\\u00"
_value_at = json.JSONDecoder().raw_decode


class Exposed(Exception):
    """A message holds credentials: the body is to be concealed before it is read."""


class _UncertainError(Exception):
    """What of a body is a credential cannot be told."""


class _Kind(IntEnum):
    """What a JSON value is that is looked through."""

    SKIPPED = 0
    WHOLE = 1  # a request
    ITEMS = 2  # its messages, which may bring tools
    PART = 3  # tools and options
    SOURCE = 4  # the same where nothing is a schema
    HEADERS = 5
    AUTH = 6  # an object that says how to log in
    SECRET = 7


_known = {kind: Cache(2 * 1024 * 1024) for kind in _Kind}


@lru_cache(4096)
def _kind_of(name: str, above: _Kind) -> _Kind:
    """What the member ``name`` of a value is."""
    plain = _plain(name)
    if above is _Kind.HEADERS:
        return _Kind.SECRET if _SECRET_HEADER.search(name) else _Kind.HEADERS
    if above is _Kind.ITEMS:
        return _Kind.PART if name == "tools" else _Kind.SKIPPED
    if above is _Kind.WHOLE and plain in ("input", "messages"):
        return _Kind.ITEMS
    if plain in _SAID or (above in (_Kind.WHOLE, _Kind.PART) and plain in _SCHEMAS):
        return _Kind.SKIPPED
    if _SECRET.fullmatch(plain) or (above is _Kind.AUTH and plain in _IN_AUTH):
        return _Kind.SECRET
    if plain.endswith("headers") or plain == "env":
        return _Kind.HEADERS
    if above is _Kind.AUTH or "auth" in plain or plain.endswith("secrets"):
        return _Kind.AUTH
    return _Kind.SOURCE if above is _Kind.SOURCE or plain in ("datasources", "mcpservers") else _Kind.PART


def _plain(name: str) -> str:
    """A name however it is spelled: ``api_key``, ``apiKey``, ``Api-Key``."""
    return name.lower().replace("_", "").replace("-", "")


class _Finder:
    """Looks through JSON text. ``places``: (start, end, what stands there instead); ``secrets``: what they say."""

    __slots__ = ("_depth", "_text", "places", "secrets")

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self.places: list[tuple[int, int, str]] = []
        self.secrets: set[str] = set()

    def look(self, kind: _Kind, at: int = 0) -> int:
        """Look through the value at ``at``; its end. Raises ``_UncertainError`` and what a JSON parser raises."""
        at = self._past(at)
        first = self._text[at : at + 1]
        if kind is not _Kind.SKIPPED and first == '"':
            return self._string(at, kind)
        if kind is not _Kind.SKIPPED and first in ("{", "["):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise _UncertainError
            end = self._object(at, kind) if first == "{" else self._array(at, kind)
            self._depth -= 1
            return end
        _, end = _value_at(self._text, at)
        return end

    def _object(self, at: int, kind: _Kind) -> int:
        kind = _Kind.AUTH if kind is _Kind.SECRET else kind
        at = self._past(at + 1)
        while self._text[at] != "}":
            name, end = _value_at(self._text, at)
            at = self._past(end) + 1  # behind the colon
            child = _kind_of(name, kind)
            if child is _Kind.HEADERS and kind is not _Kind.HEADERS:
                self._check_headers(self._past(at), name)
            at = self._past(self.look(child, at))
            if self._text[at] == ",":
                at = self._past(at + 1)
        return at + 1

    def _array(self, at: int, kind: _Kind) -> int:
        at = self._past(at + 1)
        while self._text[at] != "]":
            at = self._past(self.look(kind, at))
            if self._text[at] == ",":
                at = self._past(at + 1)
        return at + 1

    def _check_headers(self, at: int, name: str) -> None:
        """Headers that are no object may be spelled in any way."""
        if self._text[at] != "{" and (self._text[at] == "[" or (self._text[at] == '"' and name.lower() != "env")):
            raise _UncertainError

    def _string(self, at: int, kind: _Kind) -> int:
        value, end = _value_at(self._text, at)
        if kind is _Kind.SECRET or (kind is _Kind.HEADERS and _SECRET_VALUE.match(value)):
            if value not in ("", MARK):
                self.places.append((at, end, f'"{MARK}"'))
                self.secrets |= {value, value.partition(" ")[2]}
        elif kind is not _Kind.ITEMS and "://" in value and (shown := self._address(value)) != value:
            self.places.append((at, end, json.dumps(shown)))
        return end

    def _address(self, address: str) -> str:
        def shown(found: re.Match[str]) -> str:
            user, name, value = found["user"], found["name"], found["value"]
            if MARK in (user, value):
                return found[0]
            if user is not None:
                self.secrets |= {user, user.partition(":")[2], unquoted(user.partition(":")[2])}
                return MARK
            plain = _plain(name)
            if not _SECRET.fullmatch(plain) and plain not in _IN_QUERY:
                return found[0]
            self.secrets |= {value, unquoted(value)}
            return f"{name}={MARK}"

        return _ADDRESS.sub(shown, address)

    def _past(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        assert found is not None
        return found.end()


def suspected(body: bytes, fields: Mapping[str, bytes]) -> bool:
    """Whether a body, whose top-level fields these are, may hold a credential outside of its messages.

    Made for every request: what of the fields was seen before is not looked through again, and what is said never is.
    """
    size = 2
    for name, raw in fields.items():
        size += len(name) + len(raw) + 4
        first = raw[:1]
        if first not in _OPENING:
            continue
        kind = _kind_of(name, _Kind.WHOLE)
        if kind is _Kind.SKIPPED or kind is _Kind.ITEMS:
            continue
        if first != b'"':
            if _holds(raw, kind):
                return True
        elif kind is _Kind.SECRET or kind is _Kind.HEADERS or b"://" in raw:
            return True
    return not _is_all(body, fields, size)


def exposed(raw: bytes) -> bool:
    """Whether a message, or a list of them, holds a credential in the tools that it brings."""
    return _holds(raw, _Kind.ITEMS)


def _holds(raw: bytes, kind: _Kind) -> bool:
    if b"{" not in raw and kind not in (_Kind.HEADERS, _Kind.SECRET):
        return False  # nothing in it has a name
    found: bool | None = _known[kind].get(raw)
    if found is None:
        finder = _Finder(raw.decode("utf-8", "surrogateescape"))
        try:
            if kind is _Kind.HEADERS:
                finder._check_headers(0, "")
            finder.look(kind)
            found = bool(finder.places)
        except (_UncertainError, RecursionError, ValueError, IndexError):
            found = True
        _known[kind].put(raw, found)
    return found


def _is_all(body: bytes, fields: Mapping[str, bytes], size: int) -> bool:
    """Whether a body holds these fields and no other one, such as an earlier one of the same name. ``size``: of the
    fields written without blanks, and a comma behind the last."""
    name = next(iter(fields), "").encode()
    if body.startswith(b'{"' + name + b'":'):
        spaced = body[len(name) + 4 : len(name) + 5] == b" "
        if len(body) == size - 1 + (2 * len(fields) - 1 if spaced else 0):
            return True
    at = 0
    for name_, raw in fields.items():
        found = _MEMBER.match(body, at)
        if found is None or found[1] != name_.encode() or not body.startswith(raw, found.end()):
            return False
        at = found.end() + len(raw)
    return _END.fullmatch(body, at) is not None


def conceal(body: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """(the body as it may be kept, the credentials in it as an answer might repeat them).

    ``body``: a JSON object. Each credential is replaced by ``MARK``, wherever it stands; all other bytes are as they
    were. Where that cannot be done for certain, what is kept is a body that says the hash of this one.
    """
    encoding = json.detect_encoding(body)
    finder = None
    try:
        errors = "surrogateescape" if encoding.startswith("utf-8") else "surrogatepass"
        text = body.decode(encoding, errors)
        if text.encode(encoding, errors) != body:
            raise _UncertainError
        finder = _Finder(text)
        finder.look(_Kind.WHOLE)
    except (_UncertainError, RecursionError, ValueError, IndexError) as error:
        return _withheld(body, error), _spelled(finder.secrets if finder is not None else ())
    if not finder.places:
        return body, ()
    kept = "".join(_pieces(text, finder.places))
    return _without(kept, finder.secrets).encode(encoding, errors), _spelled(finder.secrets)


def _pieces(text: str, places: Iterable[tuple[int, int, str]]) -> Iterator[str]:
    at = 0
    for start, end, shown in places:
        yield text[at:start]
        yield shown
        at = end
    yield text[at:]


def _without(text: str, secrets: Iterable[str]) -> str:
    """The JSON text without these credentials in other strings, as in a message that repeats one."""
    long = sorted((secret for secret in secrets if len(secret) >= SHORTEST_SECRET), key=len, reverse=True)
    ways = [way for secret in long for way in sorted(_ways(secret), key=len, reverse=True)]
    # An escape may stand for any letter; then it must be read to know what it says.
    if not any(way in text for way in (*ways, _ESCAPED)):
        return text

    def shown(found: re.Match[str]) -> str:
        token = found[0]
        if found["name"] is not None or not any(way in token for way in (*ways, _ESCAPED)):
            return token
        said = wanted = json.loads(token, strict=False)
        for secret in long:
            wanted = wanted.replace(secret, MARK)
        if wanted == said:
            return token
        for way in ways:
            token = token.replace(way, MARK)
        return token if _says(token, wanted) else json.dumps(wanted)

    return _TOKEN.sub(shown, text)


def _says(token: str, wanted: str) -> bool:
    try:
        return bool(json.loads(token, strict=False) == wanted)
    except ValueError:
        return False


def _withheld(body: bytes, why: BaseException) -> bytes:
    """A body that says how this one is to be answered, and its hash in the place of what it asks."""
    value = lenient(body, why)
    kept: dict[str, Any] = {name: part for name, part in value.items() if isinstance(part, bool) or part is None}
    count = value.get("n")
    kept |= {"n": count} if isinstance(count, int) else {}
    for name in ("model", "previous_response_id"):
        if isinstance(value.get(name), str):
            kept[name] = value[name]
    options = value.get("stream_options")
    if isinstance(options, dict) and isinstance(options.get("include_usage"), bool):
        kept["stream_options"] = {"include_usage": options["include_usage"]}
    kept[WITHHELD] = {"sha256": sha256(body).hexdigest(), "bytes": len(body)}
    return json.dumps(kept).encode()


def _ways(text: str) -> set[str]:
    """A text as it may stand in a JSON string, whichever way it was escaped."""
    ways = {json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]}
    return ways | {way.replace("/", "\\/") for way in ways}


def _spelled(secrets: Iterable[str]) -> tuple[bytes, ...]:
    ways = {way for secret in secrets if len(secret) >= SHORTEST_SECRET for way in _ways(secret)}
    return tuple(way.encode("utf-8", "surrogatepass") for way in sorted(ways, key=len, reverse=True))


def scrubbed(data: bytes, secrets: Iterable[bytes]) -> bytes:
    """The bytes without any of these credentials."""
    for secret in secrets:
        if secret in data:
            data = data.replace(secret, MARK.encode())
    return data
