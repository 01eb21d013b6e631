"""Owns how a browser comes to act for a person: links that log in once, signed cookies, tokens of forms.

Must not decide what a person may do. Invariant: a cookie holds no token and opens nothing once its person is disabled,
their token is another, or its time is over; it changes nothing without the form token that only our pages have; a link
works once, soon, and only while this process lives.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agentstate import clock
from agentstate.core.approval import ADMIN, Person, Role
from agentstate.engine import approvers
from agentstate.engine.signing import NotOurs, Signing
from agentstate.errors import Forbidden
from agentstate.store.reader import Reader

LINK_S = 15 * 60.0  # how long a link can be used
FIRST_LINK_S = 60 * 60.0  # and the one that is shown at the start
PATHS = ("/dashboard", "/api")  # where browsers send the cookie; never to the agent plane, from where it could go on
LOGIN = "/dashboard/login"
CSRF_HEADER = "x-csrf-token"
_MOST_LINKS = 1000
_PURPOSE = "agentstate/dashboard/1"


@dataclass(frozen=True, slots=True)
class Visit:
    """A person who looks through a browser. ``csrf``: what their forms must carry."""

    person: Person
    csrf: str


class Logins:
    """``admin``: the admin token. ``expires_s``: how long a cookie lasts."""

    def __init__(self, admin: str, folder: Path, expires_s: float) -> None:
        self._admin = approvers.digest(admin)
        self._signing = Signing(folder, _PURPOSE)
        self.expires_s = expires_s
        self._links: dict[bytes, tuple[str, float]] = {}  # by hash: whose, and until when; oldest first

    def link(self, name: str, lasts_s: float = LINK_S) -> str:
        """A path that logs that person in, once."""
        now = clock.monotonic()
        kept = list(self._links.items())  # a thread may take one meanwhile: what is taken must not come back
        over = sum(until > now for _, (_, until) in kept) - _MOST_LINKS + 1
        for key, (_, until) in kept:
            if until <= now or over > 0:
                over -= until > now
                self._links.pop(key, None)
        token = clock.token()
        self._links[approvers.digest(token)] = (name, now + lasts_s)
        return f"{LOGIN}?token={token}"

    def take(self, reader: Reader, token: str) -> Person:
        """Whom a link is for; it is used up. Raises ``Forbidden``."""
        name, until = self._links.pop(approvers.digest(token), ("", 0.0))
        person = self._person(reader, name)
        if person is None or until <= clock.monotonic():
            raise Forbidden(
                "this link has been used, is too old, or is from before a restart; `agentstate dashboard` gives another"
            )
        return person

    @cached_property
    def name(self) -> str:
        """The cookie's name: other proxies on the same host have others."""
        return "agentstate_" + self._signing.derived(b"name").hex()[:8]

    def cookie(self, reader: Reader, person: Person) -> str:
        """The value that stands for a person from now on."""
        return self._signing.sign([person.name, self._mark(reader, person.name), clock.token()[:16]])

    def visit(self, reader: Reader, cookies: str) -> Visit | None:
        """Who looks, by the ``Cookie`` header of their browser; none: nobody that is known (any more)."""
        for value in _values(cookies, self.name):
            person = self._holder(reader, value)
            if person is not None:
                return Visit(person, self.csrf(value))
        return None

    def csrf(self, value: str) -> str:
        """The form token of a cookie."""
        return self._signing.derived(b"csrf" + value.encode()).hex()[:32]

    def sign(self, text: str) -> str:
        """A text that comes back through the browser, unchanged."""
        return self._signing.sign(text)

    def signed(self, value: str, most_s: float) -> str:
        """That text; empty where it is none of ours, or older than ``most_s``."""
        try:
            found = self._signing.read(value, most_s)
        except NotOurs:
            return ""
        return found if isinstance(found, str) else ""

    def _holder(self, reader: Reader, value: str) -> Person | None:
        try:
            found = self._signing.read(value, self.expires_s)
        except NotOurs:
            return None
        if not isinstance(found, list) or len(found) != 3 or not all(isinstance(part, str) for part in found):
            return None
        name, mark, _ = found
        if not hmac.compare_digest(mark, self._mark(reader, name)):
            return None
        return self._person(reader, name)

    def _person(self, reader: Reader, name: str) -> Person | None:
        if name == ADMIN:
            return Person(ADMIN, Role.ADMIN)
        row = reader.approver(name) if name else None
        return None if row is None or row.disabled_at is not None else Person(row.name, row.role)

    def _mark(self, reader: Reader, name: str) -> str:
        """What binds a cookie to the token that its person has now."""
        row = None if name == ADMIN else reader.approver(name)
        secret = self._admin if name == ADMIN else row.token if row is not None else b""
        return self._signing.derived(b"mark" + secret).hex()[:32]


def _values(cookies: str, name: str) -> Iterable[str]:
    """Every value of a cookie: a browser may send two of one name, for different paths."""
    for part in cookies.split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            yield value.strip('"')


def set_cookie(name: str, value: str, path: str, lasts_s: float, secure: bool) -> str:
    """A ``Set-Cookie`` that scripts cannot read and other sites do not send; ``lasts_s`` 0: it is taken away."""
    return (
        f"{name}={value}; Path={path}; Max-Age={int(lasts_s)}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    )
