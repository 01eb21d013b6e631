"""No call goes beyond a budget unless a person lets it, however many ask at once; what is replayed uses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from agentstate.engine.links import Links
from tests.flow.test_approval_commands import run
from tests.support import chat
from tests.support.client import Answer, status_of
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Reply, Seen, Upstream, plain

# Each answer costs a cent and 12 tokens; a call of 10 tokens at most may cost about as much.
PRICES = '[[prices]]\nmodel = "*"\ninput = 0.0\noutput = 2000.0\n'
CENT = 5 * 2000.0 / 1_000_000


def start(tmp_path: Path, upstream: Upstream, *limits: str, more: str = "") -> Proxy:
    return Proxy(tmp_path, upstream.url, file=PRICES + "[budget]\n" + "\n".join(limits) + "\n" + more)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


def ask(proxy: Proxy, text: str, session: str = "s", *, run: str = "r1", **more: Any) -> Answer:
    return proxy.client.ask(session, text, run=run, **{"max_tokens": 5} | more)


def asking(proxy: Proxy, text: str, session: str = "s", **more: Any) -> Asking:
    return Asking(lambda: ask(proxy, text, session, **more))


def refused(answer: Answer) -> dict[str, Any]:
    assert (answer.status, answer.headers.get("x-should-retry")) == (400, "false")
    assert answer.error["code"] == "budget_exceeded"
    return answer.error


# --- denied ---


@pytest.mark.parametrize(
    "limit", ["session_steps = 2", "session_usd = 0.025", "session_tokens = 55", "day_steps = 2", "day_usd = 0.025"]
)
def test_calls_beyond_a_limit_are_denied_and_never_sent(tmp_path: Path, upstream: Upstream, limit: str) -> None:
    with start(tmp_path, upstream, limit, 'at_limit = "deny"') as proxy:
        assert [ask(proxy, f"q{number}").status for number in range(2)] == [200, 200]
        error = refused(ask(proxy, "q2"))
        assert limit.partition(" ")[0] in error["message"]
        assert upstream.calls == 2
        assert len(proxy.control.steps("s")) == 2


def test_a_session_has_a_budget_of_its_own_and_a_day_one_for_all(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1", "day_steps = 2", 'at_limit = "deny"') as proxy:
        assert ask(proxy, "q", "one").status == 200
        refused(ask(proxy, "more", "one"))
        assert ask(proxy, "q", "two").status == 200
        assert "day_steps" in refused(ask(proxy, "q", "three"))["message"]


def test_replays_cost_nothing_and_are_never_refused(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 2", "session_usd = 0.025", 'at_limit = "deny"') as proxy:
        given = [ask(proxy, f"q{number}").body for number in range(2)]
        for run in ("r2", "r3"):
            again = [ask(proxy, f"q{number}", run=run) for number in range(2)]
            assert [(answer.outcome, answer.body) for answer in again] == [("replay", body) for body in given]
        refused(ask(proxy, "q2", run="r3"))


def test_memo_answers_are_never_refused(tmp_path: Path, upstream: Upstream) -> None:
    vector = json.dumps({"object": "list", "model": "e", "data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}})
    upstream.script = lambda seen: plain(vector.encode())
    body = b'{"model": "e", "input": "x"}'
    with start(tmp_path, upstream, "session_steps = 1", 'at_limit = "deny"') as proxy:
        for _ in range(3):
            head = {"content-type": "application/json"}
            assert proxy.client.send("POST", "/s/s/v1/embeddings", head, body).status == 200
        assert upstream.calls == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}),
        ("/v1beta/models/gemini-test:generateContent", {"contents": [{"parts": [{"text": "x"}]}]}),
        ("/api/chat", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
def test_every_api_passes_the_budget(tmp_path: Path, upstream: Upstream, path: str, body: dict[str, Any]) -> None:
    with start(tmp_path, upstream, "session_tokens = 1", 'at_limit = "deny"') as proxy:
        sent = json.dumps({"model": "m", **body}).encode()
        answer = proxy.client.send("POST", f"/s/s{path}", {"content-type": "application/json"}, sent)
        assert (answer.status, answer.headers.get("x-should-retry")) == (400, "false")
        assert b"session_tokens" in answer.body
        assert upstream.calls == 0


def test_a_stream_is_denied_with_a_status_and_not_in_the_middle(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1", 'at_limit = "deny"') as proxy:
        assert ask(proxy, "q", stream=True).status == 200
        refused(ask(proxy, "q1", stream=True))


def test_a_further_attempt_of_a_step_counts_no_step_but_its_money(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1", "session_usd = 0.025", 'at_limit = "deny"') as proxy:
        upstream.script = lambda seen: plain(b'{"error": {"message": "busy"}}', 503)
        assert ask(proxy, "q").status == 503
        upstream.reset()
        assert ask(proxy, "q", run="r2").status == 200
        [step] = proxy.control.steps("s")
        assert step["attempts"] == 2
        refused(ask(proxy, "q1", run="r2"))


def test_a_further_attempt_that_has_no_room_is_held_like_any_call(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_tokens = 70") as proxy:
        assert [ask(proxy, f"q{number}").status for number in (1, 2)] == [200, 200]
        upstream.script = lambda seen: plain(b'{"error": {"message": "busy"}}', 503)
        assert ask(proxy, "q0").status == 503
        upstream.reset()
        assert ask(proxy, "q3").status == 200
        held = asking(proxy, "q0")
        [question] = pending(proxy)
        assert upstream.calls == 1
        decide(proxy, question, "APPROVED")
        assert held.answer().status == 200
        assert ask(proxy, "q0", run="r2").outcome == "replay"


# --- at the same time ---


def wide(count: int, work: Callable[[int], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_parallel_calls_never_slip_past_a_session_budget_together(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 3", 'at_limit = "deny"') as proxy:
        answers = wide(12, lambda number: ask(proxy, f"q{number}"))
        assert sorted(answer.status for answer in answers) == [200] * 3 + [400] * 9
        assert upstream.calls == 3


def test_parallel_calls_never_cost_more_than_the_budget(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, f"session_usd = {4.5 * CENT}", 'at_limit = "deny"') as proxy:
        answers = wide(12, lambda number: ask(proxy, f"q{number}"))
        assert sorted(answer.status for answer in answers) == [200] * 4 + [400] * 8
        assert upstream.calls == 4
        assert proxy.control.session("s")["session"]["cost"] == pytest.approx(4 * CENT)


def test_a_call_waits_for_others_whose_reservations_are_in_its_way_and_then_goes(
    tmp_path: Path, upstream: Upstream
) -> None:
    hold, ended = Gate(), []

    def script(seen: Seen) -> Reply:
        ended.append(all(before.answered.is_set() for before in upstream.requests[: seen.number]))
        head, body = plain(chat.completion())
        return [head, hold, body] if b"slow" in seen.body else [head, body]

    upstream.script = script
    # The first may cost 4 cents and costs one; there is room for the second only once that is known.
    with start(tmp_path, upstream, f"session_usd = {4.5 * CENT}", 'at_limit = "deny"') as proxy:
        first = asking(proxy, "slow", max_tokens=20)
        hold.wait_reached()
        with proxy.client.start("s", "quick", run="r1", max_tokens=10) as second:
            assert second.silent(0.3)
            hold.open()
            assert (first.answer().status, second.answer().status) == (200, 200)
    assert ended == [True, True]


# --- held ---


def test_a_call_at_the_limit_is_held_and_let_through_once(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        assert ask(proxy, "q").status == 200
        held = asking(proxy, "q1")
        [question] = pending(proxy)
        assert (question["kind"], question["session_id"], question["step_number"]) == ("budget", "s", 1)
        assert question["arguments"]["limit"] == "session_steps"
        assert upstream.calls == 1
        decide(proxy, question, "APPROVED")
        assert held.answer().status == 200
        more = asking(proxy, "q2")
        [again] = pending(proxy)
        assert again["id"] != question["id"]
        decide(proxy, again, "REJECTED", reason="enough")
        answer = more.answer()
        assert (answer.status, answer.headers.get("x-should-retry")) == (403, "false")
        assert "enough" in answer.error["message"]
        assert upstream.calls == 2


def test_a_raise_lets_every_call_through_that_has_room_then(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        assert ask(proxy, "q").status == 200
        held = [asking(proxy, f"q{number}") for number in (1, 2)]
        questions = pending(proxy, 2)
        decide(proxy, questions[0], "EDITED", arguments={"raise": 2})
        assert [one.answer().status for one in held] == [200, 200]
        assert pending(proxy, 0) == []
        third = asking(proxy, "q3")
        [question] = pending(proxy)
        assert (question["arguments"]["most"], question["arguments"]["spent"]) == (3, 3)
        decide(proxy, question, "REJECTED")
        assert third.answer().status == 403


@pytest.mark.parametrize("arguments", [{}, {"raise": 0}, {"raise": "2"}, {"raise": True}, {"raise": 1, "more": 2}, []])
def test_a_raise_that_is_none_leaves_the_question_open(tmp_path: Path, upstream: Upstream, arguments: Any) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        ask(proxy, "q")
        asking(proxy, "q1")
        [question] = pending(proxy)
        action = f"/api/approvals/{question['id']}/action"
        status, _ = status_of(proxy.control.post, action, {"action": "EDITED", "arguments": arguments})
        assert status == 422
        assert len(pending(proxy)) == 1


def test_a_stop_pauses_the_session(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        ask(proxy, "q")
        held = asking(proxy, "q1")
        [question] = pending(proxy)
        decide(proxy, question, "REJECTED")
        assert held.answer().status == 403
        assert proxy.control.session("s")["session"]["status"] == "PAUSED"
        assert ask(proxy, "q2").error["code"] == "session_paused"
        assert ask(proxy, "q", run="r2").outcome == "replay"
        assert upstream.calls == 1


def test_who_waits_gets_heartbeats(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        ask(proxy, "q")
        impatient = {"x-stainless-read-timeout": "0.9"}
        with proxy.client.start("s", "q1", run="r1", stream=True, headers=impatient, max_tokens=5) as connection:
            assert connection.read_head()[0] == 200
            connection.read_until(b": keep-alive")
            [question] = pending(proxy)
            decide(proxy, question, "APPROVED")
            body, whole = connection.read_body()
        assert whole and chat.text_of(body.replace(b": keep-alive\n\n", b"")) == "sample 1"


def test_a_held_call_survives_its_agent_and_the_proxy(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        ask(proxy, "q")
        with proxy.client.start("s", "q1", run="r1", max_tokens=5):
            [question] = pending(proxy)
        proxy.kill()
        proxy.start()
        again = asking(proxy, "q1", run="r2")
        [same] = pending(proxy)
        assert same["id"] == question["id"]
        decide(proxy, same, "APPROVED")
        assert again.answer().status == 200
        assert upstream.calls == 2


def test_what_a_session_has_used_is_known_after_a_restart(tmp_path: Path, upstream: Upstream) -> None:
    limits = "session_steps = 9", f"session_usd = {2.5 * CENT}", "day_tokens = 1000", 'at_limit = "deny"'
    with start(tmp_path, upstream, *limits) as proxy:
        ask(proxy, "q")
        ask(proxy, "q1")
        proxy.kill()
        proxy.start()
        assert "session_usd" in refused(ask(proxy, "q2"))["message"]


def test_budget_that_is_set_later_counts_what_was_used_before(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path, upstream.url, file=PRICES) as proxy:
        ask(proxy, "q")
        ask(proxy, "q1")
    with start(tmp_path, upstream, "session_steps = 2", 'at_limit = "deny"') as proxy:
        refused(ask(proxy, "q2"))


def test_a_request_that_waits_for_its_approval_uses_nothing_until_it_is_sent(
    tmp_path: Path, upstream: Upstream
) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        held = asking(proxy, "q", headers={"x-agent-require-approval": "true"})
        [request] = pending(proxy)
        assert request["kind"] == "request"
        assert ask(proxy, "q1").status == 200
        decide(proxy, request, "APPROVED")
        [question] = pending(proxy)
        assert (question["kind"], question["step_number"]) == ("budget", 0)
        decide(proxy, question, "APPROVED")
        assert held.answer().status == 200


def test_a_limit_is_raised_from_the_command_line(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        ask(proxy, "q")
        held = asking(proxy, "q1")
        [question] = pending(proxy)
        shown = run(proxy, "approvals", question["id"])
        assert "session s has used 1 steps of 1 steps (budget.session_steps)" in shown
        assert "is edited by admin" in run(proxy, "approve", question["id"], "--raise", "1")
        assert held.answer().status == 200
        assert "budget" in run(proxy, "show", "s")


def test_the_page_behind_a_link_raises_a_limit(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "session_steps = 1") as proxy:
        ask(proxy, "q")
        held = asking(proxy, "q1")
        [question] = pending(proxy)
        path = f"/approve/{Links(proxy.data, 3600.0).make(question['id'], 'slack-1')}"
        shown = proxy.client.send("GET", path).body.decode()
        assert "A budget waits for a decision" in shown and "Or raise the limit" in shown
        form = urlencode({"action": "EDITED", "arguments": '{"raise": 1}', "digest": question["digest"]}).encode()
        head = {"content-type": "application/x-www-form-urlencoded"}
        assert proxy.client.send("POST", path, head, form).status == 303
        assert held.answer().status == 200


# --- what is told ---


def test_people_are_told_once_of_each_limit(tmp_path: Path, upstream: Upstream) -> None:
    with Upstream(lambda seen: plain(b"")) as ops:
        target = f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{ops.url}"\n'
        with start(tmp_path, upstream, "session_steps = 1", 'at_limit = "deny"', more=target) as proxy:
            ask(proxy, "q")
            for number in range(3):
                refused(ask(proxy, f"q{number + 1}"))
            [seen] = ops.wait_calls(1)
            assert json.loads(seen.body)["type"] == "budget.reached"
            assert len(proxy.control.get("/api/alerts")) == 1


def test_a_model_without_a_price_counts_nothing_in_money_and_that_is_said(tmp_path: Path, upstream: Upstream) -> None:
    file = '[budget]\nsession_usd = 0.01\nsession_steps = 2\nat_limit = "deny"\n'
    with Proxy(tmp_path, upstream.url, file=file) as proxy:
        assert [ask(proxy, f"q{number}").status for number in range(2)] == [200, 200]
        assert "session_steps" in refused(ask(proxy, "q2"))["message"]
        assert "no price is known of gpt-4o-test at openai" in proxy.log


# --- the same again and again ---


def test_a_run_that_asks_the_same_with_the_same_answer_is_noticed(tmp_path: Path, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(chat.completion("no", name=f"u{seen.number}"))
    with start(tmp_path, upstream, "repeats = 3", 'at_limit = "deny"') as proxy:
        assert [ask(proxy, "anything new?").status for _ in range(3)] == [200] * 3
        assert "the same 3 times" in refused(ask(proxy, "anything new?"))["message"]
        assert ask(proxy, "something else").status == 200


def test_a_run_in_circles_is_noticed_wherever_a_limit_is_set(tmp_path: Path, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(chat.completion("no", name=f"u{seen.number}"))
    with start(tmp_path, upstream, "session_steps = 5000", 'at_limit = "deny"') as proxy:
        assert {ask(proxy, "anything new?").status for _ in range(100)} == {200}
        assert "the same 100 times" in refused(ask(proxy, "anything new?"))["message"]


def test_polling_whose_answers_differ_is_let_go_on(tmp_path: Path, upstream: Upstream) -> None:
    with start(tmp_path, upstream, "repeats = 3", 'at_limit = "deny"') as proxy:
        assert [ask(proxy, "anything new?").status for _ in range(8)] == [200] * 8


def looping(seen: Seen) -> Reply:
    """A model that makes the same call for ever."""
    count = sum(message["role"] == "tool" for message in json.loads(seen.body)["messages"])
    return plain(chat.completion(None, tool_calls=[chat.tool_call("look", '{"at": "x"}', call_id=f"call_{count}")]))


def loop(proxy: Proxy, rounds: int, result: Callable[[int], str]) -> list[int]:
    """An agent that does what it is told; the statuses it was given."""
    said: list[dict[str, Any]] = [chat.user("look")]
    found = []
    for number in range(rounds):
        answer = proxy.client.ask("s", said, run="r1")
        found.append(answer.status)
        if answer.status != 200:
            break
        message = answer.json()["choices"][0]["message"]
        said += [message, {"role": "tool", "tool_call_id": f"call_{number}", "content": result(number)}]
    return found


def test_a_loop_of_the_same_tool_call_with_the_same_result_is_noticed(tmp_path: Path, upstream: Upstream) -> None:
    upstream.script = looping
    tools = '[tools]\nread = ["look"]\n'
    with start(tmp_path, upstream, "repeats = 4", 'at_limit = "deny"', more=tools) as proxy:
        statuses = loop(proxy, 10, lambda number: "nothing")
        assert statuses[-1] == 400 and 4 <= statuses.count(200) <= 5


def test_a_tool_whose_results_change_is_no_loop(tmp_path: Path, upstream: Upstream) -> None:
    upstream.script = looping
    tools = '[tools]\nread = ["look"]\n'
    with start(tmp_path, upstream, "repeats = 4", 'at_limit = "deny"', more=tools) as proxy:
        assert loop(proxy, 10, lambda number: f"{number} found") == [200] * 10
