"""Pruning of a real proxy, over HTTP and on the command line: what goes, what stays and why, and nobody notices."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import status_of
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain
from tests.support.waiting import until

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
ALL = {"older_than_days": 0}
TOOLS = [{"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}]


def answers(seen: Seen) -> Reply:
    said = seen.json()["messages"][-1]["content"]
    body = {**json.loads(chat.completion(f"about {said}")), "usage": USAGE, "model": "gpt-4o"}
    return plain(json.dumps(body).encode())


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path / "data", upstream.url) as running:
        yield running


def fill(proxy: Proxy, *sessions: str, steps: int = 3) -> None:
    for session in sessions:
        for number in range(steps):
            assert proxy.client.ask(session, f"{session} {number}", run="a", model="gpt-4o").status == 200


def pruned(proxy: Proxy, body: dict[str, Any], least: int = 1) -> dict[str, Any]:
    """Prune, as soon as the proxy has seen that the sockets of its agents are closed."""
    until(lambda: not kept(proxy.control.post("/api/prune", {**body, "dry_run": True}), "in_use"), "a socket is open")
    report = proxy.control.post("/api/prune", body)
    assert report["sessions"] >= least, report
    return dict(report)


def kept(report: dict[str, Any], why: str) -> int:
    return sum(row["sessions"] for row in report["kept"] if row["why"] == why)


def sessions(proxy: Proxy) -> set[str]:
    return {row["id"] for row in proxy.control.get("/api/sessions")}


def rows(proxy: Proxy, table: str) -> int:
    conn = sqlite3.connect(proxy.database)
    try:
        return int(conn.execute(f"select count(*) from {table}").fetchone()[0])
    finally:
        conn.close()


def figures(proxy: Proxy) -> list[Any]:
    found = [proxy.control.get(f"/api/stats?by={by}") for by in ("day", "model", "provider")]
    return [(one["total"], one["rows"]) for one in found]


def assert_same(before: list[Any], after: list[Any]) -> None:
    """Sums of money may differ in their last bit."""

    def rounded(value: Any) -> Any:
        return json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 9))

    assert rounded(before) == rounded(after)


def test_a_pruned_session_is_gone_its_figures_stay_and_a_late_request_of_it_begins_a_new_one(
    proxy: Proxy, upstream: Upstream
) -> None:
    fill(proxy, "old", "older")
    assert proxy.client.ask("old", "old 0", run="b", model="gpt-4o").outcome == "replay"
    before = figures(proxy)
    foreseen = proxy.control.post("/api/prune", {**ALL, "dry_run": True})
    assert sessions(proxy) == {"old", "older"} and foreseen["dry_run"]
    report = pruned(proxy, ALL, 2)
    assert {row["id"] for row in report["gone"]} == {"old", "older"}
    assert (report["sessions"], report["steps"], sessions(proxy)) == (2, 6, set())
    assert [rows(proxy, table) for table in ("step", "attempt", "served", "run", "blob", "node", "doomed")] == [0] * 7
    assert_same(before, figures(proxy))
    assert status_of(proxy.control.get, "/api/sessions/old")[0] == 404
    entries = proxy.control.get("/api/audit")
    assert [row["subject"] for row in entries if row["action"] == "session.pruned"] == ["older", "old"]
    calls = upstream.calls
    late = proxy.client.ask("old", "old 0", run="a", model="gpt-4o")
    assert (late.status, late.outcome, upstream.calls) == (200, "live", calls + 1)
    proxy.doctor()


def test_each_session_that_stays_says_why(proxy: Proxy, upstream: Upstream) -> None:
    fill(proxy, "goes", "pinned", "labelled", "paused", "asking", steps=1)
    proxy.control.post("/api/sessions/pinned/pin", {"reason": "evidence"})
    proxy.control.post("/api/sessions/labelled/labels", {"add": ["other"]})
    proxy.control.post("/api/sessions/paused/status", {"status": "PAUSED"})
    upstream.script = lambda seen: plain(chat.completion(tool_calls=[chat.tool_call("send_email")]))
    waiting = Asking(lambda: proxy.client.ask("asking", "send it", run="a", model="gpt-4o", tools=TOOLS))
    [question] = pending(proxy)
    report = pruned(proxy, {"older_than_days": 0, "dry_run": True}, 0)
    assert {row["id"] for row in report["gone"]} == {"goes", "labelled"}
    assert {row["why"]: row["sessions"] for row in report["kept"]} == {"pinned": 1, "paused": 1, "pending": 1}
    for session, words in (("pinned", b"unpin"), ("asking", b"decide first")):
        status, body = status_of(proxy.control.delete, f"/api/sessions/{session}")
        assert status == 409 and words in body
    assert proxy.control.get("/api/retention")["pinned"][0]["reason"] == "evidence"
    pruned(proxy, ALL)
    assert sessions(proxy) == {"pinned", "paused", "asking"}
    decide(proxy, question, "APPROVED")
    assert waiting.answer().status == 200
    proxy.control.post("/api/sessions/pinned/unpin")
    pruned(proxy, {"older_than_days": 0, "status": "PAUSED"})
    pruned(proxy, ALL, 2)
    assert sessions(proxy) == set()
    proxy.doctor()


def test_rules_by_count_label_and_status_let_go_what_they_name(proxy: Proxy) -> None:
    fill(proxy, "a", "b", "c", "d", steps=1)
    proxy.control.post("/api/sessions/a/labels", {"add": ["test"]})
    proxy.control.post("/api/sessions/b/status", {"status": "COMPLETED"})
    assert {row["id"] for row in pruned(proxy, {"label": "test"})["gone"]} == {"a"}
    assert {row["id"] for row in pruned(proxy, {"status": "completed"})["gone"]} == {"b"}
    assert {row["id"] for row in pruned(proxy, {"keep": 1})["gone"]} == {"c"}
    assert sessions(proxy) == {"d"}
    for wrong in ({}, {"keep": -1}, {"older_than_days": "x"}, {"status": "GONE"}, {"colour": 1}, {"dry_run": 1}):
        assert status_of(proxy.control.post, "/api/prune", wrong)[0] == 400


def test_a_deleted_session_frees_its_budget_for_nobody(tmp_path: Path, upstream: Upstream) -> None:
    file = '[budget]\nday_steps = 2\nat_limit = "deny"\n'
    with Proxy(tmp_path / "data", upstream.url, file=file) as proxy:
        fill(proxy, "s", steps=2)
        assert proxy.client.ask("t", "more", run="a").error["code"] == "budget_exceeded"
        until(lambda: status_free(proxy, "s"), "the session stays")
        assert proxy.client.ask("s", "more", run="a").error["code"] == "budget_exceeded"
        proxy.restart()
        assert proxy.client.ask("s", "more", run="a").error["code"] == "budget_exceeded"


def status_free(proxy: Proxy, session: str) -> bool:
    """Delete a session; false: it is in use still."""
    try:
        return bool(proxy.control.delete(f"/api/sessions/{session}")["deleted"])
    except OSError as refusal:
        assert getattr(refusal, "code", 0) == 409, refusal
        return False


def test_an_answer_that_was_refused_cannot_be_looked_up_after_its_session_was_deleted(tmp_path: Path) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "send_email", "arguments": "{}"}
    answer = {"id": "resp_1", "object": "response", "status": "completed", "output": [call]}
    with (
        Upstream(lambda seen: plain(json.dumps(answer).encode())) as upstream,
        Proxy(tmp_path / "data", upstream.url) as proxy,
    ):
        body = json.dumps({"model": "gpt-5", "input": "hello"}).encode()
        headers = {"content-type": "application/json"}
        waiting = Asking(lambda: proxy.client.send("POST", "/s/s/r/a/v1/responses", headers, body))
        decide(proxy, pending(proxy)[0], "REJECTED")
        assert b"send_email" not in waiting.answer().body or waiting.answer().status == 200
        target = "/s/other/v1/responses/resp_1"
        assert proxy.client.send("GET", target).status == 404
        until(lambda: status_free(proxy, "s"), "the session stays")
        assert rows(proxy, "step") == 0
        for session in ("other", "s"):
            assert proxy.client.send("GET", f"/s/{session}/v1/responses/resp_1").status == 404
        proxy.doctor()


def test_calls_go_on_while_sessions_are_pruned_under_them(proxy: Proxy, upstream: Upstream) -> None:
    """Agents of ever new sessions ask and ask again; whatever has ended is pruned at once. No call fails, and what a
    session that stays was told before, it is told again."""
    proxy.client.ask("stays", "stays 0", run="a")
    proxy.control.post("/api/sessions/stays/pin")
    first = proxy.client.ask("stays", "stays 1", run="a").body
    faults: list[str] = []
    over = threading.Event()
    asked = [0]

    def agent(name: str) -> None:
        round_ = 0
        while not over.is_set():
            session = f"{name}-{round_}"
            for number in range(6):
                answer = proxy.client.ask(session, f"question {number} " * 40, run="a", model="gpt-4o")
                asked[0] += 1
                if answer.status != 200:
                    faults.append(f"{session}: {answer.status} {answer.body[:300]!r}")
            round_ += 1

    agents = [threading.Thread(target=agent, args=(f"agent{number}",)) for number in range(3)]
    for thread in agents:
        thread.start()
    gone = 0
    try:
        deadline = time.monotonic() + 60
        while gone < 12 and time.monotonic() < deadline:
            gone += proxy.control.post("/api/prune", ALL)["sessions"]
            assert proxy.client.ask("stays", "stays 1", run=f"r{gone}").body == first
    finally:
        over.set()
        for thread in agents:
            thread.join()
    assert not faults, faults[:3]
    assert gone >= 12 and asked[0] > 20
    assert proxy.stop() == 0
    assert "Traceback" not in proxy.log
    proxy.doctor()


def test_a_session_that_is_deleted_again_and_again_while_its_agent_asks_answers_every_call(proxy: Proxy) -> None:
    over = threading.Event()
    faults: list[str] = []

    def agent(named: bool) -> None:
        number = 0
        while not over.is_set():
            number += 1
            answer = proxy.client.ask("s", f"question {number % 5}", run="a" if named else None, model="gpt-4o")
            if answer.status != 200:
                faults.append(f"{answer.status} {answer.body[:300]!r}")

    agents = [threading.Thread(target=agent, args=(named,)) for named in (True, False)]
    for thread in agents:
        thread.start()
    deleted = 0
    try:
        deadline = time.monotonic() + 20
        while deleted < 8 and time.monotonic() < deadline:
            deleted += "s" in sessions(proxy) and status_free(proxy, "s")
    finally:
        over.set()
        for thread in agents:
            thread.join()
    assert not faults, faults[:3]
    assert deleted >= 3
    assert proxy.stop() == 0
    assert "Traceback" not in proxy.log
    proxy.doctor()


def test_what_the_settings_ask_for_happens_by_itself(tmp_path: Path, upstream: Upstream) -> None:
    data = tmp_path / "data"
    with Proxy(data, upstream.url) as proxy:
        fill(proxy, "a", "b", "kept", "labelled", steps=1)
        proxy.control.post("/api/sessions/kept/labels", {"add": ["keep-me"]})
        proxy.control.post("/api/sessions/labelled/labels", {"add": ["audit"]})
        assert proxy.stop() == 0
    file = (
        '[retention]\nmax_sessions = 1\nsessions_days = 0.0000001\nkeep_labels = ["keep-*"]\n'
        '[[label_retention]]\nlabel = "audit"\n'
    )
    with Proxy(data, upstream.url, file=file) as proxy:
        until(lambda: sessions(proxy) == {"kept", "labelled"}, "nothing was pruned")
        until(lambda: not rows(proxy, "doomed") and not proxy.control.get("/api/retention")["unfinished"]["garbage"],
              "the pruning did not come to its end")  # fmt: skip
        found = proxy.control.get("/api/retention")
        assert found["rules"]["max_sessions"] == 1
        assert {row["why"]: row["sessions"] for row in found["kept"]} == {"label": 2}
        actors = {row["actor"] for row in proxy.control.get("/api/audit") if row["action"] == "session.pruned"}
        assert actors == {"retention"}
        assert proxy.stop() == 0
        proxy.doctor()


def test_the_commands_do_the_same_through_a_proxy_and_on_the_file_of_a_stopped_one(
    tmp_path: Path, upstream: Upstream
) -> None:
    with Proxy(tmp_path / "data", upstream.url) as proxy:
        for stopped in (False, True):
            if stopped:
                proxy.start()
            fill(proxy, "a", "b", "c", steps=2)
            until(lambda: not kept(proxy.control.post("/api/prune", {**ALL, "dry_run": True}), "in_use"), "in use")
            if stopped:
                assert proxy.stop() == 0
            assert "a is pinned" in proxy.cli("pin", "a", "--reason", "evidence").stdout
            assert "unpin it first" in proxy.cli("delete", "a", "--yes", check=False).stderr
            assert "b is deleted: 2 steps" in proxy.cli("delete", "b", "--yes").stdout
            foreseen = proxy.cli("prune", "--older-than", "0d", "--dry-run").stdout
            assert "1 sessions with 2 steps would go" in foreseen and "1 stay: each is pinned" in foreseen
            assert proxy.cli("prune", "--older-than", "0d", check=False).returncode == 2  # nobody is there to agree
            told = proxy.cli("prune", "--older-than", "0d", "--yes", "--vacuum").stdout
            assert "1 sessions with 2 steps are gone" in told and "0.0 MB are free (before" in told
            assert "a is not pinned" in proxy.cli("unpin", "a").stdout
            report = json.loads(proxy.cli("prune", "--keep", "0", "--yes", "--json").stdout)
            assert [row["id"] for row in report["gone"]] == ["a"]
            if not stopped:
                assert proxy.stop() == 0
            proxy.doctor()


def test_space_goes_back_to_the_file_system_where_that_is_asked_for(proxy: Proxy, upstream: Upstream) -> None:
    def large(seen: Seen) -> Reply:
        text = "".join(f"{number:x}" for number in range(hash(seen.body) % 9000, 40_000))
        return plain(chat.completion(text))

    upstream.script = large
    fill(proxy, *(f"s{number}" for number in range(12)))
    report = pruned(proxy, {**ALL, "vacuum": True}, 12)
    assert report["after"]["bytes"] < report["before"]["bytes"] / 2
    assert report["after"]["free_bytes"] == 0
    assert proxy.database.with_name("agentstate.db-wal").stat().st_size < 1024 * 1024
    proxy.doctor()
