"""Owns which pages in a browser may talk to the proxy: the names it goes by, and where a request comes from.

Must not look at tokens or keys. Invariant: what a page of another site makes a browser send changes nothing on the
control plane, and spends none of our own money on the agent plane; programs that are no browsers are not concerned,
but for the name by which they call the control plane.

A page of another site can send requests, but not choose ``Origin``, ``Host`` or ``Sec-Fetch-Site``. It may give its
own name our address after it was loaded (DNS rebinding): ``Host`` and ``Origin`` agree then, and only the name gives it
away.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from agentstate.errors import Forbidden
from agentstate.settings import Settings

Pairs = Iterable[tuple[bytes, bytes]]
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_ASKED_FIRST = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key"})
_OF_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
_DEFAULT_PORT = {"http": "80", "https": "443"}


class Sites:
    """The rules for one proxy."""

    def __init__(self, settings: Settings) -> None:
        server, public = settings.server, urlsplit(settings.approvals.public_url)
        bound = server.host.strip("[]").lower()
        self._everywhere = bound in ("", "0.0.0.0", "::")  # noqa: S104 - a comparison
        listed = {name.strip().strip("[]").lower() for name in server.allowed_hosts} - {""}
        if public.hostname:
            listed.add(public.hostname.lower())
        self._listed = frozenset(listed)
        self._public = f"{public.scheme}://{public.netloc}".lower()
        self._known = frozenset({bound, *_LOOPBACK, *listed} - {""})
        self._ours_to_spend = any(one.key_env for one in settings.providers.values()) and not server.agent_keys

    def check_host(self, headers: Pairs) -> None:
        """Raises ``Forbidden`` for a name that is not the proxy's."""
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if not hosts or not all(self._ours(_name(host)) for host in hosts):
            raise Forbidden(
                f"this proxy is not known as {(hosts or ['(no Host header)'])[0][:200]!r}; use its own address, or add "
                "the name to server.allowed_hosts"
            )

    def check_change(self, method: str, headers: Pairs) -> None:
        """For the control plane. Raises ``Forbidden`` for a request by a page of another site that could change
        something."""
        if method not in _SAFE and self._foreign(_fields(headers)):
            raise Forbidden("a page of another site may not do this; use the proxy's own page, or the command line")

    def check_agent(self, method: str, headers: Pairs) -> None:
        """For the agent plane. Raises ``Forbidden`` where a page of another site could spend what is ours: what a form
        can send is never taken from it, and nothing at all where the proxy pays with its own key and asks for none."""
        if method in ("GET", "HEAD"):
            return
        for name, _ in headers:
            if name in _OF_BROWSERS:
                break
        else:
            return
        fields = _fields(headers)
        if _program(fields.get(b"origin", b"")) or not self._foreign(fields):
            return
        plain = method != "OPTIONS" and not _json(fields) and not _ASKED_FIRST & set(fields)
        if plain or self._ours_to_spend:
            raise Forbidden(
                "a page of another site may not call this proxy"
                + (" while it pays with its own key and server.agent_keys is empty" if self._ours_to_spend else "")
            )

    def _ours(self, name: str) -> bool:
        if name in self._known:
            return True
        # An address is no name that anybody could point elsewhere; where it listens on all, each of its own is right.
        return self._everywhere and _address(name)

    def _foreign(self, fields: Mapping[bytes, bytes]) -> bool:
        """Whether a browser says that the request comes from another site."""
        site = fields.get(b"sec-fetch-site", b"").strip().lower()
        origin = fields.get(b"origin", b"").decode("latin-1").strip().lower()
        if site and site not in (b"same-origin", b"none"):
            return True
        if not origin or (origin == "null" and site == b"same-origin"):
            return False
        scheme, _, place = origin.partition("://")
        port = _DEFAULT_PORT.get(scheme, "")
        if origin == self._public or (_authority(place, port)[1] == port and _name(place) in self._listed):
            return False  # what stands before us may call us by another name than the browser does
        same = _authority(place, port) == _authority(fields.get(b"host", b"").decode("latin-1"), port)
        return not same or not self._ours(_name(place))


def _fields(headers: Pairs) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in headers}


def _program(origin: bytes) -> bool:
    """Whether it is the origin of an installed program (``app://…``, ``vscode-file://…``), which is no site."""
    return b"://" in origin and not origin.lower().startswith((b"http://", b"https://"))


def _json(fields: Mapping[bytes, bytes]) -> bool:
    kind = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"application/json" or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def _name(host: str) -> str:
    """The name of ``name:port`` or ``[address]:port``, lower case, less a last dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _authority(host: str, default: str) -> tuple[str, str]:
    """(name, port)"""
    _, _, port = host.strip().rpartition("]")[2].partition(":")
    return _name(host), port or default


def _address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
