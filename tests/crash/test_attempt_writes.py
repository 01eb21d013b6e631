"""The proxy is killed at every write about an attempt that follows a failed one, between attempts, and as a breaker
opens: no attempt is lost or counted twice, and nothing is sent that the journal does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_alert_writes import TAKEN
from tests.support import chat
from tests.support.crashing_server import command
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Upstream, plain
from tests.support.waiting import until

OF_ATTEMPTS = ("end_attempt", "next_attempt", "set_breaker")
WHEN = ("before", "inside", "after")
DOWN = plain(b'{"error":{"message":"down"}}', 503)
GONE = plain(b'{"error":{"message":"gone","code":"model_not_found"}}', 404)
HEADERS = {"content-type": "application/json", "x-agent-fallback-model": "gpt-4o-mini"}
FILE = "policies = []\n[retry]\nbase_s = 0.01\n"


def ask(proxy: Proxy, run: str) -> Any:
    return proxy.client.send("POST", f"/s/s/r/{run}/v1/chat/completions", HEADERS, chat.request("hi"))


def journaled(proxy: Proxy) -> list[dict[str, Any]]:
    """The attempts of the only step, as far as the journal holds them."""
    with_step = proxy.control.steps("s")
    assert len(with_step) == 1
    tries = with_step[0]["tries"]
    return list(tries) if tries else [{"attempt": 1, "status": with_step[0]["status_code"]}]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", ["end_attempt", "next_attempt"])
@pytest.mark.parametrize("reply", [DOWN, GONE], ids=["retry", "fallback"])
def test_proxy_killed_as_it_goes_on_to_another_attempt_has_each_that_was_sent_once(
    tmp_path: Path, name: str, when: str, reply: list[Any]
) -> None:
    with Upstream() as upstream:
        upstream.replies(reply)
        with Proxy(tmp_path, upstream.url, retries=True, file=FILE, command=command(name, 1, when)) as proxy:
            with pytest.raises(ConnectionError):
                ask(proxy, "a")
            assert proxy.wait() == -9
            assert upstream.calls == 1, "the next attempt left before it was in the journal"
            proxy.restart(command=CLI)
            [step] = proxy.control.steps("s")
            assert step["state"] == "interrupted"
            known = journaled(proxy)
            begun = name == "next_attempt" and when == "after"
            assert [row["attempt"] for row in known] == ([1, 2] if begun else [1])
            ended = name == "next_attempt" or when == "after"
            assert known[0]["status"] == ({DOWN[0]: 503, GONE[0]: 404}[reply[0]] if ended else 0)
            upstream.reset()
            answer = ask(proxy, "b")
            assert (answer.status, answer.outcome, answer.step, upstream.calls) == (200, "live", 0, 1)
            assert [row["attempt"] for row in journaled(proxy)] == [row["attempt"] for row in known] + [len(known) + 1]
            again = ask(proxy, "c")
            assert (again.outcome, again.body, upstream.calls) == ("replay", answer.body, 1)
            assert proxy.stop() == 0
            proxy.doctor()


def test_proxy_killed_between_two_attempts_keeps_how_the_first_one_ended(tmp_path: Path) -> None:
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, retries=True, file=FILE) as proxy:
        upstream.replies(plain(b'{"error":{"message":"slow down"}}', 429, headers=[("retry-after", "20")]))
        connection = proxy.client.start("s", "hi", run="a")
        upstream.wait_calls(1)
        until(lambda: "slow down" in str(proxy.control.steps("s")[0]["error"]))
        proxy.kill()
        connection.close()
        proxy.restart()
        [step] = proxy.control.steps("s")
        assert (step["state"], step["status_code"], step["attempts"]) == ("interrupted", 429, 1)
        answer = proxy.client.ask("s", "hi", run="b")
        assert (answer.status, answer.step, upstream.calls) == (200, 0, 2)
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", WHEN)
def test_proxy_killed_as_a_breaker_opens_has_it_open_and_told_or_neither(tmp_path: Path, when: str) -> None:
    with Upstream() as upstream, Upstream(lambda seen: TAKEN) as receiver:
        file = (
            f"policies = []\n[retry]\nattempts = 1\n[breaker]\nfailures = 1\nopen_s = 300\n"
            f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{receiver.url}/x"\n'
        )
        upstream.replies(DOWN)
        with Proxy(tmp_path, upstream.url, retries=True, file=file, command=command("set_breaker", 1, when)) as proxy:
            with pytest.raises(ConnectionError):
                ask(proxy, "a")
            assert proxy.wait() == -9
            proxy.restart(command=CLI)
            done = when == "after"
            shown = proxy.control.get("/api/stats")["breakers"]
            assert [row["state"] for row in shown] == (["open"] if done else [])
            messages = proxy.control.get("/api/alerts")
            assert [row["event"] for row in messages] == (["provider.down"] if done else [])
            assert proxy.stop() == 0
            proxy.doctor()
