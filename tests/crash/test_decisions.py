"""The proxy is killed before, in and after every write that a decision makes: nothing is asked, sent or released twice,
and nothing is released that nobody let through."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.test_gate import HOLD
from tests.support import chat
from tests.support.crashing_server import command
from tests.support.mailing import TO_BOB, TOOLS, ask, calls_of, mailing, start
from tests.support.people import decide, pending
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Upstream, plain

WHEN = pytest.mark.parametrize("when", ["before", "inside", "after"])
WRITES = (
    "hold_step", "send_held", "refuse_step", "decide", "expire", "release", "reopen", "note_results",
)  # fmt: skip


@contextlib.contextmanager
def dying(tmp_path: Path, name: str, when: str, count: int = 1, file: str = "") -> Iterator[tuple[Proxy, Upstream]]:
    killed = command(name, count, when)
    with Upstream(mailing) as upstream, Proxy(tmp_path, upstream.url, command=killed, file=file) as proxy:
        yield proxy, upstream
        assert proxy.stop() == 0
        proxy.doctor()


def dead(proxy: Proxy, file: str | None = None) -> None:
    """It has killed itself; start it again, sound."""
    assert proxy.wait() == -9
    if file is not None:
        (proxy.data / "agentstate.toml").write_text(file)
    proxy.restart(command=CLI)


def released(proxy: Proxy, run: str) -> list[tuple[str, str]]:
    answer = proxy.client.ask("s", "write to Bob", run=run, tools=TOOLS)
    return calls_of(answer.body)


@WHEN
@pytest.mark.parametrize("streamed", [False, True])
def test_proxy_killed_as_it_asks_has_shown_nothing_and_asks_once(tmp_path: Path, when: str, streamed: bool) -> None:
    with dying(tmp_path, "end_step", when) as (proxy, upstream):
        with start(proxy, "s", stream=streamed) as connection:
            assert proxy.wait() == -9
            with contextlib.suppress(ConnectionError, AssertionError):
                connection.read_head()
                body, _ = connection.read_body()
                assert b"send_email" not in body
                assert b"bob@example.com" not in body
        dead(proxy)
        asking = ask(proxy, "s", run="r2", stream=streamed)
        [approval] = pending(proxy)
        decide(proxy, approval, "APPROVED")
        assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]
        assert upstream.calls == (1 if when == "after" else 2)
        assert pending(proxy, 0) == []


@WHEN
@pytest.mark.parametrize("action", ["APPROVED", "REJECTED"])
def test_proxy_killed_as_it_takes_a_decision_has_taken_it_or_asks_still(tmp_path: Path, when: str, action: str) -> None:
    with dying(tmp_path, "decide", when) as (proxy, upstream):
        with start(proxy, "s"):
            [approval] = pending(proxy)
            with pytest.raises(OSError, match=r"."):
                decide(proxy, approval, action)
        dead(proxy)
        if when != "after":
            assert [one["id"] for one in pending(proxy)] == [approval["id"]]
            decide(proxy, approval, action)
        assert pending(proxy, 0) == []
        assert released(proxy, "r2") == ([("send_email", TO_BOB)] if action == "APPROVED" else [])
        assert upstream.calls == 1
        log = [entry for entry in proxy.control.get("/api/audit") if entry["action"] == "approval.decided"]
        assert len(log) == 1


@WHEN
def test_proxy_killed_as_it_releases_an_answer_gives_it_when_asked_again(tmp_path: Path, when: str) -> None:
    with dying(tmp_path, "release", when) as (proxy, upstream):
        with start(proxy, "s") as connection:
            [approval] = pending(proxy)
            with contextlib.suppress(OSError):
                decide(proxy, approval, "EDITED", arguments={"to": "eve@example.com"})
            assert proxy.wait() == -9
            with pytest.raises((ConnectionError, AssertionError)):
                connection.answer()
        dead(proxy)
        assert pending(proxy, 0) == []
        assert [json.loads(arguments) for _, arguments in released(proxy, "r2")] == [{"to": "eve@example.com"}]
        assert released(proxy, "r3") == released(proxy, "r4")
        assert upstream.calls == 1


@WHEN
def test_proxy_killed_as_it_holds_a_request_has_sent_nothing_and_asks_once(tmp_path: Path, when: str) -> None:
    with dying(tmp_path, "hold_step", when) as (proxy, upstream):
        with start(proxy, "s", **HOLD):
            assert proxy.wait() == -9
        dead(proxy)
        assert len(pending(proxy, 1 if when == "after" else 0)) == (when == "after")
        asking = ask(proxy, "s", run="r2", **HOLD)
        [approval] = pending(proxy)
        assert upstream.calls == 0
        upstream.reset(lambda seen: plain(chat.completion("ok")))
        decide(proxy, approval, "APPROVED")
        assert (chat.text_of(asking.answer().body), upstream.calls) == ("ok", 1)


@WHEN
def test_proxy_killed_as_it_sends_an_approved_request_sends_it_once_and_asks_nobody_again(
    tmp_path: Path, when: str
) -> None:
    with dying(tmp_path, "send_held", when) as (proxy, upstream):
        upstream.reset(lambda seen: plain(chat.completion("ok")))
        with start(proxy, "s", **HOLD):
            [approval] = pending(proxy)
            with contextlib.suppress(OSError):
                decide(proxy, approval, "APPROVED")
            assert proxy.wait() == -9
        dead(proxy)
        assert upstream.calls == 0
        answer = proxy.client.ask("s", "write to Bob", run="r2", tools=TOOLS, headers=HOLD)
        assert (chat.text_of(answer.body), upstream.calls) == ("ok", 1)
        assert pending(proxy, 0) == []


@WHEN
def test_proxy_killed_as_it_refuses_a_request_never_sends_it(tmp_path: Path, when: str) -> None:
    with dying(tmp_path, "refuse_step", when) as (proxy, upstream):
        with start(proxy, "s", **HOLD):
            [approval] = pending(proxy)
            with contextlib.suppress(OSError):
                decide(proxy, approval, "REJECTED", reason="no")
            assert proxy.wait() == -9
        dead(proxy)
        for run in ("r2", "r3"):
            answer = proxy.client.ask("s", "write to Bob", run=run, tools=TOOLS, headers=HOLD)
            assert (answer.status, answer.error["code"]) == (403, "human_rejection")
        assert upstream.calls == 0


@WHEN
def test_proxy_killed_as_an_approval_expires_refuses_the_call(tmp_path: Path, when: str) -> None:
    file = '[[policies]]\ntools = ["send_email"]\nexpires_s = 0.3'
    with dying(tmp_path, "expire", when, file=file) as (proxy, upstream):
        with start(proxy, "s"):
            assert proxy.wait() == -9
        dead(proxy)
        assert released(proxy, "r2") == []
        assert upstream.calls == 1


@WHEN
def test_proxy_killed_as_it_asks_for_more_than_was_decided_asks_for_it_all_the_same(tmp_path: Path, when: str) -> None:
    stricter = '[[policies]]\ntools = ["send_email"]\nquorum = 2'
    with dying(tmp_path, "reopen", when) as (proxy, upstream):
        with start(proxy, "s"):
            [approval] = pending(proxy)
        decide(proxy, approval, "APPROVED")
        proxy.kill()
        (proxy.data / "agentstate.toml").write_text(stricter)
        proxy.restart()
        with start(proxy, "s", run="r2"):
            assert proxy.wait() == -9
        dead(proxy)
        asking = ask(proxy, "s", run="r3")
        assert [one["id"] for one in pending(proxy)] == [approval["id"]]
        assert asking.waits
        decide(proxy, approval, "REJECTED")
        assert calls_of(asking.answer().body) == []
        assert upstream.calls == 1


@WHEN
def test_proxy_killed_as_it_keeps_a_result_keeps_it_when_it_comes_again(tmp_path: Path, when: str) -> None:
    with dying(tmp_path, "note_results", when, file="policies = []") as (proxy, upstream):
        first = proxy.client.ask("s", "write to Bob", run="r1", tools=TOOLS)
        message = json.loads(first.body)["choices"][0]["message"]
        result: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "sent"}
        said = [chat.user("write to Bob"), message, result]
        with pytest.raises(ConnectionError):
            proxy.client.ask("s", said, run="r1", tools=TOOLS)
        dead(proxy)
        released(proxy, "r2")
        assert chat.text_of(proxy.client.ask("s", said, run="r2", tools=TOOLS).body) == "Done: sent"
        [call] = proxy.control.steps("s")[0]["calls"]
        assert (call["tool"], call["result"]) == ("send_email", "sent")
        assert upstream.calls <= 3
