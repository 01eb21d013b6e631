"""An Anthropic message converted to the other shape is the same object, in the eyes of the official SDK too."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Shape
from agentstate.dialects import anthropic_shape
from agentstate.dialects.anthropic_answer import StreamGate, event, judge_plain
from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.errors import UpstreamCut
from tests.unit.core.profile import examples
from tests.unit.dialects.test_anthropic_gate import START, end, message, stream_of
from tests.unit.dialects.test_anthropic_traffic import Recorded, objects, recorded

PLAIN, STREAM = Shape(), Shape(stream=True)


def to_plain(stream: bytes) -> Any:
    return json.loads(anthropic_shape.convert(STREAM, PLAIN, stream))


def to_stream(plain: Any) -> bytes:
    return anthropic_shape.convert(PLAIN, STREAM, plain if isinstance(plain, bytes) else json.dumps(plain).encode())


def added_up(stream: bytes) -> dict[str, Any]:
    """A stream as an SDK adds it up, written from the documentation of the events, one event at a time."""
    whole: dict[str, Any] = {}
    written: dict[int, str] = {}
    for found in objects(stream):
        kind, delta = found["type"], found.get("delta", {})
        if kind == "message_start":
            whole = found["message"]
        elif kind == "content_block_start":
            whole["content"].append(found["content_block"])
        elif kind == "content_block_delta":
            block = whole["content"][found["index"]]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] = delta["signature"]
                case "citations_delta":
                    block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                case "input_json_delta":
                    written[found["index"]] = written.get(found["index"], "") + delta["partial_json"]
                case "compaction_delta":
                    block |= {name: value for name, value in delta.items() if name != "type"}
        elif kind == "message_delta":
            whole |= delta
            whole["usage"] |= {name: value for name, value in found["usage"].items() if value is not None}
            if found.get("context_management") is not None:
                whole["context_management"] = found["context_management"]
    for index, text in written.items():
        whole["content"][index]["input"] = json.loads(text or "{}")
    return without_nulls(whole)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def successes(streamed: bool) -> list[Recorded]:
    return [exchange for exchange in recorded() if exchange.status == 200 and exchange.streamed == streamed]


# --- recorded answers -------------------------------------------------------------------------------------------------


def test_recorded_streams_are_the_same_objects_as_plain_answers() -> None:
    found = successes(streamed=True)
    assert len(found) > 150
    for exchange in found:
        plain = anthropic_shape.convert(STREAM, PLAIN, exchange.response)
        assert without_nulls(json.loads(plain)) == added_up(exchange.response), exchange.id
        gate = StreamGate()
        gate.feed(exchange.response)
        one, two = gate.finish(), judge_plain(plain)
        assert (two.fault, two.calls, two.finish) == ("", one.calls, one.finish), exchange.id
        assert (two.model, json.loads(two.usage)) == (one.model, json.loads(one.usage)), exchange.id


def test_recorded_plain_answers_are_the_same_objects_as_streams() -> None:
    found = successes(streamed=False)
    assert len(found) > 200
    for exchange in found:
        stream = to_stream(exchange.response)
        assert added_up(stream) == without_nulls(json.loads(exchange.response)), exchange.id
        gate = StreamGate()
        gate.feed(stream)
        one, two = judge_plain(exchange.response), gate.finish()
        assert (two.fault, two.finish, two.model) == ("", one.finish, one.model), exchange.id
        assert [call.arguments for call in two.calls] == [call.arguments for call in one.calls], exchange.id


def test_recorded_answer_converted_there_and_back_is_the_same_object() -> None:
    for exchange in successes(streamed=False):
        back = to_plain(to_stream(exchange.response))
        assert without_nulls(back) == without_nulls(json.loads(exchange.response)), exchange.id


@pytest.mark.parametrize("body", [b"anything at all", b"{", b"event: x"])
def test_equal_shapes_keep_the_very_bytes(body: bytes) -> None:
    for shape in (PLAIN, STREAM):
        assert anthropic_shape.convert(shape, shape, body) == body


# --- the official SDK -------------------------------------------------------------------------------------------------


class Sdk:
    """The official SDK, which gets the same recorded bytes for any request."""

    def __init__(self) -> None:
        anthropic = pytest.importorskip("anthropic", reason="the official SDK is not installed")
        self._http = pytest.importorskip("httpx2", reason="an SDK of this generation is not installed")
        self._answer = b""
        self._kind = ""
        transport = self._http.MockTransport(self._respond)
        self._client = anthropic.Anthropic(
            api_key="sk-test-anthropic",
            base_url="http://127.0.0.1:9",
            http_client=self._http.Client(transport=transport),
        )
        self._asked: dict[str, Any] = {
            "model": "claude-test", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
        }  # fmt: skip

    def _respond(self, request: Any) -> Any:
        return self._http.Response(200, headers={"content-type": self._kind}, content=self._answer)

    def plain(self, body: bytes) -> dict[str, Any]:
        self._answer, self._kind = body, "application/json"
        return self._shown(self._client.beta.messages.create(**self._asked))

    def stream(self, body: bytes) -> dict[str, Any]:
        self._answer, self._kind = body, "text/event-stream"
        with self._client.beta.messages.stream(**self._asked) as events:
            return self._shown(events.get_final_message())

    def _shown(self, found: Any) -> dict[str, Any]:
        shown: dict[str, Any] = without_nulls(found.to_dict(warnings=False))
        for block in shown["content"]:
            block.pop("parsed_output", None)
        return shown


# Its gateway adds figures of its own and an end marker, which the SDK does not take.
GATEWAYS = {"anthropic-f692d46e17"}


@pytest.fixture(scope="module")
def sdk() -> Sdk:
    return Sdk()


def test_sdk_reads_recorded_streams_and_what_they_became_as_equal_objects(sdk: Sdk) -> None:
    for exchange in successes(streamed=True):
        if exchange.id not in GATEWAYS:
            plain = anthropic_shape.convert(STREAM, PLAIN, exchange.response)
            assert sdk.stream(exchange.response) == sdk.plain(plain), exchange.id


def test_sdk_reads_recorded_plain_answers_and_what_they_became_as_equal_objects(sdk: Sdk) -> None:
    for exchange in successes(streamed=False):
        assert sdk.plain(exchange.response) == sdk.stream(to_stream(exchange.response)), exchange.id


def test_sdk_bears_a_heartbeat_at_any_event_boundary(sdk: Sdk) -> None:
    stream = stream_of({"type": "text", "text": ""}, ["hello ", "you"], "end_turn")
    alone = sdk.stream(stream)
    for place in [0, *(found.end() for found in re.finditer(rb"\n\n", stream))]:
        assert sdk.stream(stream[:place] + StreamGate().heartbeat() + stream[place:]) == alone


def test_sdk_tells_the_agent_what_an_error_of_ours_in_a_stream_says(sdk: Sdk) -> None:
    stream = stream_of({"type": "text", "text": ""}, ["hello "], "end_turn")
    error = AnthropicMessages().stream_error(UpstreamCut("the provider hung up"))
    with pytest.raises(Exception, match="the provider hung up"):
        sdk.stream(stream[: stream.index(b"event: message_delta")] + error)


CUT_INPUTS = (
    "", "{", '{"a', '{"a"', '{"a":', '{"a": 12', '{"a": 1.', '{"a": -', '{"a": "x', '{"a": "x"', '{"a":[1,', '{"a":[',
    '{"a":[1, {"b":2', '{"a": tr', '{"a": true', '{"a":1, "b', '{"a": {"b": {', '{"a": {"b": "c"}',
    '{"a": "\\"', '{"a":["x',
    '{"a":{},"b":[],"c":',
)  # fmt: skip


@pytest.mark.parametrize("written", CUT_INPUTS)
def test_sdk_reads_input_that_a_limit_cut_as_what_it_became(sdk: Sdk, written: str) -> None:
    stream = stream_of({"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {}}, [written], "max_tokens")
    assert sdk.plain(anthropic_shape.convert(STREAM, PLAIN, stream)) == sdk.stream(stream)


# --- particulars ------------------------------------------------------------------------------------------------------

WHOLE_INPUTS = {
    "": {}, "{": {}, '{"a"': {}, '{"a":': {}, '{"a": 12': {"a": 12}, '{"a": 1.': {}, '{"a": "x': {},
    '{"a":[1,': {"a": [1]}, '{"a":[1, {"b":2': {"a": [1, {"b": 2}]}, '{"a": tr': {}, '{"a":1, "b': {"a": 1},
    '{"a": {"b": "c"}': {"a": {"b": "c"}}, "nothing of the kind": {},
    '{"a":1, "b"': {"a": 1}, '{"a":1, "b":': {"a": 1}, '{"a": ]': {}, '{"a" 1': {},
}  # fmt: skip


@pytest.mark.parametrize("written", WHOLE_INPUTS)
def test_input_that_a_limit_cut_becomes_as_much_as_is_whole(written: str) -> None:
    stream = stream_of({"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {}}, [written], "max_tokens")
    assert to_plain(stream)["content"][0]["input"] == WHOLE_INPUTS[written]


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@examples(150)
@given(st.dictionaries(st.text(max_size=4), _values, max_size=4), st.integers(0, 200))
def test_any_input_cut_anywhere_becomes_an_object(value: dict[str, Any], place: int) -> None:
    written = json.dumps(value, ensure_ascii=False)
    stream = stream_of(
        {"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {}}, [written[:place]], "max_tokens"
    )
    found = to_plain(stream)["content"][0]["input"]
    assert isinstance(found, dict)
    assert list(found) == list(value)[: len(found)]
    if place >= len(written):
        assert found == value


SPELLED = '{"n": 1.50, "big":123456789012345678901234567890, "e":1E5,  "z":"\\u00e9", "a":null}'


def test_input_of_a_tool_keeps_its_spelling_both_ways() -> None:
    stream = stream_of(
        {"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {}}, [SPELLED[:9], SPELLED[9:]], "tool_use"
    )
    plain = anthropic_shape.convert(STREAM, PLAIN, stream)
    assert SPELLED.encode() in plain
    again = [found["delta"] for found in objects(to_stream(plain)) if found["type"] == "content_block_delta"]
    assert again == [{"type": "input_json_delta", "partial_json": SPELLED}]


BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "a\nb \u2028 é"},
    "empty text": {"type": "text", "text": ""},
    "citations": {
        "type": "text",
        "text": "a",
        "citations": [{"type": "char_location", "cited_text": "x"}, {"type": "y"}],
    },
    "no citations": {"type": "text", "text": "a", "citations": []},
    "thinking": {"type": "thinking", "thinking": "hm", "signature": "c2ln+/="},
    "thinking unsaid": {"type": "thinking", "thinking": "", "signature": "c2ln"},
    "thinking unsigned": {"type": "thinking", "thinking": "hm"},
    "redacted": {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    "call": {"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {"to": "x"}, "caller": {"type": "direct"}},
    "call without input": {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}},
    "server call": {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    "mcp call": {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "s", "input": {"q": [1]}},
    "server result": {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]},
    "compaction": {"type": "compaction", "content": "so far", "encrypted_content": "ZW5j"},
    "unknown": {"type": "hologram", "x": {"y": [1, None]}},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_of_any_kind_survives_both_ways(name: str) -> None:
    whole = message([BLOCKS[name]], usage={"input_tokens": 3, "output_tokens": 0, "cost": 0.5}, container={"id": "c"})
    stream = to_stream(whole)
    assert added_up(stream) == without_nulls(whole)
    assert without_nulls(to_plain(stream)) == without_nulls(whole)


def test_output_is_counted_at_the_end_of_a_stream_alone() -> None:
    """Some clients add up what the first and the last event count."""
    events = objects(to_stream(message([BLOCKS["text"]], usage={"input_tokens": 3, "output_tokens": 7})))
    assert [found["message"]["usage"]["output_tokens"] for found in events if "message" in found] == [0]
    assert [found["usage"]["output_tokens"] for found in events if "usage" in found] == [7]


def test_line_ends_in_a_plain_answer_do_not_end_an_event() -> None:
    whole = message([BLOCKS["server result"], BLOCKS["call"], BLOCKS["text"]])
    for text in (json.dumps(whole, indent=2), json.dumps(whole, indent=2).replace("\n", "\r\n")):
        assert added_up(to_stream(text.encode())) == without_nulls(whole)


def test_message_without_usage_becomes_a_stream_that_counts_nothing() -> None:
    whole = {name: part for name, part in message([BLOCKS["text"]]).items() if name != "usage"}
    assert added_up(to_stream(whole))["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_later_figures_win_one_by_one_and_null_tells_nothing() -> None:
    counted = {"input_tokens": 0, "output_tokens": 7, "cache_read_input_tokens": None, "cost": 1.50}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": counted}
    start = dict(START["message"], usage={"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 4})
    stream = b"".join(
        event(found["type"].encode(), json.dumps(found).encode())
        for found in (dict(START, message=start), delta, {"type": "message_stop"})
    )
    usage = {"input_tokens": 0, "output_tokens": 7, "cache_read_input_tokens": 4, "cost": 1.5}
    assert to_plain(stream)["usage"] == usage
    gate = StreamGate()
    gate.feed(stream)
    assert json.loads(gate.finish().usage) == usage


def test_model_that_took_over_is_the_model_of_the_plain_answer() -> None:
    block = {"type": "fallback", "from": {"model": "claude-test"}, "to": {"model": "claude-other"}}
    assert to_plain(stream_of(block, [], "end_turn"))["model"] == "claude-other"


@pytest.mark.parametrize("body", [b'{"type":"error","error":{"type":"x"}}', b"[]", b"not json", b'{"content":7}'])
def test_what_is_no_message_stays_as_it_is(body: bytes) -> None:
    assert to_stream(body) == body


def test_end_marker_of_a_gateway_is_left_out_of_the_plain_answer() -> None:
    block = {"type": "text", "text": "hi"}
    stream = stream_of(block, [], "end_turn")
    assert to_plain(stream + event(b"data", b"[DONE]")) == to_plain(stream)
    assert end("end_turn") in stream
