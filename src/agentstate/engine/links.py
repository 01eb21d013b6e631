"""Owns the links by which people reach an approval from a message: signed, expiring, for that one purpose. Must not
decide anything, nor know who follows a link.

Invariant: a token that was changed, made with another key or for another purpose, or is too old opens nothing; the key
is made once, kept in the data folder for its owner alone, and never shown.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from agentstate import clock
from agentstate.errors import Forbidden

KEY_FILE = "link_key"
PATH = "/approve/"
_PURPOSE = "agentstate/approval-link/1"


class Links:
    """``make`` and ``read`` tokens. ``expires_s``: seconds from making to the last use."""

    def __init__(self, folder: Path, expires_s: float) -> None:
        self._folder = folder
        self._expires_s = expires_s

    def make(self, approval_id: str, target: str) -> str:
        """A URL-safe token for one approval, to be sent to the target of that name."""
        return str(self._signer.dumps([approval_id, target]))

    def read(self, token: str) -> tuple[str, str]:
        """(approval id, target) of a token. Raises ``Forbidden``."""
        import itsdangerous

        try:
            found = self._signer.loads(token, max_age=self._expires_s)
        except itsdangerous.SignatureExpired:
            raise Forbidden(
                "this link has expired; `agentstate approvals` and the control plane still know the approval"
            ) from None
        except (itsdangerous.BadData, ValueError):
            raise Forbidden("this link is not one of this proxy's, or a part of it is missing; copy it whole") from None
        return str(found[0]), str(found[1])

    def url(self, base: str, approval_id: str, target: str) -> str:
        """The address of the approval's page; ``base``: where approvers reach this proxy."""
        return base.rstrip("/") + PATH + self.make(approval_id, target)

    @cached_property
    def _signer(self) -> Any:
        import itsdangerous  # loaded when there is something to sign

        class Signer(itsdangerous.TimestampSigner):
            """Signs by our clock."""

            def get_timestamp(self) -> int:
                return int(clock.now())

        return itsdangerous.URLSafeTimedSerializer(kept_key(self._folder), salt=_PURPOSE, signer=Signer)


def kept_key(folder: Path) -> str:
    """The key that is kept in the data folder (mode 0600), made there when it is first needed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / KEY_FILE
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text("utf-8").strip()
        if key:
            return key
        path.unlink()  # left empty by a crash
        return kept_key(folder)
    key = clock.token()
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(key + "\n")
    return key
