"""Owns the links by which people reach an approval from a message: signed, expiring, for that one purpose. Must not
decide anything, nor know who follows a link.

Invariant: a token that was changed, made with another key or for another purpose, or is too old opens nothing.
"""

from __future__ import annotations

from pathlib import Path

from agentstate.engine.signing import NotOurs, Signing, TooOld
from agentstate.errors import Forbidden

PATH = "/approve/"
_PURPOSE = "agentstate/approval-link/1"


class Links:
    """``make`` and ``read`` tokens. ``expires_s``: seconds from making to the last use."""

    def __init__(self, folder: Path, expires_s: float) -> None:
        self._signing = Signing(folder, _PURPOSE)
        self._expires_s = expires_s

    def make(self, approval_id: str, target: str) -> str:
        """A URL-safe token for one approval, to be sent to the target of that name."""
        return self._signing.sign([approval_id, target])

    def read(self, token: str) -> tuple[str, str]:
        """(approval id, target) of a token. Raises ``Forbidden``."""
        try:
            found = self._signing.read(token, self._expires_s)
        except TooOld:
            raise Forbidden(
                "this link has expired; `agentstate approvals` and the control plane still know the approval"
            ) from None
        except NotOurs:
            raise Forbidden("this link is not one of this proxy's, or a part of it is missing; copy it whole") from None
        return str(found[0]), str(found[1])

    def url(self, base: str, approval_id: str, target: str) -> str:
        """The address of the approval's page; ``base``: where approvers reach this proxy."""
        return base.rstrip("/") + PATH + self.make(approval_id, target)
