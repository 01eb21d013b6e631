"""An answer of a fallback reaches the agent in its own dialect: what was said, how it ended, what it counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects import translate
from agentstate.dialects.registry import BY_NAME
from agentstate.errors import Untranslatable
from tests.unit.dialects.translating import (
    CHAT,
    MESSAGES,
    NAMES,
    PAIRS,
    RESPONSES,
    Body,
    Reader,
    completion,
    message,
    response,
    said,
    simple,
    tell,
    tool_use,
    without_nulls,
)

TEXT = {"type": "text", "text": "hello"}
FUNCTION = {"name": "look_up", "arguments": '{"q":"x"}'}
CALL = {"id": "call_7", "type": "function", "function": FUNCTION}
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_7", "status": "completed", **FUNCTION}
ANSWERS: dict[str, list[Body]] = {
    CHAT: [
        completion({"content": "hello"}),
        completion({"tool_calls": [CALL, {**CALL, "id": "call_8"}]}, "tool_calls"),
        completion({"content": "let me", "tool_calls": [CALL]}, "tool_calls"),
        completion({"content": "cut off"}, "length"),
        completion({"content": None, "refusal": "I will not."}),
        completion({"content": ""}, "content_filter"),
        completion({"content": "hello"}, usage=None),
    ],
    MESSAGES: [
        message([TEXT]),
        message([TEXT, tool_use("look_up", {"q": "x"}), tool_use("look_up", {}, "toolu_01Y")], "tool_use"),
        message([tool_use("look_up", {"q": {"deep": [1, 2.5, None, True]}})], "tool_use"),
        message([TEXT], "max_tokens"),
        message([], "refusal", stop_details={"type": "refusal", "category": None, "explanation": "It is unsafe."}),
        message([TEXT], "refusal"),
        message([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, TEXT]),
        message([TEXT], "stop_sequence", stop_sequence="END"),
        message([]),
    ],
    RESPONSES: [
        response([said("hello")]),
        response([said("one"), ITEM, {**ITEM, "id": "fc_2", "call_id": "call_8"}]),
        response([{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}, said("x")]),
        response([said("cut")], "incomplete", incomplete_details={"reason": "max_output_tokens"}),
        response([said("cut")], "incomplete", incomplete_details={"reason": "content_filter"}),
        response([{**said(""), "content": [{"type": "refusal", "refusal": "I will not."}]}]),
    ],
}
CASES = [(source, target, answer) for source, target in PAIRS for answer in ANSWERS[target]]
_readers = {name: Reader(name) for name in NAMES}


@pytest.mark.parametrize(("source", "target", "answer"), CASES)
def test_the_sdk_of_the_agent_reads_the_answer_plain_and_streamed_as_equal_objects(
    source: str, target: str, answer: Body
) -> None:
    body = json.dumps(tell(source, target, answer)[0]).encode()
    plain = _readers[source].plain(body)
    assert plain == without_nulls(json.loads(body))
    streamed = _readers[source].stream(body)
    if source == RESPONSES:
        streamed = {name: said for name, said in streamed.items() if name in plain}
    assert streamed == plain


@pytest.mark.parametrize(("source", "target", "answer"), CASES)
def test_the_gate_takes_the_answer_for_finished_and_finds_the_same_calls(
    source: str, target: str, answer: Body
) -> None:
    def judged(dialect: str, asked: Body, body: Body) -> Any:
        known = BY_NAME[dialect]
        call = known.parse("POST", "x", json.dumps(asked).encode())
        return known.judge(call, json.dumps(body).encode())

    was = judged(target, simple(target), answer)
    now = judged(source, simple(source), tell(source, target, answer)[0])
    assert now.fault == was.fault == ""
    assert now.model == was.model
    assert [call.name for call in now.calls] == [call.name for call in was.calls]
    assert [json.loads(call.arguments) for call in now.calls] == [json.loads(call.arguments) for call in was.calls]


def finish_of(body: Body) -> str:
    """How an answer ended, in its own words."""
    if "choices" in body:
        return str(body["choices"][0]["finish_reason"])
    if "stop_reason" in body:
        return str(body["stop_reason"])
    return str((body.get("incomplete_details") or {}).get("reason") or body["status"])


@pytest.mark.parametrize(
    ("target", "answer", "wanted"),
    [
        (MESSAGES, message([TEXT]), {CHAT: "stop", RESPONSES: "completed"}),
        (MESSAGES, message([TEXT], "stop_sequence"), {CHAT: "stop", RESPONSES: "completed"}),
        (MESSAGES, message([TEXT], "max_tokens"), {CHAT: "length", RESPONSES: "max_output_tokens"}),
        (MESSAGES, message([TEXT], "model_context_window_exceeded"), {CHAT: "length", RESPONSES: "max_output_tokens"}),
        (MESSAGES, message([TEXT], "refusal"), {CHAT: "content_filter", RESPONSES: "content_filter"}),
        (MESSAGES, message([tool_use("f", {})], "tool_use"), {CHAT: "tool_calls", RESPONSES: "completed"}),
        (CHAT, completion({"content": "x"}), {MESSAGES: "end_turn", RESPONSES: "completed"}),
        (CHAT, completion({"content": "x"}, "length"), {MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}),
        (CHAT, completion({"content": "x"}, "content_filter"), {MESSAGES: "refusal", RESPONSES: "content_filter"}),
        (CHAT, completion({"tool_calls": [CALL]}, "tool_calls"), {MESSAGES: "tool_use", RESPONSES: "completed"}),
        # Some providers say "stop" though a tool is called, and "tool_calls" though none is.
        (CHAT, completion({"tool_calls": [CALL]}, "stop"), {MESSAGES: "tool_use", RESPONSES: "completed"}),
        (CHAT, completion({"content": "x"}, "tool_calls"), {MESSAGES: "end_turn", RESPONSES: "completed"}),
        (CHAT, completion({"content": None, "refusal": "no"}), {MESSAGES: "refusal", RESPONSES: "completed"}),
        (RESPONSES, response([ITEM]), {CHAT: "tool_calls", MESSAGES: "tool_use"}),
        (RESPONSES, response([said("x")]), {CHAT: "stop", MESSAGES: "end_turn"}),
        (
            RESPONSES,
            response([said("x")], "incomplete", incomplete_details={"reason": "max_output_tokens"}),
            {CHAT: "length", MESSAGES: "max_tokens"},
        ),
        (
            RESPONSES,
            response([said("x")], "incomplete", incomplete_details={"reason": "content_filter"}),
            {CHAT: "content_filter", MESSAGES: "refusal"},
        ),
    ],
)
def test_an_answer_ends_as_it_ended(target: str, answer: Body, wanted: dict[str, str]) -> None:
    assert {source: finish_of(tell(source, target, answer)[0]) for source in wanted} == wanted


# --- usage ------------------------------------------------------------------------------------------------------------


def usage_of(source: str, target: str, usage: Any) -> Any:
    made: dict[str, Body] = {
        CHAT: completion({"content": "x"}), MESSAGES: message([TEXT]), RESPONSES: response([said("x")]),
    }  # fmt: skip
    return tell(source, target, {**made[target], "usage": usage})[0].get("usage")


ANTHROPIC_USAGE = {
    "input_tokens": 100,
    "cache_read_input_tokens": 40,
    "cache_creation_input_tokens": 10,
    "output_tokens": 20,
    "output_tokens_details": {"thinking_tokens": 5},
}
CHAT_USAGE = {
    "prompt_tokens": 150,
    "completion_tokens": 20,
    "total_tokens": 170,
    "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
RESPONSES_USAGE = {
    "input_tokens": 150,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 170,
}
USAGES: dict[str, Body] = {CHAT: CHAT_USAGE, MESSAGES: ANTHROPIC_USAGE, RESPONSES: RESPONSES_USAGE}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_cached_tokens_stand_beside_the_others_with_anthropic_and_among_them_with_openai(
    source: str, target: str
) -> None:
    assert usage_of(source, target, USAGES[target]) == USAGES[source]


def test_zeros_and_nulls_of_the_usage_are_kept() -> None:
    zeros = {"input_tokens": 7, "cache_read_input_tokens": 0, "cache_creation_input_tokens": None, "output_tokens": 0}
    assert usage_of(CHAT, MESSAGES, zeros) == {
        "prompt_tokens": 7,
        "completion_tokens": 0,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": None},
    }
    details = {"prompt_tokens": 7, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}
    assert usage_of(MESSAGES, CHAT, details) == {"input_tokens": 7, "cache_read_input_tokens": 0, "output_tokens": 0}


def test_what_was_not_counted_is_not_made_up() -> None:
    assert usage_of(CHAT, MESSAGES, {"input_tokens": 3, "output_tokens": 4}) == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
    }
    assert usage_of(CHAT, RESPONSES, None) is None
    body, losses = tell(MESSAGES, CHAT, completion({"content": "x"}, usage=None))
    assert body["usage"] == {"input_tokens": 0, "output_tokens": 0} and "usage" in losses  # SDKs want figures


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        # Reasoning that one provider does not count among the others: 429 + 44 + 502 = 975.
        (
            {"prompt_tokens": 429, "completion_tokens": 44, "total_tokens": 975,
             "completion_tokens_details": {"reasoning_tokens": 502}},
            {"input_tokens": 429, "output_tokens": 546, "output_tokens_details": {"thinking_tokens": 502}},
        ),
        ({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 4},
         {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5},
         {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 1}),
    ],
)  # fmt: skip
def test_the_counts_of_compatible_providers_are_read_as_they_mean_them(usage: Body, wanted: Body) -> None:
    assert usage_of(MESSAGES, CHAT, usage) == wanted


# --- calls ------------------------------------------------------------------------------------------------------------


def ids_of(body: Body) -> list[str]:
    if "choices" in body:
        return [call["id"] for call in body["choices"][0]["message"].get("tool_calls", ())]
    if "content" in body:
        return [block["id"] for block in body["content"] if block["type"] == "tool_use"]
    return [item["call_id"] for item in body["output"] if item["type"] == "function_call"]


@pytest.mark.parametrize(
    ("source", "target", "answer", "wanted"),
    [
        (CHAT, MESSAGES, message([tool_use("f", {}, "toolu_01Ab")], "tool_use"), ["call_01Ab"]),
        (RESPONSES, MESSAGES, message([tool_use("f", {}, "toolu_01Ab")], "tool_use"), ["call_01Ab"]),
        (MESSAGES, CHAT, completion({"tool_calls": [CALL]}), ["toolu_7"]),
        (MESSAGES, RESPONSES, response([ITEM]), ["toolu_7"]),
        (CHAT, RESPONSES, response([ITEM]), ["call_7"]),
    ],
)
def test_ids_of_calls_have_the_form_that_the_agents_dialect_gives_them(
    source: str, target: str, answer: Body, wanted: list[str]
) -> None:
    assert ids_of(tell(source, target, answer)[0]) == wanted


@pytest.mark.parametrize("ids", [["", ""], [None, None], ["x:1", "x:1"], ["a" * 90, "a" * 91], ["call_1", "toolu_1"]])
def test_ids_that_are_missing_repeated_or_odd_become_ids_that_strict_clients_take(ids: list[Any]) -> None:
    answer = completion({"tool_calls": [{**CALL, "id": name} for name in ids]}, "tool_calls")
    found = ids_of(tell(MESSAGES, CHAT, answer)[0])
    assert len(set(found)) == 2 and all(name.isascii() and len(name) <= 40 for name in found)
    assert all(name.startswith("toolu_") and name.replace("_", "").isalnum() for name in found)
    assert found == ids_of(tell(MESSAGES, CHAT, answer)[0])
    later = ids_of(tell(MESSAGES, CHAT, {**answer, "id": "chatcmpl-B2"})[0])
    if not any(ids):
        assert not set(found) & set(later)  # two answers without ids are not to share any


def test_items_of_a_response_have_ids_of_their_own_kind() -> None:
    body, _ = tell(RESPONSES, MESSAGES, message([TEXT, tool_use("f", {}), TEXT], "tool_use"))
    assert [item["type"] for item in body["output"]] == ["message", "function_call", "message"]
    assert [item["id"] for item in body["output"]] == ["msg_01ABC", "fc_01X", "msg_01ABC_1"]
    assert body["id"] == "resp_01ABC"


def test_a_tool_of_free_text_gets_free_text_from_a_model_that_knows_objects_only() -> None:
    asked = simple(CHAT, tools=[{"type": "custom", "custom": {"name": "patch"}}])
    answer = message([tool_use("patch", {"input": "*** Begin"})], "tool_use")
    [call] = tell(CHAT, MESSAGES, answer, asked)[0]["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "call_01X", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    asked = simple(RESPONSES, tools=[{"type": "custom", "name": "patch"}])
    [item] = tell(RESPONSES, MESSAGES, answer, asked)[0]["output"]
    assert (item["type"], item["input"], item["call_id"]) == ("custom_tool_call", "*** Begin", "call_01X")


def test_names_that_the_target_does_not_take_come_back_as_the_agent_knows_them() -> None:
    long = "mcp__a_server_of_many_words__" + "a_tool_whose_name_goes_on_and_on_" * 2
    tools = [{"name": long, "input_schema": {"type": "object"}}]
    body = translate.question(MESSAGES, CHAT, json.dumps(simple(MESSAGES, tools=tools)).encode(), "gpt-4o").body
    [tool] = json.loads(body)["tools"]
    sent = tool["function"]["name"]
    assert len(sent) <= 64 and sent != long
    answer = completion({"tool_calls": [{**CALL, "function": {"name": sent, "arguments": "{}"}}]}, "tool_calls")
    [block] = tell(MESSAGES, CHAT, answer, simple(MESSAGES, tools=tools))[0]["content"]
    assert block["name"] == long


def test_a_tool_in_a_namespace_comes_back_in_it() -> None:
    inner = {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {}}}
    asked = simple(RESPONSES, tools=[{"type": "namespace", "name": "agents", "description": "", "tools": [inner]}])
    [item] = tell(RESPONSES, MESSAGES, message([tool_use("agents__spawn", {})], "tool_use"), asked)[0]["output"]
    assert (item["name"], item["namespace"]) == ("spawn", "agents")


def test_a_legacy_agent_gets_its_call_in_the_legacy_form() -> None:
    asked = simple(CHAT, functions=[{"name": "look_up", "parameters": {"type": "object"}}])
    body, _ = tell(CHAT, MESSAGES, message([tool_use("look_up", {"q": "x"})], "tool_use"), asked)
    choice = body["choices"][0]
    assert choice["message"]["function_call"] == FUNCTION and choice["finish_reason"] == "function_call"
    two = message([tool_use("look_up", {}), tool_use("look_up", {}, "toolu_2")], "tool_use")
    with pytest.raises(Untranslatable, match="several functions"):
        tell(CHAT, MESSAGES, two, asked)


def test_arguments_that_a_limit_cut_are_what_is_whole_of_them() -> None:
    call = {**CALL, "function": {"name": "look_up", "arguments": '{"q":"x","more":"never en'}}
    body, losses = tell(MESSAGES, CHAT, completion({"tool_calls": [call]}, "length"))
    assert body["content"][0]["input"] == {"q": "x"} and body["stop_reason"] == "max_tokens"
    assert "tool_calls.arguments (cut)" in losses


# --- what else is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_texts_of_an_answer_are_joined_without_anything_between_them(source: str) -> None:
    body, _ = tell(source, MESSAGES, message([{"type": "text", "text": "to"}, {"type": "text", "text": "gether"}]))
    text = body["choices"][0]["message"]["content"] if source == CHAT else body["output"][0]["content"][0]["text"]
    assert text == "together"


def test_a_refusal_is_one_in_every_dialect() -> None:
    refused = message([], "refusal", stop_details={"type": "refusal", "category": None, "explanation": "unsafe"})
    assert tell(CHAT, MESSAGES, refused)[0]["choices"][0]["message"]["refusal"] == "unsafe"
    part = {"type": "refusal", "refusal": "unsafe"}
    assert tell(RESPONSES, MESSAGES, refused)[0]["output"][0]["content"] == [part]
    body, _ = tell(MESSAGES, CHAT, completion({"content": None, "refusal": "unsafe"}))
    assert body["content"] == [{"type": "text", "text": "unsafe"}]
    assert body["stop_details"] == {"type": "refusal", "category": None, "explanation": "unsafe"}


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_thinking_is_lost_where_the_agent_would_send_it_back_to_a_provider_that_refuses_it(source: str) -> None:
    thought = message([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, TEXT])
    body, losses = tell(source, MESSAGES, thought)
    assert "thinking" in losses and b"hm" not in json.dumps(body).encode() and b"c2ln" not in json.dumps(body).encode()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_thinking_that_is_not_told_is_a_loss(source: str, target: str) -> None:
    thought: dict[str, Body] = {
        CHAT: completion({"content": "x", "reasoning_content": "hm"}),
        MESSAGES: message([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, TEXT]),
        RESPONSES: response([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, said("x")]),
    }
    body, losses = tell(source, target, thought[target])
    assert losses == ("thinking",) and '"hm"' not in json.dumps(body)


def test_thinking_is_told_where_the_agent_itself_sends_such_text_back() -> None:
    before = {"role": "assistant", "content": "x", "reasoning_content": "before"}
    asked = simple(CHAT, messages=[{"role": "user", "content": "a"}, before, {"role": "user", "content": "b"}])
    thought = message([{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, TEXT])
    body, losses = tell(CHAT, MESSAGES, thought, asked)
    assert body["choices"][0]["message"]["reasoning_content"] == "hm" and losses == ()


def test_pages_that_a_text_cites_go_over_between_openais_dialects() -> None:
    cited = {"type": "url_citation", "url": "https://a.test", "title": "A", "start_index": 2, "end_index": 4}
    part = {"type": "output_text", "text": "see A", "annotations": [cited]}
    answer = response([said("so: "), {**said(""), "content": [part]}])
    body, losses = tell(CHAT, RESPONSES, answer)
    [found] = body["choices"][0]["message"]["annotations"]
    inner = {name: value for name, value in cited.items() if name != "type"}
    assert found == {"type": "url_citation", "url_citation": {**inner, "start_index": 6, "end_index": 8}}
    assert losses == ()
    [item] = tell(RESPONSES, CHAT, body)[0]["output"]
    assert item["content"][0]["annotations"] == [{**cited, "start_index": 6, "end_index": 8}]


def test_a_response_repeats_what_was_asked() -> None:
    asked = simple(RESPONSES, instructions="be brief", temperature=0.5, tool_choice="none", metadata={"a": "b"},
                   tools=[{"type": "function", "name": "f", "parameters": {}, "strict": False}])  # fmt: skip
    body, _ = tell(RESPONSES, CHAT, completion({"content": "x"}), asked)
    for name in ("instructions", "temperature", "tool_choice", "metadata", "tools"):
        assert body[name] == asked[name]
    assert (body["store"], body["previous_response_id"], body["created_at"]) == (False, None, 1700000001)


def test_the_time_is_that_of_the_answer_or_the_one_given() -> None:
    assert tell(CHAT, RESPONSES, response([said("x")]))[0]["created"] == 1700000002
    assert tell(CHAT, MESSAGES, message([TEXT]))[0]["created"] == 1700000000


@pytest.mark.parametrize(
    ("target", "answer", "why"),
    [
        (CHAT, completion({"content": "x"}) | {"choices": []}, "0 choices"),
        (CHAT, completion({"audio": {"id": "a"}}), "audio"),
        (RESPONSES, response([], "failed"), "failed"),
        (RESPONSES, response([{"type": "local_shell_call"}]), "local_shell_call"),
    ],
)
def test_an_answer_that_the_agents_dialect_has_no_words_for_is_refused(target: str, answer: Body, why: str) -> None:
    with pytest.raises(Untranslatable, match=why):
        tell(MESSAGES, target, answer)


def test_several_choices_are_refused() -> None:
    two = completion({"content": "x"})
    with pytest.raises(Untranslatable, match="2 choices"):
        tell(MESSAGES, CHAT, {**two, "choices": two["choices"] * 2})


def test_content_that_a_provider_parsed_is_the_text_that_the_model_wrote() -> None:
    body, _ = tell(MESSAGES, CHAT, completion({"content": {"a": 1}}))
    assert json.loads(body["content"][0]["text"]) == {"a": 1}
