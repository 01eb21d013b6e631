"""Owns how tool calls that are made under a claim look as JSON. Must not query more than it is given.

Invariant: what is shown of a call is what the journal says: done, not done, or not known.
"""

from __future__ import annotations

import json
from typing import Any

from agentstate.core.model import ApprovalState, State
from agentstate.server.views import moment
from agentstate.store.effect_reader import EffectRow
from agentstate.store.reader import Reader
from agentstate.store.rows import ApprovalRow

_STANDING = {
    State.HELD: "held",
    State.IN_FLIGHT: "claimed",
    State.COMPLETED: "done",
    State.FAILED: "not_done",
    State.INTERRUPTED: "in_doubt",
}


def standing(effect: EffectRow) -> str:
    """What is known of a call; a call that was refused or given up is done in the sense that it never will be."""
    if effect.state is State.COMPLETED and effect.settled == "aborted":
        return "given_up"
    return _STANDING[effect.state]


def effect_view(reader: Reader, effect: EffectRow) -> dict[str, Any]:
    waiting = [row for row in reader.approvals_of(effect.step) if row.state is ApprovalState.PENDING]
    return {
        "step_number": effect.number,
        "server": effect.server or None,
        "tool": effect.tool,
        "class": effect.kind,
        "arguments": json.loads(effect.arguments),
        "key": effect.key,
        "state": standing(effect),
        "settled": effect.settled or None,
        "failed": effect.failed,
        "attempts": effect.attempt,
        "approval": waiting[0].id if waiting else None,
        "result_at": moment(effect.seen_at),
    }


def settled_view(row: ApprovalRow) -> dict[str, Any]:
    return {"id": row.id, "session_id": row.session, "step_number": row.number, "tool_name": row.tool,
            "status": row.state.value.upper(), "decided_by": row.decided_by or None}  # fmt: skip
