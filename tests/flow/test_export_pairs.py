"""Preference pairs come from what people did: edited and refused calls, and answers that they rated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.core.dataset_rules import faults
from tests.support import chat
from tests.support.exports import ASKED, TOLD, WEATHER, lines, weather_agent, weather_model, with_result
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain

RULE = '[[policies]]\ntools = ["weather"]\naction = "hold"\non_reject = "{}"\n'


def model(seen: Seen) -> Reply:
    """Calls the tool, and speaks once it was given any result; each time in other words."""
    messages: Any = seen.json()["messages"]
    if any(message["role"] == "tool" for message in messages):
        return plain(chat.completion(f"{TOLD} (said for {len(messages)} messages)"))
    return plain(chat.completion(None, tool_calls=[chat.tool_call("weather", '{"city": "Rome"}')]))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(model) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with (
        Upstream(weather_model) as upstream,
        Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as running,
    ):
        yield running


def pairs(proxy: Proxy, form: str = "openai-dpo") -> list[Any]:
    found = lines(proxy, f"/api/export/dataset?format={form}")
    assert [fault for line in found for fault in faults(form, line)] == []  # type: ignore[arg-type]
    return found


def ask(proxy: Proxy, *more: dict[str, Any]) -> Asking:
    return Asking(lambda: proxy.client.ask("s", [chat.user(ASKED), *more], tools=[WEATHER], run="run-1"))


def test_an_edited_call_is_preferred_to_the_one_that_came(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path / "data", upstream.url, file=RULE.format("message")) as proxy:
        waiting = ask(proxy)
        decide(proxy, pending(proxy)[0], "EDITED", arguments={"city": "Oslo"})
        given = waiting.answer().json()["choices"][0]["message"]
        messages = with_result([chat.user(ASKED)], given)
        assert proxy.client.ask("s", messages, tools=[WEATHER], run="run-1").status == 200
        [pair] = pairs(proxy)
        [trl] = pairs(proxy, "trl-dpo")
        [line] = lines(proxy)
        approved = lines(proxy, "/api/export/dataset?approved=true")
    assert pair["input"]["messages"] == [chat.user(ASKED)]
    arguments = [
        json.loads(pair[name][0]["tool_calls"][0]["function"]["arguments"])
        for name in ("preferred_output", "non_preferred_output")
    ]
    assert arguments == [{"city": "Oslo"}, {"city": "Rome"}]
    assert trl["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    # What is trained is what the person made of it.
    assert json.loads(line["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert [message.get("weight", 1) for message in line["messages"]] == [1, 1, 1, 1] and approved == [line]


def test_a_refused_call_is_paired_with_what_the_model_said_to_the_refusal(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path / "data", upstream.url, file=RULE.format("continue")) as proxy:
        waiting = ask(proxy)
        decide(proxy, pending(proxy)[0], "REJECTED", reason="not today")
        assert waiting.answer().status == 200
        [pair] = pairs(proxy)
        assert lines(proxy, "/api/export/dataset?approved=true") == []
    assert pair["preferred_output"][0]["content"].startswith(TOLD)
    assert pair["non_preferred_output"][0]["tool_calls"][0]["function"]["name"] == "weather"


def test_a_refusal_that_nothing_replaced_makes_no_pair_and_is_not_trained(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path / "data", upstream.url, file=RULE.format("message")) as proxy:
        waiting = ask(proxy)
        decide(proxy, pending(proxy)[0], "REJECTED", reason="not today")
        assert waiting.answer().status == 200
        assert pairs(proxy) == [] == lines(proxy)
        told = [proxy.control.get(f"/api/export/report?format={form}")["left_out"] for form in ("openai-dpo", "openai")]
    assert told == [{"refused without a replacement": 1}, {"call that a person refused": 1}]


def test_an_answer_that_waits_for_a_person_is_in_no_export(tmp_path: Path, upstream: Upstream) -> None:
    with Proxy(tmp_path / "data", upstream.url, file=RULE.format("message")) as proxy:
        waiting = ask(proxy)
        approval = pending(proxy)[0]
        assert lines(proxy) == []
        assert proxy.control.get("/api/export/report")["left_out"] == {"answer that waits for a person": 1}
        decide(proxy, approval, "APPROVED")
        waiting.answer()
        assert len(lines(proxy)) == 1


def test_a_good_answer_is_paired_with_a_bad_one_that_was_rolled_back(tmp_path: Path) -> None:
    with Upstream() as upstream, Proxy(tmp_path / "data", upstream.url, file="policies = []\n") as proxy:
        upstream.replies(plain(chat.completion("worse")), plain(chat.completion("better")))
        assert proxy.client.ask("s", "Which?", run="a").status == 200
        proxy.control.post("/api/sessions/s/steps/0/rating", {"rating": "bad"})
        proxy.control.post("/api/sessions/s/reset", {"step_number": 0})
        assert proxy.client.ask("s", "Which?", run="b").status == 200
        assert pairs(proxy) == []
        proxy.control.post("/api/sessions/s/steps/1/rating", {"rating": "good"})
        [pair] = pairs(proxy)
        [line] = lines(proxy)
    assert [pair[name][0]["content"] for name in ("preferred_output", "non_preferred_output")] == ["better", "worse"]
    assert line["messages"][1]["content"] == "better"


def test_an_answer_that_a_person_edited_is_trained_and_preferred(proxy: Proxy) -> None:
    said = weather_agent(proxy, "s")
    assert proxy.client.ask("s", [*said, chat.user("And in Oslo?")], tools=[WEATHER]).status == 200
    proxy.control.post("/api/sessions/s/steps/1/edit", {"text": "Sunny, 31 degrees."})
    [line] = lines(proxy)
    # What went on from the answer that was replaced is left behind.
    assert line["messages"][-1] == {"role": "assistant", "content": "Sunny, 31 degrees."}
    assert [message.get("weight", 1) for message in line["messages"]] == [1] * 5
    [pair] = pairs(proxy)
    assert [pair[name][0]["content"] for name in ("preferred_output", "non_preferred_output")] == [
        "Sunny, 31 degrees.",
        TOLD,
    ]


def test_what_a_fork_shares_is_trained_once(proxy: Proxy) -> None:
    said = weather_agent(proxy, "s")
    made = proxy.control.post("/api/sessions/s/fork", {"step_number": 2, "name": "t"})
    assert made["session"]["id"] == "t"
    for session, more in (("s", "And in Oslo?"), ("t", "And in Lima?")):
        assert proxy.client.ask(session, [*said, chat.user(more)], tools=[WEATHER]).status == 200
    whole = lines(proxy)
    alone = lines(proxy, "/api/sessions/t/export")
    weights = [[m.get("weight", 1) for m in line["messages"] if m["role"] == "assistant"] for line in (*whole, *alone)]
    assert weights == [[1, 1, 1], [0, 0, 1], [1, 1, 1]]
    assert [line["messages"][-2]["content"] for line in whole] == ["And in Oslo?", "And in Lima?"]


def test_a_step_that_is_shared_is_rated_for_all_that_show_it(proxy: Proxy) -> None:
    weather_agent(proxy, "s")
    proxy.control.post("/api/sessions/s/fork", {"step_number": 2, "name": "t"})
    proxy.control.post("/api/sessions/t/steps/0/rating", {"rating": "bad"})
    assert proxy.control.post("/api/sessions/t/steps/1/labels", {"add": ["example"]})["labels"] == ["example"]
    shown = [proxy.control.steps(session) for session in ("s", "t")]
    assert [(steps[0]["rating"]["rating"], steps[1]["labels"]) for steps in shown] == [("bad", ["example"])] * 2
    proxy.control.post("/api/sessions/t/steps/0/rating", {"rating": "none"})
    assert proxy.control.steps("s")[0]["rating"] is None
