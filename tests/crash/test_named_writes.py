"""The proxy is killed before, in and after every write that its journal names, and loses nothing that it released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.agents import (
    FLAKY,
    LEAVES,
    TOOL,
    Agent,
    Ledger,
    Load,
    Program,
    Provider,
    assert_states_after_restart,
    linear,
    settle,
)
from tests.crash.test_alert_writes import OF_MESSAGES
from tests.crash.test_attempt_writes import OF_ATTEMPTS
from tests.crash.test_authority_writes import BY_PEOPLE
from tests.crash.test_budget_writes import OF_BUDGETS
from tests.crash.test_decisions import WRITES as OF_DECISIONS
from tests.crash.test_pruning_writes import OF_PRUNING
from tests.support import chat, crashing_server
from tests.support.crashing_server import command
from tests.support.people import decide, pending
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Upstream, plain

# name -> which write of that name kills; chosen so that other calls are under way
UNDER_LOAD = {
    "open_session": 2,
    "begin_run": 3,
    "begin_step": 5,
    "end_step": 4,
    "fail_step": 1,
    "begin_attempt": 2,
    "serve": 2,
    "cut": 1,
    "delivered": 2,
    "claim_cuts": 1,
    "report_divergence": 1,
}
BY_CONTROL = ("end_run", "set_status", "roll_back")
STEERING = ("fork", "edit")
LATE = ("set_owner",)
OF_JOBS = ("finish_job",)
OF_DELETIONS = ("delete_job",)
# Killed at in test_mcp_kills.py and test_tool_kills.py.
OF_TOOLS = ("claim", "hold_call", "doubt", "keep_result", "abandon")
AT_START = ("interrupt_steps",)
JSON = {"content-type": "application/json"}
STATES = ("queued", "completed")
AT_STOP = ("interrupt_step", "close")

LINEAR = [("first", False), ("second", True), (FLAKY, False), (TOOL, True), ("last", False)]
QUESTIONS: dict[str, list[tuple[str, bool]]] = {
    "linear-1": LINEAR,
    "linear-2": LINEAR,
    "again": [("first", False), ("second", True), ("other", False)],
    "unnamed": [("first", False), (LEAVES, True), ("after", False)],
}


def again(agent: Agent) -> None:
    """Two runs: the second one is served what the first one paid for, then asks something else."""
    for run in ("a", "b"):
        agent.run = run
        agent.ask("first")
        if run == "b":
            agent.ask("other")
        agent.ask("second", stream=True)


def unnamed(agent: Agent) -> None:
    """A run without an id that leaves in the middle of a call and comes back."""
    agent.ask("first")
    agent.leave()
    agent.ask("first")
    agent.ask("after")


PROGRAMS: Sequence[tuple[str, str | None, Program]] = [
    ("linear-1", "a", linear),
    ("linear-2", "a", linear),
    ("again", "a", again),
    ("unnamed", None, unnamed),
]


def test_every_named_write_of_the_journal_is_killed_at() -> None:
    tested = {*UNDER_LOAD, *BY_CONTROL, *LATE, *OF_JOBS, *OF_DELETIONS, *OF_MESSAGES, *OF_DECISIONS, *BY_PEOPLE}
    tested |= {*STEERING, *OF_TOOLS, *AT_START, *AT_STOP, *OF_ATTEMPTS, *OF_BUDGETS, *OF_PRUNING}
    assert crashing_server.written_names() == tested


CASES = [(name, when) for name in UNDER_LOAD for when in ("before", "after")]
CASES += [(name, "inside") for name in ("begin_step", "begin_attempt", "end_step")]


@pytest.mark.parametrize(("name", "when"), CASES)
def test_proxy_killed_at_a_write_under_load_loses_nothing_it_released(tmp_path: Path, name: str, when: str) -> None:
    provider = Provider()
    with Upstream(provider) as upstream:
        proxy = Proxy(tmp_path, upstream.url, command=command(name, UNDER_LOAD[name], when))
        with proxy:
            load = Load(proxy, provider)
            load.run(PROGRAMS)
            assert proxy.wait() == -9, f"no write named {name!r} was made {UNDER_LOAD[name]} times"
            provider.open_all()
            proxy.restart(command=CLI)
            assert_states_after_restart(proxy, load.ledger, upstream, [*QUESTIONS])
            for session, questions in QUESTIONS.items():
                settle(proxy, provider, load.ledger, session, "settling", questions)
            assert_paid_at_most_in_flight(provider, load.ledger)
            assert "Traceback" not in proxy.log
            assert proxy.stop() == 0
            proxy.doctor()


def assert_paid_at_most_in_flight(provider: Provider, ledger: Ledger) -> None:
    """Every question once, each passing error once, and at most one more for each call that was in flight."""
    needed = sum(len(questions) for questions in QUESTIONS.values())
    needed += sum(question == FLAKY for questions in QUESTIONS.values() for question, _ in questions)
    paid = sum(provider.calls.values())
    assert needed <= paid <= needed + ledger.lost + ledger.left, (needed, paid, ledger.lost, provider.calls)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", LATE)
def test_proxy_killed_as_it_notes_whose_run_it_is_keeps_the_run(tmp_path: Path, name: str, when: str) -> None:
    """The process behind the first request could not be found in time; the second request shows it."""
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=command(name, 1, when)) as proxy:
        whole = proxy.client.ask("s", "first")
        with pytest.raises(ConnectionError):
            proxy.client.ask("s", "second")
            proxy.client.ask("s", "third")
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        again = proxy.client.ask("s", "first", run="b")
        assert (again.outcome, again.body) == ("replay", whole.body)
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", OF_JOBS)
def test_proxy_killed_as_it_keeps_the_end_of_a_job_gives_that_end_all_the_same(
    tmp_path: Path, name: str, when: str
) -> None:
    queued, done = ({"id": "resp_1", "object": "response", "status": state, "output": []} for state in STATES)
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=command(name, 1, when)) as proxy:
        upstream.replies(plain(json.dumps(queued).encode()))
        body = json.dumps({"model": "gpt-5", "input": "hello", "background": True}).encode()
        begun = proxy.client.send("POST", "/s/jobs/r/a/v1/responses", JSON, body)
        assert json.loads(begun.body) == queued
        upstream.replies(plain(json.dumps(done).encode()), plain(json.dumps(done).encode()))
        with pytest.raises(ConnectionError):
            proxy.client.send("GET", "/s/jobs/r/a/v1/responses/resp_1")
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        again = proxy.client.send("POST", "/s/jobs/r/b/v1/responses", JSON, body)
        assert (again.outcome, again.body) == ("replay", begun.body)
        ended = [proxy.client.send("GET", "/s/jobs/r/b/v1/responses/resp_1") for _ in range(3)]
        assert [json.loads(answer.body) for answer in ended] == [done] * 3
        assert [answer.outcome for answer in ended[1:]] == ["replay", "replay"]
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", [*OF_JOBS, "release"])
def test_proxy_killed_over_a_job_that_is_held_asks_about_it_once_and_gives_it_once_that_is_decided(
    tmp_path: Path, name: str, when: str
) -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "send_email", "arguments": "{}"}
    queued, done = ({"id": "resp_1", "object": "response", "status": state, "output": []} for state in STATES)
    done["output"] = [call]
    target = "/s/jobs/r/a/v1/responses/resp_1"
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=command(name, 1, when)) as proxy:
        upstream.script = lambda seen: plain(json.dumps(queued if seen.method == "POST" else done).encode())
        body = json.dumps({"model": "gpt-5", "input": "hello", "background": True}).encode()
        proxy.client.send("POST", "/s/jobs/r/a/v1/responses", JSON, body)
        if name == "release":
            assert json.loads(proxy.client.send("GET", target).body)["output"] == []
            decide(proxy, pending(proxy)[0], "APPROVED")
        with pytest.raises(ConnectionError):
            proxy.client.send("GET", target)
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        if name != "release":
            for _ in range(2):
                assert json.loads(proxy.client.send("GET", target).body)["status"] == "in_progress"
            decide(proxy, pending(proxy)[0], "APPROVED")
        given = [proxy.client.send("GET", target) for _ in range(2)]
        assert [json.loads(answer.body) for answer in given] == [done] * 2
        assert pending(proxy, 0) == []
        released = [one for one in proxy.control.get("/api/audit") if one["action"] == "step.released"]
        assert len(released) == 1
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", OF_DELETIONS)
def test_proxy_killed_as_it_notes_that_a_job_was_deleted_never_answers_for_it_once_that_is_told(
    tmp_path: Path, name: str, when: str
) -> None:
    queued, done = ({"id": "resp_1", "object": "response", "status": state, "output": []} for state in STATES)
    target, gone = "/s/jobs/r/a/v1/responses/resp_1", plain(b'{"error":{"message":"not found"}}', 404)
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=command(name, 1, when)) as proxy:
        upstream.replies(*(plain(json.dumps(body).encode()) for body in (queued, done, {"deleted": True})))
        body = json.dumps({"model": "gpt-5", "input": "hello", "background": True}).encode()
        proxy.client.send("POST", "/s/jobs/r/a/v1/responses", JSON, body)
        assert json.loads(proxy.client.send("GET", target).body) == done
        with pytest.raises(ConnectionError):
            proxy.client.send("DELETE", target)
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        upstream.replies(gone, gone, gone)
        told = proxy.client.send("GET", target)
        # Nobody has been told that it is deleted: its end may still be given, until the agent asks for that again.
        assert (told.status, told.outcome) == ((404, "live") if when == "after" else (200, "replay"))
        assert proxy.client.send("DELETE", target).status == 404
        assert proxy.client.send("GET", target).status == 404
        again = proxy.client.send("POST", "/s/jobs/r/b/v1/responses", JSON, body)
        assert (again.outcome, json.loads(again.body)) == ("replay", queued)
        assert proxy.client.send("GET", "/s/jobs/r/b/v1/responses/resp_1").outcome == "replay"
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_proxy_killed_while_it_marks_the_interrupted_calls_marks_them_next_time(tmp_path: Path, when: str) -> None:
    provider = Provider()
    with Upstream(provider) as upstream, Proxy(tmp_path, upstream.url) as proxy:
        whole = proxy.client.ask("linear-1", "linear-1: first", run="a")
        hanging = proxy.client.start("linear-1", f"linear-1: {LEAVES}", run="a", stream=True)
        hanging.read_head()
        hanging.read_until(b'"one"')
        proxy.kill()
        hanging.close()
        with pytest.raises(AssertionError, match="exit code -9"):
            proxy.start(command=command("interrupt_steps", 1, when))
        proxy.restart()
        states = [step["state"] for step in proxy.control.steps("linear-1")]
        assert states == ["completed", "interrupted"]
        provider.gate(f"linear-1: {LEAVES}").open()
        again_first = proxy.client.ask("linear-1", "linear-1: first", run="b")
        assert (again_first.outcome, again_first.body) == ("replay", whole.body)
        redone = proxy.client.ask("linear-1", f"linear-1: {LEAVES}", run="b", stream=True)
        assert (redone.outcome, redone.step) == ("live", 1)
        assert provider.calls.total() == 3
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", AT_STOP)
def test_proxy_killed_while_it_stops_leaves_the_call_in_flight_interrupted(
    tmp_path: Path, name: str, when: str
) -> None:
    provider = Provider()
    with Upstream(provider) as upstream:
        stopping = {"server.shutdown_grace_s": 0}
        with Proxy(tmp_path, upstream.url, settings=stopping, command=command(name, 1, when)) as proxy:
            whole = proxy.client.ask("s", "s: first", run="a")
            hanging = proxy.client.start("s", f"s: {LEAVES}", run="a", stream=True)
            hanging.read_head()
            hanging.read_until(b'"one"')
            assert proxy.stop() == -9
            hanging.close()
            proxy.restart(command=CLI)
            assert [step["state"] for step in proxy.control.steps("s")] == ["completed", "interrupted"]
            provider.gate(f"s: {LEAVES}").open()
            assert proxy.client.ask("s", "s: first", run="b").body == whole.body
            assert proxy.client.ask("s", f"s: {LEAVES}", run="b", stream=True).step == 1
            assert provider.calls.total() == 3
            assert proxy.stop() == 0
            proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", BY_CONTROL)
def test_proxy_killed_at_a_write_of_the_control_plane_has_done_it_whole_or_not_at_all(
    tmp_path: Path, name: str, when: str
) -> None:
    with Upstream() as upstream:
        proxy = Proxy(tmp_path, upstream.url, command=command(name, 1, when))
        with proxy:
            control = proxy.control
            first = [proxy.client.ask("s", f"q{at}", run="a") for at in range(3)]
            calls = {
                "set_supervisor": ("/api/sessions/s/runs", {"run": "a", "replaces": None, "supervisor_pid": 1}),
                "end_run": ("/api/sessions/s/runs/a/end", {"exit_code": 1}),
                "set_status": ("/api/sessions/s/status", {"status": "PAUSED"}),
                "roll_back": ("/api/sessions/s/reset", {"step_number": 1}),
            }
            with pytest.raises(OSError, match=r"."):
                control.post(*calls[name])
            assert proxy.wait() == -9
            proxy.restart(command=CLI)
            control = proxy.control
            done = when == "after"
            if name == "set_status":
                assert control.session("s")["session"]["status"] == ("PAUSED" if done else "RUNNING")
                control.post("/api/sessions/s/status", {"status": "RUNNING"})
            if name == "end_run":
                assert (control.run("s", "a")["state"] == "ended") is done
            second = [proxy.client.ask("s", f"q{at}", run="b") for at in range(3)]
            rolled_back = name == "roll_back" and done
            assert [answer.hit for answer in second] == [True, not rolled_back, not rolled_back]
            assert second[0].body == first[0].body
            if not rolled_back:
                assert [answer.body for answer in second] == [answer.body for answer in first]
            assert upstream.calls == (5 if rolled_back else 3)
            assert proxy.stop() == 0
            proxy.doctor()


@pytest.mark.parametrize("when", ["before", "inside", "after"])
@pytest.mark.parametrize("name", [*STEERING, "roll_back"])
def test_proxy_killed_at_a_verb_has_done_it_whole_or_not_at_all_and_loses_no_answer(
    tmp_path: Path, name: str, when: str
) -> None:
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=command(name, 1, when)) as proxy:
        first = [proxy.client.ask("s", f"q{at}", run="a") for at in range(3)]
        [root] = proxy.control.get("/api/sessions/s/branches")
        calls = {
            "fork": ("fork", {"step_number": 2, "name": "other"}),
            "edit": ("steps/1/edit", {"text": "edited"}),
            "roll_back": ("rollback", {"branch": root["id"], "step_number": 1}),
        }
        verb, body = calls[name]
        with pytest.raises(OSError, match=r"."):
            proxy.control.post(f"/api/sessions/s/{verb}", body)
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        done = when == "after"
        assert len(proxy.control.get("/api/sessions/s/branches")) == (2 if done and name != "fork" else 1)
        acts = [one["action"] for one in proxy.control.get("/api/audit")]
        assert len([act for act in acts if act.startswith(("session.", "step."))]) == int(done)
        if name == "fork":
            sessions = [one["id"] for one in proxy.control.get("/api/sessions")]
            assert ("other" in sessions) is done
            if done:
                assert [proxy.client.ask("other", f"q{at}", run="a").body for at in range(2)] == [
                    answer.body for answer in first[:2]
                ]
        outcomes = [proxy.client.ask("s", f"q{at}", run="b").outcome for at in range(3)]
        expected = {"fork": ["replay"] * 3, "edit": ["replay", "edited", "replay"]}
        expected["roll_back"] = ["replay", "live", "live"]
        assert outcomes == (expected[name] if done else ["replay"] * 3)
        if done and name != "fork":
            proxy.control.post("/api/sessions/s/rollback", {"branch": root["id"]})
        assert [proxy.client.ask("s", f"q{at}", run="c").body for at in range(3)] == [one.body for one in first]
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("streamed", [False, True])
def test_nothing_that_ends_an_answer_is_released_before_its_commit(tmp_path: Path, streamed: bool) -> None:
    """The process dies inside the transaction that records the answer: no client may have seen how it ends."""
    with Upstream() as upstream:
        proxy = Proxy(tmp_path, upstream.url, command=command("end_step", 1, "inside"))
        with proxy:
            connection = proxy.client.start("s", "hi", run="a", stream=streamed)
            assert proxy.wait() == -9
            body = b""
            try:
                connection.read_head()
                body, whole = connection.read_body()
                assert not whole
            except ConnectionError:
                assert not streamed or body == b""
            assert b'"finish_reason": "' not in body
            assert chat.DONE not in body
            if not streamed:
                assert body == b""
            connection.close()
            proxy.restart(command=CLI)
            assert [step["state"] for step in proxy.control.steps("s")] == ["interrupted"]
            answer = proxy.client.ask("s", "hi", run="b", stream=streamed)
            assert (answer.outcome, answer.step) == ("live", 0)
            assert upstream.calls == 2
