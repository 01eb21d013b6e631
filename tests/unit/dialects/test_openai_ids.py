"""A tool call that came without an id gets one, and not a byte else is changed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects import registry, sse
from agentstate.dialects.openai_ids import filled_plain, filled_stream
from tests.support import traffic

CHAT = registry.OPENAI_CHAT


def maker() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"call_made_{next(numbers)}"


def test_missing_null_and_empty_ids_are_filled_and_given_ones_stay() -> None:
    body = (
        b'{ "choices":[ {"index":0,"message":{"content":"\\u00e9 1.50","tool_calls":[ {"id":"","type":"function",'
        b'"function":{"name":"a","arguments":"{\\"x\\": 1.0}"}} , {"id": "call_7","function":{"name":"b",'
        b'"arguments":"{}"}},{"function":{"name":"c","arguments":"{}"},"id":null}]},"finish_reason":"stop"}],'
        b'"odd": 1e2 }\n'
    )
    found = filled_plain(body, maker())
    assert found == (
        b'{ "choices":[ {"index":0,"message":{"content":"\\u00e9 1.50","tool_calls":[ {"id":"call_made_1",'
        b'"type":"function","function":{"name":"a","arguments":"{\\"x\\": 1.0}"}} , {"id": "call_7","function":'
        b'{"name":"b","arguments":"{}"}},{"id":"call_made_3","function":{"name":"c","arguments":"{}"}}]},'
        b'"finish_reason":"stop"}],"odd": 1e2 }\n'
    )
    assert [call.call_id for call in CHAT.judge(CHAT.parse("POST", "", b"{}"), found).calls] == [
        "call_made_1", "call_7", "call_made_3",
    ]  # fmt: skip


def chunk(**call: object) -> bytes:
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
    return sse.encode(json.dumps({"choices": [choice]}).encode())


END = sse.encode(b'{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}') + sse.encode(b"[DONE]")


def calls_of(stream: bytes) -> list[tuple[str, str, str]]:
    gate = CHAT.gate(CHAT.parse("POST", "", b"{}"))
    gate.feed(stream)
    return [(call.call_id, call.name, call.arguments) for call in gate.finish().calls]


def test_first_piece_of_each_streamed_call_gets_an_id() -> None:
    stream = (
        sse.encode(b'{"choices":[{"index":0,"delta":{"content":"text"}}]}')
        + chunk(index=0, id="", function={"name": "a", "arguments": ""})
        + chunk(index=0, id=None, function={"arguments": "{}"})
        + chunk(index=1, function={"name": "b", "arguments": '{"x":'})
        + chunk(index=1, function={"arguments": "1}"})
        + END
    )
    found = filled_stream(stream, maker())
    assert calls_of(found) == [("call_made_1", "a", "{}"), ("call_made_2", "b", '{"x":1}')]
    assert found.startswith(stream[: stream.index(b'"tool_calls"') - 40])
    assert found.count(b'"id"') == stream.count(b'"id"') + 1


def test_whole_calls_without_index_and_id_are_told_apart() -> None:
    stream = (
        chunk(id="", function={"name": "a", "arguments": "{}"})
        + chunk(id="", function={"name": "a", "arguments": '{"y":2}'})
        + END
    )
    assert calls_of(filled_stream(stream, maker())) == [
        ("call_made_1", "a", "{}"), ("call_made_2", "a", '{"y":2}'),
    ]  # fmt: skip


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"choices":3}', b'{"choices":[3]}', b'{"choices":[{"message":3}]}'])
def test_what_is_no_completion_is_left_alone(body: bytes) -> None:
    assert filled_plain(body, maker()) == body
    assert filled_stream(sse.encode(body), maker()) == sse.encode(body)


@given(st.lists(st.sampled_from(["", None, "call_1", "call_2"]), max_size=5), st.integers(0, 2))
def test_nothing_but_ids_ever_changes(ids: list[str | None], copies: int) -> None:
    calls = [{"id": id_, "type": "function", "function": {"name": "t", "arguments": "{}"}} for id_ in ids]
    choices = [
        {"index": at, "message": {"content": None, "tool_calls": calls}, "finish_reason": "x"} for at in range(copies)
    ]
    body = json.dumps({"choices": choices, "again": choices}).encode()
    found = filled_plain(body, maker())
    was, is_ = msgspec.json.decode(body), msgspec.json.decode(found)
    assert is_["again"] == was["again"]
    for old, new in zip(was["choices"], is_["choices"], strict=True):
        for before, after in zip(old["message"]["tool_calls"], new["message"]["tool_calls"], strict=True):
            assert after["id"] == before["id"] if before["id"] else after["id"].startswith("call_made_")
            assert {**after, "id": ""} == {**before, "id": ""}


def test_recorded_answers_with_all_their_ids_are_left_alone() -> None:
    traffic.require()
    for found in traffic.provider_chat("openai"):
        for exchange in found.exchanges:
            filled = filled_stream if exchange.streamed else filled_plain
            assert filled(exchange.response, maker()) == exchange.response
