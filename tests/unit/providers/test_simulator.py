"""The scripted model: pure, deterministic, fit to the schemas it is given, and a model that agent loops end with."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.providers import simulator
from agentstate.providers.simulator import Simulated, answer
from agentstate.providers.simulator_schema import fit

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["city", "days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]


def ask(path: str = "/v1/chat/completions", method: str = "POST", **body: Any) -> Simulated:
    if path.endswith("chat/completions"):
        body = {"model": "simulated", "messages": [{"role": "user", "content": "hello"}]} | body
    return answer(method, path, json.dumps(body).encode())


def plain(**body: Any) -> dict[str, Any]:
    reply = ask(**body)
    assert reply.status == 200, reply
    assert dict(reply.headers)["content-type"] == "application/json"
    (chunk,) = reply.chunks
    return json.loads(chunk)


def events(**body: Any) -> list[dict[str, Any]]:
    reply = ask(stream=True, **body)
    assert reply.status == 200
    assert dict(reply.headers)["content-type"].startswith("text/event-stream")
    assert reply.chunks[-1] == b"data: [DONE]\n\n"
    assert all(re.fullmatch(rb"data: [^\n]+\n\n", chunk) for chunk in reply.chunks)
    return [json.loads(chunk[6:]) for chunk in reply.chunks[:-1]]


def assembled(stream: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The choices of a stream put together again, by index."""
    choices: dict[int, dict[str, Any]] = {}
    for event in stream:
        for part in event["choices"]:
            whole = choices.setdefault(part["index"], {"content": None, "tool_calls": [], "function_call": None})
            delta = part["delta"]
            if delta.get("content") is not None:
                whole["content"] = (whole["content"] or "") + delta["content"]
            for call in delta.get("tool_calls", []):
                if call["index"] == len(whole["tool_calls"]):
                    whole["tool_calls"].append(
                        {"id": call["id"], "type": call["type"], call["type"]: call[call["type"]]}
                    )
                else:
                    for field, text in call.get("function", call.get("custom")).items():
                        kind = whole["tool_calls"][-1]["type"]
                        whole["tool_calls"][-1][kind][field] += text
            if part_of := delta.get("function_call"):
                before = whole["function_call"] or {"name": "", "arguments": ""}
                whole["function_call"] = {key: before[key] + part_of.get(key, "") for key in before}
            if part["finish_reason"]:
                whole["finish"] = part["finish_reason"]
    return choices


