"""Whatever is asked or answered survives the way to another dialect and back, but for what the losses name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, get_type_hints

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentstate.dialects import translate
from agentstate.errors import Untranslatable
from tests.unit.core.profile import examples
from tests.unit.dialects.translating import (
    CHAT,
    MESSAGES,
    MODELS,
    PAIRS,
    RESPONSES,
    Body,
    Reader,
    ask,
    completion,
    tell,
    without_nulls,
)

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).map(
    lambda text: f"w{text}"
)
NAMES = st.sampled_from(["look_up", "send", "run-it", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=3,
)
ARGUMENTS = st.dictionaries(WORDS, JSON, max_size=3)
IMAGE = st.sampled_from(["data:image/png;base64,AAAA", "https://a.test/x.png"]).map(
    lambda url: {"type": "image_url", "image_url": {"url": url}}
)
CONTENT = WORDS | st.lists(WORDS.map(lambda text: {"type": "text", "text": text}) | IMAGE, min_size=2, max_size=3)


@st.composite
def turns(draw: st.DrawFn, at: int) -> list[Body]:
    """An answer with or without calls, their results in any order, and what the user says next."""
    ids = [f"call_{at}_{place}" for place in range(draw(st.integers(0, 3)))]
    calls = [
        {"id": name, "type": "function", "function": {"name": draw(NAMES), "arguments": json.dumps(draw(ARGUMENTS))}}
        for name in ids
    ]
    text = draw(WORDS) if not calls else draw(st.none() | WORDS)
    answer: Body = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    results = [{"role": "tool", "tool_call_id": name, "content": draw(WORDS)} for name in ids]
    return [answer, *draw(st.permutations(results)), {"role": "user", "content": draw(CONTENT)}]


@st.composite
def questions(draw: st.DrawFn) -> Body:
    """A question in chat completions that any of its models might be asked."""
    messages: list[Body] = [{"role": draw(st.sampled_from(["system", "developer"])), "content": draw(WORDS)}]
    messages = messages if draw(st.booleans()) else []
    messages.append({"role": "user", "content": draw(CONTENT)})
    for at in range(draw(st.integers(0, 3))):
        messages += draw(turns(at))
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": draw(WORDS)}}}
    tools = [
        {"type": "function", "function": {"name": name, "description": draw(WORDS), "parameters": schema}}
        for name in draw(st.lists(NAMES, unique=True, max_size=4))
    ]
    used = {call["function"]["name"] for message in messages for call in message.get("tool_calls", ())}
    tools += [{"type": "function", "function": {"name": name, "parameters": schema}} for name in sorted(used - {
        tool["function"]["name"] for tool in tools})]  # fmt: skip
    asked: Body = {"model": "m", "messages": messages}
    if tools:
        asked["tools"] = tools
        one = {"type": "function", "function": {"name": tools[0]["function"]["name"]}}
        asked |= draw(st.fixed_dictionaries({}, optional={
            "tool_choice": st.sampled_from(["auto", "none", "required", one]), "parallel_tool_calls": st.booleans(),
        }))  # fmt: skip
        if asked.get("tool_choice") == "none":
            asked.pop("parallel_tool_calls", None)  # no call, no two of them
    return asked | draw(
        st.fixed_dictionaries(
            {},
            optional={
                "max_tokens": st.integers(16, 4000), "temperature": st.sampled_from([0, 0.5, 1]),
                "stop": st.lists(WORDS, min_size=1, max_size=4), "user": WORDS, "seed": st.integers(0, 9),
                "service_tier": st.just("default"), "logprobs": st.booleans(), "made_up_field": WORDS,
                "stream": st.booleans(),
            },
        )
    )  # fmt: skip


def meaning(asked: Body) -> Body:
    """A question in chat completions less what says nothing and what every way is free to spell."""
    messages: list[Body] = []
    for message in asked["messages"]:
        said = {name: value for name, value in message.items() if value is not None}
        said["role"] = {"developer": "system"}.get(said["role"], said["role"])
        if isinstance(said.get("content"), str) and said["role"] == "user":
            said["content"] = [{"type": "text", "text": said["content"]}]
        if "tool_calls" in said:
            said["tool_calls"] = [_read(call) for call in said["tool_calls"]]
        messages.append(said)
    found = {name: value for name, value in asked.items() if name not in ("messages", "model", "stream", "store")}
    found["tools"] = [_tool(tool) for tool in found.get("tools", ())]
    if found.get("tool_choice") == "auto":
        del found["tool_choice"]
    return found | {"messages": _ordered(messages)}


def _read(call: Body) -> Body:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}


def _tool(tool: Body) -> Body:
    function = {name: value for name, value in tool["function"].items() if (name, value) != ("strict", False)}
    return {**tool, "function": function}


def _ordered(messages: Iterable[Body]) -> list[Body]:
    """The results of an answer in the order of its calls, which is the one that translations bring them into."""
    out: list[Body] = []
    order: dict[str, int] = {}
    for message in messages:
        if "tool_calls" in message:
            order = {call["id"]: place for place, call in enumerate(message["tool_calls"])}
        at = len(out)
        if message["role"] == "tool":
            place = order[message["tool_call_id"]]
            while out[at - 1]["role"] == "tool" and order[out[at - 1]["tool_call_id"]] > place:
                at -= 1
        out.insert(at, message)
    return out


@pytest.mark.parametrize("other", [MESSAGES, RESPONSES])
@given(asked=questions())
@examples(60)
def test_a_question_there_and_back_means_the_same_but_for_the_losses(other: str, asked: Body) -> None:
    model = "qwen3" if other == MESSAGES else "gpt-4.1"
    there, lost = ask(CHAT, other, asked, model)
    back, lost_back = ask(other, CHAT, there, "gpt-4.1")
    was, now = meaning(asked), meaning(back)
    if "max_tokens" not in asked and other == MESSAGES:
        now.pop("max_tokens")  # which has to be there
    differing = {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)}
    assert differing <= {*lost, *lost_back, *(("logprobs",) if asked.get("logprobs") is False else ())}
    assert "messages" not in differing and "tools" not in differing


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(asked=questions())
@examples(15)
def test_every_translated_question_is_one_by_the_types_of_the_targets_sdk(
    source: str, target: str, asked: Body
) -> None:
    said = asked if source == CHAT else ask(CHAT, source, asked, MODELS[source])[0]
    body, _ = ask(source, target, said)
    check(target, body)


TYPES: dict[str, Any] = {
    CHAT: openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming,
    RESPONSES: openai.types.responses.response_create_params.ResponseCreateParamsNonStreaming,
    MESSAGES: anthropic.types.message_create_params.MessageCreateParamsNonStreaming,
}
OLDER = {"temperature", "top_p", "top_k"}  # of Anthropic: for models from before its SDK's present types
_adapters: dict[Any, TypeAdapter[Any]] = {}


def check(dialect: str, body: Body) -> None:
    """Every field is one of the SDK's, and has a value of the type that it gives it."""
    hints = get_type_hints(TYPES[dialect])
    for name, value in body.items():
        if dialect == MESSAGES and name in OLDER:
            continue
        assert name in hints, f"{name} is no field of {dialect}"
        if (dialect, name) not in _adapters:
            _adapters[dialect, name] = TypeAdapter(hints[name])
        _exhaust(_adapters[dialect, name].validate_python(value))


