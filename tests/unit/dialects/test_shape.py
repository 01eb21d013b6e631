"""An answer converted to the other shape is the same object in the eyes of the official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from agentstate.core.model import Shape
from agentstate.dialects import openai_shape, sse
from agentstate.dialects.openai_answer import StreamGate, judge_plain
from agentstate.providers import simulator
from tests.support import chat, traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.bodies import TOOLS
from tests.unit.dialects.test_gate import SERVICES, UNFINISHED, objects, recorded_streams

# Some providers put lists where the SDK's types say text.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
# A plain answer with two list entries of one index: no stream can say that so that the SDK keeps them apart.
ONE_INDEX_TWICE = {"openrouter-33eae3830a"}
PLAIN, STREAM, COUNTED = Shape(), Shape(True), Shape(True, True)


def seen_plain(body: bytes) -> dict[str, Any]:
    """A completion as the SDK shows it."""
    return shown(ChatCompletion.construct(**json.loads(body)))


def seen_stream(stream: bytes) -> dict[str, Any]:
    """A stream as the SDK adds it up."""
    state = ChatCompletionStreamState()
    for chunk in objects(stream):
        state.handle_chunk(ChatCompletionChunk.construct(**chunk))
    return shown(state.current_completion_snapshot)


def shown(completion: Any) -> dict[str, Any]:
    """What an agent reads: without nulls, and without what the SDK's accumulator adds by itself."""
    found: dict[str, Any] = _without_nulls(completion.to_dict(warnings=False))
    for choice in found["choices"]:
        message = choice.setdefault("message", {"role": "assistant"})  # a filtered answer may have none
        for call in message.get("tool_calls", ()):
            call.pop("index", None)
        for name in ("tool_calls", "annotations"):
            if message.get(name) == []:
                del message[name]
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        added = ("parsed", "parsed_arguments")
        return {name: _without_nulls(part) for name, part in value.items() if part is not None and name not in added}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def answer_of(completion: dict[str, Any]) -> dict[str, Any]:
    """The choices and the usage, without fields that the SDK's accumulator joins letter by letter or leaves out."""
    choices = []
    for choice in completion["choices"]:
        message = {name: part for name, part in choice["message"].items() if name != "role"}
        for part in message.get("reasoning_details", ()):
            for name in ("format", "type"):
                part.pop(name, None)
        kept = {name: choice.get(name) for name in ("index", "finish_reason", "logprobs")}
        choices.append(kept | {"message": message})
    return {"choices": choices, "usage": completion.get("usage")}


# --- streams as plain answers -----------------------------------------------------------------------------------------


def test_recorded_openai_streams_are_the_same_object_as_plain_answers() -> None:
    count = 0
    for exchange in recorded_streams():
        if exchange.id.startswith("openai-") and exchange.id not in UNFINISHED:
            count += 1
            assert seen_plain(openai_shape.to_plain(exchange.response)) == seen_stream(exchange.response), exchange.id
    assert count > 80


def test_recorded_streams_of_all_providers_hold_the_same_answer_as_plain_answers() -> None:
    wrong, unreadable = [], 0
    for exchange in recorded_streams():
        if exchange.id in UNFINISHED:
            continue
        try:
            wanted = answer_of(seen_stream(exchange.response))
        except (TypeError, RuntimeError):
            unreadable += 1  # the SDK itself cannot add these up: tool calls without an index
            continue
        if answer_of(seen_plain(openai_shape.to_plain(exchange.response))) != wanted:
            wrong.append(exchange.id)
    assert wrong == []
    assert unreadable < 12


def test_tool_calls_that_the_sdk_cannot_add_up_are_whole_in_the_plain_answer() -> None:
    for exchange in recorded_streams():
        if exchange.id in UNFINISHED:
            continue
        gate = StreamGate()
        gate.feed(exchange.response)
        streamed, plain = gate.finish(), judge_plain(openai_shape.to_plain(exchange.response))
        assert not plain.fault, exchange.id
        assert [(c.choice, c.call_id, c.name, c.arguments) for c in plain.calls] == [
            (c.choice, c.call_id, c.name, c.arguments) for c in streamed.calls
        ], exchange.id
        assert (plain.model, plain.finish) == (streamed.model, streamed.finish), exchange.id
        assert (json.loads(plain.usage or "0")) == json.loads(streamed.usage or "0"), exchange.id


