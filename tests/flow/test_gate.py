"""Nothing held reaches the agent before a person has let it through, and what they decide is what it gets."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat, mailing
from tests.support.client import chat_headers, chat_path, status_of
from tests.support.mailing import TO_BOB, TOOLS, ask, calls_of, start, with_policies
from tests.support.people import Asking, Person, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain, stream

SECRETS = (b"send_email", b"bob@example.com", b"call_1", b"tool_calls")
IMPATIENT = {"x-stainless-read-timeout": "0.9"}
upstream, proxy = mailing.upstream, mailing.proxy


# --- nothing slips through ---


def test_text_of_a_stream_flows_and_no_byte_of_a_held_call_does_before_it_is_approved(
    proxy: Proxy, upstream: Upstream
) -> None:
    with start(proxy, "s", stream=True, **IMPATIENT) as connection:
        connection.read_head()
        connection.read_until(b"Bob.")
        connection.read_until(b"\n\n: ")  # a heartbeat
        shown = connection.received()
        assert not [secret for secret in SECRETS if secret in shown]
        [approval] = pending(proxy)
        assert (approval["tool_name"], approval["session_id"], approval["step_number"]) == ("send_email", "s", 0)
        decide(proxy, approval, "APPROVED")
        body, _ = connection.read_body()
    whole = b"".join(chat.chunks("I will write to Bob.", tool_calls=[chat.tool_call("send_email", TO_BOB)]))
    assert b"".join(event for event in body.split(b": keep-alive\n\n")) == whole
    assert upstream.calls == 1


def test_plain_answer_is_kept_back_whole_and_its_status_until_the_first_heartbeat(
    proxy: Proxy, upstream: Upstream
) -> None:
    with start(proxy, "s") as connection:
        [approval] = pending(proxy)
        assert connection.silent(0.3)
        decide(proxy, approval, "APPROVED")
        answer = connection.answer()
    assert answer.body == chat.completion("I will write to Bob.", tool_calls=[chat.tool_call("send_email", TO_BOB)])
    assert (answer.status, answer.outcome) == (200, "held")
    assert upstream.calls == 1


def test_impatient_client_of_a_plain_answer_gets_white_space_before_it(proxy: Proxy) -> None:
    with start(proxy, "s", **IMPATIENT) as connection:
        assert connection.read_head()[0] == 200
        [approval] = pending(proxy)
        connection.read_until(b"\n\n")
        assert connection.received().strip() == b""
        decide(proxy, approval, "APPROVED")
        body, whole = connection.read_body()
    assert whole
    assert body.lstrip(b"\n") == chat.completion(
        "I will write to Bob.", tool_calls=[chat.tool_call("send_email", TO_BOB)]
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_replay_gives_what_was_released_and_asks_nobody_again(proxy: Proxy, upstream: Upstream, streamed: bool) -> None:
    asking = ask(proxy, "s", stream=streamed)
    decide(proxy, pending(proxy)[0], "APPROVED")
    released = asking.answer().body
    for run in ("r2", "r3"):
        again = proxy.client.ask("s", "write to Bob", run=run, stream=streamed, tools=TOOLS)
        assert (again.body, again.outcome) == (released, "replay")
    assert pending(proxy, 0) == []
    assert upstream.calls == 1


def test_siblings_of_a_held_call_wait_with_it_and_other_tools_pass(proxy: Proxy, upstream: Upstream) -> None:
    both = [chat.tool_call("search", "{}", call_id="call_2"), chat.tool_call("send_email", TO_BOB)]
    upstream.reset(lambda seen: stream(*chat.chunks("Hm.", tool_calls=both)))
    asking = ask(proxy, "s", stream=True)
    [approval] = pending(proxy)
    assert asking.waits
    decide(proxy, approval, "APPROVED")
    assert [name for name, _ in calls_of(asking.answer().body)] == ["search", "send_email"]
    upstream.reset(lambda seen: stream(*chat.chunks("Hm.", tool_calls=both[:1])))
    assert [name for name, _ in calls_of(ask(proxy, "t", stream=True).answer().body)] == ["search"]


def test_each_choice_of_an_answer_is_judged(proxy: Proxy, upstream: Upstream) -> None:
    body = json.loads(chat.completion("x", choices=2))
    body["choices"][1]["message"]["tool_calls"] = [chat.tool_call("send_email", TO_BOB)]
    body["choices"][1]["finish_reason"] = "tool_calls"
    upstream.reset(lambda seen: plain(json.dumps(body).encode()))
    asking = Asking(lambda: proxy.client.ask("s", "hi", run="r", n=2, tools=TOOLS))
    decide(proxy, pending(proxy)[0], "REJECTED", reason="no")
    choices = json.loads(asking.answer().body)["choices"]
    assert not choices[1]["message"].get("tool_calls")
    assert choices[1]["finish_reason"] == "stop"
    assert choices[0] == body["choices"][0]


def test_legacy_function_call_is_held_too(proxy: Proxy, upstream: Upstream) -> None:
    body = json.loads(chat.completion(None, finish="function_call"))
    body["choices"][0]["message"]["function_call"] = {"name": "send_email", "arguments": TO_BOB}
    upstream.reset(lambda seen: plain(json.dumps(body).encode()))
    asking = ask(proxy, "s")
    decide(proxy, pending(proxy)[0], "REJECTED", reason="no")
    message = json.loads(asking.answer().body)["choices"][0]["message"]
    assert "function_call" not in message
    assert "refused by admin: no" in message["content"]


# --- what was decided ---


@pytest.mark.parametrize("streamed", [False, True])
def test_edit_replaces_the_arguments_and_nothing_of_the_old_ones_is_given(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    asking = ask(proxy, "s", stream=streamed)
    [approval] = pending(proxy)
    decide(proxy, approval, "EDITED", arguments={"to": "eve@example.com"}, reason="Eve does this now")
    answer = asking.answer()
    [(name, arguments)] = calls_of(answer.body)
    assert (name, json.loads(arguments)) == ("send_email", {"to": "eve@example.com"})
    assert b"bob@example.com" not in answer.body
    again = proxy.client.ask("s", "write to Bob", run="r2", stream=streamed, tools=TOOLS)
    assert (again.body, again.outcome) == (answer.body, "replay")
    assert upstream.calls == 1
    proxy.stop()
    proxy.doctor()


@pytest.mark.parametrize(
    "arguments", [{"body": "x"}, {"to": 7}, {"to": "x", "cc": "y"}, [], "text", None], ids=lambda value: repr(value)
)
def test_edit_that_does_not_fit_the_tool_is_refused_and_the_approval_stays_pending(
    proxy: Proxy, arguments: Any
) -> None:
    asking = ask(proxy, "s")
    [approval] = pending(proxy)
    path = f"/api/approvals/{approval['id']}/action"
    status, body = status_of(proxy.control.post, path, {"action": "EDITED", "arguments": arguments})
    assert status == 422, body
    assert pending(proxy)[0]["id"] == approval["id"]
    decide(proxy, approval, "APPROVED")
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]


@pytest.mark.parametrize("streamed", [False, True])
def test_rejected_call_is_replaced_by_a_text_that_says_who_and_why(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    asking = ask(proxy, "s", stream=streamed)
    decide(proxy, pending(proxy)[0], "REJECTED", reason="Bob is on holiday")
    answer = asking.answer()
    assert calls_of(answer.body) == []
    text = chat.text_of(answer.body)
    assert text.startswith("I will write to Bob.")
    assert text.endswith("The call of send_email was refused by admin: Bob is on holiday.")
    assert b"bob@example.com" not in answer.body
    assert b"tool_calls" not in answer.body
    again = proxy.client.ask("s", "write to Bob", run="r2", stream=streamed, tools=TOOLS)
    assert (again.body, again.outcome) == (answer.body, "replay")
    assert upstream.calls == 1
    assert pending(proxy, 0) == []


def test_reject_by_error_is_a_403_that_no_sdk_retries_and_stays_one(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\non_reject = "error"') as proxy:
        asking = ask(proxy, "s")
        decide(proxy, pending(proxy)[0], "REJECTED", reason="no")
        answer = asking.answer()
        assert (answer.status, answer.error["code"]) == (403, "human_rejection")
        assert answer.headers.get("x-should-retry") == "false"
        again = proxy.client.ask("s", "write to Bob", run="r2", tools=TOOLS)
        assert (again.status, again.error["message"]) == (403, answer.error["message"])
        asking = ask(proxy, "t", stream=True)
        decide(proxy, pending(proxy)[0], "REJECTED", reason="no")
        assert asking.answer().stream_error["code"] == "human_rejection"
    assert upstream.calls == 2


def test_reject_by_error_after_a_heartbeat_is_told_as_a_text(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\non_reject = "error"') as proxy:
        with start(proxy, "s", **IMPATIENT) as connection:
            connection.read_head()
            decide(proxy, pending(proxy)[0], "REJECTED", reason="no")
            body, _ = connection.read_body()
        assert "refused by admin: no" in chat.text_of(body.strip())


def test_reject_by_continue_tells_the_model_and_gives_its_next_answer(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\non_reject = "continue"') as proxy:
        asking = ask(proxy, "s")
        decide(proxy, pending(proxy)[0], "REJECTED", reason="use the phone")
        answer = asking.answer()
        assert chat.text_of(answer.body) == "Done: The call of send_email was refused by admin: use the phone."
        [first, second] = upstream.wait_calls(2)
        messages = json.loads(second.body)["messages"]
        assert messages[:-2] == json.loads(first.body)["messages"]
        assert messages[-2]["tool_calls"] == [chat.tool_call("send_email", TO_BOB)]
        assert (messages[-1]["role"], messages[-1]["tool_call_id"]) == ("tool", "call_1")
        again = proxy.client.ask("s", "write to Bob", run="r2", tools=TOOLS)
        assert again.body.strip() == answer.body.strip()
        assert upstream.calls == 2
        assert pending(proxy, 0) == []


def test_denied_call_is_refused_at_once_and_no_person_is_asked(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_*"]\naction = "deny"') as proxy:
        answer = proxy.client.ask("s", "write to Bob", run="r", tools=TOOLS)
        assert calls_of(answer.body) == []
        assert "The call of send_email was refused by a policy" in chat.text_of(answer.body)
        assert pending(proxy, 0) == []


def test_condition_holds_what_it_names_and_lets_the_rest_pass(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(
        tmp_path, upstream, "tools = ['send_email']\nwhen = 'args.to.endsWith(\"@example.com\")'"
    ) as proxy:
        asking = ask(proxy, "s")
        decide(proxy, pending(proxy)[0], "APPROVED")
        asking.answer()
        inside = chat.tool_call("send_email", '{"to": "bob@inside.test"}')
        upstream.reset(lambda seen: plain(chat.completion("x", tool_calls=[inside])))
        assert calls_of(proxy.client.ask("t", "hi", run="r", tools=TOOLS).body)


def test_one_of_three_rejected_leaves_two_with_places_in_order(proxy: Proxy, upstream: Upstream) -> None:
    three = [chat.tool_call("send_email", json.dumps({"to": f"{name}@x.test"}), call_id=name) for name in "abc"]
    upstream.reset(lambda seen: stream(*chat.chunks("Hm.", tool_calls=three)))
    asking = ask(proxy, "s", stream=True)
    approvals = pending(proxy, 3)
    for approval, action in zip(approvals, ("APPROVED", "REJECTED", "APPROVED"), strict=True):
        assert asking.waits
        decide(proxy, approval, action)
    answer = asking.answer()
    assert [json.loads(arguments)["to"] for _, arguments in calls_of(answer.body)] == ["a@x.test", "c@x.test"]
    assert b"b@x.test" not in answer.body


def test_call_equal_to_one_that_this_run_was_refused_is_refused_without_a_person(proxy: Proxy) -> None:
    asking = ask(proxy, "s")
    decide(proxy, pending(proxy)[0], "REJECTED", reason="never")
    asking.answer()
    nagging = proxy.client.ask("s", "please, write to Bob", run="r1", tools=TOOLS)
    assert calls_of(nagging.body) == []
    assert "refused already: never" in chat.text_of(nagging.body)
    assert pending(proxy, 0) == []


# --- pending lives in the journal ---


@pytest.mark.parametrize("streamed", [False, True])
def test_agent_that_dies_while_it_waits_finds_the_decision_when_it_is_back(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    with start(proxy, "s", stream=streamed):
        [approval] = pending(proxy)
    again = ask(proxy, "s", run="r2", stream=streamed)
    assert pending(proxy)[0]["id"] == approval["id"]
    decide(proxy, approval, "APPROVED")
    assert calls_of(again.answer().body) == [("send_email", TO_BOB)]
    with start(proxy, "t", stream=streamed):
        [approval] = pending(proxy)
    decide(proxy, approval, "EDITED", arguments={"to": "eve@example.com"})
    late = proxy.client.ask("t", "write to Bob", run="r2", stream=streamed, tools=TOOLS)
    assert json.loads(calls_of(late.body)[0][1]) == {"to": "eve@example.com"}
    assert upstream.calls == 2


def test_asking_again_while_it_is_pending_joins_the_same_approval(proxy: Proxy, upstream: Upstream) -> None:
    for count in range(4):
        retry = {"x-stainless-retry-count": str(count)}
        with start(proxy, "s", **retry):
            [approval] = pending(proxy)
    asking = ask(proxy, "s", **{"x-stainless-retry-count": "4"})
    decide(proxy, approval, "APPROVED")
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]
    assert upstream.calls == 1


@pytest.mark.parametrize("decided", ["before", "after"])
@pytest.mark.parametrize("streamed", [False, True])
def test_proxy_that_is_killed_while_people_think_asks_once_and_delivers(
    proxy: Proxy, upstream: Upstream, decided: str, streamed: bool
) -> None:
    with start(proxy, "s", stream=streamed):
        [approval] = pending(proxy)
        proxy.kill()
    proxy.restart()
    assert pending(proxy)[0]["id"] == approval["id"]
    if decided == "before":
        decide(proxy, approval, "APPROVED")
        body = proxy.client.ask("s", "write to Bob", run="r2", stream=streamed, tools=TOOLS).body
    else:
        asking = ask(proxy, "s", run="r2", stream=streamed)
        decide(proxy, approval, "APPROVED")
        body = asking.answer().body
    assert calls_of(body) == [("send_email", TO_BOB)]
    assert upstream.calls == 1
    assert pending(proxy, 0) == []


def test_same_process_that_asks_again_after_the_proxy_died_joins_too(proxy: Proxy, upstream: Upstream) -> None:
    with start(proxy, "s"):
        [approval] = pending(proxy)
        proxy.kill()
    proxy.restart()
    asking = ask(proxy, "s", run="r1")
    decide(proxy, approval, "APPROVED")
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]
    assert upstream.calls == 1


def test_nothing_is_released_while_the_session_is_paused(proxy: Proxy) -> None:
    asking = ask(proxy, "s")
    [approval] = pending(proxy)
    proxy.control.post("/api/sessions/s/status", {"status": "PAUSED"})
    decide(proxy, approval, "APPROVED")
    assert asking.waits
    proxy.control.post("/api/sessions/s/status", {"status": "RUNNING"})
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]


def test_policy_that_became_stricter_after_the_approval_counts_when_it_is_released(
    tmp_path: Path, upstream: Upstream
) -> None:
    alerts = f'[[alerts]]\nkind = "slack"\nurl = "{upstream.url}/v1/hook"\n'
    with with_policies(tmp_path, upstream, f'tools = ["send_email"]\n{alerts}') as proxy:
        with start(proxy, "s"):
            [approval] = pending(proxy)
        with start(proxy, "t"):
            [other] = pending(proxy, 1, "t")
        decide(proxy, approval, "APPROVED")
        decide(proxy, other, "APPROVED")
        proxy.kill()
        (tmp_path / "agentstate.toml").write_text(f'{alerts}[[policies]]\ntools = ["send_email"]\nquorum = 2')
        proxy.restart()
        asking = ask(proxy, "s", run="r2")
        assert [one["id"] for one in pending(proxy, 1, "s")] == [approval["id"]]
        assert asking.waits
        assert (told_of(proxy, approval), told_of(proxy, other)) == (2, 1)
        proxy.kill()
        (tmp_path / "agentstate.toml").write_text('[[policies]]\ntools = ["send_email"]\naction = "deny"')
        proxy.restart()
        assert calls_of(proxy.client.ask("t", "write to Bob", run="r2", tools=TOOLS).body) == []


def test_approval_that_expires_is_refused(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\nexpires_s = 0.5') as proxy:
        answer = proxy.client.ask("s", "write to Bob", run="r", tools=TOOLS)
        assert calls_of(answer.body) == []
        assert "nobody approved it in time" in chat.text_of(answer.body)


def time_is_over(proxy: Proxy, approval: dict[str, Any]) -> None:
    """The approval was decided in time, and that time is over by now."""
    with contextlib.closing(sqlite3.connect(proxy.data / "agentstate.db", timeout=20)) as conn, conn:
        conn.execute("update approval set expires_at = created_at where id = ?", (approval["id"],))


def told_of(proxy: Proxy, approval: dict[str, Any]) -> int:
    """How many messages ask for a decision about it."""
    told = [(one["event"], one["subject"]) for one in proxy.control.get("/api/alerts")]
    return told.count(("approval.required", approval["id"]))


@pytest.mark.parametrize("later", ["asked again", "resumed"])
def test_approval_whose_time_is_over_when_it_would_be_used_is_asked_again_and_people_are_told(
    tmp_path: Path, upstream: Upstream, later: str
) -> None:
    rule = f'tools = ["send_email"]\nexpires_s = 3600\n[[alerts]]\nkind = "slack"\nurl = "{upstream.url}/v1/hook"'
    with with_policies(tmp_path, upstream, rule) as proxy:
        if later == "resumed":
            asking = ask(proxy, "s")
            [approval] = pending(proxy)
            proxy.control.post("/api/sessions/s/status", {"status": "PAUSED"})
        else:
            with start(proxy, "s"):
                [approval] = pending(proxy)
        decide(proxy, approval, "APPROVED")
        time_is_over(proxy, approval)
        if later == "resumed":
            proxy.control.post("/api/sessions/s/status", {"status": "RUNNING"})
        else:
            asking = ask(proxy, "s", run="r2")
        [again] = pending(proxy)
        assert asking.waits and again["id"] == approval["id"]
        assert again["expires_at"] > approval["expires_at"]
        assert told_of(proxy, approval) == 2
        decide(proxy, approval, "APPROVED")
        assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]
        actions = [one["action"] for one in proxy.control.get("/api/audit") if one["subject"] == approval["id"]]
        assert actions == ["approval.asked", "approval.decided", "approval.reopened", "approval.decided"]


def test_agreement_whose_time_is_over_counts_for_nothing_when_it_is_asked_again(
    tmp_path: Path, upstream: Upstream
) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\nexpires_s = 3600\nquorum = 2') as proxy:
        ann, bob = Person(proxy, "ann"), Person(proxy, "bob")
        with start(proxy, "s"):
            [approval] = pending(proxy)
        for person in (ann, bob):
            person.decide(approval, "APPROVED")
        time_is_over(proxy, approval)
        asking = ask(proxy, "s", run="r2")
        pending(proxy)
        ann.decide(approval, "APPROVED")
        assert pending(proxy)[0]["id"] == approval["id"] and asking.waits
        bob.decide(approval, "APPROVED")
        assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]


# --- requests that are held before they are sent ---

HOLD = {"x-agent-require-approval": "true"}


@pytest.mark.parametrize("streamed", [False, True])
def test_held_request_is_sent_once_it_is_approved_and_not_before(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    upstream.reset(lambda seen: stream(*chat.chunks("ok")) if streamed else plain(chat.completion("ok")))
    asking = ask(proxy, "s", stream=streamed, **HOLD)
    [approval] = pending(proxy)
    assert (approval["kind"], approval["tool_name"]) == ("request", "")
    assert (upstream.calls, asking.waits) == (0, True)
    decide(proxy, approval, "APPROVED")
    assert chat.text_of(asking.answer().body) == "ok"
    again = proxy.client.ask("s", "write to Bob", run="r2", stream=streamed, tools=TOOLS, headers=HOLD)
    assert (chat.text_of(again.body), again.outcome, upstream.calls) == ("ok", "replay", 1)
    assert pending(proxy, 0) == []


def test_held_request_whose_answer_has_a_held_call_is_given_once_both_are_approved(proxy: Proxy) -> None:
    asking = ask(proxy, "s", **{"x-agent-require-approval": "true"})
    [request] = pending(proxy)
    decide(proxy, request, "APPROVED")
    until = time.monotonic() + 30
    while (call := pending(proxy)[0])["id"] == request["id"]:
        assert time.monotonic() < until
    decide(proxy, call, "APPROVED")
    assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]


def test_held_request_that_is_rejected_is_never_sent_and_stays_refused(proxy: Proxy, upstream: Upstream) -> None:
    asking = ask(proxy, "s", **HOLD)
    decide(proxy, pending(proxy)[0], "REJECTED", reason="not now")
    answer = asking.answer()
    assert (answer.status, answer.error["code"]) == (403, "human_rejection")
    assert "refused by admin: not now" in answer.error["message"]
    again = proxy.client.ask("s", "write to Bob", run="r2", tools=TOOLS, headers=HOLD)
    assert (again.status, again.error["code"], upstream.calls) == (403, "human_rejection", 0)


def test_impatient_client_of_a_rejected_request_is_told_by_a_valid_completion(proxy: Proxy, upstream: Upstream) -> None:
    with start(proxy, "s", **HOLD, **IMPATIENT) as connection:
        connection.read_head()
        decide(proxy, pending(proxy)[0], "REJECTED", reason="not now")
        body, _ = connection.read_body()
    assert "refused by admin: not now" in chat.text_of(body.strip())
    assert upstream.calls == 0


def test_held_request_waits_over_the_death_of_agent_and_proxy(proxy: Proxy, upstream: Upstream) -> None:
    upstream.reset(lambda seen: plain(chat.completion("ok")))
    with start(proxy, "s", **HOLD):
        pending(proxy)
    proxy.kill()
    proxy.restart()
    decide(proxy, pending(proxy)[0], "APPROVED")
    assert upstream.calls == 0  # nobody wants it yet
    answer = proxy.client.ask("s", "write to Bob", run="r2", tools=TOOLS, headers=HOLD)
    assert (chat.text_of(answer.body), upstream.calls) == ("ok", 1)


# --- what was done is not done again ---


def test_call_that_another_run_made_is_held_as_a_suspected_duplicate(proxy: Proxy, upstream: Upstream) -> None:
    def charging(seen: Seen) -> Reply:
        asked = json.loads(seen.body)["messages"]
        if asked[-1]["role"] == "tool":
            return plain(chat.completion(f"Done: {asked[-1]['content']}"))
        return plain(
            chat.completion("x", tool_calls=[chat.tool_call("charge", '{"usd": 5}', call_id=f"c{seen.number}")])
        )

    upstream.reset(charging)
    first = proxy.client.ask("s", "charge five", run="r1")
    call = json.loads(first.body)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "receipt 17"}
    proxy.client.ask("s", [chat.user("charge five"), {**call, "content": "x"}, result], run="r1")
    headers = {"x-agent-replay": "off"}
    asking = Asking(lambda: proxy.client.ask("s", "charge five, please", run="r2", headers=headers))
    [approval] = pending(proxy)
    assert (approval["kind"], approval["tool_name"]) == ("duplicate", "charge")
    decide(proxy, approval, "REUSED")
    assert chat.text_of(asking.answer().body) == "Done: receipt 17"
    other = Asking(lambda: proxy.client.ask("s", "charge five, now", run="r3", headers=headers))
    decide(proxy, pending(proxy)[0], "APPROVED")
    assert calls_of(other.answer().body) == [("charge", '{"usd": 5}')]


def test_results_that_come_back_are_kept_with_their_calls(proxy: Proxy) -> None:
    asking = ask(proxy, "s")
    decide(proxy, pending(proxy)[0], "EDITED", arguments={"to": "eve@example.com"})
    message = json.loads(asking.answer().body)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "sent"}
    proxy.client.ask("s", [chat.user("write to Bob"), message, result], run="r1", tools=TOOLS)
    [call] = proxy.control.steps("s")[0]["calls"]
    assert (call["tool"], json.loads(call["arguments"]), call["result"]) == (
        "send_email", {"to": "eve@example.com"}, "sent",
    )  # fmt: skip


def test_parallel_equal_calls_are_questions_of_their_own(proxy: Proxy, upstream: Upstream) -> None:
    headers = chat_headers()
    body = chat.request("write to Bob", tools=TOOLS)
    connections = [proxy.client.connect() for _ in range(3)]
    for connection in connections:
        connection.request("POST", chat_path("s", "r1"), headers, body)
    for approval in pending(proxy, 3):
        decide(proxy, approval, "APPROVED")
    for connection in connections:
        assert calls_of(connection.answer().body) == [("send_email", TO_BOB)]
        connection.close()
    assert upstream.calls == 3
