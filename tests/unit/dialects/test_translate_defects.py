"""The defects that ready-made translators have are none of ours: each test names a symptom that was seen in one.

Two of them, where they are installed, are asked the same: we agree where they are right, and their known defects are
listed here as what they are, so that a version that mends one is noticed.
"""

from __future__ import annotations

import importlib
import json
import warnings
from typing import Any

import pytest

from tests.unit.dialects.translating import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Body,
    Reader,
    ask,
    completion,
    message,
    response,
    said,
    simple,
    streamed,
    tell,
    tool_use,
)

SCHEMA = {
    "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False,
}  # fmt: skip
HARD: Body = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "and kind"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"x"}'}},
                {"id": "call_2", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"y"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "look_up", "description": "Find.", "parameters": SCHEMA,
                                          "strict": True}}
    ],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "stop": ["END"],
    "max_completion_tokens": 50,
    "user": "u-1",
}  # fmt: skip
# An answer with all that is hard: thinking, text, two calls at once, a cache that was read and written.
ANSWER = message(
    [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "two looks"},
        tool_use("look_up", {"q": "x"}, "toolu_01A"),
        tool_use("look_up", {"q": "y"}, "toolu_01B"),
    ],
    "tool_use",
    usage={"input_tokens": 100, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10, "output_tokens": 20},
)


# --- symptoms ---------------------------------------------------------------------------------------------------------


def test_no_thinking_blocks_or_reasoning_content_leak_into_an_openai_body() -> None:
    thought = {"role": "assistant", "content": ANSWER["content"][:2]}
    asked = simple(MESSAGES, messages=[{"role": "user", "content": "a"}, thought, {"role": "user", "content": "b"}])
    for target in (CHAT, RESPONSES):
        text = json.dumps(ask(MESSAGES, target, asked)[0])
        assert not any(word in text for word in ("thinking", "reasoning", "signature"))


