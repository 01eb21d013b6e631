"""Owns who may do what: the admin token and approvers of the control plane, the keys of agents. Must not log or show
any of them.

Invariant: comparisons take the same time whatever is wrong; an agent's key opens nothing of the control plane, even if
the settings give the admin token the same text.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from pathlib import Path
from typing import Any

from agentstate import clock
from agentstate.core.approval import ADMIN, Person, Role
from agentstate.engine import approvers
from agentstate.engine.signing import kept_secret
from agentstate.errors import Forbidden, SettingsError, TooManyRequests, Unauthorized
from agentstate.settings import Settings
from agentstate.store.reader import Reader

MOST_FAILURES = 10  # a minute and address
TOKEN_FILE = "admin_token"  # noqa: S105 - the name of a file


def admin_token(settings: Settings, folder: Path) -> str:
    """The token of the settings, else the one kept in the data folder, made there on the first start (mode 0600)."""
    if settings.server.admin_token is not None:
        token = settings.server.admin_token.get_secret_value().strip()
        if token in [key.get_secret_value() for key in settings.server.agent_keys]:
            raise SettingsError("server.admin_token is one of server.agent_keys: agents would be admins. Take another")
        if len(token) < 16:
            raise SettingsError(
                "server.admin_token is too short; give at least 16 characters, or none to have one made"
            )
        return token
    return kept_secret(folder, TOKEN_FILE)


class Authority:
    """Who calls the control plane. ``guessable``: the admin token was chosen by somebody, not made by chance."""

    def __init__(self, token: str, settings: Settings) -> None:
        self._token = token
        self._guessable = settings.server.admin_token is not None
        self._keys = tuple(key.get_secret_value() for key in settings.server.agent_keys)
        self._failures = Failures()

    async def caller(self, reader: Reader, authorization: str, peer: str) -> Person:
        """The person whose token came. ``peer``: the address of the socket's other end.

        Raises ``Unauthorized``, ``Forbidden`` for an agent's key, ``TooManyRequests``.
        """
        scheme, _, given = authorization.partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        late = await self._failures.wait(peer) if given else 0.0
        is_admin, is_agent = same(given, self._token), any([same(given, key) for key in self._keys])
        if is_agent:
            await self._failures.count(peer)
            raise Forbidden("an agent's key opens nothing here: agents never decide. Use a person's token")
        # What is made by chance cannot be guessed: those who hold such a token are not kept out by who guesses.
        if is_admin and not (late and self._guessable):
            return Person(ADMIN, Role.ADMIN)
        person = approvers.holder(reader, given) if given else None
        if person is not None:
            return person
        if late:
            error = TooManyRequests("too many wrong tokens came from this address; wait before you try again")
            error.retry_after = late
            raise error
        if given:
            await self._failures.count(peer)
        raise Unauthorized(
            "the control plane asks for `Authorization: Bearer <token>`: an approver's, or the admin token, which is "
            "in the file admin_token of the data folder, or what AGENTSTATE_ADMIN_TOKEN says"
        )


class Failures:
    """Wrong tokens of each address, at most ``MOST_FAILURES`` a minute."""

    def __init__(self) -> None:
        self._window: Any = None

    async def wait(self, peer: str) -> float:
        """Seconds until the address may try again; 0: now. ``peer`` without failures costs nothing."""
        if self._window is None:
            return 0.0
        window, item = self._window
        if window.test(item, peer):
            return 0.0
        return max(1.0, float(window.get_window_stats(item, peer).reset_time) - clock.now())

    async def count(self, peer: str) -> None:
        if self._window is None:
            made = await asyncio.to_thread(_window)  # the library takes a while to load
            self._window = self._window or made
        window, item = self._window
        window.hit(item, peer)


def _window() -> Any:
    from limits import RateLimitItemPerMinute
    from limits.storage import MemoryStorage
    from limits.strategies import MovingWindowRateLimiter

    return MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerMinute(MOST_FAILURES)


def check_agent(given: str, keys: tuple[str, ...]) -> None:
    """Raises ``Unauthorized`` when keys are set and none was given."""
    if keys and not any([same(given, key) for key in keys]):
        raise Unauthorized(
            "this proxy asks agents for a key: send it as `x-agentstate-key`, or in the address as /k/<key>/…"
        )


def same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("utf-8", "surrogatepass"))


def check_binding(settings: Settings, address: str = "") -> None:
    """Beyond loopback only with agent keys, or with open eyes. ``address``: what the name was found to mean.

    Raises ``SettingsError``.
    """
    host = (address or settings.server.host).strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host.lower() == "localhost"
    if not loopback and not settings.server.agent_keys and not settings.server.open:
        raise SettingsError(
            f"refusing to listen on {host} without agent keys: anybody who reaches it could spend your money. "
            "Set server.agent_keys, or start with --open if something in front of it checks callers"
        )


def check_settings(settings: Settings) -> None:
    """Before anything is opened: where it listens, how chats sign. Raises ``SettingsError``."""
    check_binding(settings)
    try:
        fits = len(bytes.fromhex(settings.approvals.discord_public_key)) in (0, 32)
    except ValueError:
        fits = False
    if not fits:
        raise SettingsError("approvals.discord_public_key is no public key: give the 64 hex digits that Discord shows")