def _exhaust(value: Any) -> None:
    """Iterables are checked as they are read."""
    if isinstance(value, dict):
        for part in value.values():
            _exhaust(part)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for part in value:
            _exhaust(part)


def test_the_check_of_types_finds_what_is_wrong() -> None:
    with pytest.raises(AssertionError, match="no field"):
        check(MESSAGES, {"stop": ["x"]})
    for wrong in ({"messages": [{"role": "critic", "content": "x"}]}, {"messages": [{"role": "user"}]},
                  {"tool_choice": {"type": "required"}}, {"max_tokens": "many"}):  # fmt: skip
        with pytest.raises(ValueError, match="validation error"):
            check(MESSAGES, wrong)


# --- answers ----------------------------------------------------------------------------------------------------------

_readers = {name: Reader(name) for name in (CHAT, RESPONSES, MESSAGES)}


@st.composite
def answers(draw: st.DrawFn) -> Body:
    """An answer in chat completions."""
    calls = [
        {"id": f"call_{draw(st.integers(0, 10**9))}x{place}", "type": "function",
         "function": {"name": draw(NAMES), "arguments": json.dumps(draw(ARGUMENTS))}}
        for place in range(draw(st.integers(0, 3)))
    ]  # fmt: skip
    message: Body = {"content": draw(WORDS) if not calls else draw(st.none() | WORDS)}
    if calls:
        message["tool_calls"] = calls
    cached, written, reasoning = (draw(st.integers(0, 50)) for _ in range(3))
    asked, wrote = cached + written + draw(st.integers(0, 50)), reasoning + draw(st.integers(1, 50))
    usage = {
        "prompt_tokens": asked, "completion_tokens": wrote, "total_tokens": asked + wrote,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }  # fmt: skip
    finish = "tool_calls" if calls else draw(st.sampled_from(["stop", "length", "content_filter"]))
    return completion(message, finish, usage=usage)


@pytest.mark.parametrize("other", [MESSAGES, RESPONSES])
@given(answer=answers())
@examples(25)
def test_an_answer_there_and_back_is_the_same_and_streams_as_it_is(other: str, answer: Body) -> None:
    there, lost = tell(other, CHAT, answer)
    back, lost_back = tell(CHAT, other, there)
    assert (lost, lost_back) == ((), ())
    was = answer["choices"][0]
    now = back["choices"][0]
    assert now["finish_reason"] == was["finish_reason"] and back["usage"] == answer["usage"]
    assert now["message"]["content"] == was["message"]["content"]
    calls = [_read(call) for call in was["message"].get("tool_calls", ())]
    assert [_read(call) for call in now["message"].get("tool_calls", ())] == calls
    body = json.dumps(there).encode()
    read = _readers[other].plain(body)
    streamed = _readers[other].stream(body)
    assert {name: said for name, said in streamed.items() if name in read} == read == without_nulls(there)


def garbage(fields: str, inner: str) -> st.SearchStrategy[Body]:
    """Objects with the right names and whatever in them."""
    below = st.dictionaries(st.sampled_from(inner.split()), JSON)
    return st.dictionaries(st.sampled_from(fields.split()), JSON | st.lists(below))


QUESTION = "messages input tools tool_choice system response_format text thinking metadata stop max_tokens n functions"
ANSWER = "choices content output usage status stop_reason stop_details id model created"


@given(body=garbage(QUESTION, "type role content tool_calls function text source output name input"))
@examples(40)
def test_whatever_is_asked_is_translated_or_refused_and_nothing_else(body: Body) -> None:
    for source, target in PAIRS:
        try:
            found = translate.question(source, target, json.dumps(body).encode(), "m")
        except Untranslatable as refused:
            assert refused.message
        else:
            assert isinstance(json.loads(found.body), dict)


@given(body=garbage(ANSWER, "type message content tool_calls function text summary annotations name input"))
@examples(40)
def test_whatever_is_answered_is_translated_or_refused_and_nothing_else(body: Body) -> None:
    for source, target in PAIRS:
        try:
            tell(source, target, body)
        except Untranslatable as refused:
            assert refused.message
