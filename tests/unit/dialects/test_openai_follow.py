"""What a chat request offers and carries back, and the request that goes on from an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentstate.core.model import OfferedTool, Shape, ToolResult
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.splice import appended
from tests.support import chat, traffic
from tests.unit.dialects.bodies import TOOLS
from tests.unit.dialects.test_gate import SERVICES, UNFINISHED
from tests.unit.dialects.test_openai_amend import function, piece, stream_of

CHAT = OpenAIChat()
PLAIN, STREAM = Shape(), Shape(True)
CALLS = [chat.tool_call("weather", '{"city":"Oslo"}', call_id="a"), chat.tool_call("mail", call_id="b")]
RESULTS = (ToolResult("b", "sent"), ToolResult("a", '{"rain": 1.50, "é": "\u2028"}'))


def parsed(body: bytes) -> Any:
    return CHAT.parse("POST", "chat/completions", body)


def continued(body: bytes, answer: bytes, results: Sequence[ToolResult] = RESULTS, shape: Shape = PLAIN) -> bytes:
    """The request that goes on; it must be one, and give the results back."""
    made = CHAT.continued(parsed(body), shape, answer, results)
    again = parsed(made)
    assert again.items and again.body == made
    assert CHAT.results(again) == tuple(ToolResult(result.call_id, result.content) for result in results)
    assert CHAT.offered(again) == CHAT.offered(parsed(body))
    assert (again.shape, again.choices, again.frame) == (parsed(body).shape, parsed(body).choices, parsed(body).frame)
    return made


# --- what is offered --------------------------------------------------------------------------------------------------


def test_offered_are_functions_and_custom_tools_in_order_and_none_that_the_provider_runs() -> None:
    schema = '{"type": "object", "properties": {"n": {"maximum": 1.50}}}'
    tools = (
        '[{"type":"function","function":{"name":"one","parameters":' + schema + "}},"
        '{"type":"web_search"},{"type":"openrouter:web_search","function":{"name":"x"}},7,{"type":"custom"},'
        '{"type":"custom","custom":{"name":"shell"}},{"function":{"name":"two","parameters":null}}]'
    )
    body = (
        '{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":' + tools + ',"functions":[{"name":"old"}]}'
    )
    one, shell, two, old = CHAT.offered(parsed(body.encode()))
    assert (one, two, old) == (OfferedTool("one", schema), OfferedTool("two"), OfferedTool("old"))
    assert shell.name == "shell" and json.loads(shell.schema)["required"] == ["input"]


@pytest.mark.parametrize("tools", [b"7", b"{}", b"null", b'[{"type":"function","function":7}]'])
def test_tools_of_wrong_types_are_none(tools: bytes) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":' + tools + b"}"
    assert CHAT.offered(parsed(body)) == ()


# --- what comes back --------------------------------------------------------------------------------------------------


def test_results_are_those_after_the_last_answer_as_they_were_written() -> None:
    parts = '[{"type": "text", "text": "a"}]'
    messages = (
        '[{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"old","content":"x"},'
        '{"role":"assistant","content":null,"tool_calls":[{"id":"a"},{"id":"b"}]},'
        '{"role":"tool","tool_call_id":"b","content":' + parts + "},"
        '{"role":"tool","tool_call_id":"a","content":"{\\"n\\": 1.50}"},{"role":"user","content":"and?"},'
        '{"role":"tool","tool_call_id":null},{"role":"function","name":"look","content":"seen"}]'
    )
    call = parsed(('{"model":"m","messages":' + messages + "}").encode())
    assert CHAT.results(call) == (
        ToolResult("b", parts), ToolResult("a", '{"n": 1.50}'), ToolResult("", ""), ToolResult("function", "seen"),
    )  # fmt: skip
    assert CHAT.results(parsed(chat.request("hi"))) == ()


def test_body_that_only_a_lenient_parser_takes_is_read_all_the_same() -> None:
    body = (
        b'{"model":"m", "messages":[{"role":"tool","tool_call_id":"a","content":"x\\ud800 \\\\ud800"}], "seed": 1e999,'
        b' "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}'
    )
    call = parsed(body)
    assert call.items == ()
    assert [result.call_id for result in CHAT.results(call)] == ["a"]
    assert CHAT.results(call)[0].content.endswith(" \\ud800")
    assert [(tool.name, json.loads(tool.schema)) for tool in CHAT.offered(call)] == [("f", {"type": "object"})]
    made = CHAT.continued(call, PLAIN, chat.completion(None, tool_calls=CALLS), RESULTS)
    assert made.startswith(body[: body.index(b"}], ") + 1]) and made.endswith(body[body.index(b"], ") :])


# --- the request that goes on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 1])
def test_request_that_goes_on_holds_every_byte_of_the_one_before_and_the_message_as_it_came(indent: int | None) -> None:
    asked = {"metadata": {"messages": [{"role": "user"}]}, **json.loads(chat.request("hi", stream=True, tools=TOOLS))}
    body = json.dumps({**asked, "n": 1, "messages ": []}, indent=indent).encode()
    answer = chat.completion("Let me see", tool_calls=CALLS)
    made = continued(body, answer)
    said, *results = json.loads(made)["messages"][len(asked["messages"]) :]
    assert said == json.loads(answer)["choices"][0]["message"]
    message = answer[answer.index(b'"message": ') + 11 : answer.index(b',\n   "logprobs"')]
    place, more = made.index(message) - 1, len(made) - len(body)
    assert made[:place] + made[place + more :] == body
    assert results == [
        {"role": "tool", "tool_call_id": result.call_id, "content": result.content} for result in RESULTS
    ]


def test_streamed_answer_is_added_up_with_all_that_its_provider_takes_back() -> None:
    call = function(0, "mail", '{"to":', extra_content={"google": {"thought_signature": "s1"}})
    stream = stream_of(
        {"role": "assistant", "content": None, "reasoning_content": "hm "},
        {"reasoning_content": "yes", "channel": "analysis", "executed_tools": []},
        {"reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s2", "index": 0}]},
        piece(**call),
        piece(index=0, function={"arguments": '"x"}'}),
    )
    made = continued(chat.request("hi", stream=True), stream, [ToolResult("call_mail", "ok")], STREAM)
    said = json.loads(made)["messages"][1]
    assert said["reasoning_content"] == "hm yes" and said["reasoning_details"][0]["signature"] == "s2"
    assert "channel" not in said and "executed_tools" not in said
    assert said["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s1"}}
    assert said["tool_calls"][0]["function"]["arguments"] == '{"to":"x"}'


def test_audio_goes_back_by_its_id_alone() -> None:
    answer = json.loads(chat.completion(None, tool_calls=CALLS[:1]))
    answer["choices"][0]["message"]["audio"] = {"id": "audio_1", "data": "AAAA", "transcript": "x", "expires_at": 1}
    made = continued(chat.request("hi"), json.dumps(answer).encode(), [ToolResult("a", "x")])
    assert json.loads(made)["messages"][1]["audio"] == {"id": "audio_1"}


def test_legacy_call_is_answered_by_its_name() -> None:
    answer = json.loads(chat.completion(None, finish="function_call"))
    answer["choices"][0]["message"]["function_call"] = {"name": "look", "arguments": "{}"}
    made = continued(chat.request("hi"), json.dumps(answer).encode(), [ToolResult("function", "seen")])
    assert json.loads(made)["messages"][2] == {"role": "function", "name": "look", "content": "seen"}


def test_of_several_choices_that_one_goes_on_whose_calls_have_results() -> None:
    answer = json.loads(chat.completion("x", choices=3))
    answer["choices"][1]["message"]["tool_calls"] = CALLS[:1]
    answer["choices"][2]["message"]["tool_calls"] = [chat.tool_call("mail", call_id="z")]
    body = json.dumps(answer).encode()
    for call_id in ("a", "z"):
        made = json.loads(continued(chat.request("hi", n=3), body, [ToolResult(call_id, "x")]))
        assert [call["id"] for call in made["messages"][1]["tool_calls"]] == [call_id]
    both = CHAT.continued(parsed(chat.request("hi")), PLAIN, body, [ToolResult("z", "1"), ToolResult("a", "2")])
    assert [message.get("tool_call_id") for message in json.loads(both)["messages"][2:]] == ["a"]


def test_answer_without_calls_goes_on_with_what_was_said() -> None:
    made = json.loads(continued(chat.request("hi"), chat.completion("hello"), ()))
    assert [message["content"] for message in made["messages"]] == ["hi", "hello"]


@pytest.mark.parametrize("results", [(), RESULTS[:1], (*RESULTS, ToolResult("c", "x")), RESULTS[:1] * 2])
def test_result_that_is_missing_or_of_no_call_is_an_error(results: Sequence[ToolResult]) -> None:
    with pytest.raises(ValueError, match="needs one result"):
        CHAT.continued(parsed(chat.request("hi")), PLAIN, chat.completion(None, tool_calls=CALLS), results)


@pytest.mark.parametrize("body", [b'{"model":"m"}', b'{"messages":7}', b'{"messages":{"a":[]}}'])
def test_request_without_messages_cannot_go_on(body: bytes) -> None:
    with pytest.raises(ValueError, match="messages"):
        CHAT.continued(parsed(body), PLAIN, chat.completion("x"), ())


def test_list_grows_at_its_end_wherever_it_stands() -> None:
    for body, wanted in (
        (b'{"m":[]}', b'{"m":[1,2]}'), (b'{"m":[ ]}', b'{"m":[1,2 ]}'), (b'{"m":[0 ]}', b'{"m":[0,1,2 ]}'),
        (b' {"m":[9],"x":{"m":[]},\n"m" : [[], "]"]\t} ', b' {"m":[9],"x":{"m":[]},\n"m" : [[], "]",1,2]\t} '),
        ('{"é":"[","m":["é"]}'.encode(), '{"é":"[","m":["é",1,2]}'.encode()),
        (b'{"a":"\xff","m":[' + b"1" * 5000 + b"]}", b'{"a":"\xff","m":[' + b"1" * 5000 + b",1,2]}"),
    ):  # fmt: skip
        assert appended(body, "m", [b"1", b"2"]) == wanted


# --- recorded traffic -------------------------------------------------------------------------------------------------


def test_every_recorded_exchange_is_read_and_goes_on_with_results() -> None:
    traffic.require()
    found = [found for service in SERVICES for found in traffic.provider_chat(service)] + [*traffic.client_chat("run1")]
    offers = carried = went_on = 0
    for exchange in (exchange for trajectory in found for exchange in trajectory.exchanges):
        asked = json.loads(exchange.request)
        call = parsed(exchange.request)
        own = [tool for tool in asked.get("tools") or () if tool.get("type", "function") in ("function", "custom")]
        names = [(tool.get("function") or tool["custom"])["name"] for tool in own]
        names += [function["name"] for function in asked.get("functions") or ()]
        assert [tool.name for tool in CHAT.offered(call)] == names, exchange.id
        offers += len(names)
        carried += len(CHAT.results(call))
        if exchange.status != 200 or exchange.id in UNFINISHED:
            continue
        shape = Shape(exchange.streamed and exchange.response.lstrip()[:1] != b"{")
        plain = CHAT.convert(shape, PLAIN, exchange.response)
        calls = [one for one in CHAT.judge(call, plain).calls if one.choice == 0]
        results = [ToolResult(one.call_id, f"result {at}") for at, one in enumerate(calls)]
        made = CHAT.continued(call, shape, exchange.response, results)
        assert CHAT.results(parsed(made)) == tuple(results), exchange.id
        assert json.loads(made)["messages"][: len(asked["messages"])] == asked["messages"], exchange.id
        went_on += bool(results)
    assert offers > 700 and carried > 250 and went_on > 280
