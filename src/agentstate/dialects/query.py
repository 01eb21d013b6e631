"""Owns what the query of an address says: which parameters belong to the question, and which are credentials.

Must not change what is forwarded but where a credential has to go. Invariant: two queries are the same part of a
question exactly when they differ only in what cannot change the answer; the form that is kept holds no credential.
"""

from __future__ import annotations

import re
from hashlib import sha256

# Parameters that carry a credential, in whatever case: never part of a question, never stored.
CREDENTIALS = frozenset(
    {
        "key", "api_key", "api-key", "apikey", "access_token", "oauth_token", "auth_token", "token", "sig", "signature",
        "subscription-key", "client_secret", "password",
    }
)  # fmt: skip

# By kind of provider: parameters, or one value of them, that cannot change the answer. ``alt`` says in which framing a
# stream of Gemini's comes, which is its shape and converted; any other ``alt`` is another answer.
HARMLESS: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"beta=true"}),
    "gemini": frozenset({"alt=json", "alt=sse", "prettyPrint", "pp", "quotaUser", "userIp"}),
}

# Named like a credential, but unknown: it counts, and only its hash is kept.
_SUSPECT = re.compile(r"auth|key|token|secret|passw|sig|credential|session|jwt", re.IGNORECASE)
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def asked(path: str, query: str, kind: str) -> str:
    """The path with what counts of the query: ``responses?tenant=a``; the path alone where nothing counts.

    ``kind``: of the provider, see ``Dialect.provider``. Parameters are sorted by name, those of one name keep their
    order; escapes that RFC 3986 calls equal to a plain character are undone, as they are the same address.
    """
    if not query:
        return path
    harmless = HARMLESS.get(kind, frozenset())
    kept: list[tuple[str, str]] = []
    for pair in query.split("&"):
        raw_name, equals, raw_value = pair.partition("=")
        name, value = _plain(raw_name), _plain(raw_value)
        if kind == "gemini":
            name, value = _of_gemini(name, value)
        if not name + value or name.lower() in CREDENTIALS or name in harmless or f"{name}={value}" in harmless:
            continue
        if _SUSPECT.search(name) and value:
            value = "sha256-" + sha256(value.encode()).hexdigest()
        kept.append((name, f"{name}{equals}{value}"))
    return f"{path}?{'&'.join(text for _, text in sorted(kept, key=lambda pair: pair[0]))}" if kept else path


def _of_gemini(name: str, value: str) -> tuple[str, str]:
    """System parameters may be spelled with ``$``. ``alt=json;enum-encoding=int`` has a second half, which makes names
    of enums numbers: it counts though the first half does not."""
    name = unescaped(name).removeprefix("$")
    if name != "alt":
        return name, value
    framing, _, rest = unescaped(value).partition(";")
    return name, f";{_escaped(rest)}" if rest and f"alt={framing}" in HARMLESS["gemini"] else _escaped(unescaped(value))


def framing(query: str) -> str:
    """The framing that a stream of Gemini's is asked for in, as ``sse``; empty: its own, an array."""
    found = ""
    for pair in query.split("&"):
        name, _, value = unescaped(pair).partition("=")
        if name.removeprefix("$") == "alt":
            found = value.partition(";")[0]
    return found


def credentials(query: str) -> list[str]:
    """The credentials in a query: as they stand there, and as they are meant."""
    found: list[str] = []
    if not query:
        return found
    for name, value in _pairs(query):
        if name.lower() in CREDENTIALS:
            found += [value, unescaped(value.replace("+", " "))]
    return found


def has_credential(query: str, name: str) -> bool:
    """Whether a query carries a credential under that name."""
    return any(found.lower() == name and value for found, value in _pairs(query))


def without_credentials(query: str) -> str:
    """The query as it was sent, less the parameters that carry a credential."""
    if not query:
        return query
    kept = [pair for pair in query.split("&") if unescaped(pair.partition("=")[0]).lower() not in CREDENTIALS]
    return "&".join(kept)


def unescaped(text: str) -> str:
    """The text with every escape undone."""
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), _bytes(text)).decode("utf-8", "replace")


def _pairs(query: str) -> list[tuple[str, str]]:
    pairs = [pair.partition("=") for pair in query.split("&")]
    return [(unescaped(name), value) for name, _, value in pairs]


def _plain(text: str) -> str:
    """The text with the escapes undone that mean the character itself; others in capitals, other bytes escaped."""
    raw = _ESCAPE.sub(_normal, _bytes(text))
    return "".join(chr(byte) if 0x20 < byte < 0x7F else f"%{byte:02X}" for byte in raw)


def _normal(found: re.Match[bytes]) -> bytes:
    byte = int(found[1], 16)
    return bytes([byte]) if byte in _PLAIN else found[0].upper()


def _escaped(text: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode())


def _bytes(text: str) -> bytes:
    """What a server hands on as Latin-1 is bytes."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
