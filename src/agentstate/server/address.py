"""Owns reading a request's address and our own headers. Must not act on them.

Invariant: what is forwarded keeps the raw path and query, percent-encodings included; our own headers are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from agentstate.core.model import ReplayMode
from agentstate.dialects import registry
from agentstate.engine.presence import Connection
from agentstate.engine.request import Request
from agentstate.engine.sessions import checked_id
from agentstate.errors import BadRequest
from agentstate.providers.client import Headers, end_to_end
from agentstate.server import hints

_OURS = ("x-agent-", "x-agentstate-")
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class Address:
    """``/k/<key>/s/<session>/r/<run><path>``, each part optional. ``path`` is raw; ids are decoded."""

    path: str
    session: str | None = None
    run: str | None = None
    key: str = ""


def read_path(raw: str) -> Address:
    """Raises ``BadRequest`` for an id that cannot be one."""
    key, session, run = "", None, None
    rest = raw
    if rest.startswith("/k/"):
        part, _, rest = rest[3:].partition("/")
        key, rest = unquote(part), "/" + rest
    if rest == "/s" or rest.startswith("/s/"):
        part, _, rest = rest[3:].partition("/")
        session, rest = checked_id(_decoded(part)), "/" + rest
        if rest == "/r" or rest.startswith("/r/"):
            part, _, rest = rest[3:].partition("/")
            run, rest = checked_id(_decoded(part), "run id"), "/" + rest
    return Address(rest, session, run, key)


_PREFIX = re.compile(r"(?:/k/[^/]*)?(?:/s/[^/]*(?:/r/[^/]*)?)?(?=/)")


def bare_path(raw: str) -> str:
    """The raw path less what is ours, whether or not that is well formed."""
    found = _PREFIX.match(raw)
    return raw[found.end() :] if found else raw


_CONTROL = re.compile("%(?:[01][0-9a-f]|7f)", re.IGNORECASE)
_SLASH = "\0"  # stands in a routed path for a slash that was percent-encoded: no name may have that character


def routed(raw: bytes) -> str:
    """A raw path of the control plane, decoded for routing: a slash that was percent-encoded is part of a name, so that
    a session called ``a/reset`` is not taken for the reset of ``a``. Raises ``BadRequest``."""
    text = raw.decode("latin-1")
    if _CONTROL.search(text):
        raise BadRequest("an address with control characters leads nowhere")
    return unquote(re.sub("%2f", "%00", text, flags=re.IGNORECASE))


def whole_names(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a routed path, their slashes put back."""
    return {name: value.replace(_SLASH, "/") if isinstance(value, str) else value for name, value in params.items()}


def _decoded(part: str) -> str:
    if "%" not in part:
        return part
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("an id in the address is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Heard:
    """What a request's headers say; one for all requests that say the same. ``kept``: what is not for us, end to end,
    never to be changed. ``session``: as named in our own header, not checked yet, else as a known client names its
    own."""

    kept: Headers
    session: str | None
    run: str
    hint: int | None
    mode: ReplayMode
    unique_first: bool
    needs_approval: bool
    drain: bool | None
    retry: int
    retry_key: bytes
    patience: float
    fallback: str


# A client says much the same with each request over its connection. Credentials are in here: never to be shown.
_heard: dict[tuple[tuple[tuple[bytes, bytes], ...], frozenset[str]], Heard] = {}
_MOST_HEARD = 1024


def read_request(
    method: str,
    address: Address,
    query: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    connection: Connection,
    known: frozenset[str] = hints.NAMES,
) -> Request:
    """The request with what its headers say to us. ``known``: the clients whose own session headers count where neither
    address nor header names a session, see ``hints.enabled``. Raises ``BadRequest``."""
    said = tuple([pair for pair in headers if pair[0] != b"content-length"]), known
    heard = _heard.get(said)
    if heard is None:
        heard = _hear(*said)
        if len(_heard) >= _MOST_HEARD:
            _heard.clear()
        _heard[said] = heard
    session, run = address.session, address.run
    if session is None:
        session = "" if heard.session is None else checked_id(heard.session)
    if run is None:
        run = checked_id(heard.run, "run id") if heard.run else ""
    return Request(
        method, address.path, registry.normalise(address.path), query, heard.kept, body, connection,
        session, run, heard.hint, heard.mode, heard.unique_first, heard.needs_approval, heard.drain, heard.retry,
        heard.retry_key, heard.patience, 0, heard.fallback,
    )  # fmt: skip


def _hear(headers: tuple[tuple[bytes, bytes], ...], known: frozenset[str]) -> Heard:
    ours: dict[str, str] = {}
    kept: Headers = []
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        if name.startswith(_OURS):
            ours[name] = _text(raw_value).strip()
        else:
            kept.append((raw_name.decode("latin-1"), _text(raw_value)))
    plain = {name.lower(): value for name, value in kept}
    retries = plain.get("x-stainless-retry-count", "0").strip()
    key = plain.get("idempotency-key", "")
    session = ours.get("x-agent-session-id")
    return Heard(
        end_to_end(kept),
        hints.hinted(plain, known) or None if session is None else session,
        ours.get("x-agent-run-id", ""),
        _number(ours.get("x-agent-step-number")),
        _mode(ours.get("x-agent-replay", "auto")),
        _first_prompt(ours.get("x-agent-first-prompt")),
        _flag(ours, "x-agent-require-approval") is True,
        _flag(ours, "x-agent-drain"),
        min(int(retries), 1000) if retries.isascii() and retries.isdigit() and len(retries) < 9 else 0,
        sha256(key.encode()).digest() if key else b"",
        _patience(plain),
        ours.get("x-agent-fallback-model", ""),
    )


def _patience(headers: dict[str, str]) -> float:
    """How long a client may be left without a byte: a third of the read timeout that its SDK tells, at most 15 s."""
    least = 15.0
    for name in ("x-stainless-read-timeout", "x-stainless-timeout"):
        value = headers.get(name, "")
        if value.isascii() and value.replace(".", "", 1).isdigit():
            least = min(least, max(float(value) / 3, 0.2))
    return least


def _text(value: bytes) -> str:
    """Header text: UTF-8 as clients send it today, else Latin-1; forwarded as UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _number(value: str | None) -> int | None:
    if value is None or value == "":
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise BadRequest(f"x-agent-step-number is {value[:60]!r}; send a whole number from 0 on, or leave it out")
    return int(value)


def _mode(value: str) -> ReplayMode:
    try:
        return ReplayMode(value.lower())
    except ValueError:
        raise BadRequest(f"x-agent-replay is {value[:60]!r}; use auto, strict or off") from None


def _first_prompt(value: str | None) -> bool:
    if value is None or value == "":
        return False
    if value.lower() != "unique":
        raise BadRequest(f"x-agent-first-prompt is {value[:60]!r}; the only value is unique")
    return True


def _flag(ours: dict[str, str], name: str) -> bool | None:
    value = ours.get(name)
    if value is None:
        return None
    if value.lower() in _YES:
        return True
    if value.lower() in _NO:
        return False
    raise BadRequest(f"{name} is {value[:60]!r}; use true or false")
