"""Going back, forking and editing: what was recorded stays, what does not depend on a change costs nothing, and what
does is never answered by what followed before it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import Answer, status_of
from tests.support.doubt import until
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Gate, Reply, Seen, Upstream, plain, stream

_numbers = itertools.count()
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
    for name in ("look_up", "pay", "erase", "both")
]
POLICIES = """
[tools]
read = ["look_up"]
[[policies]]
tools = ["pay"]
action = "hold"
approvers = ["admin"]
[[policies]]
tools = ["erase"]
action = "deny"
[[policies]]
tools = ["both"]
action = "hold"
quorum = 2
"""


class Model:
    """Answers each question with what ``answers`` has for its last user text, else with a text of its own number."""

    def __init__(self) -> None:
        self.calls: dict[str, list[dict[str, Any]]] = {}
        self.gates: dict[str, Gate] = {}
        self.asked: list[dict[str, Any]] = []

    def __call__(self, seen: Seen) -> Reply:
        body = json.loads(seen.body)
        self.asked.append(body)
        number = str(len(self.asked))
        said = body["messages"][-1]["content"]
        calls = self.calls.get(said, [])
        gates = [self.gates[said]] if said in self.gates else []
        text = f"answer {number} to {said}"
        if body.get("stream"):
            return stream(*gates, *chat.chunks(text, name=number, tool_calls=calls))
        answer = chat.completion(text, name=number, tool_calls=calls)
        return [*gates, *plain(answer)] if gates else plain(answer)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("steering"), upstream.url, file=POLICIES) as running:
        yield running
        assert "Traceback" not in running.log
        running.doctor()


@pytest.fixture
def model(upstream: Upstream) -> Model:
    found = Model()
    upstream.reset(found)
    return found


@pytest.fixture
def session() -> str:
    return f"steer-{next(_numbers)}"


class Agent:
    """A conversation that sends back what it was given."""

    def __init__(self, proxy: Proxy, session: str, run: str, streamed: bool = False) -> None:
        self._proxy, self.session, self.run, self.streamed = proxy, session, run, streamed
        self.messages: list[dict[str, Any]] = []

    def send(self, *new: dict[str, Any]) -> Answer:
        self.messages += new
        answer = self._proxy.client.ask(self.session, self.messages, run=self.run, stream=self.streamed, tools=TOOLS)
        if answer.status == 200:
            self.messages.append(message_of(answer.body))
        return answer

    def say(self, text: str) -> Answer:
        return self.send(chat.user(text))

    def alone(self, text: str) -> Answer:
        """A question that is no part of the conversation."""
        return self._proxy.client.ask(self.session, text, run=self.run, stream=self.streamed, tools=TOOLS)


def message_of(body: bytes) -> dict[str, Any]:
    """What an SDK makes of an answer."""
    if not body.lstrip().startswith(b"data:"):
        message = json.loads(body)["choices"][0]["message"]
        return {name: message[name] for name in ("role", "content", "tool_calls") if message.get(name) is not None}
    calls: dict[int, dict[str, Any]] = {}
    for line in body.decode().splitlines():
        choices = json.loads(line.removeprefix("data: ")).get("choices", []) if line.startswith("data: {") else []
        for piece in (piece for choice in choices for piece in choice["delta"].get("tool_calls") or ()):
            call = calls.setdefault(piece["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] = piece.get("id") or call.get("id")
            for name in ("name", "arguments"):
                call["function"][name] += piece["function"].get(name) or ""
    message = {"role": "assistant", "content": chat.text_of(body)}
    return message | ({"tool_calls": [calls[at] for at in sorted(calls)]} if calls else {})


def post(proxy: Proxy, session: str, verb: str, **body: Any) -> Any:
    return proxy.control.post(f"/api/sessions/{session}/{verb}", body)


def refused(proxy: Proxy, session: str, verb: str, **body: Any) -> tuple[int, str]:
    status, answer = status_of(proxy.control.post, f"/api/sessions/{session}/{verb}", body)
    return status, json.loads(answer)["error"]["message"]


def said(answers: list[Answer]) -> list[bytes]:
    return [answer.body for answer in answers]


def outcomes(answers: list[Answer]) -> list[str | None]:
    return [answer.outcome for answer in answers]


# --- fork ---


@pytest.mark.parametrize("streamed", [False, True])
def test_fork_replays_what_it_shares_and_pays_from_its_point(
    proxy: Proxy, model: Model, session: str, streamed: bool
) -> None:
    first = Agent(proxy, session, "r1", streamed)
    answers = [first.say(f"q{at}") for at in range(5)]
    made = post(proxy, session, "fork", step_number=3)
    name = made["session"]["id"]
    assert (name, made["source"], made["step_number"]) == (f"{session}-fork-1", session, 3)
    other = Agent(proxy, name, "r1", streamed)
    again = [other.say(f"q{at}") for at in range(3)]
    assert said(again) == said(answers[:3])
    assert outcomes(again) == ["replay"] * 3
    fresh = other.say("q3")
    assert (fresh.outcome, fresh.step) == ("live", 3)
    assert len(model.asked) == 6
    detail = proxy.control.session(name)
    assert [(step["step_number"], step["shared"]) for step in detail["steps"]] == [
        (0, True), (1, True), (2, True), (3, False),
    ]  # fmt: skip
    assert detail["session"]["forked_from"]["session"] == session
    assert detail["session"]["steps"] == 1
    assert [step["run"] for step in detail["steps"][:3]] == ["r1"] * 3
    # The source goes on as if there were no fork.
    assert first.say("q5").step == 5
    rerun = Agent(proxy, session, "r2", streamed)
    assert said([rerun.say(f"q{at}") for at in range(5)]) == said(answers)


def test_fork_of_a_fork_shares_what_both_share(proxy: Proxy, model: Model, session: str) -> None:
    answers = [Agent(proxy, session, "r1").alone(f"q{at}") for at in range(3)]
    post(proxy, session, "fork", step_number=2, name=f"{session}-a")
    middle = Agent(proxy, f"{session}-a", "r1")
    shared = [middle.alone(f"q{at}") for at in range(2)] + [middle.alone("own")]
    assert outcomes(shared) == ["replay", "replay", "live"]
    post(proxy, f"{session}-a", "fork", step_number=3, name=f"{session}-b")
    last = Agent(proxy, f"{session}-b", "r1")
    again = [last.alone(question) for question in ("q0", "q1", "own")]
    assert (outcomes(again), said(again)) == (["replay"] * 3, said(shared))
    assert last.alone("q2").outcome == "live"
    assert said(answers[:2]) == said(again[:2])
    [root] = [one for one in proxy.control.get(f"/api/sessions/{session}-b/branches") if one["head"]]
    assert (root["reason"], root["made_by"], root["upto"]) == ("fork", "admin", 3)


def test_rollback_in_a_fork_may_go_back_behind_its_point(proxy: Proxy, model: Model, session: str) -> None:
    answers = [Agent(proxy, session, "r1").alone(f"q{at}") for at in range(4)]
    post(proxy, session, "fork", step_number=3, name=f"{session}-f")
    Agent(proxy, f"{session}-f", "r1").alone("own")
    post(proxy, f"{session}-f", "rollback", step_number=1)
    again = [Agent(proxy, f"{session}-f", "r2").alone(f"q{at}") for at in range(2)]
    assert (outcomes(again), again[0].body) == (["replay", "live"], answers[0].body)
    assert said([Agent(proxy, session, "r3").alone(f"q{at}") for at in range(4)]) == said(answers)


def test_fork_of_what_was_rolled_back_shares_the_old_branch(proxy: Proxy, model: Model, session: str) -> None:
    answers = [Agent(proxy, session, "r1").alone(f"q{at}") for at in range(3)]
    old = next(one["id"] for one in proxy.control.get(f"/api/sessions/{session}/branches"))
    post(proxy, session, "rollback", step_number=1)
    Agent(proxy, session, "r2").alone("other")
    made = post(proxy, session, "fork", step_number=3, branch=old)
    again = [Agent(proxy, made["session"]["id"], "r1").alone(f"q{at}") for at in range(3)]
    assert (outcomes(again), said(again)) == (["replay"] * 3, said(answers))


def test_failed_step_that_is_shared_is_tried_as_a_step_of_the_fork(
    proxy: Proxy, upstream: Upstream, model: Model, session: str
) -> None:
    agent = Agent(proxy, session, "r1")
    agent.alone("q0")
    upstream.replies(plain(b'{"error":{"message":"busy"}}', 429))  # which is never part of a later life's history
    assert agent.alone("q1").status == 429
    agent.alone("q2")
    name = post(proxy, session, "fork", step_number=3)["session"]["id"]
    for run in ("r1", "r2"):
        again = Agent(proxy, name, run).alone("q1")
        assert (again.status, again.step) == (200, 3)
    assert again.outcome == "replay"
    assert [step["state"] for step in proxy.control.steps(session)] == ["completed", "failed", "completed"]
    assert [step["attempts"] for step in proxy.control.steps(session)] == [1, 1, 1]


def test_shared_error_that_a_fork_was_given_is_asked_anew_as_its_own_step_and_stays_what_it_was(
    proxy: Proxy, upstream: Upstream, model: Model, session: str
) -> None:
    agent = Agent(proxy, session, "r1")
    agent.alone("q0")
    upstream.replies(plain(b'{"error":{"message":"broken"}}', 500))
    assert agent.alone("q1").status == 500
    agent.alone("q2")
    name = post(proxy, session, "fork", step_number=3)["session"]["id"]
    for run, outcome in (("r1", "live"), ("r2", "replay")):
        first, given, again = (Agent(proxy, name, run).alone(question) for question in ("q0", "q1", "q1"))
        assert (first.outcome, given.status, given.outcome, given.step) == ("replay", 500, "replay", 1)
        assert (again.status, again.outcome, again.step) == (200, outcome, 3)
    steps = proxy.control.steps(session)
    assert [(step["state"], step["attempts"]) for step in steps] == [("completed", 1), ("failed", 1), ("completed", 1)]


def test_fork_cannot_share_what_is_in_flight_or_held(proxy: Proxy, model: Model, session: str) -> None:
    model.gates["slow"] = Gate()
    model.calls["buy"] = [chat.tool_call("pay", '{"to": "bob"}')]
    agent = Agent(proxy, session, "r1")
    with proxy.client.start(session, "slow", run="r1") as connection:
        model.gates["slow"].wait_reached()
        status, message = refused(proxy, session, "fork", step_number=1)
        assert (status, "step 0 is in flight" in message, "fork at step 0 or before" in message) == (409, True, True)
        model.gates["slow"].open()
        connection.answer()
    asking = Asking(lambda: agent.alone("buy"))
    [approval] = pending(proxy, 1, session)
    status, message = refused(proxy, session, "fork", step_number=2)
    assert (status, "step 1 is held" in message) == (409, True)
    decide(proxy, approval, "APPROVED")
    given = asking.answer()
    name = post(proxy, session, "fork", step_number=2)["session"]["id"]
    again = Agent(proxy, name, "r1").alone("buy")
    assert (again.outcome, again.body) == ("replay", given.body)
    assert pending(proxy, 0, name) == []


def test_fork_asks_again_for_what_lies_behind_its_point_and_not_for_what_lies_before(
    proxy: Proxy, model: Model, session: str
) -> None:
    model.calls["buy"] = [chat.tool_call("pay", '{"to": "bob"}')]
    asking = Asking(lambda: Agent(proxy, session, "r1").alone("buy"))
    decide(proxy, pending(proxy, 1, session)[0], "APPROVED")
    asking.answer()
    before = post(proxy, session, "fork", step_number=0)["session"]["id"]
    asking = Asking(lambda: Agent(proxy, before, "r1").alone("buy"))
    decide(proxy, pending(proxy, 1, before)[0], "REJECTED", reason="not twice")
    assert "not twice" in asking.answer().body.decode()
    assert len(model.asked) == 2


def test_labels_go_with_a_fork_and_its_budget_starts_at_nothing(proxy: Proxy, model: Model, session: str) -> None:
    Agent(proxy, session, "r1").alone("q0")
    proxy.cli("label", session, "vip", "--url", proxy.url)
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    assert proxy.cli("label", name, "--url", proxy.url).stdout.split() == ["vip"]
    assert proxy.control.session(name)["session"]["steps"] == 0


def test_fork_of_a_session_with_the_longest_id_begins_like_that_so_that_the_same_policies_govern_it(
    proxy: Proxy, model: Model
) -> None:
    key = "billing-" + "x" * 248
    Agent(proxy, key, "r1").say("q0")
    names = [post(proxy, key, "fork", step_number=1)["session"]["id"] for _ in range(2)]
    assert [(name[:20], name[-7:], len(name) <= 256) for name in names] == [
        (key[:20], "-fork-1", True), (key[:20], "-fork-2", True),
    ]  # fmt: skip


def test_fork_with_a_name_that_is_taken_is_refused(proxy: Proxy, model: Model, session: str) -> None:
    Agent(proxy, session, "r1").alone("q0")
    status, message = refused(proxy, session, "fork", step_number=1, name=session)
    assert (status, "another name" in message) == (409, True)
    assert refused(proxy, session, "fork", step_number=9)[0] == 400
    assert refused(proxy, session, "fork", step_number=1, branch=10**9)[0] == 404
    assert refused(proxy, "nobody", "fork", step_number=0)[0] == 404


# --- rollback, and back ---


def test_rollback_can_be_undone_by_going_back_to_the_old_branch(proxy: Proxy, model: Model, session: str) -> None:
    answers = [Agent(proxy, session, "r1").alone(f"q{at}") for at in range(4)]
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    post(proxy, session, "rollback", step_number=1)
    second = [Agent(proxy, session, "r2").alone(f"q{at}") for at in range(2)]
    preview = proxy.control.get(f"/api/sessions/{session}/preview?verb=rollback&branch={old}")
    assert (preview["superseded"], preview["restored"], preview["replays"]) == ([4], [1, 2, 3], 4)
    new = proxy.control.get(f"/api/sessions/{session}/branches")[-1]["id"]
    post(proxy, session, "rollback", branch=old)
    again = [Agent(proxy, session, "r3").alone(f"q{at}") for at in range(4)]
    assert (outcomes(again), said(again)) == (["replay"] * 4, said(answers))
    post(proxy, session, "rollback", branch=new)
    assert said([Agent(proxy, session, "r4").alone(f"q{at}") for at in range(2)]) == said(second)
    assert len(model.asked) == 5


def test_question_that_a_rollback_withdrew_is_asked_again_when_that_is_undone(
    proxy: Proxy, model: Model, session: str
) -> None:
    model.calls["buy"] = [chat.tool_call("pay", '{"to": "bob"}')]
    Agent(proxy, session, "r1").alone("q0")
    asking = Asking(lambda: Agent(proxy, session, "r1").alone("buy"))
    [approval] = pending(proxy, 1, session)
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    preview = proxy.control.get(f"/api/sessions/{session}/preview?verb=rollback&step_number=1")
    assert [one["id"] for one in preview["pending"]] == [approval["id"]]
    post(proxy, session, "rollback", step_number=1)
    assert asking.answer().status == 409
    assert pending(proxy, 0, session) == []
    post(proxy, session, "rollback", branch=old)
    assert [one["id"] for one in pending(proxy, 1, session)] == [approval["id"]]
    asking = Asking(lambda: Agent(proxy, session, "r2").alone("buy"))
    decide(proxy, approval["id"], "APPROVED")
    assert message_of(asking.answer().body.strip())["tool_calls"][0]["function"]["name"] == "pay"
    assert len(model.asked) == 2


# --- edit ---


@pytest.mark.parametrize("streamed", [False, True])
def test_edit_leaves_behind_what_goes_on_from_it_and_keeps_what_does_not(
    proxy: Proxy, model: Model, session: str, streamed: bool
) -> None:
    def life(run: str) -> list[Answer]:
        agent = Agent(proxy, session, run, streamed)
        answers = [agent.say(f"q{at}") for at in range(4)]
        answers += [agent.say("q4"), agent.say("q5")]
        answers += [agent.alone("apart 6"), agent.alone("apart 7")]
        return [*answers, agent.say("q8"), agent.say("q9")]

    first = life("r1")
    assert outcomes(first) == ["live"] * 10
    preview = proxy.control.get(f"/api/sessions/{session}/preview?verb=edit&step_number=3")
    assert (preview["superseded"], preview["replays"]) == ([4, 5, 8, 9], 6)
    editable = proxy.control.get(f"/api/sessions/{session}/steps/3/editable")
    assert editable["text"] == "answer 4 to q3"
    done = post(proxy, session, "steps/3/edit", text="Ahem: “no”.", reason="it was wrong")
    assert done["step_number"] == 3
    second = life("r2")
    assert outcomes(second) == [
        "replay", "replay", "replay", "edited", "live", "live", "replay", "replay", "live", "live",
    ]  # fmt: skip
    assert chat.text_of(second[3].body) == "Ahem: “no”."
    assert [said(second)[at] for at in (0, 1, 2, 6, 7)] == [said(first)[at] for at in (0, 1, 2, 6, 7)]
    assert "Ahem: “no”." in json.dumps(model.asked[10], ensure_ascii=False)
    third = life("r3")
    assert (outcomes(third)[3], said(third)) == ("edited", said(second))
    assert outcomes(third).count("replay") == 9
    assert not any(run["diverged"] for run in proxy.control.session(session)["runs"])
    versions = proxy.control.get(f"/api/sessions/{session}/steps/3/versions")
    assert [(one["made_by"], one["reason"], one["shown"]) for one in versions] == [
        (None, None, False), ("admin", "it was wrong", True),
    ]  # fmt: skip
    assert [json.loads(one["response"])["choices"][0]["message"]["content"] for one in versions] == [
        "answer 4 to q3", "Ahem: “no”.",
    ]  # fmt: skip
    step = proxy.control.steps(session)[3]
    assert (step["edited"]["made_by"], "Ahem" in step["response"]) == ("admin", True)
    # Undone, the first life stands as it was.
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    post(proxy, session, "rollback", branch=old)
    back = life("r4")
    assert (outcomes(back), said(back)) == (["replay"] * 10, said(first))


def test_edited_answer_is_given_in_the_form_in_which_it_is_asked_for(proxy: Proxy, model: Model, session: str) -> None:
    Agent(proxy, session, "r1", True).say("q")
    post(proxy, session, "steps/0/edit", text="other")
    for streamed in (False, True):
        given = Agent(proxy, session, f"r-{streamed}", streamed).say("q")
        kind = "text/event-stream" if streamed else "application/json"
        assert (given.outcome, given.hit, chat.text_of(given.body)) == ("edited", True, "other")
        assert (given.headers.get("content-type") or "").startswith(kind)
        assert given.body.endswith(b"[DONE]\n\n") is streamed


def test_run_that_departs_before_the_edited_answer_still_diverges(proxy: Proxy, model: Model, session: str) -> None:
    first = Agent(proxy, session, "r1")
    for at in range(5):
        first.say(f"q{at}")
    post(proxy, session, "steps/3/edit", text="other")
    second = Agent(proxy, session, "r2")
    second.say("q0")
    assert second.say("another way").outcome == "diverged"
    assert proxy.control.run(session, "r2")["divergence"]["unread"] == [1, 2, 3, 4]


@pytest.mark.parametrize("streamed", [False, True])
def test_edited_arguments_are_given_and_what_followed_the_old_ones_is_not(
    proxy: Proxy, model: Model, session: str, streamed: bool
) -> None:
    model.calls["find"] = [chat.tool_call("look_up", '{"to": "bob"}')]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "nothing at 12:01:07"}
    first = Agent(proxy, session, "r1", streamed)
    first.say("find")
    follow = first.send(result)
    post(proxy, session, "steps/0/edit", arguments={"call_1": {"to": "kim"}})
    second = Agent(proxy, session, "r2", streamed)
    given = second.say("find")
    assert given.outcome == "edited"
    [call] = second.messages[-1]["tool_calls"]
    assert (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "call_1", "look_up", {"to": "kim"},
    )  # fmt: skip
    # Neither the same result, nor another: the echoed id is not to lead to what followed the old arguments.
    fresh = second.send({**result, "content": "nothing at 13:44:59"})
    assert (fresh.outcome, fresh.body == follow.body) == ("live", False)
    third = Agent(proxy, session, "r3", streamed)
    third.say("find")
    assert third.send({**result, "content": "nothing at 13:44:59"}).body == fresh.body
    fourth = Agent(proxy, session, "r4", streamed)
    fourth.say("find")
    assert fourth.send(result).body == fresh.body  # a clock in it apart, it is the same result
    assert len(model.asked) == 3
    assert proxy.control.run(session, "r2")["diverged"] is False


def test_edited_arguments_must_fit_the_schema_and_the_policies(proxy: Proxy, model: Model, session: str) -> None:
    model.calls["find"] = [chat.tool_call(name, '{"to": "bob"}', call_id=f"call_{name}") for name in ("look_up",)]
    Agent(proxy, session, "r1").say("find")
    status, message = refused(proxy, session, "steps/0/edit", arguments={"call_look_up": {"to": 7}})
    assert (status, "do not fit the schema" in message, "nothing was edited" in message) == (422, True, True)
    for arguments in ({"call_x": {"to": "kim"}}, {"call_look_up": "kim"}, {"call_look_up": {"to": "bob"}}):
        assert refused(proxy, session, "steps/0/edit", arguments=arguments)[0] == 422
    assert refused(proxy, session, "steps/7/edit", text="x")[0] == 404
    assert refused(proxy, session, "steps/0/edit")[0] == 400
    assert len(proxy.control.get(f"/api/sessions/{session}/branches")) == 1


def test_who_edits_a_held_call_approves_of_it_where_policies_let_them(proxy: Proxy, model: Model, session: str) -> None:
    model.calls["buy"] = [chat.tool_call("pay", '{"to": "bob"}')]
    asking = Asking(lambda: Agent(proxy, session, "r1").say("buy"))
    decide(proxy, pending(proxy, 1, session)[0], "APPROVED")
    asking.answer()
    post(proxy, session, "steps/0/edit", arguments={"call_1": {"to": "kim"}}, reason="not Bob")
    given = Agent(proxy, session, "r2").say("buy")
    assert given.outcome == "edited"
    assert json.loads(message_of(given.body)["tool_calls"][0]["function"]["arguments"]) == {"to": "kim"}
    assert pending(proxy, 0, session) == []
    entry = [one for one in proxy.control.get("/api/audit?limit=1000") if one["action"] == "step.edited"][-1]
    assert (entry["actor"], entry["subject"]) == ("admin", session)
    assert json.loads(entry["detail"]["calls"][0]["arguments"]) == {"to": "kim"}


@pytest.mark.parametrize(("tool", "status"), [("erase", 422), ("both", 422)])
def test_edit_that_the_policies_do_not_leave_to_one_person_is_refused(
    tmp_path: Path, upstream: Upstream, model: Model, session: str, tool: str, status: int
) -> None:
    """The call was recorded before there was a policy."""
    model.calls["find"] = [chat.tool_call(tool, '{"to": "bob"}')]
    with Proxy(tmp_path, upstream.url, file="policies = []") as before:
        Agent(before, session, "r1").say("find")
    with Proxy(tmp_path, upstream.url, file=POLICIES) as proxy:
        found, message = refused(proxy, session, "steps/0/edit", arguments={"call_1": {"to": "kim"}})
        assert (found, "nothing was edited" in message) == (status, True)
        assert Agent(proxy, session, "r2").say("find").outcome == "replay"


def test_answer_that_is_held_cannot_be_edited(proxy: Proxy, model: Model, session: str) -> None:
    model.calls["buy"] = [chat.tool_call("pay", '{"to": "bob"}')]
    asking = Asking(lambda: Agent(proxy, session, "r1").say("buy"))
    pending(proxy, 1, session)
    status, message = refused(proxy, session, "steps/0/edit", text="x")
    assert (status, "held" in message) == (422, True)
    decide(proxy, pending(proxy, 1, session)[0], "REJECTED", reason="no")
    asking.answer()


def test_agent_in_flight_while_an_answer_is_edited_gets_its_own_and_the_next_life_the_edit(
    proxy: Proxy, model: Model, session: str
) -> None:
    agent = Agent(proxy, session, "r1")
    agent.say("q0")
    agent.messages.append(chat.user("q1"))
    model.gates["q1"] = Gate()
    with proxy.client.start(session, agent.messages, run="r1", tools=TOOLS) as connection:
        model.gates["q1"].wait_reached()
        post(proxy, session, "steps/0/edit", text="edited meanwhile")
        model.gates["q1"].open()
        answer = connection.answer()
    assert (answer.status, chat.text_of(answer.body)) == (200, "answer 2 to q1")
    agent.messages.append(message_of(answer.body))
    assert agent.say("q2").outcome == "live"  # it knows the old answer, and goes on from it
    second = Agent(proxy, session, "r2")
    assert [second.say(f"q{at}").outcome for at in range(3)] == ["edited", "live", "live"]
    assert second.messages[1]["content"] == "edited meanwhile"


def test_edits_are_edited_and_forks_and_rollbacks_of_them_show_the_nearest(
    proxy: Proxy, model: Model, session: str
) -> None:
    first = Agent(proxy, session, "r1")
    first.say("q0")
    first.say("q1")
    post(proxy, session, "steps/0/edit", text="one")
    post(proxy, session, "steps/0/edit", text="two")
    name = post(proxy, session, "fork", step_number=1)["session"]["id"]
    branches = proxy.control.get(f"/api/sessions/{session}/branches")
    assert [one["reason"] for one in branches] == ["first", "edit", "edit"]
    texts = [chat.text_of(Agent(proxy, key, "r5").say("q0").body) for key in (name, session)]
    for place, branch in enumerate(branches[:2]):
        post(proxy, session, "rollback", branch=branch["id"])
        texts.append(chat.text_of(Agent(proxy, session, f"b{place}").say("q0").body))
    assert texts == ["two", "two", "answer 1 to q0", "one"]


def test_edited_call_that_was_made_counts_as_made(tmp_path: Path, upstream: Upstream, model: Model) -> None:
    model.calls["find"] = [chat.tool_call("send", '{"to": "bob"}')]
    model.calls["again"] = [chat.tool_call("send", '{"to": "kim"}', call_id="call_2")]
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    with Proxy(tmp_path, upstream.url, file="policies = []") as proxy:
        Agent(proxy, "s", "r1").say("find")
        post(proxy, "s", "steps/0/edit", arguments={"call_1": {"to": "kim"}})
        second = Agent(proxy, "s", "r2")
        second.say("find")
        second.send(result)
        post(proxy, "s", "rollback", step_number=0)
        asking = Asking(lambda: Agent(proxy, "s", "r3").say("again"))
        [approval] = pending(proxy, 1, "s")
        assert approval["kind"] == "duplicate"
        decide(proxy, approval, "REJECTED", reason="it was sent")
        asking.answer()


def test_edited_call_whose_first_answer_lost_its_reader_counts_as_made_with_the_edited_arguments(
    tmp_path: Path, upstream: Upstream, model: Model
) -> None:
    model.calls["find"] = [chat.tool_call("send", '{"to": "bob"}')]
    model.calls["other"] = [chat.tool_call("send", '{"to": "bob"}', call_id="call_2")]
    model.calls["again"] = [chat.tool_call("send", '{"to": "kim"}', call_id="call_3")]
    model.gates["find"] = Gate()
    with Proxy(tmp_path, upstream.url, file="policies = []") as proxy:
        with proxy.client.start("s", [chat.user("find")], run="r1", tools=TOOLS) as connection:
            model.gates["find"].wait_reached()
            connection.reset()
        model.gates["find"].open()
        until(lambda: proxy.control.steps("s")[0]["state"] == "completed", "end of the answer")
        post(proxy, "s", "steps/0/edit", arguments={"call_1": {"to": "kim"}})
        first = Agent(proxy, "s", "r1")
        assert first.say("find").outcome == "edited"
        first.send({"role": "tool", "tool_call_id": "call_1", "content": "sent to kim"})
        post(proxy, "s", "rollback", step_number=0)
        assert Agent(proxy, "s", "r2").say("other").outcome == "live"  # nobody made that call
        post(proxy, "s", "rollback", step_number=0)
        asking = Asking(lambda: Agent(proxy, "s", "r3").say("again"))
        [approval] = pending(proxy, 1, "s")
        assert approval["kind"] == "duplicate"
        decide(proxy, approval, "REJECTED", reason="it was sent")
        asking.answer()


def test_shared_step_that_is_edited_in_a_fork_is_another_there_alone(proxy: Proxy, model: Model, session: str) -> None:
    first = Agent(proxy, session, "r1")
    given = [first.say(f"q{at}") for at in range(3)]
    name = post(proxy, session, "fork", step_number=3)["session"]["id"]
    post(proxy, name, "steps/1/edit", text="in the fork")
    other = Agent(proxy, name, "r1")
    assert [other.say(f"q{at}").outcome for at in range(3)] == ["replay", "edited", "live"]
    assert other.messages[3]["content"] == "in the fork"
    again = Agent(proxy, session, "r2")
    assert said([again.say(f"q{at}") for at in range(3)]) == said(given)
    assert [len(proxy.control.get(f"/api/sessions/{key}/branches")) for key in (session, name)] == [1, 3]


def test_answer_whose_reader_left_is_claimed_as_it_was_edited_since(proxy: Proxy, model: Model, session: str) -> None:
    model.gates["q"] = Gate()
    with proxy.client.start(session, "q", run="r1") as connection:
        model.gates["q"].wait_reached()
        connection.reset()
    model.gates["q"].open()
    until(lambda: proxy.control.steps(session)[0]["state"] == "completed", "end of the answer")
    post(proxy, session, "steps/0/edit", text="edited")
    again = proxy.client.ask(session, "q", run="r1")
    assert (again.outcome, chat.text_of(again.body), len(model.asked)) == ("edited", "edited", 1)


def test_question_about_what_an_edit_leaves_behind_is_withdrawn_and_asked_again_when_that_is_undone(
    proxy: Proxy, model: Model, session: str
) -> None:
    model.calls["buy"] = [chat.tool_call("pay", '{"to": "bob"}')]
    agent = Agent(proxy, session, "r1")
    agent.say("q0")
    asking = Asking(lambda: agent.say("buy"))
    [approval] = pending(proxy, 1, session)
    with contextlib.suppress(ConnectionError):
        proxy.restart()  # nobody waits any more
        asking.answer()
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    preview = proxy.control.get(f"/api/sessions/{session}/preview?verb=edit&step_number=0")
    assert [one["id"] for one in preview["pending"]] == [approval["id"]]
    post(proxy, session, "steps/0/edit", text="edited")
    assert pending(proxy, 0, session) == []
    post(proxy, session, "rollback", branch=old)
    assert [one["id"] for one in pending(proxy, 1, session)] == [approval["id"]]
    decide(proxy, approval["id"], "REJECTED", reason="no")


def test_edited_call_that_policies_have_come_to_deny_is_given_to_nobody_new(
    tmp_path: Path, upstream: Upstream, model: Model
) -> None:
    model.calls["find"] = [chat.tool_call("send", '{"to": "bob"}')]
    denied = '[[policies]]\ntools = ["send"]\naction = "deny"\n'
    for given in (False, True):
        folder = tmp_path / str(given)
        with Proxy(folder, upstream.url, file="policies = []") as before:
            Agent(before, "s", "r1").say("find")
            post(before, "s", "steps/0/edit", arguments={"call_1": {"to": "kim"}})
            if given:
                assert Agent(before, "s", "r2").say("find").outcome == "edited"
        with Proxy(folder, upstream.url, file=denied) as after:
            answer = Agent(after, "s", "r3").say("find")
            assert (answer.status, answer.outcome) == ((200, "edited") if given else (403, None))


def test_edit_that_was_given_to_nobody_does_not_pass_because_another_one_of_its_step_was_given(
    tmp_path: Path, upstream: Upstream, model: Model
) -> None:
    model.calls["find"] = [chat.tool_call("send", '{"to": "bob"}')]
    with Proxy(tmp_path, upstream.url, file="policies = []") as before:
        Agent(before, "s", "r1").say("find")
        edits = []
        for to in ("kim", "ann"):
            post(before, "s", "steps/0/edit", arguments={"call_1": {"to": to}})
            edits += [one["id"] for one in before.control.get("/api/sessions/s/branches") if one["head"]]
        assert Agent(before, "s", "r2").say("find").outcome == "edited"
        post(before, "s", "rollback", branch=edits[0])
    with Proxy(tmp_path, upstream.url, file='[[policies]]\ntools = ["send"]\naction = "deny"\n') as after:
        assert Agent(after, "s", "r3").say("find").status == 403
        post(after, "s", "rollback", branch=edits[1])
        answer = Agent(after, "s", "r4").say("find")
        assert (answer.status, answer.outcome, b"ann" in answer.body) == (200, "edited", True)


def test_calls_that_the_agent_made_by_itself_are_listed_as_standing(proxy: Proxy, model: Model, session: str) -> None:
    model.calls["find"] = [chat.tool_call("look_up", '{"to": "bob"}')]
    model.calls["buy"] = [chat.tool_call("order", '{"to": "bob"}'), chat.tool_call("order", "{}", call_id="call_2")]
    agent = Agent(proxy, session, "r1")
    for question in ("q0", "find", "buy"):
        agent.say(question)
        for call in agent.messages[-1].get("tool_calls", [])[:1]:
            agent.messages.append({"role": "tool", "tool_call_id": call["id"], "content": "done"})
    agent.say("q3")
    at = f"/api/sessions/{session}"
    listed = [
        proxy.control.get(f"{at}/preview?verb={verb}&step_number={step}")["made"]
        for verb, step in (("rollback", 1), ("fork", 1), ("edit", 2), ("rollback", 3))
    ]
    assert listed[0] == listed[1] == listed[2]
    assert [(one["step_number"], one["tool"], one["call_id"], one["result_seen"]) for one in listed[0]] == [
        (2, "order", "call_1", True), (2, "order", "call_2", False),
    ]  # fmt: skip
    assert listed[3] == []
    assert post(proxy, session, "fork", step_number=1)["made"] == listed[0]
    assert post(proxy, session, "rollback", step_number=1)["made"] == listed[0]
