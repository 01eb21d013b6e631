"""A conversation that its provider was to hold is sent whole instead, and nothing else of the request changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.dialects.responses_context import edited, is_lost, transcript
from agentstate.errors import BadRequest
from tests.support import traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.test_openai_responses_gate import RESPONSES, call_of, recorded


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


FIRST = {"model": "m", "instructions": "old", "input": "Weather in Oslo?", "tools": []}
SECOND = {
    "model": "m",
    "previous_response_id": "resp_1",
    "input": [{"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "rain"}],
}
ANSWERS = [
    {
        "id": "resp_1",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        ],
    },
    {"id": "resp_2", "output": [{"type": "message", "id": "msg_1", "role": "assistant", "content": []}]},
]
CHAIN = [(body(FIRST), body(ANSWERS[0])), (body(SECOND), body(ANSWERS[1]))]
SAID = [
    {"role": "user", "content": "Weather in Oslo?"},
    {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
    {"type": "message", "role": "assistant", "content": []},
]


def test_whole_conversation_is_sent_in_its_order_without_item_ids_and_without_the_pointer() -> None:
    present = {
        "model": "m",
        "instructions": "new",
        "previous_response_id": "resp_2",
        "input": "And now?",
        "store": True,
    }
    found = json.loads(transcript(CHAIN, body(present)).body)
    assert found == {
        "model": "m",
        "instructions": "new",
        "input": [*SAID, {"role": "user", "content": "And now?"}],
        "store": True,
    }


def test_every_byte_outside_the_input_and_the_pointer_stays() -> None:
    before, between, after = b'{ "x" : 1.50e3,\n "s": "\\u00e9 \\"input\\":", ', b' , "temperature":1.0', b"  }\n"
    present = before + b'"input" : [ "a" ]' + between + b' , "previous_response_id"\t: "resp_2"' + after
    found = transcript([], present).body
    assert found == before + b'"input" : ["a"]' + between + after


@pytest.mark.parametrize("order", [
    ("previous_response_id", "input", "model"), ("model", "previous_response_id", "input"),
    ("input", "model", "previous_response_id"), ("previous_response_id", "input"), ("previous_response_id",),
    ("model", "previous_response_id"), ("input", "previous_response_id"),
])  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_pointer_is_taken_out_wherever_it_stands(order: tuple[str, ...], indent: int | None) -> None:
    values = {"model": "m", "previous_response_id": "resp_2", "input": [{"role": "user", "content": "x"}]}
    present = json.dumps({name: values[name] for name in order}, indent=indent).encode()
    found = json.loads(transcript(CHAIN, present).body)
    assert found.pop("input") == [*SAID, *(values["input"] if "input" in order else ())]
    assert found == {name: values[name] for name in order if name == "model"}


@pytest.mark.parametrize("item", [
    {"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"},
    {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"},
    {"type": "local_shell_call_output", "id": "call_7", "output": "x"}, {"role": "user", "content": "no id"}, "odd",
])  # fmt: skip
def test_id_that_others_name_stays(item: Any) -> None:
    present = {"previous_response_id": "resp_0", "input": [item]}
    assert json.loads(transcript([], body(present)).body)["input"] == [item]


def test_item_keeps_every_byte_but_its_id() -> None:
    item = b'{ "type":"message","id" : "msg_1", "role":"assistant", "x": 1.0e2, "content":[{"id":"deep"}] }'
    found = transcript(
        [(b'{"input":[]}', b'{"output":[' + item + b"]}")], b'{"previous_response_id":"r","input":[]}'
    ).body
    assert found == b'{"input":[' + item.replace(b',"id" : "msg_1"', b"") + b"]}"


def test_text_beyond_ascii_stays_as_it_was_sent() -> None:
    said = '{"input":"gr\u00fc\u00df dich \U0001f600 \\u00e9"}'.encode()
    found = transcript([(said, b'{"output":[]}')], b'{"previous_response_id":"r","input":"\xc3\xa9"}').body
    assert '"gr\u00fc\u00df dich \U0001f600 \\u00e9"'.encode() in found
    assert b'"content":"\xc3\xa9"' in found


@pytest.mark.parametrize("first", [{"previous_response_id": "resp_0"}, {"conversation": "conv_1"},
                                   {"conversation": {"id": "conv_1"}}])  # fmt: skip
def test_conversation_whose_beginning_is_not_here_is_refused(first: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        transcript([(body(FIRST | first), body(ANSWERS[0]))], body(SECOND))


@pytest.mark.parametrize("bad", [b"", b"[]", b"{", b'{"input":"\xff"}'])
def test_body_that_is_no_json_object_is_refused(bad: bytes) -> None:
    with pytest.raises(BadRequest):
        transcript([(bad, body(ANSWERS[0]))], body(SECOND))
    with pytest.raises(BadRequest):
        transcript(CHAIN, bad)


def test_absent_and_null_pointers_and_conversations_are_none() -> None:
    first = FIRST | {"previous_response_id": None, "conversation": None}
    assert json.loads(transcript([(body(first), body(ANSWERS[0]))], body(SECOND)).body)["input"] == SAID[:4]


def test_recorded_chains_of_pointers_become_whole_conversations() -> None:
    traffic.require()
    held: dict[str, list[tuple[bytes, bytes]]] = {}
    made = 0
    for exchange in recorded():
        if exchange.status != 200 or exchange.path.endswith("/compact"):
            continue
        call = call_of(exchange)
        plain = RESPONSES.convert(call.shape, type(call.shape)(), exchange.response)
        chain = held.get(call.previous, [])
        if chain:
            found = json.loads(transcript(chain, exchange.request).body)
            request = json.loads(exchange.request)
            assert found | {"input": 0} == {
                name: 0 if name == "input" else value
                for name, value in request.items()
                if name != "previous_response_id"
            }
            again = RESPONSES.parse("POST", "responses", json.dumps(found).encode())
            assert again.previous == ""
            calls = [item["call_id"] for item in found["input"] if item.get("type") == "function_call"]
            results = [item["call_id"] for item in found["input"] if item.get("type") == "function_call_output"]
            assert set(results) <= set(calls)
            assert fingerprint.of(again) != fingerprint.of(call)
            made += 1
        if not call.previous or chain:
            held[json.loads(plain)["id"]] = [*chain, (exchange.request, plain)]
    assert made >= 5


_VALUES = st.sampled_from([None, 1.5, "x", 'a "quoted" {', [], [{"id": "deep"}], {"id": 1, "a": {"b": []}}])


@given(st.dictionaries(st.sampled_from(["id", "a", "\u00e9", 'q"', "\\"]), _VALUES), st.sampled_from([None, 1]))
@examples(200)
def test_member_taken_out_of_any_object_leaves_all_others(value: dict[str, Any], indent: int | None) -> None:
    raw = json.dumps(value, indent=indent).encode()
    for name in value:
        assert json.loads(edited(raw, {name: None})) == {key: part for key, part in value.items() if key != name}
        assert json.loads(edited(raw, {name: b"[7]"})) == value | {name: [7]}
    assert edited(raw, {"never": None}) == raw or not value


LOST = {"error": {"code": "previous_response_not_found", "message": "gone", "param": "previous_response_id"}}


@pytest.mark.parametrize("status", [400, 404])
def test_refusal_that_says_the_answer_is_gone_is_known(status: int) -> None:
    assert is_lost(status, body(LOST))


@pytest.mark.parametrize(("status", "refusal"), [
    (200, LOST), (401, LOST), (429, LOST), (500, LOST), (404, {"error": {"code": "model_not_found"}}),
    (400, {"error": {"code": "other", "message": "previous_response_not_found", "param": "previous_response_id"}}),
    (404, {"error": "previous_response_not_found"}), (404, {}), (404, []),
    (400, {"code": "previous_response_not_found"}),
])  # fmt: skip
def test_any_other_refusal_is_not_taken_for_it(status: int, refusal: Any) -> None:
    assert not is_lost(status, body(refusal))


@pytest.mark.parametrize("refusal", [b"", b"<html>", b"{", b"\xff", b"[" * 60_000])
def test_refusal_that_is_no_json_says_nothing(refusal: bytes) -> None:
    assert not is_lost(404, refusal)


def test_recorded_refusals_say_so_only_where_the_answer_is_gone() -> None:
    traffic.require()
    lost = [exchange.id for exchange in recorded() if is_lost(exchange.status, exchange.response)]
    wanted = [exchange.id for exchange in recorded() if b"previous_response_not_found" in exchange.response]
    assert lost == wanted
    assert len(lost) == 1
