"""CrewAI against a real proxy. It pins many packages, so its agents run in a virtual environment of their own."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.clients.lives import AGENTS, TEST_KEY, Life, environment, other_python, scripted
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Upstream

pytestmark = pytest.mark.xdist_group("clients-crewai")

TURNS = 4
EXPECTED = [
    "tool get_weather city 0",
    "tool send_email to 1",
    "tool get_weather city 2",
    "tool send_email to 3",
    "final answer of call 4 after 4 results",
]
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}


@pytest.fixture
def session() -> str:
    return f"crewai-{uuid.uuid4().hex[:8]}"


def _agent(lives: list[Life], proxy: Proxy, home: Path, mode: str, session: str, **more: str) -> Life:
    command = other_python(AGENTS / "crewai_agent.py", mode, session, needs="crewai")
    life = Life(command, environment(proxy.url, HOME=str(home), **QUIET, **more))
    lives.append(life)
    return life


def _ours(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("tool ", "final "))]


@pytest.mark.parametrize("mode", ["plain", "stream"])
def test_a_crew_killed_between_two_calls_goes_on_where_it_was(
    lives: list[Life], proxy: Proxy, provider: Upstream, tmp_path: Path, session: str, mode: str
) -> None:
    provider.reset(scripted(TURNS))
    first = _agent(lives, proxy, tmp_path, mode, session, PAUSE_AT="3")
    first.wait_line("paused")
    assert provider.calls == 3
    first.kill()
    assert _ours(_agent(lives, proxy, tmp_path, mode, session).output()) == EXPECTED
    assert provider.calls == 5


@pytest.mark.parametrize("mode", ["plain", "stream"])
def test_a_crew_killed_while_a_call_is_in_flight_pays_for_it_once(
    lives: list[Life], proxy: Proxy, provider: Upstream, tmp_path: Path, session: str, mode: str
) -> None:
    gate = Gate()
    provider.reset(scripted(TURNS, gate=gate, gate_at=2))
    first = _agent(lives, proxy, tmp_path, mode, session)
    gate.wait_reached()
    first.kill()
    second = _agent(lives, proxy, tmp_path, mode, session)
    second.wait_line(EXPECTED[1])
    gate.open()
    assert _ours(second.output()) == EXPECTED
    assert provider.calls == 5


def test_llm_takes_the_keywords_and_sends_the_headers(
    lives: list[Life], provider: Upstream, tmp_path: Path, session: str
) -> None:
    provider.reset()
    command = other_python(AGENTS / "crewai_forms.py", session, needs="crewai")
    url = provider.url.removesuffix("/v1")
    life = Life(command, environment(url, HOME=str(tmp_path), **QUIET))
    lives.append(life)
    told = json.loads(next(line for line in life.output() if line.startswith("{")))
    assert told["answers"] == ["sample 0", "sample 1", "sample 2", "sample 3"]
    assert [seen.json()["model"] for seen in provider.requests] == ["gpt-4o", "gpt-4o", "llama3.2", "claude-sonnet-5-5"]
    for seen in provider.requests:
        assert seen.headers.get("x-agent-session-id") == session
        assert (seen.headers.get("x-agent-run-id") or "").startswith("run_")
        assert seen.headers.get("authorization") == f"Bearer {TEST_KEY}"
    # Why the guide warns of the form of early releases: nothing fails, and the calls go past the proxy.
    assert told["llm_config"] == {"accepted": True, "base_url": None}
