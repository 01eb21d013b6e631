"""Owns what is signed with the proxy's own key and comes back by other hands: links, cookies. Must not know what for.

Invariant: what was changed, made with another key or for another purpose, or is too old is not read; the key is made
once, kept in the data folder for its owner alone, and never shown.
"""

from __future__ import annotations

import os
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentstate import clock

KEY_FILE = "link_key"


class NotOurs(Exception):
    """It was not signed with this key for this purpose, or a part of it is missing."""


class TooOld(NotOurs):
    """It was, too long ago."""


class Signing:
    """Signs for one purpose."""

    def __init__(self, folder: Path, purpose: str) -> None:
        self._folder = folder
        self._purpose = purpose

    def sign(self, value: Any) -> str:
        """A URL-safe text that holds a value of JSON, and when it was signed."""
        return str(self._signer.dumps(value))

    def read(self, text: str, most_s: float) -> Any:
        """The value. Raises ``TooOld`` where it was signed more than ``most_s`` seconds ago, else ``NotOurs``."""
        import itsdangerous

        try:
            return self._signer.loads(text, max_age=most_s)
        except itsdangerous.SignatureExpired as error:
            raise TooOld from error
        except (itsdangerous.BadData, ValueError) as error:
            raise NotOurs from error

    def derived(self, what: bytes) -> bytes:
        """32 bytes that only this key gives for this purpose and these."""
        return sha256(b"\0".join((kept_secret(self._folder, KEY_FILE).encode(), self._purpose.encode(), what))).digest()

    @cached_property
    def _signer(self) -> Any:
        import itsdangerous  # loaded when there is something to sign

        class Signer(itsdangerous.TimestampSigner):
            """Signs by our clock."""

            def get_timestamp(self) -> int:
                return int(clock.now())

        key = kept_secret(self._folder, KEY_FILE)
        return itsdangerous.URLSafeTimedSerializer(key, salt=self._purpose, signer=Signer)


def kept_secret(folder: Path, name: str) -> str:
    """The secret that is kept in a file of the data folder (mode 0600), made there when it is first needed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / name
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        secret = path.read_text("utf-8").strip()
        if secret:
            return secret
        path.unlink()  # left empty by a crash
        return kept_secret(folder, name)
    secret = clock.token()
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(secret + "\n")
    return secret