def loop(model: str, most: int = 50, **options: Any) -> tuple[int, int, str]:
    """Runs an agent to its end: (model steps, tool results, final text)."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "work"}]
    seen: set[str] = set()
    for step in range(1, most + 1):
        reply = plain(model=model, messages=messages, tools=TOOLS, **options)
        message = reply["choices"][0]["message"]
        assert reply["id"] not in seen
        seen.add(reply["id"])
        messages.append(message)
        if not message.get("tool_calls"):
            return step, sum(part["role"] == "tool" for part in messages), message["content"]
        for call in message["tool_calls"]:
            assert call["id"] not in seen
            seen.add(call["id"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "done"})
    raise AssertionError(f"the agent did not end within {most} steps")


def test_equal_requests_get_equal_bytes_and_different_ones_different_ids() -> None:
    first, again, other = ask(), ask(), ask(messages=[{"role": "user", "content": "hello!"}])
    assert first == again
    assert json.loads(first.chunks[0])["id"] != json.loads(other.chunks[0])["id"]


@pytest.mark.parametrize(("model", "steps"), [("simulated", 3), ("gpt-6-luna", 3), ("simulated-t11", 12), ("x-t0", 1)])
def test_agent_loop_ends_after_the_number_of_tool_results_that_the_model_name_states(model: str, steps: int) -> None:
    assert loop(model)[:2] == (steps, steps - 1)


def test_parallel_knob_calls_several_tools_a_turn_but_never_more_results_than_stated() -> None:
    assert loop("simulated-t5-p2")[:2] == (4, 5)
    assert loop("simulated-p2-t5", parallel_tool_calls=False)[:2] == (6, 5)


def test_answer_names_the_model_without_its_knobs_so_that_it_has_a_price() -> None:
    assert plain(model="gpt-4o-mini-t11-c4")["model"] == "gpt-4o-mini"
    assert plain(model="gpt-4o-mini")["model"] == "gpt-4o-mini"
    assert plain(model="multilingual-e5")["model"] == "multilingual-e5"


@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
@pytest.mark.parametrize("stream", [False, True])
def test_error_knob_answers_with_that_status_in_the_error_shape(status: int, stream: bool) -> None:
    reply = ask(model=f"gpt-4o-e{status}", stream=stream)
    assert reply.status == status
    (chunk,) = reply.chunks
    assert set(json.loads(chunk)["error"]) == {"message", "type", "param", "code"}
    assert dict(reply.headers)["content-type"] == "application/json"


@pytest.mark.parametrize("pieces", [1, 3, 40])
def test_pieces_knob_cuts_a_text_into_exactly_that_many_pieces(pieces: int) -> None:
    stream = events(model=f"simulated-c{pieces}")
    assert len(stream) == pieces + 2  # the role before them, the finish reason after them
    assert stream[0]["choices"][0]["delta"]["role"] == "assistant"
    assert stream[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"n": 3},
        {"tools": TOOLS},
        {"tools": TOOLS, "model": "simulated-p2", "n": 2},
        {"tools": [{"type": "custom", "custom": {"name": "shell"}}]},
        {"functions": [{"name": "weather", "parameters": WEATHER}]},
        {"response_format": {"type": "json_object"}},
        {"max_tokens": 3},
    ],
)
def test_stream_and_plain_answer_of_one_request_say_the_same(body: dict[str, Any]) -> None:
    whole, stream = plain(**body), events(stream_options={"include_usage": True}, **body)
    assert {event["id"] for event in stream} == {whole["id"]}
    assert stream[-1]["usage"] == whole["usage"]
    parts = assembled(stream)
    assert len(parts) == len(whole["choices"]) == body.get("n", 1)
    for choice in whole["choices"]:
        part, message = parts[choice["index"]], choice["message"]
        assert (part["content"] or None) == message["content"]
        assert part["tool_calls"] == message.get("tool_calls", [])
        assert part["function_call"] == message.get("function_call")
        assert part["finish"] == choice["finish_reason"]


def test_usage_chunk_comes_only_when_asked_for() -> None:
    assert all("usage" not in event for event in events())
    stream = events(stream_options={"include_usage": True})
    assert all(event["usage"] is None for event in stream[:-1])
    assert stream[-1]["choices"] == [] and stream[-1]["usage"]["total_tokens"] > 0


def test_choices_of_one_answer_differ_and_so_do_their_call_ids() -> None:
    texts = [choice["message"]["content"] for choice in plain(n=3)["choices"]]
    assert len(set(texts)) == 3
    calls = [choice["message"]["tool_calls"][0]["id"] for choice in plain(n=3, tools=TOOLS)["choices"]]
    assert len(set(calls)) == 3


def test_tokens_follow_the_stated_rule() -> None:
    messages = [{"content": "grüße", "role": "user"}]
    reply = plain(messages=messages)
    prompt = json.dumps([messages], ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    text = reply["choices"][0]["message"]["content"]
    assert reply["usage"]["prompt_tokens"] == math.ceil(len(prompt) / 4)
    assert reply["usage"]["completion_tokens"] == math.ceil(len(text.encode()) / 4)
    assert reply["usage"]["total_tokens"] == sum(reply["usage"][f"{part}_tokens"] for part in ("prompt", "completion"))


def test_token_limit_cuts_the_text_and_says_length() -> None:
    choice = plain(max_completion_tokens=2)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert 0 < len(choice["message"]["content"].encode()) <= 8


@pytest.mark.parametrize(
    ("choice", "names", "finish"),
    [
        ("auto", ["weather"], "tool_calls"),
        ("required", ["weather"], "tool_calls"),
        ("none", [], "stop"),
        ({"type": "function", "function": {"name": "clock"}}, ["clock"], "stop"),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "clock"}}]},
            },
            ["clock"],
            "tool_calls",
        ),
    ],
)
def test_tool_choice_is_obeyed(choice: Any, names: list[str], finish: str) -> None:
    reply = plain(tools=TOOLS, tool_choice=choice)["choices"][0]
    assert [call["function"]["name"] for call in reply["message"].get("tool_calls", [])] == names
    assert reply["finish_reason"] == finish


def test_required_tool_choice_goes_on_calling_and_takes_the_tools_in_turn() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "work"}]
    names = []
    for _ in range(4):
        message = plain(messages=messages, tools=TOOLS, tool_choice="required")["choices"][0]["message"]
        (call,) = message["tool_calls"]
        names.append(call["function"]["name"])
        messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": "ok"}]
    assert names == ["weather", "clock", "weather", "clock"]


def test_legacy_functions_are_called_until_their_results_are_there() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "work"}]
    functions = [{"name": "weather", "parameters": WEATHER}]
    for _ in range(2):
        choice = plain(messages=messages, functions=functions)["choices"][0]
        assert choice["finish_reason"] == "function_call"
        assert set(json.loads(choice["message"]["function_call"]["arguments"])) == {"city", "days"}
        messages += [choice["message"], {"role": "function", "name": "weather", "content": "ok"}]
    assert plain(messages=messages, functions=functions)["choices"][0]["finish_reason"] == "stop"


def test_tool_arguments_fit_the_schema_and_differ_from_turn_to_turn() -> None:
    calls = [
        plain(tools=TOOLS, messages=[{"role": "user", "content": f"{number}"}])["choices"][0]["message"]["tool_calls"]
        for number in range(20)
    ]
    arguments = [json.loads(call[0]["function"]["arguments"]) for call in calls]
    assert all(isinstance(part["city"], str) and 1 <= part["days"] <= 5 for part in arguments)
    assert len({part["city"] for part in arguments}) > 10


def test_structured_answer_is_an_object_that_fits() -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "score": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "even": {"type": "integer", "multipleOf": 2, "minimum": 3, "maximum": 9},
            "note": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/note"}]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 2},
            "when": {"type": "string", "format": "date"},
            "code": {"type": ["null", "string"], "minLength": 30},
            "fixed": {"const": 7},
        },
        "required": ["kind", "score", "even", "note", "tags", "when", "code", "fixed"],
        "$defs": {"note": {"allOf": [{"properties": {"x": {"type": "boolean"}}}, {"required": ["x", "y"]}]}},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    made = json.loads(plain(response_format=wanted)["choices"][0]["message"]["content"])
    assert set(made) == set(schema["required"])
    assert made["kind"] in ("a", "b") and 0 < made["score"] < 1 and made["even"] in (4, 6, 8)
    assert isinstance(made["note"]["x"], bool) and "y" in made["note"]
    assert len(made["tags"]) == 2 and all(isinstance(tag, str) and len(tag) <= 4 for tag in made["tags"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", made["when"]) and len(made["code"]) >= 30 and made["fixed"] == 7


def test_examples_of_a_schema_are_taken_before_anything_is_made_up() -> None:
    whom = {"type": "string", "format": "email", "examples": ["ann@example.com", "bob@example.com"]}
    made = {fit({"properties": {"to": whom}}, str(seed))["to"] for seed in range(20)}
    assert made == set(whom["examples"])
    assert fit(whom | {"examples": []}, "s") == "someone@example.com"


def test_schema_that_refers_to_itself_ends() -> None:
    tree = {"type": "object", "properties": {side: {"$ref": "#"} for side in "abcdefgh"}, "required": list("abcdefgh")}
    assert len(json.dumps(fit(tree, "s"))) < 1_000_000
    assert fit({"$ref": "#"}, "s") == fit({"$ref": "#"}, "s")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "tool", "tool_call_id": "call_1", "content": "x"}]}, "messages[0]"),
        ({"n": 0}, "n"),
        ({"model": None}, "model"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "gone"}}}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
    ],
)
def test_bad_input_is_a_400_that_names_the_parameter(body: dict[str, Any], param: str) -> None:
    reply = ask(**body)
    assert reply.status == 400
    error = json.loads(reply.chunks[0])["error"]
    assert error["param"] == param and error["type"] == "invalid_request_error" and error["message"]


def test_unanswered_tool_call_in_the_history_is_refused_as_a_real_provider_does() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert ask(messages=asked).status == 400
    assert ask(messages=[*asked, {"role": "user", "content": "y"}]).status == 400
    assert ask(messages=[*asked, {"role": "tool", "tool_call_id": "call_1", "content": "y"}]).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"text"', b"[" * 100_000])
def test_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    reply = answer("POST", "/v1/chat/completions", body)
    assert reply.status == 400 and json.loads(reply.chunks[0])["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/completions", 404),
        ("GET", "/", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/models", 200),
        ("GET", "/v1/models/gpt-4o?x=1", 200),
    ],
)
def test_paths_and_methods(method: str, path: str, status: int) -> None:
    reply = answer(method, path, b"")
    assert reply.status == status
    assert json.loads(reply.chunks[0])


def test_paths_work_with_and_without_v1_and_give_one_answer() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    whole = answer("POST", "/v1/chat/completions?x=1", body)
    assert whole.status == 200 and whole == answer("POST", "/chat/completions", body)


def test_embeddings_are_unit_vectors_that_follow_the_text_and_come_in_both_encodings() -> None:
    body = {"model": "text-embedding-3-small", "input": ["a", "b", "a"]}
    reply = plain(path="/v1/embeddings", dimensions=16, **body)
    first, second, third = (row["embedding"] for row in reply["data"])
    assert first == third != second
    assert len(first) == 16 and math.isclose(math.hypot(*first), 1)
    packed = plain(path="/v1/embeddings", dimensions=16, encoding_format="base64", **body)["data"][0]["embedding"]
    assert struct.unpack("<16f", base64.b64decode(packed)) == pytest.approx(first, rel=1e-6)
    assert reply["usage"]["prompt_tokens"] == 3
    assert len(plain(path="/v1/embeddings", model="m", input=[1, 2])["data"][0]["embedding"]) == simulator.DIMENSIONS
    assert ask(path="/v1/embeddings", model="m", input=[]).status == 400


def test_moderations_answer_one_result_an_input() -> None:
    assert len(plain(path="/v1/moderations", input=["a", "b"])["results"]) == 2
    assert plain(path="/v1/moderations", input="a")["results"][0]["flagged"] is False
    assert ask(path="/v1/moderations").status == 400


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.dictionaries(
        st.sampled_from(
            [
                "type",
                "enum",
                "const",
                "format",
                "minimum",
                "maximum",
                "exclusiveMinimum",
                "multipleOf",
                "minItems",
                "maxItems",
                "minLength",
                "maxLength",
                "required",
                "items",
                "prefixItems",
                "properties",
                "allOf",
                "anyOf",
                "$ref",
            ]
        ),
        JSON | st.sampled_from(["string", "integer", "number", "array", "object", "#", "#/properties/a"]),
        max_size=4,
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner),
            "items": inner,
            "allOf": st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, max_size=2),
            "required": st.lists(st.sampled_from("abc")),
        },
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS)
@settings(max_examples=300, deadline=None)
def test_any_schema_gives_a_value_that_is_json_and_always_the_same(schema: dict[str, Any]) -> None:
    made = fit(schema, "seed")
    assert json.dumps(made, allow_nan=False) == json.dumps(fit(schema, "seed"))


@given(
    body=st.fixed_dictionaries(
        {"model": st.just("simulated") | JSON},
        optional={
            "messages": JSON | st.just([{"role": "user", "content": "x"}]),
            "tools": JSON | st.lists(st.just(TOOLS[0]) | JSON, max_size=2),
            "functions": JSON,
            "tool_choice": JSON | st.fixed_dictionaries({"type": st.just("allowed_tools")}, optional={"tools": JSON}),
            "response_format": JSON | st.fixed_dictionaries({"type": st.just("json_schema"), "json_schema": JSON}),
            "stream": st.booleans(),
            "stream_options": JSON,
            "max_tokens": JSON,
            "n": JSON,
            "input": JSON,
            "dimensions": JSON,
        },
    ),
    path=st.sampled_from(["/v1/chat/completions", "/v1/embeddings", "/v1/moderations"]),
)
@settings(max_examples=400, deadline=None)
def test_any_request_gets_an_answer_or_an_error_in_the_providers_shape(body: dict[str, Any], path: str) -> None:
    reply = answer("POST", path, json.dumps(body).encode())
    assert reply.chunks
    if reply.status != 200:
        assert reply.status == 400 and json.loads(reply.chunks[0])["error"]["message"]
