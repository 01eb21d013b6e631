"""Agent and proxy are killed around every point of a call of an ``@tool`` function, and each effect happens once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import crashing_server, tool_agent
from tests.support.doubt import effects_of, question, settle_rightly, until
from tests.support.effects import EffectsCounter
from tests.support.people import decide
from tests.support.proxy import CLI, Proxy
from tests.support.tool_agent import ToolAgent

CHARGE = [("charge", {"amount": 5})]
GAVE = [{"gave": {"charged": 5}}]


def life(counter: EffectsCounter, proxy: Proxy, calls: tool_agent.Calls = CHARGE) -> ToolAgent:
    return ToolAgent(counter.url, proxy.url, "s", calls)


# (named write, when, what the counter knows when both are dead, whether a person is asked)
AT_WRITES = [
    ("claim", "before", 0, False),
    ("claim", "inside", 0, False),
    ("claim", "after", 0, True),
    ("keep_result", "before", 1, True),
    ("keep_result", "inside", 1, True),
    ("keep_result", "after", 1, False),
]


@pytest.mark.parametrize(("name", "when", "done", "asked"), AT_WRITES)
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
                assert settle_rightly(proxy, counter, "s", {"charged": 5}) == ("ran" if done else "did_not_run")
            assert second.results() == GAVE
        assert counter.count() == 1
        assert {effect["key"] for effect in effects_of(proxy, "s")} == counter.keys
        assert tool_agent.run(counter.url, proxy.url, "s", CHARGE) == GAVE
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize(("name", "when"), [("claim", "after"), ("keep_result", "before"), ("keep_result", "after")])
def test_agent_that_outlives_the_proxy_goes_on_with_the_next_one_and_nobody_is_asked(
    tmp_path: Path, counter: EffectsCounter, name: str, when: str
) -> None:
    """The proxy comes back under its address: leave whose answer was lost is given again, a result is told again."""
    with Proxy(tmp_path / "data", command=crashing_server.command(name, 1, when)) as proxy:
        with life(counter, proxy) as agent:
            assert proxy.wait() == -9
            proxy.keep_port().restart(command=CLI)
            assert agent.results() == GAVE
        assert counter.count() == 1
        [effect] = effects_of(proxy, "s")
        assert (effect["state"], effect["settled"], effect["key"]) == ("done", None, *counter.keys)
        assert tool_agent.run(counter.url, proxy.url, "s", CHARGE) == GAVE
        assert counter.count() == 1


@pytest.mark.parametrize("point", ["before charge", "after charge"])
@pytest.mark.parametrize("killed", ["agent", "both"])
def test_whoever_is_killed_while_a_function_runs_its_effect_happens_once(
    tmp_path: Path, counter: EffectsCounter, point: str, killed: str
) -> None:
    with Proxy(tmp_path / "data") as proxy:
        counter.arm(point)
        with life(counter, proxy) as first:
            counter.wait_reached(point)
            first.kill()
            if killed == "both":
                proxy.kill()
        counter.open(point)
        until(lambda: not counter.busy, "end of the function's wait")
        if killed == "both":
            proxy.restart()
        with life(counter, proxy) as second:
            said = settle_rightly(proxy, counter, "s", {"charged": 5})
            assert said == ("did_not_run" if point == "before charge" else "ran")
            assert second.results() == GAVE
        assert counter.count() == 1
        assert {effect["key"] for effect in effects_of(proxy, "s")} == counter.keys
        assert tool_agent.run(counter.url, proxy.url, "s", CHARGE) == GAVE
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


def test_equal_calls_are_replayed_in_their_order_each_once(tmp_path: Path, counter: EffectsCounter) -> None:
    calls: tool_agent.Calls = [("balance", {}), *CHARGE, ("balance", {}), ("fail", {}), ("balance", {})]
    with Proxy(tmp_path / "data") as proxy:
        lives = [tool_agent.run(counter.url, proxy.url, "s", calls) for _ in range(3)]
        assert lives[0] == lives[1] == lives[2]
        assert [gave.get("gave") for gave in lives[0]] == [1, {"charged": 5}, 2, None, 3]
        assert lives[0][3] == {"raised": "LookupError", "text": "('no such card', 7)"}
        assert counter.count() == 5
        assert len(counter.keys) == 5
        assert tool_agent.run(counter.url, proxy.url, "s", [*calls, ("balance", {})])[-1] == {"gave": 4}
        proxy.doctor()


def test_a_function_that_only_reads_is_called_again_after_a_crash_and_nobody_is_asked(
    tmp_path: Path, counter: EffectsCounter
) -> None:
    with Proxy(tmp_path / "data") as proxy:
        counter.arm("after balance")
        with life(counter, proxy, [("balance", {})]) as first:
            counter.wait_reached("after balance")
            first.kill()
        counter.open("after balance")
        assert tool_agent.run(counter.url, proxy.url, "s", [("balance", {})]) == [{"gave": 2}]
        assert len(counter.keys) == 1


@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_proxy_killed_as_it_hears_that_a_call_was_broken_off_asks_what_became_of_it(
    tmp_path: Path, counter: EffectsCounter, when: str
) -> None:
    with Proxy(tmp_path / "data", command=crashing_server.command("abandon", 1, when)) as proxy:
        counter.arm("after charge")
        with life(counter, proxy) as first:
            counter.wait_reached("after charge")
            first.process.send_signal(signal.SIGINT)
            assert proxy.wait() == -9
        counter.open("after charge")
        proxy.restart(command=CLI)
        with life(counter, proxy) as second:
            assert settle_rightly(proxy, counter, "s", {"charged": 5}) == "ran"
            assert second.results() == GAVE
        assert counter.count() == 1
        assert proxy.stop() == 0
        proxy.doctor()


def test_a_held_function_waits_for_its_approval_and_is_called_as_it_was_edited(
    tmp_path: Path, counter: EffectsCounter
) -> None:
    policies = tmp_path / "agentstate.toml"
    policies.write_text('[[policies]]\ntools = ["charge"]\n')
    environment = {"AGENTSTATE_CONFIG": str(policies)}
    with Proxy(tmp_path / "data", environment=environment, command=CLI) as proxy:
        with life(counter, proxy) as first:
            asked = question(proxy, "s", "held")
            first.kill()
        proxy.restart(command=CLI)
        with life(counter, proxy, [*CHARGE, *CHARGE]) as second:
            assert question(proxy, "s", "held")["approval"] == asked["approval"]
            decide(proxy, asked["approval"], "EDITED", arguments={"amount": 3, "memo": "less"})
            until(lambda: counter.count() == 1, "effect")
            other = question(proxy, "s", "held")
            decide(proxy, other["approval"], "REJECTED", reason="one is enough")
            gave, refused = second.results()
        assert gave == {"gave": {"charged": 3}}
        assert refused["raised"] == "ToolRejected" and "admin: one is enough" in refused["text"]
        assert [(one["arguments"]["amount"], one["arguments"]["memo"]) for one in counter.effects] == [(3, "less")]
        assert tool_agent.run(counter.url, proxy.url, "s", [*CHARGE, *CHARGE]) == [gave, refused]
        assert counter.count() == 1
