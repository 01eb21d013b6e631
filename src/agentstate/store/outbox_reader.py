"""Owns the questions that are asked of the journal about the outbox. A part of ``Reader``; must not write.

Invariant: as for ``Reader``; the next message of a target is found in an index, however long its queue.
"""

from __future__ import annotations

from agentstate.store.asking import Asking
from agentstate.store.rows import OutboxRow


class OutboxReader(Asking):
    """A part of ``Reader``."""

    def next_message(self, target: str) -> OutboxRow | None:
        """The oldest message that is neither delivered nor dead."""
        row = self._one("next_message", (target,))
        return OutboxRow(*row) if row else None

    def waiting_targets(self) -> list[str]:
        """The names of targets that have such messages."""
        return [row[0] for row in self._all("waiting_targets", ())]

    def waiting_messages(self) -> dict[str, int]:
        """How many messages are ``pending``, and how many ``dead``."""
        pending, dead = self._one("waiting_messages", ())
        return {"pending": pending, "dead": dead}

    def message(self, key: int) -> OutboxRow | None:
        row = self._one("outbox_message", (key,))
        return OutboxRow(*row) if row else None

    def messages(self, state: str = "", limit: int = 100, before: int = 0) -> list[OutboxRow]:
        """Newest first; ``state``: only those that are ``pending``, ``delivered`` or ``dead``; ``before``: the id of
        the last row of the page before, 0 for the first page."""
        values = {"state": state, "limit": limit, "before": before}
        return [OutboxRow(*row) for row in self._all("outbox_messages", values)]
