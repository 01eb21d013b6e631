"""Agents on real clients are killed and started again: what was answered is not paid again, and nothing changes."""

from __future__ import annotations

import uuid

import pytest

from tests.clients.lives import AGENTS, Life, environment, other_python, python, scripted
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Upstream

pytestmark = pytest.mark.xdist_group("clients-restart")

TURNS = 4
EXPECTED = [
    "tool get_weather city 0",
    "tool send_email to 1",
    "tool get_weather city 2",
    "tool send_email to 3",
    "final answer of call 4 after 4 results",
]
# With "-other", in the interpreter that has an older generation of the OpenAI package.
CLIENTS = [
    ("openai_agent.py", "wrapper"),
    ("openai_agent.py", "wrapper-stream"),
    ("openai_agent.py", "async-wrapper"),
    ("openai_agent.py", "async-wrapper-stream"),
    ("openai_agent.py", "stock"),
    ("openai_agent.py", "stock-stream"),
    ("openai_agent.py", "async-stock-stream"),
    ("openai_agent.py-other", "wrapper"),
    ("openai_agent.py-other", "async-wrapper-stream"),
    ("langchain_agent.py", "plain"),
    ("langchain_agent.py", "stream"),
]
# A call in flight is the proxy's business more than the client's: one client of each kind will do.
IN_FLIGHT = [pair for pair in CLIENTS if pair[1] in ("wrapper", "async-wrapper-stream", "stock-stream", "stream")]


def _each(clients: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("script", "client"), clients, ids=[" ".join(pair) for pair in clients])


def _agent(lives: list[Life], proxy: Proxy, script: str, client: str, session: str, **more: str) -> Life:
    if script.endswith("-other"):
        command = other_python(AGENTS / script.removesuffix("-other"), client, session, needs="openai")
    else:
        command = python(AGENTS / script, client, session)
    life = Life(command, environment(proxy.url, **more))
    lives.append(life)
    return life


def _live_and_replayed(proxy: Proxy, session: str) -> list[tuple[int, int]]:
    """(paid, replayed or joined) of each run, oldest first."""
    runs = [proxy.control.run(session, run["run"]) for run in proxy.control.session(session)["runs"]]
    return sorted(((run["live"], run["replayed"] + run["joined"]) for run in runs), key=lambda pair: pair[1])


@_each(CLIENTS)
def test_an_agent_killed_between_two_calls_goes_on_where_it_was(
    lives: list[Life], proxy: Proxy, provider: Upstream, script: str, client: str
) -> None:
    session = f"between-{uuid.uuid4().hex[:8]}"
    provider.reset(scripted(TURNS))
    first = _agent(lives, proxy, script, client, session, PAUSE_AT="3")
    first.wait_line("paused")
    assert provider.calls == 3
    first.kill()

    second = _agent(lives, proxy, script, client, session)
    assert second.output() == EXPECTED
    assert provider.calls == 5
    assert _live_and_replayed(proxy, session) == [(3, 0), (2, 3)]


@_each(IN_FLIGHT)
def test_an_agent_killed_while_a_call_is_in_flight_pays_for_it_once(
    lives: list[Life], proxy: Proxy, provider: Upstream, script: str, client: str
) -> None:
    session = f"in-flight-{uuid.uuid4().hex[:8]}"
    gate = Gate()
    provider.reset(scripted(TURNS, gate=gate, gate_at=2))
    first = _agent(lives, proxy, script, client, session)
    gate.wait_reached()
    first.kill()

    second = _agent(lives, proxy, script, client, session)
    second.wait_line(EXPECTED[1])
    gate.open()
    assert second.output() == EXPECTED
    assert provider.calls == 5


def test_an_agent_killed_again_and_again_pays_each_call_once(
    lives: list[Life], proxy: Proxy, provider: Upstream
) -> None:
    session = f"often-{uuid.uuid4().hex[:8]}"
    provider.reset(scripted(TURNS))
    for place in ("1", "2", "2"):
        life = _agent(lives, proxy, "openai_agent.py", "wrapper", session, PAUSE_AT=place)
        life.wait_line("paused")
        life.kill()
    last = _agent(lives, proxy, "openai_agent.py", "wrapper", session)
    assert last.output() == EXPECTED
    assert provider.calls == 5


def test_an_agent_and_its_proxy_killed_together_lose_nothing(
    lives: list[Life], proxy: Proxy, provider: Upstream
) -> None:
    session = f"both-{uuid.uuid4().hex[:8]}"
    provider.reset(scripted(TURNS))
    first = _agent(lives, proxy, "openai_agent.py", "wrapper-stream", session, PAUSE_AT="3")
    first.wait_line("paused")
    proxy.restart()
    first.kill()

    second = _agent(lives, proxy, "openai_agent.py", "wrapper-stream", session)
    assert second.output() == EXPECTED
    assert provider.calls == 5


def test_two_agents_of_one_run_id_are_one_run(lives: list[Life], proxy: Proxy, provider: Upstream) -> None:
    session = f"siblings-{uuid.uuid4().hex[:8]}"
    provider.reset(scripted(0))
    for _ in range(2):
        life = _agent(lives, proxy, "openai_agent.py", "wrapper", session, AGENTSTATE_RUN_ID="run-shared")
        life.output()
    assert provider.calls == 2
    assert [run["run"] for run in proxy.control.session(session)["runs"]] == ["run-shared"]
