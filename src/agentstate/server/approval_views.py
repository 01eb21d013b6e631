"""Owns how approvals, approvers and the audit log look as JSON. Must not query more than it is given.

Invariant: the first version's names stand (``id``, ``session_id``, ``step_number``, ``tool_name``, ``prompt``,
``status``), ours beside them; nothing is cut without saying so, and a token's hash is never shown.
"""

from __future__ import annotations

import json
from typing import Any

from agentstate.core.model import ApprovalKind
from agentstate.core.policy import arguments_of
from agentstate.errors import AgentStateError
from agentstate.server.views import moment
from agentstate.store.people_rows import ApproverRow, AuditRow
from agentstate.store.reader import Reader
from agentstate.store.rows import ApprovalRow

MOST_PROMPT = 20_000  # characters of the request that stand beside an approval; the step has all of it


def approval_view(reader: Reader, row: ApprovalRow) -> dict[str, Any]:
    """An approval with its votes. ``arguments``: as proposed, an object where they are one; ``arguments_text``: to the
    letter."""
    prompt, cut = _prompt(reader, row.step)
    return {
        "id": row.id,
        "session_id": row.session,
        "step_number": row.number,
        "tool_name": row.tool,
        "prompt": prompt,
        "status": row.state.value.upper(),
        "prompt_cut": cut,
        "kind": row.kind.value,
        "choice": row.choice,
        "place": row.place,
        "call_id": row.call_id,
        "arguments": _object(row.arguments),
        "arguments_text": row.arguments,
        "effective": _effective(row),
        "schema": _parsed(row.schema),
        "digest": row.digest.hex(),
        "rule": _parsed(row.rule),
        "on_reject": row.on_reject.value,
        "quorum": row.quorum,
        "approvers": list(row.approvers),
        "votes": [
            {"approver": who, "action": action, "arguments": _object(text) if text else None, "reason": why,
             "at": moment(at)}
            for who, action, text, why, at in reader.votes(row.id)
        ],
        "decided_by": row.decided_by or None,
        "reason": row.reason,
        "created_at": moment(row.created_at),
        "expires_at": moment(row.expires_at),
        "decided_at": moment(row.decided_at),
    }  # fmt: skip


def approver_view(row: ApproverRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "role": row.role.value,
        "slack": row.slack,
        "discord": row.discord,
        "created_at": moment(row.created_at),
        "disabled_at": moment(row.disabled_at),
    }


def audit_view(row: AuditRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": moment(row.at),
        "actor": row.actor,
        "action": row.action,
        "subject": row.subject,
        "detail": _parsed(row.detail),
        "previous": row.previous.hex(),
        "hash": row.hash.hex(),
    }


def _effective(row: ApprovalRow) -> Any:
    """The arguments as decided; of a call in doubt, the result that was said."""
    if not row.effective:
        return None
    return _parsed(row.effective) if row.kind is ApprovalKind.DOUBT else _object(row.effective)


def _object(text: str) -> dict[str, Any] | None:
    value, fault = arguments_of(text)
    return None if fault else value


def _parsed(text: str) -> Any:
    """What a JSON text says; the text itself where it is none."""
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _prompt(reader: Reader, step: int) -> tuple[str | None, bool]:
    """The step's request as JSON text, and whether it was cut. One that cannot be read hides nothing else."""
    try:
        text = reader.request(step)[3].decode("utf-8", "replace")
    except AgentStateError:
        return None, False
    return text[:MOST_PROMPT], len(text) > MOST_PROMPT