def test_disable_parallel_tool_use_cache_control_and_strict_do_not_vanish_in_silence() -> None:
    tool = {"name": "f", "input_schema": SCHEMA, "strict": True, "cache_control": {"type": "ephemeral"}}
    asked = simple(MESSAGES, tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    body, losses = ask(MESSAGES, CHAT, asked)
    assert body["parallel_tool_calls"] is False and body["tools"][0]["function"]["strict"] is True
    assert losses == ("cache_control",)


def test_calls_of_a_plain_answer_carry_no_index_and_those_of_a_stream_count_from_nought() -> None:
    body = json.dumps(tell(CHAT, MESSAGES, ANSWER)[0]).encode()
    calls = json.loads(body)["choices"][0]["message"]["tool_calls"]
    assert all(set(call) == {"id", "type", "function"} for call in calls)
    events = [line.removeprefix(b"data: ") for line in streamed(CHAT, body).splitlines() if line.startswith(b"data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    assert [call["index"] for delta in deltas for call in delta.get("tool_calls", ())] == [0, 1]
    assert deltas[0]["role"] == "assistant"  # strict clients want it in the first
    assert all(json.loads(event)["choices"] or json.loads(event)["usage"] for event in events)  # none is empty


def test_the_stream_of_an_answer_tells_its_usage() -> None:
    body = json.dumps(tell(CHAT, MESSAGES, ANSWER)[0]).encode()
    assert Reader(CHAT).stream(body)["usage"]["prompt_tokens"] == 150
    body = json.dumps(tell(MESSAGES, CHAT, completion({"content": "x"}))[0]).encode()
    assert Reader(MESSAGES).stream(body)["usage"] == {"input_tokens": 100, "output_tokens": 20}


def test_there_is_no_malformed_reasoning_item_in_a_response() -> None:
    body, losses = tell(RESPONSES, MESSAGES, ANSWER)
    assert "reasoning" not in {item["type"] for item in body["output"]} and "thinking" in losses


def test_the_developer_role_never_reaches_anthropic() -> None:
    body, losses = ask(CHAT, MESSAGES, HARD)
    assert {one["role"] for one in body["messages"]} == {"user", "assistant"}
    assert [block["text"] for block in body["system"]] == ["be brief", "and kind"] and losses == ()


def test_user_and_max_completion_tokens_are_understood() -> None:
    body, _ = ask(CHAT, MESSAGES, HARD)
    assert (body["max_tokens"], body["metadata"]) == (50, {"user_id": "u-1"})


def test_parallel_calls_of_a_streamed_message_keep_their_own_inputs() -> None:
    calls = [{"id": f"call_{name}", "type": "function", "function": {"name": "look_up",
              "arguments": json.dumps({"q": name})}} for name in "xyz"]  # fmt: skip
    body = json.dumps(tell(MESSAGES, CHAT, completion({"tool_calls": calls}, "tool_calls"))[0]).encode()
    blocks = Reader(MESSAGES).stream(body)["content"]
    assert [block["input"] for block in blocks] == [{"q": "x"}, {"q": "y"}, {"q": "z"}]


def test_content_blocks_of_a_stream_do_not_overlap_and_text_blocks_begin_with_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = completion({"content": "x", "tool_calls": [call]}, "tool_calls")
    body = json.dumps(tell(MESSAGES, CHAT, answer)[0]).encode()
    events = [json.loads(line[6:]) for line in streamed(MESSAGES, body).splitlines() if line.startswith(b"data: {")]
    open_: list[int] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert not open_
            open_.append(event["index"])
            assert event["content_block"].get("text", "") == "" and (
                event["content_block"]["type"] != "text" or "text" in event["content_block"]
            )
        elif event["type"] == "content_block_stop":
            assert open_ == [event["index"]]
            open_.clear()
    assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 1]


def test_cached_tokens_are_added_to_the_prompt_and_not_lost() -> None:
    usage = tell(CHAT, MESSAGES, ANSWER)[0]["usage"]
    assert usage["prompt_tokens"] == 150 and usage["total_tokens"] == 170
    assert usage["prompt_tokens_details"] == {"cached_tokens": 40, "cache_write_tokens": 10}


def test_response_format_is_never_dropped_without_a_word() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    body, losses = ask(CHAT, MESSAGES, simple(CHAT, response_format=form))
    assert body["output_config"]["format"]["schema"] == SCHEMA and losses == ("response_format.name",)
    _, losses = ask(CHAT, MESSAGES, simple(CHAT, response_format={"type": "json_object"}))
    assert losses == ("response_format (json_object)",)


def test_a_refusal_does_not_become_an_ordinary_stop() -> None:
    refused = message([], "refusal", stop_details={"type": "refusal", "category": "bio", "explanation": "no"})
    choice = tell(CHAT, MESSAGES, refused)[0]["choices"][0]
    assert choice["finish_reason"] == "content_filter" and choice["message"]["refusal"] == "no"


def test_tools_that_a_provider_runs_do_not_become_functions_of_the_agents() -> None:
    tools = [{"name": "f", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "web_search"}]
    body, losses = ask(MESSAGES, CHAT, simple(MESSAGES, tools=tools))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"] and losses == ("tools (web_search_20250305)",)


def test_events_of_a_responses_stream_have_their_names_and_one_id_an_item() -> None:
    body = json.dumps(tell(RESPONSES, MESSAGES, ANSWER)[0]).encode()
    lines = streamed(RESPONSES, body).splitlines()
    names = [line[7:].decode() for line in lines if line.startswith(b"event: ")]
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert names == [event["type"] for event in events] and names[-1] == "response.completed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for place, item in enumerate(json.loads(body)["output"]):
        ids = {event.get("item_id") or event["item"]["id"] for event in events if event.get("output_index") == place}
        assert ids == {item["id"]}


def test_what_is_lost_is_said_precisely() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    thought = {"role": "assistant", "content": ANSWER["content"][:2]}
    asked = simple(
        MESSAGES, system=[{"type": "text", "text": "x", **mark}], top_k=4,
        messages=[{"role": "user", "content": "a"}, thought, {"role": "user", "content": "b"}],
    )  # fmt: skip
    assert ask(MESSAGES, CHAT, asked)[1] == ("cache_control", "thinking (foreign signature)", "top_k")


def test_a_turn_that_went_to_another_provider_does_not_poison_the_conversation() -> None:
    """What the fallback answered goes back to the first provider: nothing in it is signed by, or held at, another."""
    for source, target, answer in (
        (MESSAGES, CHAT, completion({"content": "x", "reasoning_content": "hm"})),
        (MESSAGES, RESPONSES, response([{"type": "reasoning", "id": "rs_1", "summary": []}, said("x")])),
        (RESPONSES, MESSAGES, ANSWER),
        (CHAT, MESSAGES, ANSWER),
    ):
        body, _ = tell(source, target, answer)
        text = json.dumps({name: said for name, said in body.items() if name not in ("usage", "reasoning")})
        assert not any(word in text for word in ("thinking", "signature", '"rs_', "encrypted", "reasoning"))


# --- beside others ----------------------------------------------------------------------------------------------------


def rosetta(source: str, target: str, body: Body) -> Body:
    """The same question, translated by llm-rosetta."""
    others = pytest.importorskip("llm_rosetta", reason="llm-rosetta is not installed")
    names = {CHAT: "openai_chat", RESPONSES: "openai_responses", MESSAGES: "anthropic"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Body = others.convert(json.loads(json.dumps(body)), names[target], names[source])
    return found


def oxa(source: str, target: str, body: Body, what: str = "request") -> tuple[Body, list[Any]]:
    """The same question or answer, translated by oxa."""
    pytest.importorskip("oxa", reason="elkpi-oxa is not installed")
    names = {CHAT: "openai.chatcompletions", RESPONSES: "openai.responses", MESSAGES: "anthropic.messages"}
    decode = importlib.import_module(f"oxa.{names[source]}.decode")
    encode = importlib.import_module(f"oxa.{names[target]}.encode")
    form, lost = getattr(decode, f"decode_{what}_json")(json.dumps(body))
    made, more = getattr(encode, f"encode_{what}")(form)
    return made if isinstance(made, dict) else json.loads(made), [*lost, *more]


PLAIN: Body = {**HARD, "messages": [HARD["messages"][0], *HARD["messages"][2:]]}  # less the developer's message


def _blocks(asked: Body) -> list[tuple[str, str]]:
    return [(one["role"], block["type"]) for one in asked["messages"] for block in one["content"]]


def test_rosetta_writes_the_same_question_for_anthropic_where_it_is_right() -> None:
    ours, theirs = ask(CHAT, MESSAGES, HARD)[0], rosetta(CHAT, MESSAGES, HARD)
    for name in ("max_tokens", "stop_sequences", "tool_choice"):
        assert theirs[name] == ours[name], name
    assert [block["text"] for block in theirs["system"]] == [block["text"] for block in ours["system"]]
    assert _blocks(theirs) == _blocks(ours)
    uses = [
        {name: said for name, said in block.items() if name != "caller"} for block in theirs["messages"][1]["content"]
    ]
    assert uses == ours["messages"][1]["content"]
    assert theirs["tools"][0]["input_schema"] == ours["tools"][0]["input_schema"]


def test_rosetta_writes_the_same_question_for_openai_where_it_is_right() -> None:
    there = ask(CHAT, MESSAGES, PLAIN)[0]
    ours, theirs = ask(MESSAGES, CHAT, there)[0], rosetta(MESSAGES, CHAT, there)
    assert theirs["tool_choice"] == ours["tool_choice"] and theirs["parallel_tool_calls"] is False
    assert [one["role"] for one in theirs["messages"]] == [one["role"] for one in ours["messages"]]
    calls = [
        [json.loads(call["function"]["arguments"]) for one in body["messages"] for call in one.get("tool_calls") or ()]
        for body in (ours, theirs)
    ]
    assert calls[0] == calls[1] == [{"q": "x"}, {"q": "y"}]


def test_defects_that_rosetta_is_known_for_are_still_there_and_not_ours() -> None:
    others = pytest.importorskip("llm_rosetta", reason="llm-rosetta is not installed")
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    assert "output_config" not in rosetta(CHAT, MESSAGES, simple(CHAT, response_format=form))
    theirs = rosetta(CHAT, MESSAGES, HARD)
    assert theirs["model"] == "gpt-4o"  # it does not ask the candidate's model
    assert [one["role"] for one in theirs["messages"]][-2:] == ["user", "user"]  # a message for each result
    assert "strict" not in theirs["tools"][0]
    assert [one["role"] for one in ask(CHAT, MESSAGES, HARD)[0]["messages"]] == ["user", "assistant", "user"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = others.convert_response(ANSWER, HARD, "openai_chat", "anthropic")
    assert theirs["usage"]["prompt_tokens"] == 100  # the cache is not counted
    assert tell(CHAT, MESSAGES, ANSWER, HARD)[0]["usage"]["prompt_tokens"] == 150


def test_oxa_writes_the_same_question_where_it_is_right() -> None:
    ours, theirs = ask(CHAT, MESSAGES, PLAIN)[0], oxa(CHAT, MESSAGES, PLAIN)[0]
    for name in ("max_tokens", "stop_sequences"):
        assert theirs[name] == ours[name], name
    assert theirs["tool_choice"]["type"] == ours["tool_choice"]["type"] == "any"
    assert theirs["messages"][1]["content"] == ours["messages"][1]["content"]
    assert theirs["tools"][0]["input_schema"] == ours["tools"][0]["input_schema"]
    back, losses = oxa(MESSAGES, CHAT, ours)
    mine = ask(MESSAGES, CHAT, ours)[0]
    assert [one["role"] for one in back["messages"]] == [one["role"] for one in mine["messages"]]
    assert back["tool_choice"] == mine["tool_choice"], losses


def test_oxa_reads_the_same_answer_where_it_is_right() -> None:
    theirs, _ = oxa(MESSAGES, CHAT, ANSWER, "response")
    ours = tell(CHAT, MESSAGES, ANSWER)[0]
    one, other = theirs["choices"][0], ours["choices"][0]
    assert one["message"]["content"] == other["message"]["content"]
    assert one["finish_reason"] == other["finish_reason"]
    assert [json.loads(call["function"]["arguments"]) for call in one["message"]["tool_calls"]] == [
        json.loads(call["function"]["arguments"]) for call in other["message"]["tool_calls"]
    ]


def test_defects_that_oxa_is_known_for_are_still_there_and_not_ours() -> None:
    pytest.importorskip("oxa", reason="elkpi-oxa is not installed")
    with pytest.raises(Exception, match="developer"):
        oxa(CHAT, MESSAGES, HARD)
    assert "disable_parallel_tool_use" not in oxa(CHAT, MESSAGES, PLAIN)[0]["tool_choice"]
    theirs, _ = oxa(MESSAGES, CHAT, ANSWER, "response")
    assert theirs["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0) != 40
