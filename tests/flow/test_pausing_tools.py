"""Tool calls of a session that a person has paused are not made, whoever would make them, and wait in their form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flow.test_tools import OK, answers, end_of, events, headers, path, result
from tests.flow.test_tools import body as call_body
from tests.support import chat
from tests.support.client import Connection
from tests.support.doubt import until
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Seen, Upstream, plain

IMPATIENT = {"x-stainless-read-timeout": "0.9"}


@pytest.fixture
def server() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


@pytest.fixture
def proxy(server: Upstream, tmp_path: Path) -> Iterator[Proxy]:
    settings = {"mcp.bank.url": f"{server.url.removesuffix('/v1')}/mcp", "upstream.queue_wait_s": 20}
    with Proxy(tmp_path, server.url, settings=settings) as running:
        yield running
        assert "Traceback" not in running.log


def start(proxy: Proxy, accept: str = "", **more: Any) -> Connection:
    sent = headers(**IMPATIENT, **({"accept": accept} if accept else {}))
    connection = proxy.client.connect()
    connection.request("POST", path("s"), sent, call_body("charge", **more))
    return connection


def pause(proxy: Proxy, session: str = "s") -> None:
    proxy.control.post(f"/api/sessions/{session}/pause", {})


def resume(proxy: Proxy, session: str = "s") -> None:
    proxy.control.post(f"/api/sessions/{session}/resume", {})


def made(proxy: Proxy) -> Any:
    return proxy.client.send("POST", path("s"), headers(), call_body("first"))


def test_call_is_not_made_before_the_session_goes_on_and_its_client_hears_of_it(proxy: Proxy, server: Upstream) -> None:
    made(proxy)
    pause(proxy)
    with start(proxy, meta={"progressToken": "p"}) as connection:
        status, head = connection.read_head()
        assert (status, head.get("content-type")) == (200, "text/event-stream")
        [told] = events(connection.read_until(b"}}\n\n"))
        assert told["params"]["message"] == "the session is paused"
        assert server.calls == 1
        resume(proxy)
        rest, whole = connection.read_body()
    assert whole and events(rest)[-1]["result"] == OK
    assert server.calls == 2


def test_client_that_takes_no_events_gets_blanks_before_its_answer(proxy: Proxy, server: Upstream) -> None:
    made(proxy)
    pause(proxy)
    with start(proxy, "application/json") as connection:
        assert connection.read_head()[0] == 200
        connection.read_until(b" ")
        resume(proxy)
        whole, _ = connection.read_body()
    assert json.loads(whole)["result"] == OK


def test_recorded_result_is_given_meanwhile_and_a_server_still_lists_its_tools(proxy: Proxy, server: Upstream) -> None:
    made(proxy)
    pause(proxy)
    again = proxy.client.send("POST", path("s", "b"), headers(), call_body("first"))
    assert (again.outcome, end_of(again)["result"], server.calls) == ("replay", OK, 1)
    listing = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    server.script = lambda seen: plain(result(seen, {"tools": []}))
    assert proxy.client.send("POST", path("s"), headers(), listing).status == 200


def test_call_that_waits_is_judged_by_what_was_decided_meanwhile(proxy: Proxy, server: Upstream) -> None:
    made(proxy)
    pause(proxy)
    with start(proxy, "application/json") as connection:
        connection.read_head()
        proxy.control.post("/api/sessions/s/status", {"status": "PAUSED"})
        whole, _ = connection.read_body()
    assert "paused" in json.loads(whole)["error"]["message"]
    assert server.calls == 1


def test_what_waits_for_its_turn_at_a_provider_is_not_sent_once_its_session_is_paused(
    tmp_path: Path, server: Upstream
) -> None:
    gate = Gate()

    def script(seen: Seen) -> Any:
        return [gate, *plain(chat.completion("hi"))] if server.calls == 1 else plain(chat.completion("hi"))

    server.script = script
    with Proxy(tmp_path, server.url, settings={"providers.openai.max_concurrent": 1}) as proxy:
        first = Asking(lambda: proxy.client.ask("other", "one"))
        gate.wait_reached()
        second = Asking(lambda: proxy.client.ask("s", "two"))
        until(lambda: proxy.control.get("/api/stats")["queues"][0]["waiting"] == 1, "the second waits")
        pause(proxy)
        gate.open()
        assert first.answer().status == 200
        assert proxy.client.ask("other", "three").status == 200, "the turn is free for others"
        assert second.waits and server.calls == 2
        resume(proxy)
        assert second.answer().status == 200


@pytest.mark.parametrize("by", ["status", "person", "rollback"])
def test_what_waits_for_its_turn_is_not_sent_either_where_requests_are_refused_or_its_step_was_rolled_back(
    tmp_path: Path, server: Upstream, by: str
) -> None:
    gate = Gate()

    def script(seen: Seen) -> Any:
        return [gate, *plain(chat.completion("hi"))] if server.calls == 1 else plain(chat.completion("hi"))

    server.script = script
    settings = {"providers.openai.max_concurrent": 1, "pause.requests": "refuse"}
    with Proxy(tmp_path, server.url, settings=settings) as proxy:
        first = Asking(lambda: proxy.client.ask("other", "one"))
        gate.wait_reached()
        second = Asking(lambda: proxy.client.ask("s", "two", run="r1"))
        until(lambda: proxy.control.get("/api/stats")["queues"][0]["waiting"] == 1, "the second waits")
        if by == "status":
            proxy.control.post("/api/sessions/s/status", {"status": "PAUSED"})
        elif by == "person":
            pause(proxy)
        else:
            proxy.control.post("/api/sessions/s/rollback", {"step_number": 0})
        gate.open()
        assert first.answer().status == 200
        refused = second.answer()
        assert (refused.status < 500, refused.error["code"]) == (
            True,
            "conflict" if by == "rollback" else "session_paused",
        )
        assert server.calls == 1
        resume(proxy)
        assert proxy.client.ask("s", "two", run="r1").status == 200
        assert server.calls == 2


def test_what_a_provider_holds_is_not_looked_at_while_the_session_is_paused_but_lists_are(
    proxy: Proxy, server: Upstream
) -> None:
    job = {"id": "resp_1", "object": "response", "status": "queued", "model": "m", "output": [], "background": True}
    server.script = lambda seen: plain(json.dumps(job).encode())
    sent = json.dumps({"model": "m", "input": "hi", "background": True}).encode()
    assert proxy.client.send("POST", "/s/s/v1/responses", headers(), sent).status == 200
    pause(proxy)
    before = server.calls
    asking = [
        Asking(lambda path=path: proxy.client.send("GET", f"/s/s/v1/{path}", headers()))  # type: ignore[misc]
        for path in ("responses/resp_1", "responses/resp_1/input_items")
    ]
    asking.append(Asking(lambda: proxy.client.send("DELETE", "/s/s/v1/files/f1", headers())))
    server.script = lambda seen: plain(b'{"data":[]}')
    assert proxy.client.send("GET", "/s/s/v1/models", headers()).status == 200
    with start(proxy, "application/json") as connection:
        connection.read_head()  # by now the others wait too
    assert all(one.waits for one in asking)
    assert [seen.target.rpartition("/")[2] for seen in server.requests[before:]] == ["models"]
    resume(proxy)
    assert [one.answer().status for one in asking] == [200, 200, 200]


def test_people_are_told_where_their_settings_say_so(tmp_path: Path, server: Upstream) -> None:
    server.script = lambda seen: plain(b"ok")
    root = server.url.removesuffix("/v1")
    file = f'[[alerts]]\nkind = "webhook"\nurl = "{root}/hook"\non = ["session.paused", "session.resumed"]\n'
    with Proxy(tmp_path, server.url, file=file) as proxy:
        proxy.control.post("/api/sessions/s/runs", {"run": "r1", "replaces": None, "supervisor_pid": None})
        proxy.control.post("/api/sessions/s/pause", {"reason": "looking"})
        server.wait_calls(1)
        resume(proxy)
        server.wait_calls(2)
    told = [seen.json() for seen in server.requests]
    assert [(one["type"], one["data"]["by"]) for one in told] == [  # type: ignore[index, call-overload]
        ("session.paused", "admin"), ("session.resumed", "admin")
    ]  # fmt: skip
    assert told[0]["data"]["reason"] == "looking"  # type: ignore[index, call-overload]


def test_held_call_of_a_server_that_is_approved_meanwhile_is_made_when_the_session_goes_on(
    proxy: Proxy, server: Upstream
) -> None:
    connection = proxy.client.connect()
    with connection:
        connection.request("POST", path("s"), headers(**IMPATIENT), call_body("send_email", to="a"))
        connection.read_head()
        [approval] = pending(proxy)
        pause(proxy)
        decide(proxy, approval, "APPROVED")
        with start(proxy, "application/json") as other:
            other.read_head()  # by now the call would have been made
        assert server.calls == 0
        resume(proxy)
        rest, whole = connection.read_body()
    assert whole and events(rest)[-1]["result"] == OK
    assert server.calls == 1


def test_call_that_waits_for_room_in_a_budget_is_not_begun_once_its_session_is_paused(
    tmp_path: Path, server: Upstream
) -> None:
    gate = Gate()
    server.script = lambda seen: (
        [gate, *plain(chat.completion("hi"))] if server.calls == 1 else plain(chat.completion("hi"))
    )
    with Proxy(tmp_path, server.url, settings={"budget.day_tokens": 150}) as proxy:
        first = Asking(lambda: proxy.client.ask("other", "one", max_tokens=90))
        gate.wait_reached()
        with proxy.client.start("s", "two", max_tokens=90, headers=IMPATIENT) as connection:
            assert connection.silent(0.3)
            pause(proxy)
            gate.open()
            assert first.answer().status == 200
            assert connection.read_head()[0] == 200  # kept waiting, now by the pause
            assert proxy.control.session("s")["steps"] == [] and server.calls == 1
            resume(proxy)
            body, whole = connection.read_body()
        assert whole and json.loads(body)["choices"]
