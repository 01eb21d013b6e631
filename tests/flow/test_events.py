"""Whatever happens is in the feed, once, in order and after it is in the journal; who missed something is told so."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.store import changes
from tests.support import chat
from tests.support.client import Answer
from tests.support.feed import Feed
from tests.support.people import Asking, Person, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain

FILE = """
[breaker]
failures = 1
[budget]
day_steps = 30
at_limit = "deny"
session_steps = 6
[[policies]]
tools = ["send_email"]
[[policies]]
tools = ["wire"]
quorum = 2
[[policies]]
tools = ["late"]
expires_s = 0.2
[[alerts]]
kind = "webhook"
name = "ops"
url = "{url}/told"
on = ["session.failed"]
"""
MAKES = {"mail": "send_email", "wire": "wire", "late": "late"}


def answers(seen: Seen) -> Reply:
    if seen.target.endswith("/told"):
        return plain(b"gone", 410)
    body = seen.json()
    if body["model"] == "broken":
        return plain(b'{"error":{"message":"down"}}', 503)
    tool = MAKES.get(body["messages"][-1]["content"])
    return plain(chat.completion(None, tool_calls=[chat.tool_call(tool)]) if tool else chat.completion("a text"))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path / "data", upstream.url, file=FILE.format(url=upstream.url)) as running:
        yield running


def ask(proxy: Proxy, text: str, run: str = "a", session: str = "s", **more: Any) -> Answer:
    return proxy.client.ask(session, text, run=run, **more)


def live(proxy: Proxy, feed: Feed) -> None:
    """Two lives of one agent, the second of which departs from the first."""
    ask(proxy, "one")
    feed.until("session.changed", session="s", state="first")
    feed.until("run.began", session="s", run="a", state="first")
    feed.until("step.began", session="s", run="a", step=0)
    feed.until("step.ended", session="s", run="a", step=0, state="completed")
    ask(proxy, "two")
    feed.until("step.ended", step=1)
    ask(proxy, "one", run="b")
    feed.until("run.began", session="s", run="b")
    feed.until("step.replayed", session="s", run="b", step=0, state="replay")
    ask(proxy, "other", run="b")
    feed.until("run.diverged", session="s", run="b")
    proxy.control.post("/api/sessions/s/runs/b/end", {"exit_code": 0})
    feed.until("run.ended", session="s", run="b", state="ended")


def hold(proxy: Proxy, feed: Feed) -> None:
    """Calls that are decided, that two must decide, and that nobody decides."""
    waiting = Asking(lambda: ask(proxy, "mail", session="m"))
    asked = feed.until("approval.asked", session="m", step=0)
    [approval] = pending(proxy)
    assert asked["approval"] == approval["id"]
    decide(proxy, approval, "APPROVED")
    feed.until("approval.decided", approval=approval["id"], session="m", step=0, state="approved")
    waiting.answer()
    feed.until("step.changed", session="m", step=0, state="answer")
    waiting = Asking(lambda: ask(proxy, "wire", session="w"))
    feed.until("approval.asked", session="w")
    [approval] = pending(proxy)
    people = [Person(proxy, name) for name in ("ann", "bob")]
    feed.until("audit.added", action="approver.added", subject="bob")
    people[0].decide(approval, "APPROVED")
    feed.until("approval.voted", approval=approval["id"])
    people[1].decide(approval, "APPROVED")
    feed.until("approval.decided", approval=approval["id"])
    waiting.answer()
    waiting = Asking(lambda: ask(proxy, "late", session="l"))
    feed.until("approval.expired", session="l", state="expired")
    waiting.answer()


def steer(proxy: Proxy, feed: Feed) -> None:
    """What people do with sessions, and what goes wrong by itself."""
    proxy.control.post("/api/sessions/s/reset", {"step_number": 1})
    feed.until("session.changed", session="s", state="rollback")
    proxy.control.post("/api/sessions/s/labels", {"add": ["blue"]})
    feed.until("session.changed", session="s", state="labelled")
    ask(proxy, "down", session="d", model="broken")
    feed.until("breaker.changed", subject="openai/broken", state="open")
    feed.until("step.ended", session="d", state="failed")
    for number in range(7):
        ask(proxy, f"question {number}", session="much")
    feed.until("budget.reached", session="much", subject="session_steps")
    proxy.control.post("/api/sessions/d/status", {"status": "FAILED"})
    feed.until("session.changed", session="d", state="FAILED")
    dead = feed.until("alert.dead", state="dead")
    proxy.control.post(f"/api/alerts/{dead['subject']}/retry")
    feed.until("alert.changed", state="pending")


def test_whatever_happens_is_in_the_feed(proxy: Proxy) -> None:
    with Feed(proxy) as feed:
        for part in (live, hold, steer):
            part(proxy, feed)
        told = feed.events
    # Ratings are told where they are given.
    assert changes.ALL - {event["kind"] for event in told} <= {"step.rated"}
    assert {event["name"] for event in told} == {"change"}
    numbers = [int(event["id"].rpartition("-")[2]) for event in told]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert all("prompt" not in event and len(json.dumps(event)) < 400 for event in told)
    with Feed(proxy, "?after=first&follow=false") as again:
        assert again.end() and again.events[: len(told)] == told


def test_an_event_comes_after_its_fact_is_in_the_journal(proxy: Proxy) -> None:
    with Feed(proxy) as feed, sqlite3.connect(f"file:{proxy.database}?mode=ro", uri=True) as journal:
        waiting = Asking(lambda: ask(proxy, "mail", session="m"))
        asked = feed.until("approval.asked")
        state = journal.execute("select state from approval where id = ?", (asked["approval"],)).fetchone()
        assert state == ("pending",)
        decide(proxy, pending(proxy)[0], "APPROVED")
        waiting.answer()


def test_a_listener_goes_on_where_it_ended(proxy: Proxy) -> None:
    with Feed(proxy) as feed:
        ask(proxy, "one")
        last = feed.until("step.began")["id"]
    ask(proxy, "two")
    for asked in ({"query": f"?after={last}"}, {"last_event_id": last}, {"query": "?after=x-1", "last_event_id": last}):
        with Feed(proxy, **asked) as feed:
            assert feed.start == last
            feed.until("step.ended", step=0)
            feed.until("step.ended", step=1)
            assert all(event["name"] == "change" for event in feed.events)


def test_an_id_of_another_life_of_the_proxy_is_answered_with_resync(proxy: Proxy) -> None:
    with Feed(proxy) as feed:
        ask(proxy, "one")
        last = feed.until("step.ended")["id"]
    proxy.restart()
    boot = last.partition("-")[0]
    with Feed(proxy, last_event_id=last) as feed:
        first = feed.until("resync")
        assert first["name"] == "resync" and not first["id"].startswith(boot)
        ask(proxy, "two")
        feed.until("step.ended", step=1)
    with Feed(proxy, f"?after={first['id'].partition('-')[0]}-999999999") as feed:
        assert feed.until("resync")["id"] != first["id"]


def test_a_listener_hears_of_what_it_asks_for_alone(proxy: Proxy) -> None:
    with Feed(proxy, "?session=t&kinds=step,run.ended") as feed, Feed(proxy, "?kinds=breaker") as others:
        ask(proxy, "one", session="s")
        ask(proxy, "one", session="t")
        feed.until("step.ended")
        assert [(event["kind"], event["session"]) for event in feed.events] == [
            ("step.began", "t"),
            ("step.ended", "t"),
        ]
        ask(proxy, "down", session="d", model="broken")
        assert others.until("breaker.changed") == others.events[0]


@pytest.mark.parametrize("query", ["?kinds=weather", "?after=nonsense", "?after=a-b", "?follow=maybe"])
def test_what_is_no_question_is_refused(proxy: Proxy, query: str) -> None:
    with Feed(proxy, query) as feed:
        assert feed.status == 400


def test_nobody_listens_without_a_persons_token(tmp_path: Path, upstream: Upstream) -> None:
    key = "sk-test-agent-key"
    with Proxy(tmp_path, upstream.url, settings={"server.agent_keys": key}) as proxy:
        viewer = proxy.control.post("/api/approvers", {"name": "vera", "role": "viewer"})["token"]
        statuses = []
        for token in (key, "wrong", viewer):
            with Feed(proxy, token=token) as feed:
                statuses.append(feed.status)
        assert statuses == [403, 401, 200]


@pytest.mark.parametrize("verb", ["disable", "rotate"])
def test_a_feed_ends_once_its_listener_is_disabled_or_has_another_token(proxy: Proxy, verb: str) -> None:
    token = proxy.control.post("/api/approvers", {"name": "vera", "role": "viewer"})["token"]
    with Feed(proxy, token=token) as feed:
        proxy.client.ask("before", "hi")
        feed.until("step.ended", session="before")
        proxy.control.post(f"/api/approvers/vera/{verb}", {})
        proxy.client.ask("after", "hi")
        assert feed.end()
        assert not [event for event in feed.events if event.get("session") == "after"]


def test_a_stop_of_the_proxy_ends_the_feed_at_once(proxy: Proxy) -> None:
    with Feed(proxy) as feed, Feed(proxy, "?session=s") as other:
        began = time.monotonic()
        assert proxy.stop() == 0
        assert time.monotonic() - began < 5
        assert feed.end() and other.end()


def test_a_listener_that_left_is_forgotten(proxy: Proxy) -> None:
    for _ in range(220):  # more than may listen at once
        with Feed(proxy) as feed:
            assert feed.status in (200, 429)
    deadline = time.monotonic() + 20
    while True:
        with Feed(proxy) as feed:
            if feed.status == 200:
                break
        assert time.monotonic() < deadline, "those who left still count"


def test_head_is_answered_without_a_stream(proxy: Proxy) -> None:
    answer = proxy.client.send("HEAD", "/api/events", {"Authorization": f"Bearer {proxy.admin_token}"})
    assert (answer.status, answer.body) == (200, b"")


def test_the_command_line_shows_what_the_proxy_knows(proxy: Proxy) -> None:
    ask(proxy, "one")
    lines = [json.loads(line) for line in proxy.cli("events", "--json", "--kinds", "step").stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["step.began", "step.ended"]
    shown = proxy.cli("events", "--session", "s").stdout
    assert "step.ended" in shown and "session=s run=a step=0 state=completed" in shown
    assert proxy.cli("events", "--kinds", "weather", check=False).returncode == 1
    proxy.stop()
    gone = proxy.cli("events", check=False)
    assert gone.returncode == 1 and "agentstate serve" in gone.stderr
