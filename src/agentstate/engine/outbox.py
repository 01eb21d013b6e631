"""Owns the messages that go out to people: which facts make them, and what they say. Must not send: ``delivery`` does.

Invariant: a message is written in the transaction of the fact that it tells of; no prompt and no argument is in it but
what a target that shows content looks up when it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentstate import clock
from agentstate.alerts.target import targets
from agentstate.settings import AlertSettings, ApprovalSettings
from agentstate.store.rows import Message, RunRow


class Outbox:
    """``targets``: those of the settings, by name."""

    def __init__(self, alerts: Sequence[AlertSettings], approvals: ApprovalSettings) -> None:
        """Raises ``SettingsError``."""
        self.targets = targets(alerts, approvals)

    def messages(self, event: str, session: str, subject: str, facts: Mapping[str, Any]) -> tuple[Message, ...]:
        """One message for each target that wants to hear of such an event, to be written with the fact. What may be in
        ``facts`` is said by ``alerts.message``: ``LABELS`` and ``CONTENT``."""
        wanted = [name for name, target in self.targets.items() if event in target.on]
        if not wanted:
            return ()
        alert, payload = clock.alert_id(), json.dumps(facts)
        return tuple(Message(alert, name, event, payload, session, subject) for name in wanted)

    def failed(self, session: str, runs: Sequence[RunRow]) -> tuple[Message, ...]:
        """A session is marked failed; ``runs``: newest first."""
        facts = {"run": runs[0].name, "exit_code": runs[0].exit_code} if runs else {}
        return self.messages("session.failed", session, session, facts)

    def diverged(self, session: str, report: Mapping[str, Any]) -> tuple[Message, ...]:
        """A run diverged. The report quotes requests, so none of it is told but run and policy."""
        facts = {"run": report["run"], "policy": report["policy"]}
        return self.messages("run.diverged", session, str(report["run"]), facts)
