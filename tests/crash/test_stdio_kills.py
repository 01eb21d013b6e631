"""Agent and proxy are killed around every point of a call of an MCP server over stdio; each effect happens once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import crashing_server
from tests.support.doubt import effects_of, question, settle_rightly, until
from tests.support.effects import EffectsCounter
from tests.support.mcp_agent import Calls, McpAgent, text_of
from tests.support.people import decide
from tests.support.proxy import CLI, Proxy

CHARGE = [("charge", {"amount": 5})]


def life(counter: EffectsCounter, proxy: Proxy, calls: Calls = CHARGE, mode: str = "auto") -> McpAgent:
    """An agent that starts the shim, which starts the server."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSTATE_")}
    environ |= {"AGENTSTATE_URL": proxy.url, "AGENTSTATE_SESSION_ID": "s"}
    server = [sys.executable, "-m", "tests.support.mcp_server", counter.url, "stdio"]
    return McpAgent([*CLI, "mcp", "wrap", "--server", "bank", "--", *server], calls, mode, environ)


def test_calls_over_stdio_are_keyed_and_replayed_without_being_made(tmp_path: Path, counter: EffectsCounter) -> None:
    calls: Calls = [*CHARGE, ("balance", {}), ("fail", {}), *CHARGE, ("balance", {})]
    with Proxy(tmp_path / "data") as proxy:
        lives = []
        for mode in ("auto", "auto", "legacy"):
            with life(counter, proxy, calls, mode) as agent:
                lives.append([text_of(result) for result in agent.results()])
        assert lives[0] == lives[1] == lives[2]
        assert (lives[0][1], lives[0][4]) == ("read 1 times", "read 2 times")
        assert [one["name"] for one in counter.effects] == ["charge", "balance", "fail", "charge", "balance"]
        assert [effect["key"] for effect in effects_of(proxy, "s")] == [one["key"] for one in counter.effects]
        assert [effect["class"] for effect in effects_of(proxy, "s")] == ["once", "read", "once", "once", "read"]
        proxy.doctor()


@pytest.mark.parametrize(
    ("name", "when", "done", "asked"),
    [
        ("claim", "inside", 0, False),
        ("claim", "after", 0, True),
        ("keep_result", "before", 1, True),
        ("keep_result", "after", 1, False),
    ],
)
def test_proxy_and_agent_killed_at_a_write_of_a_call_let_it_happen_once(
    tmp_path: Path, counter: EffectsCounter, name: str, when: str, done: int, asked: bool
) -> None:
    with Proxy(tmp_path / "data", command=crashing_server.command(name, 1, when)) as proxy:
        with life(counter, proxy):
            assert proxy.wait() == -9
        assert counter.count() == done
        proxy.restart(command=CLI)
        with life(counter, proxy) as second:
            if asked:
                assert settle_rightly(proxy, counter, "s", "charged 5") == ("ran" if done else "did_not_run")
            assert [text_of(result) for result in second.results()] == ["charged 5"]
        assert counter.count() == 1
        assert {effect["key"] for effect in effects_of(proxy, "s")} == counter.keys
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("point", ["before charge", "after charge"])
def test_agent_killed_while_a_tool_runs_over_stdio_has_its_effect_happen_once(
    tmp_path: Path, counter: EffectsCounter, point: str
) -> None:
    with Proxy(tmp_path / "data") as proxy:
        counter.arm(point)
        with life(counter, proxy) as first:
            counter.wait_reached(point)
            first.kill()
        counter.open(point)
        until(lambda: not counter.busy and counter.count() == 1, "effect")
        # The shim outlives the agent for as long as its call takes, and tells what that came to.
        until(lambda: [one["state"] for one in effects_of(proxy, "s")] == ["done"], "result")
        with life(counter, proxy) as second:
            assert [text_of(result) for result in second.results()] == ["charged 5"]
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


def test_a_call_over_stdio_that_is_held_is_made_as_it_was_edited(tmp_path: Path, counter: EffectsCounter) -> None:
    policies = tmp_path / "agentstate.toml"
    policies.write_text('[[policies]]\ntools = ["charge"]\n')
    environment = {"AGENTSTATE_CONFIG": str(policies)}
    with Proxy(tmp_path / "data", environment=environment, command=CLI) as proxy:
        with life(counter, proxy) as agent:
            decide(proxy, question(proxy, "s", "held")["approval"], "EDITED", arguments={"amount": 3})
            assert [text_of(result) for result in agent.results()] == ["charged 3"]
        assert [one["arguments"]["amount"] for one in counter.effects] == [3]
