"""Owns what every wrapper sends: the proxy's address, the ``x-agent-*`` headers and the process's run id.

Must not: know any framework, or open a connection.
Invariant: the session a caller names is the session that the proxy hears, whatever characters it is made of.
"""

from __future__ import annotations

import os
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

DEFAULT_URL = "http://localhost:8080/v1"

MISSING_KEY = "OPENAI_API_KEY-is-not-set"
"""Sent as the API key where there is none, so that the provider itself answers 401 and its message shows the reason."""

MAX_ID_CHARACTERS = 256

SESSION_HEADER = "x-agent-session-id"
RUN_HEADER = "x-agent-run-id"
STEP_HEADER = "x-agent-step-number"
APPROVAL_HEADER = "x-agent-require-approval"
FALLBACK_HEADER = "x-agent-fallback-model"

# Made with the module, not with the first client: processes forked from this one later are part of the same run.
_OWN_RUN_ID = "run_" + secrets.token_hex(12)

# `…/s/SESSION` or `…/s/SESSION/r/RUN` at the end of a base URL's path, `/v1` taken off.
_SESSION_IN_PATH = re.compile(r"/s/(?P<session>[^/]+)(?:/r/(?P<run>[^/]+))?$")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the calls of one session go. ``headers`` holds lower-case names and printable ASCII values."""

    session_id: str
    run_id: str
    step_number: int
    base_url: str
    headers: dict[str, str]


def run_id() -> str:
    """This process's run id: ``AGENTSTATE_RUN_ID`` if set, else a random one made once per process.

    Raises ``ValueError`` when the variable holds something that a header cannot carry.
    """
    given = os.environ.get("AGENTSTATE_RUN_ID")
    if not given:
        return _OWN_RUN_ID
    _check_id(given, "AGENTSTATE_RUN_ID")
    if not _fits_header(given):
        raise ValueError("AGENTSTATE_RUN_ID must be printable ASCII without spaces at its ends")
    return given


def process_name() -> str:
    """What names this process for as long as it lives; a fork has a name of its own."""
    return f"{_OWN_RUN_ID}-{os.getpid()}"


def sending_name() -> str:
    """A new name for one call, by which its sendings are known to be the same."""
    return secrets.token_hex(12)


def api_key(given: str | None = None) -> str:
    """The key to send: the given one, ``OPENAI_API_KEY``, or the placeholder ``MISSING_KEY``."""
    return given or os.environ.get("OPENAI_API_KEY") or MISSING_KEY


def target(
    session_id: str | None,
    step_number: int = 0,
    base_url: object = None,
    *,
    require_approval: bool = False,
    fallback_model: str | Iterable[str] | None = None,
) -> Target:
    """Address and headers for a session.

    ``session_id``: any text of 1 to 256 characters without control characters; None takes ``AGENTSTATE_SESSION_ID``.
    ``base_url``: the proxy's address, with or without ``/v1``; None takes ``AGENTSTATE_URL``, else ``DEFAULT_URL``.
    ``fallback_model``: one model, or several in the order to try them, each ``model`` or ``provider/model``.

    Raises ``ValueError`` (``TypeError`` for a wrong type) with a text that says what to change.
    """
    session = _session(session_id)
    url, run = _address(base_url, session)
    headers = {RUN_HEADER: run, STEP_HEADER: str(_step(step_number))}
    if _fits_header(session):
        headers = {SESSION_HEADER: session} | headers
    if require_approval:
        headers[APPROVAL_HEADER] = "true"
    if fallback_model:
        headers[FALLBACK_HEADER] = _models(fallback_model)
    return Target(session, run, step_number, url, headers)


def merged(ours: Mapping[str, str], callers: Mapping[str, str] | None) -> dict[str, str]:
    """Our headers with the caller's over them, names compared without case; neither mapping is changed.

    Raises ``ValueError`` when the caller's headers name another session than the one given.
    """
    callers = callers or {}
    taken = {name.lower(): value for name, value in callers.items()}
    other = taken.get(SESSION_HEADER)
    if other is not None and other != ours.get(SESSION_HEADER):
        raise ValueError(f"default_headers name another session in {SESSION_HEADER}: give it as session_id instead")
    return {name: value for name, value in ours.items() if name not in taken} | dict(callers)


def _session(given: str | None) -> str:
    if given is None:
        given = os.environ.get("AGENTSTATE_SESSION_ID")
        if given is None:
            raise ValueError("give a session_id, or set AGENTSTATE_SESSION_ID: it names the work that must survive")
    _check_id(given, "session_id")
    return given


def _check_id(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a string, not {type(text).__name__}")
    if not text.strip():
        raise ValueError(f"{what} is empty: name the work that must survive, for example 'invoice-4711'")
    if len(text) > MAX_ID_CHARACTERS:
        raise ValueError(f"{what} has {len(text)} characters; {MAX_ID_CHARACTERS} are allowed")
    for character in text:
        # Cc: control characters; Cs: halves of surrogate pairs, which no encoding can carry.
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise ValueError(f"{what} holds the character U+{ord(character):04X}, which cannot be sent: remove it")


def _fits_header(text: str) -> bool:
    """Header values are ASCII in practice, and parsers strip blanks at both ends."""
    return text.isascii() and text.isprintable() and text == text.strip()


def _step(number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"step_number must be an int, not {type(number).__name__}")
    if number < 0:
        raise ValueError(f"step_number is {number}; steps count from 0")
    return number


def _models(given: str | Iterable[str]) -> str:
    names = given.split(",") if isinstance(given, str) else list(given)
    text = ",".join(name.strip() for name in names)
    if "" in text.split(",") or not _fits_header(text):
        raise ValueError("fallback_model must be model names in printable ASCII, none of them empty")
    return text


def _address(given: object, session: str) -> tuple[str, str]:
    """The base URL (always ending in ``/v1``) and the run id; the session is put into the path where no header fits."""
    parts = urlsplit(str(given or os.environ.get("AGENTSTATE_URL") or DEFAULT_URL))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be the proxy's address, like {DEFAULT_URL} (AGENTSTATE_URL sets the default)")
    path = parts.path.rstrip("/").removesuffix("/v1")
    run = run_id()
    named = _SESSION_IN_PATH.search(path)
    if named is not None:
        if unquote(named["session"]) != session:
            raise ValueError(
                f"base_url names session {unquote(named['session'])!r} but session_id is {session!r}: "
                "give the address without /s/…, or the same session"
            )
        run = unquote(named["run"]) if named["run"] else run
    elif not _fits_header(session):
        path += "/s/" + quote(session, safe="")
    return urlunsplit(parts._replace(path=path + "/v1")), run
