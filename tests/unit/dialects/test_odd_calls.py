"""Calls that a provider tells in an unusual way are calls nonetheless, and no client sees one that the gate misses."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from agentstate.core.model import Change, Shape, Verdict
from agentstate.dialects import openai_shape
from agentstate.dialects.openai_answer import judge_plain
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_ids import filled_stream
from tests.support import chat
from tests.unit.dialects.test_gate import fed

CHAT = OpenAIChat()
SECRET = '{"to":"bob@example.com"}'


def event(choices: Any) -> bytes:
    whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


def chunk(**choice: Any) -> bytes:
    return event([{"index": 0, "finish_reason": None, **choice}])


def piece(name: str = "", arguments: str = "", call_id: str = "", index: Any = 0) -> bytes:
    call: dict[str, Any] = {"index": index, "function": {"name": name, "arguments": arguments}}
    return chunk(delta={"tool_calls": [{**call, **({"id": call_id, "type": "function"} if call_id else {})}]})


END = chunk(delta={}, finish_reason="tool_calls") + chat.DONE


def judged(*events: bytes) -> Verdict:
    free, verdict, _ = fed([*events, END])
    assert b"bob@" not in free
    return verdict


def named(verdict: Verdict) -> list[tuple[int, str, str, str]]:
    return [(call.index, call.call_id, call.name, call.arguments) for call in verdict.calls]


# --- several calls of one index ---------------------------------------------------------------------------------------

TWINS = piece("search", '{"q":', "a") + piece("", "1}") + piece("send_email", '{"to":', "b") + piece("", '"x"}') + END
APART = [(0, "a", "search", '{"q":1}'), (1, "b", "send_email", '{"to":"x"}')]


def test_new_id_with_a_name_begins_a_new_call_though_the_index_is_known() -> None:
    _, verdict, _ = fed([TWINS])
    assert verdict.fault == "" and named(verdict) == APART


def test_index_that_another_call_took_is_no_obstacle_to_the_call_that_has_it() -> None:
    verdict = judged(
        piece("a", "{}", "1"), piece("b", "{}", "2"), piece("c", "{", "3", index=1), piece("", "}", index=1)
    )
    assert named(verdict) == [(0, "1", "a", "{}"), (1, "2", "b", "{}"), (2, "3", "c", "{}")]


def test_id_that_comes_after_the_arguments_is_of_the_same_call() -> None:
    assert named(judged(piece("", "{}"), piece("x", "", "a"))) == [(0, "a", "x", "{}")]
    assert named(judged(piece("x", "{", "a"), piece("", "}", "b"))) == [(0, "a", "x", "{}")]


def test_calls_of_one_index_are_converted_amended_and_given_ids_each_on_its_own() -> None:
    assert named(judge_plain(openai_shape.to_plain(TWINS))) == APART
    for gone in (0, 1):
        made = CHAT.amended(CHAT.parse("POST", "", b"{}"), Shape(True), TWINS, [Change(0, gone)], "Refused.")
        _, after, _ = fed([made])
        assert named(after) == [(0, *APART[1 - gone][1:])] and after.fault == ""
    edited = CHAT.amended(CHAT.parse("POST", "", b"{}"), Shape(True), TWINS, [Change(0, 1, '{"to":"eve"}')], "")
    assert named(fed([edited])[1]) == [APART[0], (1, "b", "send_email", '{"to":"eve"}')]
    numbers = itertools.count(1)
    filled = filled_stream(TWINS.replace(b'"id": "a", ', b""), lambda: f"made_{next(numbers)}")
    assert [call.call_id for call in fed([filled])[1].calls] == ["made_1", "b"]


# --- names in pieces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "name", "also"),
    [
        (["send_", "email"], "send_email", {"send_", "email"}),
        (["search", "search"], "search", {"searchsearch"}),
        (["go", "go"], "go", {"gogo"}),
        (["send_email", "x"], "send_emailx", {"send_email", "x"}),
        (["search", "send_email"], "searchsend_email", {"search", "send_email"}),
        (["send", "send_email"], "sendsend_email", {"send", "send_email"}),
        (["a", "a", "b"], "ab", {"aab", "a", "b"}),
        (["search"], "search", set()),
    ],
)
def test_every_name_that_a_client_could_make_of_the_pieces_is_told(
    pieces: list[str], name: str, also: set[str]
) -> None:
    (call,) = judged(*(piece(part, "", "a" if not at else "") for at, part in enumerate(pieces)), piece("", "{}")).calls
    assert call.name == name and set(call.also) == also


def test_name_that_a_client_makes_of_two_calls_of_one_index_is_told_where_nothing_parts_them() -> None:
    first, second = judged(piece("send_", "", "a"), piece("email", SECRET, "b")).calls
    assert (first.name, second.name, second.also) == ("send_", "email", ("send_email",))
    assert judged(piece("send_", "{}", "a"), piece("email", SECRET, "b")).calls[1].also == ()


# --- calls where none should be ---------------------------------------------------------------------------------------

CALL = {"id": "c", "type": "function", "function": {"name": "send_email", "arguments": SECRET}}
BOTH = {"id": "c", "function": {"name": "search", "arguments": "{}"}, "custom": {"name": "send_email", "input": "x"}}


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        (chunk(message={"role": "assistant", "tool_calls": [CALL]}), "send_email"),
        (chunk(delta={}, message={"function_call": CALL["function"]}), "send_email"),
        (chunk(delta={"tool_calls": {"0": CALL}}), ""),
        (chunk(delta={"tool_calls": [[CALL]]}), ""),
        (chunk(delta={"tool_calls": "send_email bob@example.com"}), ""),
        (chunk(delta={"function_call": [CALL]}), ""),
        (chunk(delta=[{"tool_calls": [CALL]}]), ""),
        (chunk(delta={"tool_calls": [BOTH]}), ""),
        (chunk(delta={"tool_calls": [{"index": 0, "id": "c", "function": json.dumps(CALL["function"])}]}), ""),
        (chunk(delta={"tool_calls": [{"index": 0, "id": "c", "function": {"name": ["send_email"]}}]}), ""),
        (chunk(message=[CALL]), ""),
        (event({"index": 0, "delta": {"tool_calls": [CALL]}}), ""),
        (event([[{"index": 0, "delta": {"tool_calls": [CALL]}}]]), ""),
    ],
)
def test_what_stands_at_the_place_of_a_call_in_a_stream_is_a_call_and_is_not_shown(odd: bytes, name: str) -> None:
    free, verdict, _ = fed([chunk(delta={"content": "a"}), odd, END])
    assert free == chunk(delta={"content": "a"})
    assert [call.name for call in verdict.calls] == [name] and verdict.fault == ""


def test_message_in_a_stream_that_repeats_its_calls_proposes_nothing_more() -> None:
    verdict = judged(piece("send_email", SECRET, "c"), chunk(delta={}, message={"tool_calls": [CALL]}))
    assert named(verdict) == [(0, "c", "send_email", SECRET)]


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"message": {"tool_calls": {"0": CALL}}}, ""),
        ({"message": {"tool_calls": ["odd"]}}, ""),
        ({"message": {"function_call": [CALL]}}, ""),
        ({"message": {"tool_calls": [BOTH]}}, ""),
        ({"message": [{"tool_calls": [CALL]}]}, ""),
        ({"message": {"tool_calls": [{"function": json.dumps(CALL)}]}}, ""),
        ({"delta": {"tool_calls": [CALL]}}, "send_email"),
        ({"message": {"content": "a"}, "delta": {"tool_calls": [CALL]}}, "send_email"),
    ],
)
def test_what_stands_at_the_place_of_a_call_in_a_plain_answer_is_a_call(choice: dict[str, Any], name: str) -> None:
    body = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]}).encode()
    verdict = judge_plain(body)
    assert [call.name for call in verdict.calls] == [name] and verdict.fault == ""
    for change in (Change(0, verdict.calls[0].index), Change(0, verdict.calls[0].index, '{"to":"eve"}')):
        try:
            made = CHAT.amended(CHAT.parse("POST", "", b"{}"), Shape(), body, [change], "")
        except ValueError:
            continue  # nothing is given then
        assert b"bob@" not in made


def test_nothing_at_the_place_of_calls_is_no_call() -> None:
    for nothing in (None, [], {}, ""):
        assert judged(chunk(delta={"content": "a", "tool_calls": nothing})).calls == ()
        message = {"role": "assistant", "content": "a", "tool_calls": nothing, "function_call": None}
        body = json.dumps({"choices": [{"message": message, "delta": nothing, "finish_reason": "stop"}]}).encode()
        assert judge_plain(body).calls == ()
