"""What differs between requests, answers and texts is named, all of it and nothing else."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentstate.core import comparing
from agentstate.core.comparing import Call, Field, Said, Segment, answers, requests, texts

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab \n", max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("klmn"), inner, max_size=3),
    max_leaves=8,
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": values}, optional={"name": scalars}
)
tool = st.builds(lambda name, rest: {"name": name, "input_schema": rest}, st.sampled_from("pqrs"), values)
body = st.fixed_dictionaries(
    {"model": st.sampled_from(["m1", "m2"])},
    optional={
        "messages": st.lists(message, max_size=5),
        "tools": st.lists(tool, max_size=3, unique_by=lambda one: one["name"]),
        "temperature": st.integers(0, 2),
        "metadata": values,
    },
)


def spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def turned(field: Field) -> tuple[Any, ...]:
    only = {"left": "right", "right": "left", "": ""}[field.only]
    return spelled(field.right), spelled(field.left), only


def straight(field: Field) -> tuple[Any, ...]:
    return spelled(field.left), spelled(field.right), field.only


# --- requests ---


@given(body)
def test_a_request_does_not_differ_from_itself(value: Any) -> None:
    assert not requests(value, copy.deepcopy(value))


@given(body, body)
def test_two_requests_that_differ_have_a_field_and_turned_round_the_sides_change_places(left: Any, right: Any) -> None:
    there, back = requests(left, right), requests(right, left)
    assert bool(there) is (ordered(left) != ordered(right))
    assert sorted(map(straight, there.found)) == sorted(map(turned, back.found))


def ordered(value: Any) -> str:
    """A request without the order of its tools."""
    return spelled(value | ({"tools": sorted(value["tools"], key=spelled)} if "tools" in value else {}))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        return [found for key, part in value.items() for found in places(part, (*path, key))]
    if isinstance(value, list) and value:
        return [found for index, part in enumerate(value) for found in places(part, (*path, index))]
    return [path]


@given(body, st.data())
def test_a_changed_place_is_named_with_what_stood_there_and_what_stands_there(value: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path in places(value) if path and path[-1] not in ("role", "name")]))
    assume(not (path[0] == "messages" and len(path) < 3))
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    was, inner[path[-1]] = inner[path[-1]], "CHANGED"
    found = requests(value, changed).found
    assert any((field.left, field.right) == (was, "CHANGED") for field in found)


def test_a_message_is_named_by_its_place_and_speaker_with_the_pieces_of_its_text() -> None:
    left = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "sum up the north"}]}
    right = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "sum up the south"}]}
    [field] = requests(left, right).found
    assert (field.path, field.place) == ("messages[1].content", "the user's text (message 2)")
    assert field.text == (Segment("both", "sum up the "), Segment("left", "north"), Segment("right", "south"))


def test_a_message_that_was_put_in_is_one_field_and_those_behind_it_are_none() -> None:
    said = [{"role": "user", "content": text} for text in ("a", "b", "c")]
    new = {"role": "assistant", "content": "new"}
    [field] = requests({"messages": said}, {"messages": [said[0], new, *said[1:]]}).found
    assert (field.only, field.right, field.left) == ("right", new, None)
    assert field.place == "what the model said before (message 2)"


def test_a_message_that_stands_elsewhere_is_named_by_both_places() -> None:
    left = {"messages": [{"role": "user", "content": "x"}]}
    right = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "y"}]}
    moved = requests(left, right).found[-1]
    assert (moved.path, moved.place) == ("messages[0].content", "the user's text (message 1), message 2 on the right")


def test_tools_are_laid_beside_each_other_by_name() -> None:
    def named(name: str, description: str) -> Any:
        return {"type": "function", "function": {"name": name, "description": description}}

    left = {"tools": [named("a", "one"), named("b", "two")]}
    right = {"tools": [named("b", "too"), named("c", "new")]}
    found = {field.path: (field.place, field.only) for field in requests(left, right).found}
    assert found == {
        "tools.a": ("the tool a", "left"),
        "tools.b.function.description": ("the description of the tool b", ""),
        "tools.c": ("the tool c", "right"),
    }
    assert not requests({"tools": left["tools"]}, {"tools": left["tools"][::-1]})


def test_true_is_not_one_and_an_absent_field_is_not_null() -> None:
    assert [field.path for field in requests({"a": True}, {"a": 1}).found] == ["a"]
    assert [field.only for field in requests({"a": None}, {}).found] == ["left"]


def test_more_fields_than_are_listed_are_said_to_be_there() -> None:
    found = requests({"x": list(range(2000))}, {"x": [-1] * 2000})
    assert len(found.found) == comparing.MOST_FIELDS and found.more


# --- answers ---

PLAIN = Said({"text": "hello"}, (Call("send", {"to": "bob"}),), ("tool_calls",), "m1", rest={"logprobs": [1]})


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"parts": {"text": "bye"}}, "text"),
        ({"parts": {"text": "hello", "thinking": "hm"}}, "thinking"),
        ({"calls": (Call("send", {"to": "eve"}),)}, "calls[0].arguments.to"),
        ({"calls": ()}, "calls[0]"),
        ({"calls": (Call("send", {"to": "bob"}), Call("drop", {}))}, "calls[1]"),
        ({"finish": ("stop",)}, "finish[0]"),
        ({"model": "m2"}, "model"),
        ({"status": 429}, "status"),
        ({"state": "failed"}, "state"),
        ({"error": "too busy"}, "error"),
        ({"rest": {"logprobs": [2]}}, "answer.logprobs[0]"),
    ],
)
def test_what_differs_in_an_answer_is_named(change: dict[str, Any], path: str) -> None:
    other = replace(PLAIN, **change)
    assert [field.path.split("[")[0] for field in answers(PLAIN, other).found] == [path.split("[")[0]]
    assert not answers(other, other)
    assert sorted(map(straight, answers(PLAIN, other).found)) == sorted(map(turned, answers(other, PLAIN).found))


def test_a_call_of_another_tool_is_two_fields() -> None:
    found = answers(PLAIN, replace(PLAIN, calls=(Call("drop", {"to": "bob"}),))).found
    assert [(field.place, field.only) for field in found] == [
        ("the call of send", "left"),
        ("the call of drop", "right"),
    ]


# --- texts ---


@given(st.text("ab \n", max_size=40), st.text("ab \n", max_size=40))
def test_the_pieces_of_two_texts_are_both_texts(left: str, right: str) -> None:
    pieces = texts(left, right)
    assert "".join(piece.text for piece in pieces if piece.side != "right") == left
    assert "".join(piece.text for piece in pieces if piece.side != "left") == right


def test_long_texts_are_compared_line_by_line() -> None:
    lines = [f"line {place} of the text\n" for place in range(20_000)]
    other = [*lines[:9000], "another line\n", *lines[9001:]]
    pieces = texts("".join(lines), "".join(other))
    assert [piece.side for piece in pieces] == ["both", "left", "right", "both"]
    assert (pieces[1].text, pieces[2].text) == ("line 9000 of the text\n", "another line\n")
