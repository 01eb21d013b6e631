"""What somebody tried who wanted a call to pass that nobody let through, or a decision to count that should not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.flow.test_gate import HOLD
from tests.support import chat, mailing
from tests.support.mailing import TO_BOB, TOOLS, ask, calls_of, start, with_policies
from tests.support.people import Asking, Person, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

upstream, proxy = mailing.upstream, mailing.proxy


@pytest.mark.parametrize("action", ["deny", "hold"])
def test_model_that_insists_is_told_a_few_times_and_not_without_end(
    tmp_path: Path, upstream: Upstream, action: str
) -> None:
    upstream.reset(
        lambda seen: plain(
            chat.completion(None, tool_calls=[chat.tool_call("send_email", TO_BOB, call_id=f"c{seen.number}")])
        )
    )
    rule = f'tools = ["send_email"]\naction = "{action}"\non_reject = "continue"'
    with with_policies(tmp_path, upstream, rule) as proxy:
        asking = ask(proxy, "s")
        if action == "hold":
            decide(proxy, pending(proxy)[0], "REJECTED", reason="no")
        answer = asking.answer()
        assert calls_of(answer.body) == []
        assert "refused" in chat.text_of(answer.body)
        assert upstream.calls <= 5
        paid = upstream.calls
        again = proxy.client.ask("s", "write to Bob", run="r2", tools=TOOLS)
        assert (again.status, upstream.calls) == (200, paid)


def test_edit_that_falls_under_a_stricter_policy_needs_whom_that_one_asks_for(
    tmp_path: Path, upstream: Upstream
) -> None:
    rules = (
        'tools = ["send_email"]',
        "tools = ['send_email']\nwhen = 'args.to == \"all\"'\napprovers = [\"cfo\"]",
        "tools = ['send_email']\nwhen = 'args.to == \"world\"'\nquorum = 2",
    )
    with with_policies(tmp_path, upstream, *rules) as proxy:
        alice, cfo = Person(proxy, "alice"), Person(proxy, "cfo")
        asking = ask(proxy, "s")
        [approval] = pending(proxy)
        assert alice.refused(approval, "EDITED", arguments={"to": "all"}) == 403
        assert cfo.refused(approval, "EDITED", arguments={"to": "world"}) == 422
        assert asking.waits
        cfo.decide(approval, "EDITED", arguments={"to": "all"})
        assert json.loads(calls_of(asking.answer().body)[0][1]) == {"to": "all"}


@pytest.mark.parametrize("after", ['approvers = ["alice"]', 'approvers = ["alice", "bob"]\nquorum = 2'])
def test_word_of_somebody_who_may_not_decide_any_more_does_not_count_when_it_is_released(
    tmp_path: Path, upstream: Upstream, after: str
) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\napprovers = ["alice", "bob"]') as proxy:
        alice, bob = Person(proxy, "alice"), Person(proxy, "bob")
        with start(proxy, "s"):
            [approval] = pending(proxy)
        bob.decide(approval, "APPROVED")
        proxy.kill()
        (tmp_path / "agentstate.toml").write_text(f'[[policies]]\ntools = ["send_email"]\n{after}')
        proxy.restart()
        asking = ask(proxy, "s", run="r2")
        assert pending(proxy)[0]["id"] == approval["id"]
        assert asking.waits
        alice._control.url = proxy.url
        alice.decide(approval, "REJECTED")
        assert calls_of(asking.answer().body) == []


def test_word_of_an_approver_who_was_disabled_does_not_make_a_quorum(tmp_path: Path, upstream: Upstream) -> None:
    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\nquorum = 2') as proxy:
        alice, bob = Person(proxy, "alice"), Person(proxy, "bob")
        asking = ask(proxy, "s")
        [approval] = pending(proxy)
        alice.decide(approval, "APPROVED")
        proxy.control.post("/api/approvers/alice/disable")
        bob.decide(approval, "APPROVED")
        assert pending(proxy)[0]["id"] == approval["id"]
        assert asking.waits
        decide(proxy, approval, "APPROVED")
        assert calls_of(asking.answer().body) == [("send_email", TO_BOB)]


def test_call_of_a_step_that_was_rolled_back_is_given_to_nobody(proxy: Proxy, upstream: Upstream) -> None:
    first = ask(proxy, "s")
    [approval] = pending(proxy)
    proxy.control.post("/api/sessions/s/reset", {"step_number": 0})
    answer = first.answer()
    assert answer.status == 409
    assert pending(proxy, 0) == []
    second = ask(proxy, "s", run="r2")
    [other] = pending(proxy)
    assert other["id"] != approval["id"]
    decide(proxy, other, "APPROVED")
    assert calls_of(second.answer().body) == [("send_email", TO_BOB)]
    assert upstream.calls == 2


def test_stop_does_not_wait_for_people(proxy: Proxy) -> None:
    plain_one, streamed, held = ask(proxy, "s"), ask(proxy, "t", stream=True), ask(proxy, "u", **HOLD)
    pending(proxy, 3)
    began = time.monotonic()
    assert proxy.stop() == 0
    assert time.monotonic() - began < 10
    assert (plain_one.answer().status, held.answer().status) == (503, 503)
    assert streamed.answer().stream_error["code"] == "shutting_down"
    proxy.start()
    assert len(pending(proxy, 3)) == 3


def test_request_that_is_sent_is_the_one_that_was_approved(proxy: Proxy, upstream: Upstream) -> None:
    upstream.reset(lambda seen: plain(chat.completion("ok")))
    with proxy.client.start("s", "hi", run="r1", headers=HOLD, user="shown"):
        [approval] = pending(proxy)
    decide(proxy, approval, "APPROVED")
    answer = proxy.client.ask("s", "hi", run="r2", headers=HOLD, user="another")
    assert chat.text_of(answer.body) == "ok"
    assert json.loads(upstream.wait_calls(1)[0].body)["user"] == "shown"


def test_links_of_two_targets_are_not_two_people(tmp_path: Path, upstream: Upstream) -> None:
    from agentstate.engine.links import Links

    with with_policies(tmp_path, upstream, 'tools = ["send_email"]\nquorum = 2') as proxy:
        asking = Asking(lambda: proxy.client.ask("s", "write to Bob", run="r1", tools=TOOLS))
        [approval] = pending(proxy)
        links = Links(proxy.data, 600)
        for target in ("one", "two"):
            form = f"action=APPROVED&digest={approval['digest']}".encode()
            kind = {"content-type": "application/x-www-form-urlencoded"}
            page = proxy.client.send("POST", f"/approve/{links.make(approval['id'], target)}", kind, form)
            assert page.status == 403
        assert asking.waits
        assert pending(proxy)[0]["votes"] == []
