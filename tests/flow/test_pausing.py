"""A session that a person has paused sends nothing: its requests wait, and are judged anew once it goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support import chat, mailing
from tests.support.client import TEST_KEY, Connection, status_of
from tests.support.mailing import TO_BOB, calls_of
from tests.support.people import Asking, Person, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Reply, Upstream, model, plain, stream
from tests.support.waiting import until

IMPATIENT = {"x-stainless-read-timeout": "0.9"}
BOUND_S = 20.0
upstream, proxy = mailing.upstream, mailing.proxy


@pytest.fixture(autouse=True)
def samples(upstream: Upstream) -> None:
    upstream.script = model


def pause(proxy: Proxy, session: str = "s", reason: str = "") -> Any:
    return proxy.control.post(f"/api/sessions/{session}/pause", {"reason": reason})


def resume(proxy: Proxy, session: str = "s") -> Any:
    return proxy.control.post(f"/api/sessions/{session}/resume", {})


def start(
    proxy: Proxy, session: str, text: str = "write to Bob", *, run: str = "r1", stream: bool = False, **headers: str
) -> Connection:
    return proxy.client.start(session, text, run=run, stream=stream, headers=headers)


def ask(proxy: Proxy, session: str, text: str, *, run: str = "r1", **headers: str) -> Asking:
    return Asking(lambda: proxy.client.ask(session, text, run=run, headers=headers))


def begun(proxy: Proxy, session: str = "s") -> int:
    return len(proxy.control.session(session)["steps"])


def sdk(proxy: Proxy, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{proxy.url}/s/s/r/r1/v1", api_key=TEST_KEY, **more)


# --- waiting ---


@pytest.mark.parametrize("streamed", [False, True])
def test_request_waits_with_heartbeats_and_is_sent_when_the_session_goes_on(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy)
    with start(proxy, "s", "second", run="r1", stream=streamed, **IMPATIENT) as connection:
        assert connection.read_head()[0] == 200
        connection.read_until(b"\n\n")
        assert connection.received().replace(b": keep-alive", b"").strip() == b""
        assert (upstream.calls, begun(proxy)) == (1, 1)
        resume(proxy)
        body, whole = connection.read_body()
    assert whole and b"chatcmpl-u1" in body
    assert (upstream.calls, begun(proxy)) == (2, 2)
    again = proxy.client.ask("s", "second", run="r2", stream=streamed)
    assert again.body == body.replace(b": keep-alive\n\n", b"").lstrip(b"\n")


def test_short_wait_has_status_and_headers_of_its_own_answer(proxy: Proxy, upstream: Upstream) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy)
    with start(proxy, "s", "second", run="r1") as connection:
        assert connection.silent(0.3)
        resume(proxy)
        answer = connection.answer()
    assert (answer.status, answer.outcome, answer.step) == (200, "live", 1)


def test_what_is_recorded_is_replayed_meanwhile(proxy: Proxy, upstream: Upstream) -> None:
    first = proxy.client.ask("s", "first", run="r1")
    pause(proxy)
    again = proxy.client.ask("s", "first", run="r2")
    assert (again.body, again.outcome, upstream.calls) == (first.body, "replay", 1)


@pytest.mark.parametrize("streamed", [False, True])
def test_openai_sdk_waits_through_a_pause_that_is_longer_than_its_read_timeout(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    client = sdk(proxy, timeout=1.2, max_retries=0)
    messages: Any = [{"role": "user", "content": "hello"}]
    client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "first"}])
    pause(proxy)

    def create() -> Any:
        if not streamed:
            return client.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message.content
        events = client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)
        return "".join(event.choices[0].delta.content or "" for event in events if event.choices)

    asking = Asking(create)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 2.5 or not asking.waits)
    assert asking.waits and upstream.calls == 1
    resume(proxy)
    assert asking.answer() == "sample 1"  # type: ignore[comparison-overlap]


def test_retry_of_a_client_that_left_waits_in_its_place_and_is_sent_once(proxy: Proxy, upstream: Upstream) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy)
    with start(proxy, "s", "second", run="r1") as connection:
        assert connection.silent(0.2)
    asking = ask(proxy, "s", "second", run="r1", **{"x-stainless-retry-count": "1"})
    assert asking.waits
    resume(proxy)
    assert asking.answer().status == 200
    assert (upstream.calls, begun(proxy)) == (2, 2)


def test_client_that_leaves_while_it_waits_leaves_nothing_behind(proxy: Proxy, upstream: Upstream) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy)
    with start(proxy, "s", "second", run="r1") as connection:
        assert connection.silent(0.2)
    resume(proxy)
    assert proxy.client.ask("s", "third", run="r1").step == 1
    assert upstream.calls == 2


def test_pause_survives_a_kill_and_whoever_asks_again_waits_on(proxy: Proxy, upstream: Upstream) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy, reason="looking")
    with start(proxy, "s", "second", run="r1") as connection:
        assert connection.silent(0.2)
        proxy.kill()
    proxy.start()
    asking = ask(proxy, "s", "second", run="r1")
    with start(proxy, "s", "second", run="r1", **IMPATIENT) as connection:
        assert connection.read_head()[0] == 200
    assert asking.waits and upstream.calls == 1
    assert proxy.control.session("s")["session"]["note"]["text"] == "looking"
    resume(proxy)
    assert asking.answer().status == 200
    assert upstream.calls == 2


def test_stop_tells_those_who_wait_to_ask_again(proxy: Proxy) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy)
    asking = ask(proxy, "s", "second", run="r1")
    with start(proxy, "s", "third", run="r1", **IMPATIENT) as connection:
        connection.read_head()  # by now both wait
        assert proxy.stop() == 0
        assert asking.answer().status == 503
        assert not connection.read_body()[1]


# --- what goes on, and what does not ---


def test_attempt_in_flight_comes_to_its_end_and_the_next_request_waits(proxy: Proxy, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script = lambda seen: stream(chat.chunks("one two")[0], gate, *chat.chunks("one two")[1:])
    with start(proxy, "s", "first", run="r1", stream=True) as connection:
        connection.read_head()
        gate.wait_reached()
        pause(proxy)
        gate.open()
        body, whole = connection.read_body()
    assert whole and body.endswith(b"data: [DONE]\n\n")
    asking = ask(proxy, "s", "second", run="r1")
    with start(proxy, "s", "second", run="r1", **IMPATIENT) as other:
        other.read_head()
    assert asking.waits and upstream.calls == 1
    resume(proxy)
    asking.answer()


@pytest.mark.parametrize("streamed", [False, True])
def test_no_retry_is_begun_while_the_session_is_paused(tmp_path: Path, upstream: Upstream, streamed: bool) -> None:
    gate = Gate()
    answers: list[Reply] = [[gate, *plain(b'{"error":{"message":"busy"}}', 503)]]
    upstream.script = lambda seen: answers.pop() if answers else model(seen)
    with Proxy(tmp_path / "data", upstream.url, settings={"retry.attempts": 3, "retry.base_s": 0.01}) as proxy:
        with start(proxy, "s", "first", run="r1", stream=streamed, **IMPATIENT) as connection:
            gate.wait_reached()
            pause(proxy)
            gate.open()
            assert connection.read_head()[0] == 200  # kept waiting
            connection.read_until(b"\n\n")
            assert upstream.calls == 1
            [step] = proxy.control.session("s")["steps"]
            assert step["attempts"] == 1
            resume(proxy)
            body, whole = connection.read_body()
        assert whole and b"chatcmpl-u1" in body
        assert proxy.control.session("s")["steps"][0]["attempts"] == 2


def test_rollback_in_between_counts_for_the_request_that_waits_and_does_not_end_the_pause(
    proxy: Proxy, upstream: Upstream
) -> None:
    for text in ("first", "second"):
        proxy.client.ask("s", text, run="r1")
    pause(proxy)
    asking = ask(proxy, "s", "third", run="r1")
    with start(proxy, "s", "other", run="r1", **IMPATIENT) as connection:
        connection.read_head()
    told = proxy.control.post("/api/sessions/s/reset", {"step_number": 1})
    assert told["session"]["status"] == "PAUSED" and told["session"]["note"]["by"] == "admin"
    assert asking.waits
    resume(proxy)
    assert asking.answer().status == 200
    steps = proxy.control.session("s")["steps"]
    assert [step["superseded"] for step in steps] == [False, True, False]


def test_held_call_that_is_approved_meanwhile_is_released_when_the_session_goes_on(
    proxy: Proxy, upstream: Upstream
) -> None:
    upstream.script = mailing.mailing
    asking = mailing.ask(proxy, "s")
    [approval] = pending(proxy)
    pause(proxy)
    decide(proxy, approval, "APPROVED")
    assert asking.waits
    resume(proxy)
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]


def test_request_that_waits_for_approval_is_not_sent_while_the_session_is_paused(
    proxy: Proxy, upstream: Upstream
) -> None:
    asking = ask(proxy, "s", "first", run="r1", **{"x-agent-require-approval": "true"})
    [approval] = pending(proxy)
    pause(proxy)
    decide(proxy, approval, "APPROVED")
    with start(proxy, "s", "other", run="r1", **IMPATIENT) as connection:
        connection.read_head()
    assert asking.waits and upstream.calls == 0
    resume(proxy)
    assert asking.answer().status == 200
    assert upstream.calls == 1


def test_function_is_not_claimed_while_the_session_is_paused(proxy: Proxy) -> None:
    proxy.client.ask("s", "first", run="r1")
    pause(proxy)

    def claim() -> Any:
        asked = {"arguments": {}, "class": "once", "process": "p", "sending": "1"}
        with proxy.client.connect() as connection:
            body = json.dumps(asked).encode()
            connection.request("POST", "/s/s/r/r1/tools/refund/claim", {"content-type": "application/json"}, body)
            return connection.answer()

    waiting = Asking(claim)
    with start(proxy, "s", "other", run="r1", **IMPATIENT) as connection:
        connection.read_head()
    assert waiting.waits
    resume(proxy)
    told = waiting.answer().json()
    assert (told["state"], told["approval"], told["why"]) == ("held", None, "the session is paused")
    assert claim().json()["state"] == "claimed"


# --- who, why, and how else ---


def test_it_is_known_who_paused_and_resumed_and_why(proxy: Proxy) -> None:
    proxy.client.ask("s", "first", run="r1")
    Person(proxy, "ana", "admin")
    view = pause(proxy, reason="the numbers look wrong")["session"]
    assert view["status"] == "PAUSED"
    assert (view["note"]["by"], view["note"]["text"]) == ("admin", "the numbers look wrong")
    assert resume(proxy)["session"]["status"] == "RUNNING"
    log = [entry for entry in proxy.control.get("/api/audit") if entry["subject"] == "s"]
    assert [(entry["actor"], entry["action"], entry["detail"]) for entry in log] == [
        ("admin", "session.paused", {"reason": "the numbers look wrong"}),
        ("admin", "session.resumed", {}),
    ]


def test_only_admins_pause_and_resume(proxy: Proxy) -> None:
    proxy.client.ask("s", "first", run="r1")
    approver = Person(proxy, "bo", "approver")
    for verb in ("pause", "resume"):
        assert status_of(approver._control.post, f"/api/sessions/s/{verb}", {})[0] == 403


def test_bare_status_refuses_at_once_as_it_always_did(proxy: Proxy) -> None:
    proxy.client.ask("s", "first", run="r1")
    proxy.control.post("/api/sessions/s/status", {"status": "PAUSED"})
    refused = proxy.client.ask("s", "second", run="r1")
    assert (refused.status, refused.error["code"]) == (400, "session_paused")
    assert refused.headers.get("x-should-retry") == "false"


def test_settings_let_requests_be_refused(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path / "data", upstream.url, settings={"pause.requests": "refuse"}) as proxy:
        proxy.client.ask("s", "first", run="r1")
        pause(proxy, reason="stop")
        refused = proxy.client.ask("s", "second", run="r1")
    assert (refused.status, refused.error["code"]) == (400, "session_paused")
    assert "by admin: stop" in refused.error["message"]


def test_pause_of_a_person_is_not_replaced_by_that_for_a_run_which_departs(tmp_path: Path, upstream: Upstream) -> None:
    """Else what lets the latter go on, such as a rollback, would end the former."""
    settings = {"pause.requests": "refuse", "replay.on_divergence": "pause"}
    with Proxy(tmp_path / "data", upstream.url, settings=settings) as proxy:
        proxy.client.ask("s", "first", run="r1")
        pause(proxy, reason="stop")
        refused = proxy.client.ask("s", "another way", run="r2")
        assert (refused.status, refused.error["code"]) == (400, "session_paused")
        assert "by admin: stop" in refused.error["message"]
        proxy.control.post("/api/sessions/s/rollback", {"step_number": 0})
        assert proxy.control.session("s")["session"]["status"] == "PAUSED"


def test_settings_bound_the_wait(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path / "data", upstream.url, settings={"pause.wait_s": 0.5}) as proxy:
        proxy.client.ask("s", "first", run="r1")
        pause(proxy)
        refused = proxy.client.ask("s", "second", run="r1")
    assert (refused.status, refused.error["code"]) == (400, "session_paused")
    assert "pause.wait_s" in refused.error["message"]


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_session_that_is_over_is_neither_paused_nor_resumed(proxy: Proxy, status: str) -> None:
    proxy.client.ask("s", "first", run="r1")
    proxy.control.post("/api/sessions/s/status", {"status": status})
    for verb in ("pause", "resume"):
        assert status_of(proxy.control.post, f"/api/sessions/s/{verb}", {})[0] == 409
    assert proxy.control.session("s")["session"]["status"] == status