def test_entries_with_an_index_grow_in_place() -> None:
    parts = [
        {"type": "reasoning.text", "text": "Let me ", "format": "x", "index": 0},
        {"type": "reasoning.text", "text": "see", "format": "x", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "abc", "index": 1},
    ]
    events = [chat.chunk({"reasoning_details": [part]}) for part in parts] + [chat.chunk({}, finish="stop"), chat.DONE]
    message = json.loads(openai_shape.to_plain(b"".join(events)))["choices"][0]["message"]
    assert [part.get("text") for part in message["reasoning_details"]] == ["Let me see", None]


# --- plain answers as streams -----------------------------------------------------------------------------------------


def recorded_plain() -> Iterator[traffic.Exchange]:
    traffic.require()
    found = [found for service in SERVICES for found in traffic.provider_chat(service)] + [*traffic.client_chat("run1")]
    for trajectory in found:
        for exchange in trajectory.exchanges:
            if exchange.streamed or exchange.status != 200 or exchange.id in UNFINISHED:
                continue
            yield exchange


def test_recorded_plain_answers_hold_the_same_answer_as_streams() -> None:
    count, wrong = 0, []
    for exchange in recorded_plain():
        count += 1
        wanted = answer_of(seen_plain(exchange.response))
        counted = openai_shape.to_stream(exchange.response, usage=True)
        bare = openai_shape.to_stream(exchange.response, usage=False)
        same = answer_of(seen_stream(counted)) == wanted and answer_of(seen_stream(bare)) == wanted | {"usage": None}
        if not same and exchange.id not in ONE_INDEX_TWICE:
            wrong.append(exchange.id)
        assert counted.endswith(chat.DONE) and bare.endswith(chat.DONE)
    assert count > 250
    assert wrong == []


def test_recorded_plain_answers_come_back_from_a_stream_as_they_were() -> None:
    for exchange in recorded_plain():
        back = openai_shape.to_plain(openai_shape.to_stream(exchange.response, usage=True))
        wanted, found = seen_plain(exchange.response), seen_plain(back)
        assert found | {"object": None} == wanted | {"object": None}, exchange.id


def test_recorded_streams_come_back_from_a_plain_answer_as_they_were() -> None:
    for exchange in recorded_streams():
        if exchange.id in UNFINISHED:
            continue
        plain = openai_shape.to_plain(exchange.response)
        again = openai_shape.to_plain(openai_shape.to_stream(plain, usage=True))
        assert answer_of(seen_plain(again)) == answer_of(seen_plain(plain)), exchange.id


# --- the simulator, whose plain and streamed answers are the same -----------------------------------------------------

REQUESTS: dict[str, dict[str, Any]] = {
    "text": {},
    "choices": {"n": 3},
    "one call": {"tools": TOOLS},
    "calls": {"tools": TOOLS, "model": "gpt-4o-p2"},
    "calls in choices": {"tools": TOOLS, "model": "gpt-4o-p2", "n": 2},
    "custom tool": {"tools": [{"type": "custom", "custom": {"name": "shell"}}]},
    "legacy": {"functions": [{"name": "look", "parameters": {"type": "object", "properties": {}}}]},
    "json": {"response_format": {"type": "json_object"}},
    "cut": {"max_tokens": 2},
}


def simulated(asked: dict[str, Any]) -> bytes:
    body = {"model": "gpt-4o", "messages": [chat.user("hello there")]} | asked
    answer = simulator.answer("POST", "/v1/chat/completions", json.dumps(body).encode())
    assert answer.status == 200
    return b"".join(answer.chunks)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("asked", [PLAIN, STREAM, COUNTED])
@pytest.mark.parametrize("recorded", [PLAIN, STREAM, COUNTED])
def test_simulated_answer_converted_is_the_one_that_is_made_in_that_shape(
    name: str, recorded: Shape, asked: Shape
) -> None:
    def shaped(shape: Shape) -> bytes:
        options = {"stream_options": {"include_usage": True}} if shape.usage else {}
        return simulated(REQUESTS[name] | ({"stream": True} | options if shape.stream else {}))

    found = openai_shape.convert(recorded, asked, shaped(recorded))
    if recorded == asked:
        assert found == shaped(asked)
    seen = seen_stream if asked.stream else seen_plain
    wanted, got = seen(shaped(asked)), seen(found)
    if recorded == STREAM:
        # A stream without usage does not tell it: nothing may be made up.
        wanted.pop("usage", None)
    assert got == wanted


# --- what a conversion must not do ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [PLAIN, STREAM, COUNTED])
def test_same_shape_gives_the_very_bytes(shape: Shape) -> None:
    assert openai_shape.convert(shape, shape, b"whatever it is") == b"whatever it is"


