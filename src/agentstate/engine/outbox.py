"""Owns the messages that go out to people. Must not send before the fact is in the journal.

Invariant: a message is written in the transaction of the fact that it tells of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentstate import clock
from agentstate.settings import AlertSettings
from agentstate.store.rows import Message


class Outbox:
    def __init__(self, targets: Sequence[AlertSettings]) -> None:
        self._targets = {target.name or f"{target.kind}-{number}": target for number, target in enumerate(targets, 1)}

    def messages(self, event: str, session: str, subject: str, facts: Mapping[str, Any]) -> tuple[Message, ...]:
        """One message for each target that wants to hear of such an event, to be written with the fact."""
        wanted = [name for name, target in self._targets.items() if event in target.on]
        if not wanted:
            return ()
        alert, payload = clock.alert_id(), json.dumps(facts)
        return tuple(Message(alert, name, event, payload, session, subject) for name in wanted)
