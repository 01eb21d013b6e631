"""What fails again and again is left alone, and what takes few calls at a time gets no more: before a real proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import chat
from tests.support.client import Answer
from tests.support.people import Asking
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Reply, Seen, Upstream, plain, stream
from tests.support.waiting import until

DOWN = plain(b'{"error":{"message":"down"}}', 503)
FILE = """
policies = []
[retry]
base_s = 0.01
[breaker]
failures = 3
open_s = {open_s}
{more}
[providers.other]
url = "{other}"
[[routes]]
model = "routed"
fallback = ["other/second"]
[[alerts]]
kind = "webhook"
name = "ops"
url = "{other}/told"
on = ["provider.down"]
"""


def ask(proxy: Proxy, text: str, model: str = "routed", session: str = "s") -> Answer:
    return proxy.client.ask(session, text, run="a", model=model)


def breakers(proxy: Proxy) -> dict[str, str]:
    return {row["model"]: row["state"] for row in proxy.control.get("/api/stats")["breakers"]}


def told(other: Upstream) -> list[Seen]:
    return [seen for seen in other.requests if seen.target.endswith("/told")]


def asked(other: Upstream) -> int:
    return len(other.requests) - len(told(other))


def test_a_dead_target_is_not_tried_first_by_each_request_also_after_a_restart(tmp_path: Path) -> None:
    with Upstream(lambda seen: DOWN) as upstream, Upstream() as other:
        file = FILE.format(other=other.url, open_s=300, more="")
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            assert ask(proxy, "one").headers.get("x-agentstate-fallback") == "other/second; because=overloaded 503"
            assert (upstream.calls, breakers(proxy)) == (3, {"routed": "open"})
            around = ask(proxy, "two")
            assert around.headers.get("x-agentstate-fallback") == "other/second; because=left_alone"
            until(lambda: len(told(other)) == 1)
            proxy.restart()
            assert ask(proxy, "three").status == 200
            assert (upstream.calls, asked(other), breakers(proxy)) == (3, 3, {"routed": "open"})
            [_, two, _] = proxy.control.steps("s")
            assert [row["status"] for row in two["tries"]] == [0, 200]
            assert "nothing was sent" in two["tries"][0]["error"]
            assert len(told(other)) == 1


def test_one_call_tries_whether_it_is_back_and_then_all_go_there_again(tmp_path: Path) -> None:
    with Upstream(lambda seen: DOWN) as upstream, Upstream() as other:
        file = FILE.format(other=other.url, open_s=0.2, more="")
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            ask(proxy, "one")
            assert upstream.calls == 3
            until(lambda: breakers(proxy) == {"routed": "half_open"})
            gate = Gate()
            upstream.script = lambda seen: stream(gate, *chat.chunks("back"))
            trying = Asking(lambda: proxy.client.ask("s", "two", run="a", model="routed", stream=True))
            gate.wait_reached()
            assert ask(proxy, "meanwhile", session="t").headers.get("x-agentstate-fallback") is not None
            assert upstream.calls == 4
            gate.open()
            assert b"back" in trying.answer().body
            assert breakers(proxy) == {}
            upstream.reset()
            assert ask(proxy, "three").headers.get("x-agentstate-fallback") is None
            assert upstream.calls == 1


def test_what_has_no_other_way_is_sent_once_without_retries(tmp_path: Path) -> None:
    with Upstream(lambda seen: DOWN) as upstream, Upstream() as other:
        file = FILE.format(other=other.url, open_s=300, more="")
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            assert ask(proxy, "one", "alone").status == 503
            assert upstream.calls == 3
            assert ask(proxy, "two", "alone").status == 503
            assert upstream.calls == 4
            upstream.reset()
            assert ask(proxy, "three", "alone").status == 200
            assert breakers(proxy) == {}


def test_where_the_settings_say_so_it_is_refused_at_once_with_the_time_of_the_next_try(tmp_path: Path) -> None:
    with Upstream(lambda seen: DOWN) as upstream, Upstream() as other:
        file = FILE.format(other=other.url, open_s=40, more='alone = "refuse"')
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            ask(proxy, "one", "alone")
            answer = ask(proxy, "two", "alone")
            assert (answer.status, answer.error["code"], upstream.calls) == (503, "breaker_open", 3)
            assert 30 <= int(answer.headers.get("retry-after") or 0) <= 40
            assert ask(proxy, "three", "gpt-4o").status in (200, 503)


def test_a_refusal_of_what_was_asked_opens_no_breaker(tmp_path: Path) -> None:
    refusal = plain(b'{"error":{"message":"no"}}', 400)
    with Upstream(lambda seen: refusal) as upstream, Upstream() as other:
        file = FILE.format(other=other.url, open_s=300, more="")
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            for number in range(5):
                assert ask(proxy, f"q{number}").status == 400
            assert (breakers(proxy), upstream.calls) == ({}, 5)


def test_a_key_that_a_failing_provider_repeats_is_kept_nowhere(tmp_path: Path) -> None:
    key = b"sk-test-0123456789abcdef"
    echo = plain(b'{"error":{"message":"cannot serve ' + key + b'"}}', 500)
    with Upstream(lambda seen: echo) as upstream, Upstream() as other:
        file = FILE.format(other=other.url, open_s=300, more="")
        headers = {"content-type": "application/json", "authorization": f"Bearer {key.decode()}"}
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            path, body = "/s/s/r/a/v1/chat/completions", chat.request("hi", model="routed")
            assert proxy.client.send("POST", path, headers, body).status == 200
            assert "cannot serve" in proxy.control.get("/api/stats")["breakers"][0]["why"]
            assert "cannot serve" in proxy.control.steps("s")[0]["tries"][0]["error"]
            assert key not in str(proxy.control.get("/api/stats")).encode()
            until(lambda: len(told(other)) == 1)
            assert all(key not in seen.body + seen.raw_head for seen in other.requests)
            assert proxy.stop() == 0
            assert key not in proxy.stored_bytes()
            assert key.decode() not in proxy.log


# --- turns ---

TURNS = """
policies = []
[upstream]
queue_wait_s = {wait}
[retry]
attempts = 3
[providers.openai]
max_concurrent = 2
[providers.other]
url = "{other}"
"""


class Slow:
    """A provider whose answers wait for the test; counts how many are under way."""

    def __init__(self) -> None:
        self.gates: list[Gate] = []

    def __call__(self, seen: Seen) -> Reply:
        gate = Gate()
        self.gates.append(gate)
        return [gate, *plain(chat.completion("done"))]


def queue(proxy: Proxy) -> dict[str, Any]:
    [row] = proxy.control.get("/api/stats")["queues"]
    return dict(row)


def test_a_storm_of_agents_never_has_more_calls_under_way_than_the_provider_takes(tmp_path: Path) -> None:
    slow = Slow()
    with Upstream(slow) as upstream, Upstream() as other:
        file = TURNS.format(wait=60, other=other.url)
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            waiting = [
                Asking(lambda number=number: ask(proxy, f"q{number}", "gpt-4o", f"s{number}"))  # type: ignore[misc]
                for number in range(6)
            ]
            until(lambda: queue(proxy)["waiting"] == 4)
            assert queue(proxy) == {"provider": "openai", "limit": 2, "under_way": 2, "waiting": 4}
            for served in range(6):
                until(lambda served=served: len(slow.gates) > served)  # type: ignore[misc]
                assert len(slow.gates) <= served + 2
                slow.gates[served].open()
            assert {asking.answer().status for asking in waiting} == {200}
            assert upstream.calls == 6
            until(lambda: queue(proxy)["under_way"] == 0)


def test_who_gets_no_turn_in_time_goes_elsewhere_or_is_told_to_ask_again(tmp_path: Path) -> None:
    slow = Slow()
    with Upstream(slow) as upstream, Upstream() as other:
        file = TURNS.format(wait=0.1, other=other.url)
        with Proxy(tmp_path, upstream.url, file=file, retries=True) as proxy:
            waiting = [
                Asking(lambda number=number: ask(proxy, f"q{number}", "gpt-4o", f"s{number}"))  # type: ignore[misc]
                for number in range(2)
            ]
            upstream.wait_calls(2)
            told = ask(proxy, "late", "gpt-4o", "late")
            assert (told.status, told.error["code"], told.headers.get("retry-after")) == (503, "provider_busy", "5")
            headers = {"content-type": "application/json", "x-agent-fallback-model": "other/second"}
            led = proxy.client.send("POST", "/s/t/r/a/v1/chat/completions", headers, chat.request("hi"))
            assert led.headers.get("x-agentstate-fallback") == "other/second; because=busy"
            for gate in slow.gates:
                gate.open()
            assert [asking.answer().status for asking in waiting] == [200, 200]
            assert (upstream.calls, other.calls) == (2, 1)
            upstream.reset()
            again = ask(proxy, "late", "gpt-4o", "late")
            assert (again.status, again.step) == (200, 0)
