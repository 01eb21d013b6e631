"""Owns short words for what a proxy tells its journal: sessions, runs, questions, answers, an end without a farewell.

Must not check anything. Invariant: what is written here is what the engine would write, through the same methods.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from agentstate import clock
from agentstate.core import fingerprint
from agentstate.core.budget import Amount, Limit, Ruling, Scope, Unit
from agentstate.core.model import ApprovalKind, Call, OnReject, Shape, State, ToolCall, Verdict
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.registry import BY_NAME
from agentstate.store.journal import Journal
from agentstate.store.rows import (
    Begun,
    Ending,
    Message,
    NewApproval,
    NewRunRow,
    NewStep,
    Plan,
    RunRow,
    SessionRow,
)

CHAT = OpenAIChat()


def parse(dialect: str, method: str, path: str, body: bytes) -> Call:
    return BY_NAME[dialect].parse(method, path, body)


def call_of(body: bytes) -> Call:
    """A chat request of these very bytes."""
    return CHAT.parse("POST", "chat/completions", body)


def call(*prompts: str, **fields: Any) -> Call:
    """A chat request with a user message for each prompt."""
    messages = [{"role": "user", "content": prompt} for prompt in prompts]
    return call_of(json.dumps({"model": "gpt-test", "messages": messages, **fields}).encode())


def key_of(*prompts: str) -> bytes:
    """The fingerprint of such a request."""
    return fingerprint.of(call(*prompts)).key


def tool_call(call_id: str, name: str, choice: int = 0, index: int = 0) -> ToolCall:
    return ToolCall(choice, index, call_id, name, "{}")


def crash(journal: Journal) -> None:
    """The proxy ends without a farewell: nothing is noted in the journal any more."""
    journal.read.close()
    journal._writer.stop()
    journal.lock.release()


class Book:
    """A journal with one session, and the words to fill it."""

    def __init__(self, journal: Journal, session: SessionRow) -> None:
        self.journal = journal
        self.key = session.key

    @classmethod
    async def open(cls, journal: Journal, key: str = "s") -> Book:
        return cls(journal, await journal.open_session(key))

    @property
    def read(self) -> Any:
        return self.journal.read

    @property
    def session(self) -> SessionRow:
        """The session's row as it is now."""
        row = self.journal.read.session(self.key)
        assert row is not None
        return row

    @property
    def shown(self) -> tuple[tuple[int, int], ...]:
        return self.journal.read.shown(self.session)

    async def run(self, name: str, evidence: str = "run-id", **more: Any) -> RunRow:
        """A named run that begins."""
        await self.journal.begin_run(NewRunRow(self.session.id, name, True, evidence, **more))
        return self.row(name)

    def row(self, name: str) -> RunRow:
        row = self.journal.read.run(self.session.id, name)
        assert row is not None
        return row

    def new(self, run: RunRow, asked: Call, **more: Any) -> NewStep:
        """A question on the branch that the session shows."""
        session = self.session
        return NewStep(session.id, session.head, run.id, "model", "openai", asked, fingerprint.of(asked), **more)

    async def ask(self, run: RunRow, *prompts: str, **more: Any) -> Begun:
        """A question that is in flight from now on."""
        return await self.journal.begin_step(self.new(run, call(*prompts), **more))

    def ending(self, begun: Begun, body: bytes = b'{"ok":1}', **more: Any) -> Ending:
        """A finished answer, unless ``more`` says otherwise."""
        fields: dict[str, Any] = {
            "state": State.COMPLETED, "status": 200, "head": b"[]", "released": True, "shape": Shape(),
            "verdict": Verdict(model="gpt-test-1", usage='{"total_tokens":3}'), **more,
        }  # fmt: skip
        return Ending(self.session.id, begun.step, begun.attempt, body=body, **fields)

    async def end(self, begun: Begun, body: bytes = b'{"ok":1}', **more: Any) -> None:
        await self.journal.end_step(self.ending(begun, body, **more))

    async def fail(self, begun: Begun, status: int = 503) -> None:
        await self.end(begun, b"busy", state=State.FAILED, status=status, verdict=Verdict(), error="HTTP 503: busy")

    async def say(self, run: RunRow, *prompts: str, body: bytes = b'{"ok":1}', **more: Any) -> Begun:
        """A question that is answered."""
        begun = await self.ask(run, *prompts)
        await self.end(begun, body, **more)
        return begun

    async def serve(self, run: RunRow, begun: Begun, outcome: str = "replay", **more: Any) -> None:
        """A recorded answer is handed to a run."""
        await self.journal.serve(self.session.id, run.id, begun.step, outcome, **more)

    def entries(self, run: RunRow, *prompts: str) -> list[Any]:
        """What the journal holds of a question, as the run sees it."""
        return self.journal.read.entries(self.shown, key_of(*prompts), run.id, run.siblings)

    def unread(self, run: RunRow) -> list[int]:
        """Numbers of the steps of earlier lives that the run was not given."""
        return [step.number for step in self.journal.read.unread(self.session.id, self.shown, run)]


def opened(path: Path, busy_s: float = 5.0) -> Journal:
    journal = Journal(path, busy_s)
    journal.open()
    return journal


async def delivered(book: Book, run: int, step: int) -> None:
    """Note that a step arrived at a run, and wait until that is kept."""
    kept = asyncio.Event()
    book.journal.note_delivered(run, step, kept.set)
    await asyncio.wait_for(kept.wait(), 30)


def plan(steps: int = 1000, hold: bool = True, call: Amount = Amount(0.5, 0, 10), **more: Any) -> Plan:  # noqa: B008 - it never changes
    """Budgets of so many steps for a session, and of plenty of everything else."""
    limits = (
        Limit(Scope.SESSION, Unit.STEPS, steps), Limit(Scope.SESSION, Unit.USD, 1e6),
        Limit(Scope.DAY, Unit.TOKENS, 1e9), Limit(Scope.DAY, Unit.STEPS, 1e6),
    )  # fmt: skip

    def question(ruling: Ruling, place: int) -> tuple[NewApproval, tuple[Message, ...]]:
        rule = json.dumps({"limit": ruling.limit})
        asked = NewApproval(
            clock.approval_id(), ApprovalKind.BUDGET, b"d", b"{}", OnReject.ERROR, place=place, rule=rule
        )
        return asked, ()

    return Plan(limits, call, clock.now(), hold, question, lambda ruling: (), **more)
