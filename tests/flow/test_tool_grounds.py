"""Tool calls whose grounds change while they wait: stricter policies, other people, proxies that end; who is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.test_tools import answers, call, end_of, first, headers, path, start, text
from tests.flow.test_tools import body as call_body
from tests.support.doubt import effects_of, question, settle, until
from tests.support.people import Person, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Upstream, plain, stream

ALLOW = '[[policies]]\ntools = ["other"]\n'
HOLD = '[[policies]]\ntools = ["charge"]\n'
TWO = HOLD + "quorum = 2\n"
DENY = HOLD + 'action = "deny"\n'


@pytest.fixture
def server() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


class House:
    """A proxy whose policies can be changed between its lives."""

    def __init__(self, folder: Path, server: Upstream, policies: str, more: str = "") -> None:
        self._file, self._more = folder / "agentstate.toml", more
        self.write(policies)
        settings = {"mcp.bank.url": server.url.removesuffix("/v1") + "/mcp"}
        self.proxy = Proxy(folder / "data", settings=settings, environment={"AGENTSTATE_CONFIG": str(self._file)})

    def write(self, policies: str) -> None:
        self._file.write_text(policies + self._more)

    def again(self, policies: str) -> None:
        self.write(policies)
        self.proxy.restart()


def leave_in_doubt(house: House, server: Upstream) -> None:
    """The proxy is killed while the server has the call."""
    gate = Gate()
    first(server, [gate])
    with start(house.proxy, "s", "charge"):
        until(lambda: server.calls == 1, "call at the server")
        house.proxy.kill()
    gate.open()
    server.script = answers


@pytest.mark.parametrize("stricter", [DENY, HOLD])
def test_a_call_that_did_not_run_is_not_sent_past_policies_that_became_stricter(
    tmp_path: Path, server: Upstream, stricter: str
) -> None:
    house = House(tmp_path, server, ALLOW)
    with house.proxy as proxy:
        first(server, plain(b"", 404))
        assert call(proxy, "s", "charge").status == 404
        house.again(stricter)
        with start(proxy, "s", "charge", run="b") as connection:
            if stricter is HOLD:
                [asked] = pending(proxy)
                assert (asked["kind"], asked["tool_name"]) == ("call", "charge") and server.calls == 1
                decide(proxy, asked, "APPROVED")
            told = end_of(connection.answer())["result"]["content"][0]["text"]
        assert told == "done" if stricter is HOLD else "refused" in told
        assert server.calls == (2 if stricter is HOLD else 1)
        assert text(call(proxy, "s", "charge", run="c")) == told
        proxy.stop()
        proxy.doctor()


def test_a_decision_that_no_longer_suffices_is_asked_for_again(tmp_path: Path, server: Upstream) -> None:
    house = House(tmp_path, server, HOLD)
    with house.proxy as proxy:
        with start(proxy, "s", "charge"):
            asked = question(proxy, "s", "held")
        decide(proxy, asked["approval"], "APPROVED")
        house.again(TWO)
        with start(proxy, "s", "charge", run="b") as connection:
            [again] = pending(proxy)
            assert (again["id"], again["quorum"]) == (asked["approval"], 2)
            assert server.calls == 0
            Person(proxy, "ann").decide(again, "APPROVED")
            assert text_of(connection) == "done"
        assert server.calls == 1
        actions = [one["action"] for one in proxy.control.get("/api/audit")]
        assert {"approval.asked", "approval.decided", "approval.reopened"} <= set(actions)


def text_of(connection: Any) -> str:
    return str(end_of(connection.answer())["result"]["content"][0]["text"])


def test_who_may_say_what_became_of_a_call_is_whom_the_policies_ask_about_it(tmp_path: Path, server: Upstream) -> None:
    house = House(tmp_path, server, ALLOW)
    with house.proxy as proxy:
        leave_in_doubt(house, server)
        house.again(HOLD + 'approvers = ["ann"]\n')
        [asked] = pending(proxy)
        assert (asked["kind"], asked["approvers"]) == ("doubt", ["ann"])
        ann, bob = Person(proxy, "ann"), Person(proxy, "bob")
        assert bob.refused(asked, "REUSED") == 403
        ann.decide(asked, "REUSED", arguments={"charged": 5})
        assert call(proxy, "s", "charge", run="b").json()["result"]["structuredContent"] == {"charged": 5}
        assert server.calls == 1


def test_people_hear_of_a_call_that_a_killed_proxy_left_in_doubt_though_its_agent_never_returns(
    tmp_path: Path, server: Upstream
) -> None:
    with Upstream(lambda seen: plain(b"")) as receiver:
        alerts = f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{receiver.url}"\n'
        house = House(tmp_path, server, ALLOW, alerts)
        with house.proxy as proxy:
            leave_in_doubt(house, server)
            house.again(ALLOW)
            [asked] = pending(proxy)
            until(lambda: receiver.calls == 1, "message")
            said = receiver.requests[0].json()
            assert said["type"] == "call.in_doubt" and said["data"]["subject"] == asked["id"]
            house.again(ALLOW)
            assert [one["id"] for one in pending(proxy)] == [asked["id"]] and receiver.calls == 1
            settle(proxy, "s", 0, "did_not_run")
            assert text(call(proxy, "s", "charge", run="b")) == "done"
            keys = {seen.headers.get("idempotency-key") for seen in server.requests}
            assert server.calls == 2 and len(keys) == 1


def test_a_held_call_is_told_once_in_the_transaction_that_holds_it(tmp_path: Path, server: Upstream) -> None:
    with Upstream(lambda seen: plain(b"")) as receiver:
        alerts = f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{receiver.url}"\n'
        house = House(tmp_path, server, HOLD, alerts)
        with house.proxy as proxy:
            for run in ("a", "b"):
                with start(proxy, "s", "charge", run=run):
                    asked = question(proxy, "s", "held")
            until(lambda: receiver.calls >= 1, "message")
            listed = [(one["event"], one["subject"]) for one in proxy.control.get("/api/alerts")]
            assert listed == [("approval.required", asked["approval"])]


def test_agent_keys_are_asked_of_tools_too_and_reach_no_server(tmp_path: Path, server: Upstream) -> None:
    house = House(tmp_path, server, ALLOW, '[server]\nagent_keys = ["sk-test-agent"]\n')
    claim = b'{"arguments":{},"process":"p","sending":"1"}'
    with house.proxy as proxy:
        for target, sent in ((path("s"), call_body("charge")), ("/s/s/r/a/tools/f/claim", claim)):
            for wrong in ({}, {"x-agentstate-key": "sk-test-other"}):
                assert proxy.client.send("POST", target, headers(**wrong), sent).status == 401
            for key, more in (("", {"x-agentstate-key": "sk-test-agent"}), ("/k/sk-test-agent", {})):
                assert proxy.client.send("POST", key + target, headers(**more), sent).status == 200
    assert all(b"sk-test-agent" not in repr(seen.headers).encode() + seen.body for seen in server.requests)
    assert server.calls


def test_a_call_that_waits_holds_no_stop_up(tmp_path: Path, server: Upstream) -> None:
    house = House(tmp_path, server, HOLD)
    claim = b'{"arguments":{},"process":"p","sending":"1"}'
    with house.proxy as proxy, start(proxy, "s", "charge") as waiting, proxy.client.connect() as function:
        question(proxy, "s", "held")
        function.request("POST", "/s/s/r/a/tools/charge/claim", headers(), claim)
        until(lambda: len(effects_of(proxy, "s")) == 2, "second held call")
        assert proxy.stop() == 0
        assert end_of(waiting.answer())["error"]["data"]["code"] == "shutting_down"
        assert function.answer().status == 503
        proxy.doctor()


def test_a_clients_standing_stream_ends_with_the_proxy_and_holds_no_stop_up(tmp_path: Path, server: Upstream) -> None:
    """Every client that keeps a session with a server has one."""
    house = House(tmp_path, server, HOLD)
    server.script = lambda seen: stream(b": news\n\n", Gate())
    with house.proxy as proxy, proxy.client.connect() as client:
        client.request("GET", "/s/s/r/a/mcp/bank", headers())
        client.read_head()
        client.read_until(b": news")
        began = time.monotonic()
        assert proxy.stop() == 0
        assert time.monotonic() - began < 10  # a stop waits 20 s for what is under way
        assert client.read_body() == (b": news\n\n", True)
        assert "ERROR" not in proxy.log and "error" not in proxy.log
