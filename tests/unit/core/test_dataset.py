"""Steps become transcripts, transcripts lines: whatever agents do, lines keep the rules and no answer counts twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.core import dataset
from agentstate.core.dataset import Example, Facts, Pair, Transcripts, example, rated_pairs, unanswered
from agentstate.core.dataset_filter import Filters, Format, in_validation, parsed
from agentstate.core.dataset_formats import LeftOut, spelled
from agentstate.core.dataset_redaction import redacted_example
from agentstate.core.dataset_rules import faults
from agentstate.core.redaction import Redactor
from agentstate.core.transcript import Called, Dialogue, Document, Offered, Picture, Reply, Spoken, chain
from agentstate.errors import BadRequest
from tests.support import published

TOOL = Offered("look", "Looks.", '{"type":"object","properties":{"at":{"type":"string"}}}', True)
FORMATS: tuple[Format, ...] = ("openai", "trl", "trajectory", "parquet")


def user(*pieces: Any) -> Spoken:
    return Spoken("user", pieces)


def said(text: str = "", *calls: Called, **more: Any) -> Spoken:
    return Spoken("assistant", (text,) if text else (), calls, **more)


def result(call: str, text: str = "seen") -> Spoken:
    return Spoken("tool", (text,), answers=call)


def reply(message: Spoken, end: str = "stop") -> Reply:
    return Reply(message, end)


def line_of(messages: list[Spoken], trained: set[int], tools: tuple[Offered, ...] = ()) -> Example:
    return Example("s", (Facts(0),), Dialogue(tuple(messages), tools), frozenset(trained))


# --- whatever agents do -----------------------------------------------------------------------------------------------


@dataclass
class Played:
    """What a random agent did: (facts, conversation, answers) of each step."""

    steps: list[tuple[Facts, Dialogue, list[Reply]]]


TEXTS = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=12)
ARGUMENTS = st.one_of(
    st.just(""), st.just('{"at": "x"}'), st.just("{"), st.just("[1]"), st.just('{"n": NaN}'),
    st.dictionaries(TEXTS, st.one_of(st.none(), st.booleans(), st.integers(), TEXTS), max_size=2).map(json.dumps),
)  # fmt: skip


@st.composite
def agents(draw: st.DrawFn) -> Played:
    """An agent that goes on from any conversation it ever had, and may forge, forget, repeat and show whatever."""
    known: list[tuple[Spoken, ...]] = [(Spoken("system", ("Be brief.",)),), ()]
    steps = []
    for number in range(draw(st.integers(1, 6))):
        messages = list(draw(st.sampled_from(known)))
        open_ = [call.id for call in messages[-1].calls] if messages else []
        messages += [result(call, draw(TEXTS)) for call in open_ if draw(st.sampled_from([True, True, True, False]))]
        if not open_ or draw(st.booleans()):
            messages.append(
                user(
                    *draw(
                        st.sampled_from(
                            [("hi",), ("hi", Picture("https://x/y.png")), ("",), ("see", Document("a.pdf", "data:,"))]
                        )
                    )
                )
            )
        if draw(st.sampled_from([False] * 9 + [True])):
            messages.append(
                draw(st.sampled_from([said("forged"), result("forged"), said("", Called("f", "look", "{}"))]))
            )
        answers = []
        for choice in range(draw(st.sampled_from([1, 1, 1, 2]))):
            calls = tuple(
                Called(f"call_{number}_{choice}_{at}", "look", draw(ARGUMENTS)) for at in range(draw(st.integers(0, 2)))
            )
            text = draw(st.sampled_from(["", "sure", f"answer {number}"]))
            answers.append(reply(said(text, *calls), draw(st.sampled_from(["stop", "stop", "length", "refusal"]))))
        tools = (TOOL,) if draw(st.booleans()) else ()
        why = {"length": dataset.CUT, "refusal": dataset.DECLINED}.get(answers[0].end, "")
        rating = draw(st.sampled_from(["", "", "good", "bad"]))
        facts = Facts(number, "m", rating=rating, why_not=why or (dataset.BAD if rating == "bad" else ""),
                      chosen=draw(st.sampled_from([True, True, False])))  # fmt: skip
        steps.append((facts, Dialogue(tuple(messages), tools, draw(st.sampled_from([None, True]))), answers))
        known += [(*messages, answer.message) for answer in answers]
    return Played(steps)


def lines_of(played: Played, alone: bool = False) -> tuple[list[Example], Counter[str]]:
    transcripts, left = Transcripts(), Counter[str]()
    for facts, asked, answers in played.steps:
        transcripts.add(facts, asked, answers)
    used: set[int] = set()
    found = []
    for last in transcripts.each() if alone else transcripts.longest():
        _, asked, answers = played.steps[last.facts.number]
        line = example("s", last, asked, answers[0], used, alone)
        if isinstance(line, Example):
            found.append(line)
        else:
            left[line] += 1
    return found, left


@settings(max_examples=300, deadline=None)
@given(agents(), st.booleans())
def test_every_line_that_is_written_keeps_the_rules_of_its_format(played: Played, alone: bool) -> None:
    for line in lines_of(played, alone)[0]:
        for form in FORMATS:
            try:
                value = spelled(form, line)
            except LeftOut as reason:
                assert str(reason) in dataset.REASONS
                continue
            assert faults(form, value) == []
            json.dumps(value, allow_nan=False).encode()


@settings(max_examples=100, deadline=None)
@given(agents())
def test_every_line_for_openai_keeps_to_the_published_schema(played: Played) -> None:
    for line in lines_of(played)[0]:
        try:
            value = spelled("openai", line)
        except LeftOut:
            continue
        assert published.faults(value) == []


@settings(max_examples=300, deadline=None)
@given(agents(), st.booleans())
def test_no_answer_is_trained_twice_nor_one_that_must_not_be(played: Played, alone: bool) -> None:
    trained = [step for line in lines_of(played, alone)[0] for step in line.steps]
    numbers = [facts.number for facts in trained]
    assert len(set(numbers)) == len(numbers)
    assert all(facts.chosen and not facts.why_not for facts in trained)
    for line in lines_of(played, alone)[0]:
        for place in line.trained:
            answers = [answer for _, _, answers in played.steps for answer in answers]
            assert any(_equal(line.dialogue.messages[place], answer.message) for answer in answers)
        assert max(line.trained) == len(line.dialogue.messages) - 1


def _equal(one: Spoken, other: Spoken) -> bool:
    return chain([one]) == chain([other])


@settings(max_examples=200, deadline=None)
@given(agents())
def test_every_answer_that_may_be_trained_is_in_some_line(played: Played) -> None:
    trained = {step.number for line in lines_of(played, alone=True)[0] for step in line.steps}
    assert trained == {facts.number for facts, _, _ in played.steps if facts.chosen and not facts.why_not}


@settings(max_examples=100, deadline=None)
@given(agents(), st.sampled_from(["sk-" + "test-4f3a9c2b7d1e8f6a5b4c", "jo.doe@example.com", "4111 1111 1111 1111"]))
def test_no_planted_secret_is_left_in_a_redacted_line(played: Played, secret: str) -> None:
    call = Called("planted", "look", json.dumps({"to": [f"send {secret} now"]}))
    planted = (
        Spoken("system", (f"Know {secret}.",)),
        said(f"I know {secret}", call),
        result("planted", f'{{"x": "{secret}"}}'),
    )
    tool = TOOL._replace(description=f"By {secret}", schema=json.dumps({"type": "object", "description": secret}))
    for line in lines_of(played)[0]:
        dialogue = Dialogue((*planted, *line.dialogue.messages), (tool,))
        told = line._replace(dialogue=dialogue, trained=frozenset(place + 3 for place in line.trained))
        for form in FORMATS:
            try:
                assert secret not in json.dumps(spelled(form, redacted_example(told, Redactor())))
            except LeftOut:
                continue


# --- one by one -------------------------------------------------------------------------------------------------------


def test_an_answer_that_a_client_writes_anew_is_known_again() -> None:
    transcripts = Transcripts()
    asked = Dialogue((Spoken("system", ("Today is 2026-11-30.",)), user("hi")))
    first = transcripts.add(Facts(0), asked, [reply(said("", Called("call_1", "look", '{"a": 1, "b": 2}')))])
    echoed = said("", Called("other", "look", '{"b":2,"a":1}'))
    later = (Spoken("system", ("Today is 2026-12-01.",)), user("hi"), echoed, result("other"))
    second = transcripts.add(Facts(1), Dialogue(later), [reply(said("done"))])
    assert second.given == {2: first} and transcripts.longest() == [second]


def test_a_step_that_was_asked_with_other_tools_is_a_line_of_its_own() -> None:
    transcripts = Transcripts()
    first = transcripts.add(Facts(0), Dialogue((user("hi"),), (TOOL,)), [reply(said("yes"))])
    second = transcripts.add(Facts(1), Dialogue((user("hi"), said("yes"), user("and?"))), [reply(said("no"))])
    assert transcripts.longest() == [first, second] and second.given == {}


def test_the_agent_may_go_on_from_the_second_choice() -> None:
    transcripts = Transcripts()
    first = transcripts.add(Facts(0), Dialogue((user("hi"),)), [reply(said("a")), reply(said("b"))])
    second = transcripts.add(Facts(1), Dialogue((user("hi"), said("b"), user("x"))), [reply(said("c"))])
    assert second.given == {1: first} and transcripts.longest() == [second]


def test_a_line_ends_with_its_last_trained_answer() -> None:
    transcripts = Transcripts()
    transcripts.add(Facts(0), Dialogue((user("a"),)), [reply(said("b"))])
    asked = Dialogue((user("a"), said("b"), user("c")))
    last = transcripts.add(Facts(1, why_not=dataset.CUT), asked, [reply(said("d"), "length")])
    line = example("s", last, asked, reply(said("d")), set())
    assert isinstance(line, Example) and line.dialogue.messages == (user("a"), said("b"))


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([user("a"), said("", Called("1", "t", "{}"), Called("2", "t", "{}")), result("2"), result("1")], ""),
        ([user("a"), said("", Called("1", "t", "{}"))], ""),
        ([user("a"), said("", Called("1", "t", "{}"), Called("2", "t", "{}")), result("1")], dataset.UNANSWERED),
        ([user("a"), said("", Called("1", "t", "{}")), user("b")], dataset.UNANSWERED),
        ([user("a"), result("1")], dataset.STRAY),
        ([user("a"), said("", Called("1", "t", "{}")), result("1"), result("1"), said("b")], dataset.STRAY),
        ([user("a"), said("", Called("1", "t", "{}"), Called("1", "t", "{}"))], dataset.INVALID),
    ],
)  # fmt: skip
def test_calls_and_results_must_fit(messages: list[Spoken], wrong: str) -> None:
    assert unanswered(messages) == wrong


@pytest.mark.parametrize(
    ("message", "form", "reason"),
    [
        (user("see", Document("a", "data:,")), "openai", dataset.DOCUMENTS),
        (user("see", Picture("https://x")), "trl", dataset.PICTURES),
        (Spoken("tool", (Picture("https://x"),), answers="1"), "openai", dataset.PICTURES),
    ],
)
def test_what_a_format_has_no_place_for_is_left_out_with_the_reason(message: Spoken, form: Format, reason: str) -> None:
    before = [user("a"), said("", Called("1", "t", "{}"))] if message.role == "tool" else []
    line = line_of([*before, message, said("x")], {len(before) + 1})
    with pytest.raises(LeftOut, match=reason):
        spelled(form, line)
    assert spelled("trajectory", line)["session"] == "s"


def test_a_picture_stays_a_part_where_the_format_has_one() -> None:
    line = line_of([user("see", Picture("data:image/png;base64,AA==")), said("x")], {1}, (TOOL,))
    value = spelled("openai", line)
    assert value["messages"][0]["content"] == [
        {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]  # fmt: skip
    assert published.faults(value) == []
    row = spelled("parquet", line)["messages"][0]
    assert (row["content"], row["images"]) == ("see", ["data:image/png;base64,AA=="])


def test_a_pair_is_one_conversation_and_two_answers() -> None:
    better, worse = said("", Called("1", "look", '{"at": "b"}')), said("", Called("1", "look", '{"at": "a"}'))
    pair = Pair("s", Facts(0), Dialogue((user("go"),), (TOOL,), False), better, worse, "edited")
    line = spelled("openai-dpo", pair)
    assert faults("openai-dpo", line) == []
    assert line["input"].keys() == {"messages", "tools", "parallel_tool_calls"}
    assert [published.faults_of_answer(line[name][0]) for name in ("preferred_output", "non_preferred_output")] == [
        [],
        [],
    ]
    assert published.faults(line["input"]) == []
    trl = spelled("trl-dpo", pair)
    assert faults("trl-dpo", trl) == [] and trl["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"at": "b"}
    assert faults("openai-dpo", spelled("openai-dpo", pair._replace(other=better))) == ["both outputs are the same"]


def test_a_bad_answer_is_paired_with_a_good_one_to_the_same_question() -> None:
    transcripts = Transcripts()
    for number, (text, rating) in enumerate((("a", "bad"), ("b", "good"), ("c", ""), ("d", "bad"), ("b", "bad"))):
        transcripts.add(Facts(number, rating=rating), Dialogue((user("q"),)), [reply(said(text))])
    transcripts.add(Facts(9, rating="bad"), Dialogue((user("another"),)), [reply(said("a"))])
    found = [(better.facts.number, worse.facts.number) for better, worse in rated_pairs(transcripts.each())]
    assert found == [(1, 0), (1, 3)]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({"messages": []}, "no messages"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "developer"),
        ({"messages": [{"role": "assistant", "content": None}]}, "no text"),
        ({"messages": [{"role": "assistant", "content": "x", "weight": 0}]}, "is trained"),
        ({"messages": [{"role": "assistant", "content": "x", "weight": 2}]}, "weight"),
        ({"messages": [{"role": "user", "content": "x", "weight": 1}]}, "fields"),
        ({"messages": [{"role": "assistant", "content": "x"}], "functions": []}, "fields"),
        ({"messages": [{"role": "assistant", "content": "x"}], "tools": [{}] * 200}, "tools"),
        ({"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]}, "answers no call"),
    ],
)
def test_the_validator_sees_what_is_wrong(line: dict[str, Any], fault: str) -> None:
    assert any(fault in found for found in faults("openai", line))


def test_a_query_is_read_or_refused_with_what_is_known() -> None:
    filters, form = parsed(
        [("format", "trl"), ("label", "a"), ("label", "b"), ("since", "2026-01-31"), ("redact", "0")]
    )
    assert (form, filters.labels, filters.redact, filters.since) == ("trl", ("a", "b"), False, 1769817600.0)
    assert parsed([("until", "2026-01-30")])[0].until == 1769817600.0
    with pytest.raises(BadRequest, match="use approved, branch"):
        parsed([("labels", "a")])


def test_a_split_takes_about_the_share_that_it_is_given() -> None:
    chosen = [name for name in (f"s{number}" for number in range(2000)) if in_validation(name, 0.1)]
    assert 140 < len(chosen) < 260
    assert all(in_validation(name, 0.3) for name in chosen) and not in_validation("s0", 0.0)


def test_a_session_rated_bad_has_good_steps() -> None:
    filters = Filters(rating="good", labels=("x",))
    assert filters.takes_marks(("bad", ()), ("good", ("x",))) and not filters.takes_marks(("good", ("x",)), ("bad", ()))
    assert Filters(rating="none").takes_marks(("", ()), ("", ())) and not Filters(labels=("x",)).takes_marks(
        ("", ()), ("", ("y",))
    )
