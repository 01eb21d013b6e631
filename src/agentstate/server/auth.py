"""Owns who may do what: the admin token of the control plane, the keys of agents. Must not log or show either.

Invariant: comparisons take the same time whatever is wrong; an agent's key opens nothing of the control plane.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from pathlib import Path

from agentstate import clock
from agentstate.errors import SettingsError, Unauthorized
from agentstate.settings import Settings

TOKEN_FILE = "admin_token"  # noqa: S105 - the name of a file


def admin_token(settings: Settings, folder: Path) -> str:
    """The token of the settings, else the one kept in the data folder, made there on the first start (mode 0600)."""
    if settings.server.admin_token is not None:
        token = settings.server.admin_token.get_secret_value().strip()
        if len(token) < 16:
            raise SettingsError(
                "server.admin_token is too short; give at least 16 characters, or none to have one made"
            )
        return token
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / TOKEN_FILE
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        token = path.read_text("utf-8").strip()
        if token:
            return token
        path.unlink()
        return admin_token(settings, folder)
    token = clock.token()
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(token + "\n")
    return token


def check_admin(authorization: str, token: str) -> None:
    """Raises ``Unauthorized``."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer" or not same(given.strip(), token):
        raise Unauthorized(
            "the control plane asks for `Authorization: Bearer <admin token>`; "
            "the token is in the file admin_token of the data folder, or set AGENTSTATE_ADMIN_TOKEN"
        )


def check_agent(given: str, keys: tuple[str, ...]) -> None:
    """Raises ``Unauthorized`` when keys are set and none was given."""
    if keys and not any([same(given, key) for key in keys]):
        raise Unauthorized(
            "this proxy asks agents for a key: send it as `x-agentstate-key`, or in the address as /k/<key>/…"
        )


def same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("utf-8", "surrogatepass"))


def check_binding(settings: Settings) -> None:
    """Beyond loopback only with agent keys, or with open eyes. Raises ``SettingsError``."""
    host = settings.server.host
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and not settings.server.agent_keys and not settings.server.open:
        raise SettingsError(
            f"refusing to listen on {host} without agent keys: anybody who reaches it could spend your money. "
            "Set server.agent_keys, or start with --open if something in front of it checks callers"
        )
