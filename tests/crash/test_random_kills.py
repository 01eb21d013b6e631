"""Agents that start again and again finish their work although the proxy is killed under them at random."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.crash.agents import FLAKY, TOOL, Agent, Died, Ledger, Provider, assert_states_after_restart, linear
from tests.support.proxy import Proxy
from tests.support.upstream import BOUND_S, Upstream

KILLS = 5
AGENTS = 4
LIVES = 40
QUESTIONS = ("first", "second", FLAKY, TOOL, "third", "fourth", "fifth", "last")


class Fleet:
    """Agents that are started again, with a new run id, whenever the proxy is back."""

    def __init__(self, proxy: Proxy, provider: Provider) -> None:
        self.proxy = proxy
        self.provider = provider
        self.ledger = Ledger()
        self.faults: list[Exception] = []
        self.serving = threading.Event()
        self.over = threading.Event()

    def work(self, session: str) -> None:
        """Live until the whole program was done in one life."""
        try:
            for life in range(LIVES):
                assert self.serving.wait(BOUND_S), "the proxy did not come back"
                agent = Agent(self.proxy, self.ledger, self.provider, session, f"life-{life}")
                try:
                    self.program(agent)
                except Died:
                    continue
                return
            raise AssertionError(f"{session} did not finish in {LIVES} lives")
        except Exception as fault:  # noqa: BLE001 - looked at by the thread that waits
            self.faults.append(fault)

    def program(self, agent: Agent) -> None:
        """The linear program with some more questions."""
        linear(agent)
        for number, question in enumerate(("third", "fourth", "fifth")):
            agent.ask(question, stream=number % 2 == 0)


@pytest.mark.parametrize("seed", [1, 2])
def test_agents_finish_although_the_proxy_is_killed_at_random(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    provider = Provider()
    sessions = [f"agent-{number}" for number in range(AGENTS)]
    with Upstream(provider) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        fleet = Fleet(proxy, provider)
        threads = [threading.Thread(target=fleet.work, args=(session,), daemon=True) for session in sessions]
        fleet.serving.set()
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            if not wait_for_calls(upstream, chance.randint(1, 6), threads):
                break
            fleet.serving.clear()
            proxy.restart()
            fleet.serving.set()
        for thread in threads:
            thread.join(BOUND_S * 2)
        assert not any(thread.is_alive() for thread in threads), "an agent hangs"
        assert fleet.faults == []
        assert_states_after_restart(proxy, fleet.ledger, upstream, sessions)
        assert_told_the_same_always(fleet.ledger)
        needed = AGENTS * (len(QUESTIONS) + 1)  # the passing error is one call more
        paid = provider.calls.total()
        assert needed <= paid <= needed + fleet.ledger.lost, (needed, paid, fleet.ledger.lost)
        assert "Traceback" not in proxy.log
        assert proxy.stop() == 0
        proxy.doctor()


def wait_for_calls(upstream: Upstream, more: int, threads: list[threading.Thread]) -> bool:
    """Wait until the upstream was asked so many times more; false when the agents are done before."""
    wanted = upstream.calls + more
    tick = threading.Event()
    for _ in range(int(BOUND_S / 0.002)):
        if upstream.calls >= wanted:
            return True
        if not any(thread.is_alive() for thread in threads):
            return False
        tick.wait(0.002)
    raise AssertionError(f"the upstream was asked {upstream.calls} times, {wanted} were awaited")


def assert_told_the_same_always(ledger: Ledger) -> None:
    """Whatever was released of a question once is what every later life was told."""
    told: dict[tuple[str, str], bytes] = {}
    for item in ledger.received:
        if item.whole and item.status == 200:
            known = told.setdefault((item.session, item.question), item.body)
            assert known == item.body, (item.session, item.question, known, item.body)
    for item in ledger.received:
        if item.finished and not item.whole:
            assert told[(item.session, item.question)].startswith(item.body), (item.session, item.question)
