"""Owns approvals to decide: sessions with steps whose calls are held, written into a journal that no proxy serves yet.

Must not decide. Invariant: what is written here is what the gate writes, through the same methods of the journal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentstate import clock
from agentstate.core import fingerprint
from agentstate.core.model import ApprovalKind, OnReject, Shape, State, ToolCall, Verdict
from agentstate.core.policy import approval_digest
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.store.journal import Journal
from agentstate.store.rows import Ending, NewApproval, NewRunRow, NewStep

SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "number", "maximum": 100}},
    "required": ["to"],
}


@dataclass(frozen=True)
class Held:
    """One held call. ``arguments``: an object, or the text of what is none; ``key``: the approval's id; ``kind``: what
    is asked about it."""

    tool: str = "send_email"
    arguments: Mapping[str, Any] | str = field(default_factory=lambda: {"to": "ann@example.test"})
    quorum: int = 1
    approvers: tuple[str, ...] = ()
    expires_at: float | None = None
    schema: Mapping[str, Any] | None = field(default_factory=lambda: dict(SCHEMA))
    key: str = ""
    kind: ApprovalKind = ApprovalKind.CALL

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


async def ask(journal: Journal, held: Sequence[Held], session: str = "s") -> list[str]:
    """A step of the session whose answer proposes these calls, all of them held; the approvals' ids in order."""
    row = await journal.open_session(session)
    if journal.read.run(row.id, "a") is None:
        await journal.begin_run(NewRunRow(row.id, "a", True, "run-id"))
        row = await journal.open_session(session)
    run = journal.read.run(row.id, "a")
    assert run is not None
    tools = [{"type": "function", "function": {"name": one.tool, "parameters": one.schema or {}}} for one in held]
    words = {"model": "gpt-test", "messages": [{"role": "user", "content": f"ask {row.steps}"}], "tools": tools}
    call = OpenAIChat().parse("POST", "chat/completions", json.dumps(words).encode())
    begun = await journal.begin_step(
        NewStep(row.id, row.head, run.id, "model", "openai", call, fingerprint.of(call), opening=row.steps == 0)
    )
    made = tuple(ToolCall(0, at, f"call_{at}", one.tool, one.text) for at, one in enumerate(held))
    asked = tuple(
        _question(session, row.head, begun.step, call_made, one) for call_made, one in zip(made, held, strict=True)
    )
    await journal.end_step(
        Ending(row.id, begun.step, begun.attempt, State.COMPLETED, 200, b"[]", _answer(made), False, Shape(),
               Verdict(calls=made, model="gpt-test"), asked=asked)
    )  # fmt: skip
    return [one.id for one in asked]


def _question(session: str, branch: int, step: int, call: ToolCall, held: Held) -> NewApproval:
    schema = "" if held.schema is None else json.dumps(held.schema)
    return NewApproval(
        held.key or clock.approval_id(), held.kind,
        approval_digest(session, branch, step, (call.choice, call.index), call.name, call.arguments, schema),
        held.text.encode(), OnReject.MESSAGE, call.name, call.choice, call.index, call.call_id, schema.encode(),
        _rule(held.tool), held.quorum, held.approvers,
        held.expires_at,
    )  # fmt: skip


def _rule(tool: str) -> str:
    why = f"policy 1 (hold {tool}) governs {tool}"
    return json.dumps({"why": why, "policy": 1, "tools": [tool], "action": "hold", "when": ""})


def _answer(calls: Sequence[ToolCall]) -> bytes:
    spelled = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": spelled}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice]}).encode()


def prepared(data: Path, *steps: Sequence[Held], session: str = "s") -> list[str]:
    """Fill the journal of a data folder; the approvals' ids."""
    data.mkdir(parents=True, exist_ok=True)
    journal = Journal(data / "agentstate.db")
    journal.open()

    async def work() -> list[str]:
        return [key for held in steps for key in await ask(journal, held, session)]

    try:
        return asyncio.run(work())
    finally:
        journal.close()
