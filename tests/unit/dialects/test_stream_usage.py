"""Usage of streams is asked for and taken out again without touching another byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Shape
from agentstate.dialects import registry, stream_usage
from tests.support import chat

CHAT = registry.BY_NAME["openai_chat"]
COUNTS = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


def parsed(body: bytes, path: str = "chat/completions") -> Any:
    dialect = registry.for_path("POST", path)
    assert dialect is not None
    return dialect.parse("POST", path, body)


def usage_event(**more: Any) -> bytes:
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": chat.MODEL, "choices": [], "usage": COUNTS}
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "stream": true, "messages": []}',
        b' \n{ "model": "m", "stream": true, "messages": []}\n',
        b'{"stream": true, "messages": [{"role": "user", "content": "stream_options and \\"include_usage\\""}]}',
        b'{"stream": true, "stream_options": {"include_obfuscation": false}, "messages": []}',
        b'{"stream": true, "stream_options": {"include_usage": false}, "messages": [],  "seed": 1.50}',
        b'{"stream": true, "stream_options": null, "messages": []}',
        b'{"stream": true, "messages": [], "nested": {"stream_options": {"include_usage": true}}}',
        '{"stream": true, "messages": [{"role": "user", "content": "größer \U0001f600"}]}'.encode(),
    ],
)
def test_request_asks_for_usage_and_is_the_same_question(body: bytes) -> None:
    call = parsed(body)
    assert stream_usage.is_uncounted(call)
    asking = stream_usage.asking(body, call)
    before, after = json.loads(body), json.loads(asking)
    assert after.pop("stream_options")["include_usage"] is True
    before.pop("stream_options", None)
    assert after == before
    assert fingerprint.of(parsed(asking)) == fingerprint.of(call)
    assert not stream_usage.is_uncounted(parsed(asking))


def test_other_options_of_the_stream_stay() -> None:
    body = b'{"stream": true, "stream_options": {"include_obfuscation": false}, "messages": []}'
    assert json.loads(stream_usage.asking(body, parsed(body)))["stream_options"] == {
        "include_obfuscation": False,
        "include_usage": True,
    }


@pytest.mark.parametrize("body", [b"{}", b"[]", b"", b'"stream_options"', b'{"stream_options'])
def test_what_is_no_request_is_left_as_it_is(body: bytes) -> None:
    assert stream_usage.asking(body, parsed(b"{}")) == body


@given(st.dictionaries(st.text(min_size=1), st.recursive(st.none() | st.text(), st.lists), min_size=1))
def test_any_object_keeps_all_else_that_it_holds(fields: dict[str, Any]) -> None:
    body = json.dumps({**fields, "stream": True}).encode()
    after = json.loads(stream_usage.asking(body, parsed(body)))
    after.pop("stream_options")
    assert after == {name: value for name, value in (fields | {"stream": True}).items() if name != "stream_options"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"messages": []}', "chat/completions"),
        (b'{"stream": true, "stream_options": {"include_usage": true}, "messages": []}', "chat/completions"),
        (b'{"stream": true, "input": "x"}', "responses"),
        (b'{"stream": true, "messages": []}', "messages"),
    ],
)
def test_no_other_call_is_asked_for_its_usage(body: bytes, path: str) -> None:
    assert not stream_usage.is_uncounted(parsed(body, path))


def test_legacy_completions_are_asked_too() -> None:
    assert stream_usage.is_uncounted(parsed(b'{"stream": true, "prompt": "x"}', "completions"))


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_the_chunk_that_tells_only_the_usage_is_taken_out(end: bytes) -> None:
    finish = chat.chunk({}, finish="stop")
    held = b"".join([finish, usage_event(), chat.DONE]).replace(b"\n\n", end)
    assert stream_usage.without(held) == b"".join([finish, chat.DONE]).replace(b"\n\n", end)


def test_a_chunk_with_choices_is_never_dropped_whatever_it_counts() -> None:
    finish = chat.chunk({}, finish="stop", usage=COUNTS)
    held = b"".join([finish, chat.DONE])
    assert stream_usage.without(held) == held


@pytest.mark.parametrize("more", [{"usage": None}, {"error": {"message": "late"}}])
def test_a_chunk_that_tells_something_else_stays(more: dict[str, Any]) -> None:
    event = usage_event(**more)
    assert stream_usage.without(event + chat.DONE) == event + chat.DONE


def test_the_gate_shows_no_usage_chunk_that_comes_before_the_finish() -> None:
    gate = CHAT.gate(parsed(chat.request("hi", stream=True)))
    first, text, finish = chat.chunk({"role": "assistant"}), chat.chunk({"content": "a"}), chat.chunk({}, finish="stop")
    assert gate.feed(first + usage_event() + text) == first
    assert gate.feed(finish + chat.DONE) == b""
    verdict = gate.finish()
    assert (verdict.fault, json.loads(verdict.usage)) == ("", COUNTS)


def test_last_usage_wins_and_is_never_added_up() -> None:
    gate = CHAT.gate(parsed(chat.request("hi", stream=True)))
    for count in (1, 2, 12):
        gate.feed(chat.chunk({"content": "a"}, usage=COUNTS | {"total_tokens": count}))
    gate.feed(chat.chunk({}, finish="stop", usage=COUNTS | {"completion_tokens": 6, "prompt_tokens_details": None}))
    gate.feed(chat.DONE)
    assert json.loads(gate.finish().usage) == COUNTS | {"completion_tokens": 6, "prompt_tokens_details": None}


def test_usage_after_the_finish_reason_is_read() -> None:
    gate = CHAT.gate(parsed(chat.request("hi", stream=True)))
    gate.feed(b"".join([chat.chunk({"content": "a"}), chat.chunk({}, finish="stop")]))
    gate.feed(usage_event())
    assert json.loads(gate.finish().usage) == COUNTS


def test_zeros_and_nulls_of_a_usage_object_are_kept_as_sent() -> None:
    usage = '{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":null},"completion_tokens":0}'
    gate = CHAT.gate(parsed(chat.request("hi", stream=True)))
    gate.feed(chat.chunk({"content": "a"}) + chat.chunk({}, finish="stop"))
    gate.feed(b'data: {"choices": [], "usage": ' + usage.encode() + b"}\n\n" + chat.DONE)
    assert gate.finish().usage == usage


@pytest.mark.parametrize("asked", [Shape(True, True), Shape()])
def test_a_shape_that_tells_the_usage_gets_it_back(asked: Shape) -> None:
    body = b"".join(chat.chunks("one two"))
    assert stream_usage.is_to_put_back("openai_chat", Shape(True), asked, json.dumps(COUNTS))
    whole = stream_usage.put_back(body, json.dumps(COUNTS))
    converted = CHAT.convert(Shape(True, True), asked, whole)
    assert converted.count(b'"total_tokens"') == 1
    if asked.stream:
        assert stream_usage.without(converted) == body
    else:
        assert json.loads(converted)["usage"] == COUNTS
    assert chat.text_of(converted) == "one two"


def test_usage_that_a_stream_tells_itself_is_not_put_into_it_again() -> None:
    body = b"".join([*chat.chunks("one", done=False)[:-1], chat.chunk({}, finish="stop", usage=COUNTS), chat.DONE])
    assert stream_usage.put_back(body, json.dumps(COUNTS)) == body


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (400, b'{"error": {"message": "Unrecognized request argument: stream_options"}}', True),
        (422, b'{"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}', True),
        (400, b'{"error": {"message": "model not found"}}', False),
        (429, b'{"error": {"message": "stream_options"}}', False),
    ],
)
def test_only_an_error_about_the_option_refuses_it(status: int, body: bytes, refused: bool) -> None:
    assert stream_usage.was_refused(status, body) is refused
