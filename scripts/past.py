"""Owns a past for pictures: weeks of sessions, written into a journal that no proxy serves yet.

Must not be used for tests. Invariant: it is written through the journal's own methods, at the times that it tells of,
and the same day gives the same past.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentstate import clock
from agentstate.core import fingerprint
from agentstate.core.model import SessionStatus, Shape, State, ToolCall, Verdict
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.store.detours import Detour, Failed
from agentstate.store.journal import Journal
from agentstate.store.rows import Begun, Ending, NewRunRow, NewStep, RunRow, SessionRow

DAY = 86_400.0
# USD for a million tokens of input and output; provider; how long it takes, seconds.
MODELS = {
    "gpt-5.4-mini": (0.25, 2.0, "openai", 1.1),
    "gpt-5.4": (1.75, 14.0, "openai", 2.4),
    "claude-sonnet-5-5": (3.0, 15.0, "anthropic", 3.1),
    "llama3.3:70b": (None, None, "ollama", 5.2),
}
KINDS = {
    "nightly": ("gpt-5.4", ("night", "finance"), 12),
    "invoice": ("gpt-5.4-mini", ("billing", "prod"), 8),
    "research": ("claude-sonnet-5-5", ("research",), 16),
    "triage": ("gpt-5.4-mini", ("support", "prod"), 6),
    "draft": ("llama3.3:70b", ("research",), 5),
}
TOOLS = ("search_invoices", "read_ledger", "create_ticket", "send_email", "refund_payment")


@dataclass
class Past:
    """What is being written. ``at``: the time that the journal takes for now."""

    journal: Journal
    at: float
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    async def session(self, key: str, model: str, labels: tuple[str, ...], steps: int, crash: bool) -> None:
        """A session from beginning to end; where it crashed, a second run is fast-forwarded and goes on."""
        row = await self.journal.open_session(key)
        await self.journal.set_labels(row, labels, (), "admin")
        made: list[Begun] = []
        for number in range(2 if crash else 1):
            name = f"run-{number + 1}"
            await self.journal.begin_run(NewRunRow(row.id, name, True, "run-id"))
            run = self.journal.read.run(row.id, name)
            assert run is not None
            for begun in made:
                self.at += 0.001
                await self.journal.serve(row.id, run.id, begun.step, "replay")
            for _ in range(steps if number == 0 else max(2, steps // 4)):
                made.append(await self.step(row, run, model, len(made)))
            self.at += 40
        await self.journal.set_status(row.id, SessionStatus.COMPLETED)

    async def step(self, row: SessionRow, run: RunRow, model: str, place: int) -> Begun:
        """A call that is answered, at once or after the provider failed."""
        given, made, provider, took = MODELS[model]
        tokens = 900 + 420 * place + self.chance.randrange(300), 80 + self.chance.randrange(400)
        new = self._new(row, run, model, provider, place)
        begun = await self.journal.begin_step(new)
        if self.chance.random() < self._trouble():
            begun = await self._again(row, begun, new, model)
        self.at += took * self.chance.uniform(0.5, 2.2)
        cost = None if given is None or made is None else (tokens[0] * given + tokens[1] * made) / 1e6
        calls, body = self._said(model, place)
        usage = json.dumps({"prompt_tokens": tokens[0], "completion_tokens": tokens[1]})
        await self.journal.end_step(
            Ending(row.id, begun.step, begun.attempt, State.COMPLETED, 200, b"[]", body, True, Shape(),
                   Verdict(calls=calls, model=model, usage=usage), cost=cost, prices="" if cost is None else "settings")
        )  # fmt: skip
        self.at += self.chance.uniform(0.2, 3.0)
        return begun

    def _trouble(self) -> float:
        """How likely an attempt fails: an hour of the last day was a bad one."""
        hour = datetime.fromtimestamp(self.at, tz=UTC).hour
        return 0.4 if hour == 9 else 0.03

    async def _again(self, row: SessionRow, begun: Begun, new: NewStep, model: str) -> Begun:
        status = 429 if self.chance.random() < 0.6 else 503
        self.at += 0.4
        said = "rate limit reached" if status == 429 else "the model is overloaded"
        await self.journal.end_attempt(Failed(begun.step, begun.attempt, status, b"[]", b"", f"HTTP {status}: {said}"))
        self.at += 1.0
        found = await self.journal.next_attempt(begun.step, begun.attempt, new, Detour(f"HTTP {status}"))
        assert isinstance(found, Begun)
        return found

    def _new(self, row: SessionRow, run: RunRow, model: str, provider: str, place: int) -> NewStep:
        offered = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in TOOLS]
        messages = [{"role": "user", "content": f"{row.key}: part {at + 1}"} for at in range(place + 1)]
        words: dict[str, Any] = {"model": model, "messages": messages, "tools": offered}
        call = OpenAIChat().parse("POST", "chat/completions", json.dumps(words).encode())
        return NewStep(row.id, row.head, run.id, "model", provider, call, fingerprint.of(call), opening=place == 0)

    def _said(self, model: str, place: int) -> tuple[tuple[ToolCall, ...], bytes]:
        calls: tuple[ToolCall, ...] = ()
        if place % 3 == 1:
            name = self.chance.choice(TOOLS)
            amount = self.chance.choice((12, 40, 180, 900))
            arguments = {"amount": amount} if name == "refund_payment" else {"query": f"2026-{place:02d}"}
            calls = (ToolCall(0, 0, f"call_{place}", name, json.dumps(arguments)),)
        spelled = [
            {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in calls
        ]
        message = {"role": "assistant", "content": None if calls else f"Part {place + 1} is done."}
        choice = {"index": 0, "message": message | ({"tool_calls": spelled} if spelled else {}),
                  "finish_reason": "tool_calls" if calls else "stop"}  # fmt: skip
        return calls, json.dumps({"object": "chat.completion", "model": model, "choices": [choice]}).encode()


def write(file: Path, days: int, until: float) -> None:
    """Fill a new journal with so many days that end at ``until`` (seconds since the epoch)."""
    real = clock.now
    journal = Journal(file)
    journal.open()
    past = Past(journal, until - days * DAY)
    clock.now = lambda: past.at
    try:
        asyncio.run(_days(past, days, until))
    finally:
        journal.close()
        clock.now = real


async def _days(past: Past, days: int, until: float) -> None:
    for ago in range(days, 0, -1):
        begin = until - ago * DAY
        weekend = datetime.fromtimestamp(begin, tz=UTC).weekday() >= 5
        busy = 0.4 if weekend else 1.0 + 0.8 * (days - ago) / days
        times = sorted(past.chance.uniform(0, DAY - 1800) for _ in range(round(busy * (14 if ago == 1 else 5))))
        for number, offset in enumerate(times):
            past.at = begin + offset
            kind = past.chance.choice(tuple(KINDS))
            model, labels, steps = KINDS[kind]
            day = datetime.fromtimestamp(past.at, tz=UTC)
            crash = past.chance.random() < 0.45
            await past.session(f"{kind}-{day:%m%d}-{number + 1}", model, labels, steps, crash)
