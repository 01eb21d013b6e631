"""Owns the links by which whoever a message was sent to decides: signed, expiring, about one approval. Must not decide.

Invariant: a link that was changed, is too old or was signed with another key leads nowhere; the key never leaves the
data folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from itsdangerous import BadData, URLSafeSerializer

from agentstate import clock
from agentstate.errors import Forbidden

KEY_FILE = "link_key"
_SALT = "agentstate/approval-link/1"


class Links:
    """``folder``: where the key is kept; ``expires_s``: how long a link can be used."""

    def __init__(self, folder: Path, expires_s: float) -> None:
        self._folder = folder
        self._expires_s = expires_s

    def make(self, approval_id: str, target: str) -> str:
        """A token for a link to ``/approve/<token>``. ``target``: the alert setting that it is sent to."""
        return str(self._serializer().dumps([approval_id, target, clock.now() + self._expires_s]))

    def read(self, token: str) -> tuple[str, str]:
        """(approval id, target). Raises ``Forbidden``."""
        try:
            approval_id, target, until = self._serializer().loads(token)
        except (BadData, ValueError, TypeError):
            raise Forbidden("this link is not one of ours, or not whole; open it from the message once more") from None
        if clock.now() >= until:
            raise Forbidden("this link is too old; decide with `agentstate approvals`, or ask for another message")
        return str(approval_id), str(target)

    def _serializer(self) -> URLSafeSerializer:
        return URLSafeSerializer(self._key(), salt=_SALT)

    def _key(self) -> bytes:
        """Made on first use (mode 0600)."""
        path = self._folder / KEY_FILE
        try:
            key = path.read_bytes().strip()
        except FileNotFoundError:
            key = b""
        if key:
            return key
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = clock.token().encode()
        fresh = self._folder / f"{KEY_FILE}.{os.getpid()}"
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(made + b"\n")
        fresh.replace(path)
        return path.read_bytes().strip()
