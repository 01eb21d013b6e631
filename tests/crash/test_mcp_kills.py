"""Agent, proxy and MCP server are killed around every point of a tool call, and each effect happens exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import crashing_server, mcp_agent
from tests.support.doubt import effects_of, question, settle_rightly, until
from tests.support.effects import EffectsCounter
from tests.support.mcp_agent import McpAgent, text_of
from tests.support.mcp_server import McpServer
from tests.support.people import decide
from tests.support.proxy import CLI, Proxy

CHARGE = [("charge", {"amount": 5})]


@pytest.fixture(scope="module")
def server(counter_process: EffectsCounter) -> Iterator[McpServer]:
    """It speaks the stateless revision and those with sessions, as the client wants."""
    with McpServer(counter_process) as running:
        yield running


def at(proxy: Proxy, session: str = "s") -> str:
    return f"{proxy.url}/s/{session}/mcp/bank"


def proxy_for(path: Path, server: McpServer, **more: object) -> Proxy:
    return Proxy(path / "data", settings={"mcp.bank.url": server.url}, **more)  # type: ignore[arg-type]


# (named write, when, what the counter knows after the kill, whether a person is asked, the client's protocol)
AT_WRITES = [
    ("claim", "before", 0, False, "auto"),
    ("claim", "inside", 0, False, "legacy"),
    ("claim", "after", 0, True, "auto"),
    ("claim", "after", 0, True, "legacy"),
    ("keep_result", "before", 1, True, "auto"),
    ("keep_result", "inside", 1, True, "legacy"),
    ("keep_result", "after", 1, False, "auto"),
    ("keep_result", "after", 1, False, "legacy"),
]


@pytest.mark.parametrize(("name", "when", "done", "asked", "mode"), AT_WRITES)
def test_proxy_killed_at_a_write_of_a_tool_call_lets_it_happen_once(
    tmp_path: Path,
    counter: EffectsCounter,
    server: McpServer,
    name: str,
    when: str,
    done: int,
    asked: bool,
    mode: str,
) -> None:
    with proxy_for(tmp_path, server, command=crashing_server.command(name, 1, when)) as proxy:
        with McpAgent(at(proxy), CHARGE, mode):
            assert proxy.wait() == -9
        assert counter.count() == done
        proxy.restart(command=CLI)
        with McpAgent(at(proxy), CHARGE, mode) as second:
            if asked:
                assert settle_rightly(proxy, counter, "s", "charged 5") == ("ran" if done else "did_not_run")
            [result] = second.results()
        assert text_of(result) == "charged 5"
        assert counter.count() == 1
        [effect] = effects_of(proxy, "s")
        assert (effect["state"], effect["key"]) == ("done", *counter.keys)
        assert effect["settled"] == ({0: "again", 1: "ran"}[done] if asked else None)
        assert mcp_agent.run(at(proxy), CHARGE) == [result]
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("point", ["before charge", "after charge"])
@pytest.mark.parametrize(
    ("killed", "mode"), [("agent", "auto"), ("agent", "legacy"), ("proxy", "auto"), ("both", "legacy"),
                         ("proxy and server", "auto")]
)  # fmt: skip
def test_whoever_is_killed_while_a_tool_runs_its_effect_happens_once(
    tmp_path: Path, counter: EffectsCounter, server: McpServer, point: str, killed: str, mode: str
) -> None:
    with proxy_for(tmp_path, server) as proxy:
        counter.arm(point)
        with McpAgent(at(proxy), CHARGE, mode) as first:
            counter.wait_reached(point)
            if "server" in killed:
                server.kill()
            if killed != "agent":
                proxy.kill()
            if killed in ("agent", "both"):
                first.kill()
            counter.open(point)
        if "server" in killed:
            until(lambda: not counter.busy, "end of the tool's wait")
            server.start()
        else:
            until(lambda: counter.count() == 1 and not counter.busy, "effect")
        if killed != "agent":
            proxy.restart()
        with McpAgent(at(proxy), CHARGE, mode) as second:
            if killed != "agent":
                settle_rightly(proxy, counter, "s", "charged 5")
            [result] = second.results()
        assert text_of(result) == "charged 5"
        assert counter.count() == 1
        assert [effect["state"] for effect in effects_of(proxy, "s")] == ["done"]
        assert {effect["key"] for effect in effects_of(proxy, "s")} == counter.keys
        assert mcp_agent.run(at(proxy), CHARGE) == [result]
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize(("tool", "given"), [("balance", {}), ("set_limit", {"limit": 9})])
def test_a_tool_that_may_run_twice_is_sent_again_after_a_crash_with_its_key_and_nobody_is_asked(
    tmp_path: Path, counter: EffectsCounter, server: McpServer, tool: str, given: dict[str, int]
) -> None:
    with proxy_for(tmp_path, server) as proxy:
        counter.arm(f"after {tool}")
        with McpAgent(at(proxy), [(tool, given)]):
            counter.wait_reached(f"after {tool}")
            proxy.kill()
        counter.open(f"after {tool}")
        proxy.restart()
        mcp_agent.run(at(proxy), [(tool, given)])
        assert counter.count(tool) == 2
        assert len(counter.keys) == 1
        [effect] = effects_of(proxy, "s")
        assert (effect["state"], effect["attempts"], effect["approval"]) == ("done", 2, None)


@pytest.mark.parametrize(("name", "when"), [("hold_call", "before"), ("hold_call", "inside"), ("hold_call", "after")])
def test_proxy_killed_as_it_holds_a_call_asks_once_and_makes_it_once(
    tmp_path: Path, counter: EffectsCounter, server: McpServer, name: str, when: str
) -> None:
    policies = tmp_path / "agentstate.toml"
    policies.write_text('[[policies]]\ntools = ["charge"]\n')
    environment = {"AGENTSTATE_CONFIG": str(policies)}
    armed = crashing_server.command(name, 1, when)
    with proxy_for(tmp_path, server, command=armed, environment=environment) as proxy:
        with McpAgent(at(proxy), CHARGE):
            assert proxy.wait() == -9
        proxy.restart(command=CLI)
        with McpAgent(at(proxy), CHARGE):
            asked = question(proxy, "s", "held")
        with McpAgent(at(proxy), CHARGE) as third:
            assert question(proxy, "s", "held")["approval"] == asked["approval"]
            proxy.kill()
            third.process.wait(30)
        assert counter.count() == 0
        proxy.restart(command=CLI)
        decide(proxy, asked["approval"], "APPROVED")
        assert counter.count() == 0  # nobody waits for it
        [result] = mcp_agent.run(at(proxy), CHARGE)
        assert text_of(result) == "charged 5"
        assert mcp_agent.run(at(proxy), CHARGE) == [result]
        assert counter.count() == 1
        assert len(effects_of(proxy, "s")) == 1
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_proxy_killed_as_it_asks_about_a_call_in_doubt_asks_all_the_same(
    tmp_path: Path, counter: EffectsCounter, server: McpServer, when: str
) -> None:
    with proxy_for(tmp_path, server, command=crashing_server.command("claim", 1, "after")) as proxy:
        with McpAgent(at(proxy), CHARGE):
            assert proxy.wait() == -9
        proxy.restart(command=crashing_server.command("doubt", 1, when))
        with McpAgent(at(proxy), CHARGE) as second:
            assert proxy.wait() == -9
            second.process.wait(30)
        proxy.restart(command=CLI)
        with McpAgent(at(proxy), CHARGE) as third:
            assert settle_rightly(proxy, counter, "s") == "did_not_run"
            assert text_of(third.results()[0]) == "charged 5"
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


def test_a_call_that_is_killed_again_after_it_was_sent_again_is_asked_about_again(
    tmp_path: Path, counter: EffectsCounter, server: McpServer
) -> None:
    with proxy_for(tmp_path, server, command=crashing_server.command("claim", 1, "after")) as proxy:
        with McpAgent(at(proxy), CHARGE):
            assert proxy.wait() == -9
        proxy.restart(command=crashing_server.command("keep_result", 1, "before"))
        with McpAgent(at(proxy), CHARGE) as second:
            assert settle_rightly(proxy, counter, "s") == "did_not_run"
            assert proxy.wait() == -9
            second.process.wait(30)
        assert counter.count() == 1
        proxy.restart(command=CLI)
        with McpAgent(at(proxy), CHARGE) as third:
            assert settle_rightly(proxy, counter, "s", "charged 5") == "ran"
            assert text_of(third.results()[0]) == "charged 5"
        assert counter.count() == 1
        assert {effect["key"] for effect in effects_of(proxy, "s")} == counter.keys


@pytest.mark.parametrize("asked_again_by", ["a", "b"])
def test_an_agent_that_lives_on_asks_again_and_is_given_the_result_that_it_never_saw(
    tmp_path: Path, counter: EffectsCounter, server: McpServer, asked_again_by: str
) -> None:
    """The proxy dies with the result on disk and not sent; whether the same run asks again or the next, nothing is."""
    params = {"name": "charge", "arguments": {"amount": 5}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with proxy_for(tmp_path, server, command=crashing_server.command("keep_result", 1, "after")) as proxy:
        with pytest.raises(ConnectionError):
            proxy.client.send("POST", "/s/s/r/a/mcp/bank", session_of(proxy, head), body)
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        again = proxy.client.send("POST", f"/s/s/r/{asked_again_by}/mcp/bank", head, body)
        assert (again.outcome, again.json()["result"]["content"][0]["text"]) == ("replay", "charged 5")
        assert counter.count() == 1


def session_of(proxy: Proxy, head: dict[str, str]) -> dict[str, str]:
    """The headers of a client that has shaken hands with the server."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
    answer = proxy.client.send("POST", "/s/s/r/a/mcp/bank", head, hello)
    joined = head | {"mcp-session-id": str(answer.headers.get("mcp-session-id"))}
    ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert proxy.client.send("POST", "/s/s/r/a/mcp/bank", joined, ready).status == 202
    return joined