def test_stream_without_usage_asked_for_loses_nothing_but_its_usage_chunk() -> None:
    for exchange in recorded_streams():
        if exchange.id in UNFINISHED:
            continue
        bare = openai_shape.convert(COUNTED, STREAM, exchange.response)
        gone = [event for event in sse.events(exchange.response) if event not in set(sse.events(bare))]
        for event in gone:
            chunk = json.loads(sse.data_of(event) or b"")
            assert chunk["choices"] == [] and chunk["usage"], exchange.id
        kept, whole = (
            answer_of(seen_plain(openai_shape.to_plain(bare))),
            answer_of(seen_plain(openai_shape.to_plain(exchange.response))),
        )
        assert kept["choices"] == whole["choices"], exchange.id


def test_stream_with_usage_asked_for_tells_the_usage_that_was_recorded_or_none() -> None:
    for exchange in recorded_streams():
        if exchange.id in UNFINISHED:
            continue
        counted = openai_shape.convert(STREAM, COUNTED, exchange.response)
        assert counted.endswith(chat.DONE)
        usages = [chunk["usage"] for chunk in objects(exchange.response) if chunk.get("usage")]
        groq = [chunk["x_groq"]["usage"] for chunk in objects(exchange.response)
                if (chunk.get("x_groq") or {}).get("usage")]  # fmt: skip
        last = objects(counted)[-1]
        wanted = usages[-1] if usages else groq[-1] if groq else None
        assert last.get("usage") == wanted, exchange.id
        assert wanted is None or last["choices"] == [], exchange.id


def test_unknown_fields_survive_both_ways() -> None:
    body = json.loads(chat.completion("hi", tool_calls=[chat.tool_call("x")]))
    body["choices"][0]["message"] |= {"reasoning_content": "because", "x_list": [1, {"a": 2}]}
    body["choices"][0]["x_choice"] = {"filter": "none"}
    body["service_tier"] = "default"
    stream = openai_shape.to_stream(json.dumps(body).encode(), usage=True)
    back = json.loads(openai_shape.to_plain(stream))
    assert back["choices"][0]["message"] == body["choices"][0]["message"]
    assert back["choices"][0]["x_choice"] == {"filter": "none"}
    assert (back["x_vendor"], back["service_tier"], back["usage"]) == (body["x_vendor"], "default", body["usage"])


def test_refusal_and_log_probabilities_survive_both_ways() -> None:
    def refused(text: str) -> bytes:
        token = {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}
        choice = {"index": 0, "delta": {"refusal": text}, "logprobs": {"content": None, "refusal": [token]}}
        return chat.chunk({}, choices=[choice | {"finish_reason": None}])

    events = [chat.chunk({"role": "assistant", "refusal": ""}), refused("I "), refused("won't")]
    events += [chat.chunk({}, finish="stop"), chat.DONE]
    stream = b"".join(events)
    plain = openai_shape.to_plain(stream)
    choice = json.loads(plain)["choices"][0]
    assert choice["message"]["refusal"] == "I won't"
    assert [part["token"] for part in choice["logprobs"]["refusal"]] == ["I ", "won't"]
    assert answer_of(seen_stream(openai_shape.to_stream(plain, usage=False))) == answer_of(seen_stream(stream))


_WORDS = st.lists(st.text(max_size=8), max_size=5)


@given(_WORDS, _WORDS, st.lists(_WORDS, max_size=3), st.integers(1, 3), st.booleans())
@examples(150)
def test_any_streamed_answer_is_the_same_object_as_a_plain_one(
    words: list[str], thoughts: list[str], calls: list[list[str]], choices: int, usage: bool
) -> None:
    events = []
    for index in range(choices):
        events.append(chat.chunk({"role": "assistant", "content": ""}, index=index))
        events += [chat.chunk({"reasoning_content": thought}, index=index) for thought in thoughts]
        events += [chat.chunk({"content": word}, index=index) for word in words]
        for place, pieces in enumerate(calls):
            first = {"index": place, "id": f"c{place}", "type": "function", "function": {"name": "f", "arguments": ""}}
            grown = [{"index": place, "function": {"arguments": piece}} for piece in pieces]
            events += [chat.chunk({"tool_calls": [part]}, index=index) for part in (first, *grown)]
        events.append(chat.chunk({}, index=index, finish="stop"))
    if usage:
        events.append(chat.chunk({}, choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}))
    stream = b"".join([*events, chat.DONE])
    plain = openai_shape.to_plain(stream)
    assert seen_plain(plain) == seen_stream(stream)
    assert seen_stream(openai_shape.to_stream(plain, usage=usage)) == seen_stream(stream)
