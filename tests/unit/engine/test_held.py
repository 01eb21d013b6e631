"""What a provider holds: walking back pointers ends, and so does looking at a job."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentstate.core.model import Shape, State, Verdict
from agentstate.dialects import registry
from agentstate.engine import held, jobs
from agentstate.engine.core import Parts
from agentstate.engine.looks import QUEUED, Followed, Look
from agentstate.engine.state import Floating
from agentstate.errors import UpstreamInvalid
from agentstate.store.rows import AnswerRow, HeldRow

LOST = json.dumps({"error": {"code": "previous_response_not_found", "message": "gone"}}).encode()


class Circle:
    """A journal in which each answer goes on from the next of a few names, and the last from the first."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[int] = []

    def held_shown(self, session: int, name: str, shared: object) -> HeldRow | None:
        return HeldRow(self.names.index(name), 0, False, 200, b"", b"") if name in self.names else None

    def request(self, step: int) -> tuple[str, str, str, bytes]:
        self.asked.append(step)
        before = self.names[(step + 1) % len(self.names)]
        body = {"model": "m", "input": "x", "previous_response_id": before}
        return "openai_responses", "POST", "responses", json.dumps(body).encode()

    def answer(self, step: int) -> AnswerRow:
        body = json.dumps({"object": "response", "id": self.names[step], "output": []}).encode()
        return AnswerRow(0, 0, State.COMPLETED, "openai_responses", 200, b"", body, Shape(), "m", 0, 1, "", None)


@pytest.mark.parametrize("names", [("resp_a",), ("resp_a", "resp_b"), ("resp_a", "resp_b", "resp_c")])
def test_pointers_that_go_in_a_circle_are_walked_once_and_give_no_transcript(names: tuple[str, ...]) -> None:
    journal = Circle(*names)
    facts = SimpleNamespace(session_of=lambda session: None)
    parts = cast(Parts, SimpleNamespace(journal=SimpleNamespace(read=journal, facts=facts)))
    sent = json.dumps({"model": "m", "input": "y", "previous_response_id": names[0]}).encode()
    assert held.restored(parts, 1, names[0], sent, 404, LOST) is None
    assert journal.asked == list(range(len(names)))


def _followed(monkeypatch: pytest.MonkeyPatch, limit: float, look: Any) -> list[float]:
    """When a job was looked at, in seconds of a clock that only waiting moves."""
    now = 0.0
    looks: list[float] = []

    async def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def seen(parts: Parts, job: Followed) -> Look:
        looks.append(now)
        assert len(looks) < 1000, "the job is looked at for ever"
        return cast(Look, look())

    monkeypatch.setattr(jobs, "asyncio", SimpleNamespace(sleep=wait))
    monkeypatch.setattr(jobs, "clock", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(jobs, "look", seen)
    settings = SimpleNamespace(replay=SimpleNamespace(follow_jobs_s=limit))
    journal = SimpleNamespace(read=SimpleNamespace(deletion=lambda session, answer_id: None))

    async def over(session: str) -> bool:
        return True

    pauses = SimpleNamespace(over=over)
    parts = cast(
        Parts,
        SimpleNamespace(settings=settings, closing=False, journal=journal, floating=Floating(), pauses=pauses),
    )
    call = registry.BY_NAME["openai_responses"].parse("POST", "responses", b'{"background":true,"input":"x"}')
    dialect = registry.BY_NAME["openai_responses"]
    job = Followed(1, "s", "resp_1", call, dialect, cast(Any, SimpleNamespace(name="p")), "/v1/responses", [])
    asyncio.run(jobs.follow(parts, job))
    return looks


def _queued() -> Look:
    return Look(200, [], b"{}", Verdict(finish=QUEUED))


def _too_large() -> Any:
    raise UpstreamInvalid("the provider's answer is larger than 9 bytes (server.max_answer_bytes)")


@pytest.mark.parametrize("look", [_queued, _too_large, lambda: Look(500, [], b"{}")])
def test_job_that_does_not_end_is_looked_at_ever_more_rarely_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, look: Any
) -> None:
    looks = _followed(monkeypatch, 3600, look)
    waits = [later - earlier for earlier, later in zip([0.0, *looks], looks, strict=False)]
    assert waits == sorted(waits) and waits[-1] == jobs._LONGEST_WAIT_S
    assert 3600 - jobs._LONGEST_WAIT_S <= looks[-1] < 3600
    assert len(looks) < 3600 / jobs._LONGEST_WAIT_S + 10


@pytest.mark.parametrize("status", [404, 410])
def test_job_that_its_provider_does_not_know_any_more_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    assert len(_followed(monkeypatch, 3600, lambda: Look(status, [], b"{}"))) == 1
