"""A response converted to the other shape is the same object in the eyes of the official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import APIError, OpenAI, omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent

from agentstate.core.model import Shape, Verdict
from agentstate.dialects import responses_shape, sse
from agentstate.errors import Refused
from tests.support import traffic
from tests.support.upstream import Upstream, plain, stream
from tests.unit.core.profile import examples
from tests.unit.dialects.test_openai_responses_gate import (
    CALL,
    ENDS,
    FUNCTION,
    RESPONSES,
    TEXT,
    begin,
    call_of,
    event,
    fed,
    objects,
    of_item,
    recorded,
    recorded_streams,
    response,
    whole,
)

# Some providers put other types where the SDK's types say text.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
PLAIN, STREAM = Shape(), Shape(True)
# Its last event leaves the output out, and so does the SDK's object: converted, the output is there.
LEFT_OUT = "chatgpt-"


def seen_plain(body: bytes) -> dict[str, Any]:
    """A response as the SDK shows it."""
    return shown(Response.construct(**json.loads(body)))


def seen_stream(body: bytes) -> dict[str, Any]:
    """A stream as the SDK adds it up: its own final response, or for one cut by a limit what its last event tells."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    grown: dict[tuple[int, int], str] = {}
    for data in objects(body):
        read: Any = construct_type(type_=ResponseStreamEvent, value=data)
        for fired in state.handle_event(read):
            last = fired
            if fired.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                grown[fired.output_index, getattr(fired, "content_index", 0)] = fired.snapshot
    assert last.type in ENDS
    final = last.response
    texts = {
        (place, at): text
        for place, item in enumerate(final.output or ())
        for at, text in _grown(item)
        if (place, at) in grown
    }
    assert texts == {at: text for at, text in grown.items() if at in texts}
    return shown(final)


def _grown(item: Any) -> Iterator[tuple[int, str]]:
    if item.type == "function_call":
        yield 0, item.arguments
    elif item.type == "message":
        yield from ((at, part.text) for at, part in enumerate(item.content) if part.type == "output_text")


def shown(found: Any) -> dict[str, Any]:
    """What an agent reads: without nulls, and without what the SDK's accumulator adds by itself."""
    value: dict[str, Any] = _without_nulls(found.to_dict(warnings=False))
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        added = ("parsed", "parsed_arguments")
        return {name: _without_nulls(part) for name, part in value.items() if part is not None and name not in added}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


# --- streams as plain answers -----------------------------------------------------------------------------------------


def test_recorded_response_streams_are_the_same_object_as_plain_answers() -> None:
    wrong, unreadable, compared = [], 0, 0
    for exchange in recorded_streams():
        converted = RESPONSES.convert(STREAM, PLAIN, exchange.response)
        try:
            wanted = seen_stream(exchange.response)
        except (IndexError, AttributeError, AssertionError, RuntimeError):
            unreadable += 1  # the SDK itself cannot add these up: parts or items that were never begun
            continue
        found = seen_plain(converted)
        if exchange.id.startswith(LEFT_OUT):
            found["output"], wanted["output"] = [], []
        compared += 1
        if found != wanted:
            wrong.append(exchange.id)
    assert wrong == []
    assert compared > 200
    assert unreadable < 3


def test_plain_answer_made_of_a_recorded_stream_has_the_same_verdict_and_is_the_providers_own_bytes() -> None:
    filled = 0
    for exchange in recorded_streams():
        call = call_of(exchange)
        converted = RESPONSES.convert(STREAM, PLAIN, exchange.response)
        assert RESPONSES.judge(call, converted) == fed([exchange.response], call)[1], exchange.id
        if converted not in exchange.response:
            filled += 1
            assert exchange.id.startswith(LEFT_OUT)
            items = [data["item"] for data in objects(exchange.response) if data["type"].endswith("output_item.done")]
            assert json.loads(converted)["output"] == items
    assert filled > 10


def test_same_shape_is_the_very_bytes() -> None:
    for body in (b"{}", b"anything", whole(TEXT)):
        assert RESPONSES.convert(STREAM, STREAM, body) == RESPONSES.convert(PLAIN, PLAIN, body) == body


def test_number_and_text_of_a_stream_are_spelled_as_the_provider_did() -> None:
    raw = b'{"object":"response","created_at":1.50e3,"output":[ ],"x":"\\u00e9\\/","status":"completed"}'
    data = b'data: {"type":"response.completed","response":' + raw + b"}\n\n"
    assert RESPONSES.convert(STREAM, PLAIN, b"".join(begin()) + data) == raw


def test_output_filled_in_stands_in_the_order_of_its_places() -> None:
    late_first = [of_item(TEXT, 1)[-1], of_item(FUNCTION, 0)[-1]]
    body = b"".join([*begin(), *late_first, event("response.completed", response=response())])
    assert json.loads(RESPONSES.convert(STREAM, PLAIN, body)) == response(output=[FUNCTION, TEXT])


@pytest.mark.parametrize("odd", [{"output_index": None}, {"output_index": "0"}, {"output_index": [1]}])
def test_event_with_unusual_types_is_read_as_the_gate_reads_it(odd: dict[str, Any]) -> None:
    item = event("response.output_item.done", item=FUNCTION, **odd)
    body = b"".join([*begin(), item, event("response.completed", response=response(), **odd)])
    converted = RESPONSES.convert(STREAM, PLAIN, body)
    assert json.loads(converted) == response(output=[FUNCTION])
    assert RESPONSES.judge(CALL, converted) == fed([body])[1]
    assert fed([body])[0] == b"".join(begin())


def test_failed_stream_is_the_failed_response() -> None:
    body = b"".join([*begin(), event("response.failed", response=response("failed", error={"code": "x"}))])
    converted = RESPONSES.convert(STREAM, PLAIN, body)
    assert json.loads(converted) == response("failed", error={"code": "x"})
    assert RESPONSES.judge(CALL, converted).failed


def test_stream_without_an_end_is_shown_as_far_as_it_came() -> None:
    begun = b"".join([*begin(), *of_item(FUNCTION)])
    assert json.loads(responses_shape.to_plain(begun)) == response("in_progress", [FUNCTION])
    assert json.loads(responses_shape.to_plain(b"data: [DONE]\n\n")) == {"object": "response", "output": []}


# --- plain answers as streams -----------------------------------------------------------------------------------------


def finished_plain() -> list[traffic.Exchange]:
    traffic.require()
    plain_ones = [exchange for exchange in recorded() if not exchange.streamed and exchange.status == 200]
    return [found for found in plain_ones if json.loads(found.response).get("status") in ("completed", "incomplete")]


def test_recorded_plain_responses_are_the_same_object_as_streams() -> None:
    answers = finished_plain()
    assert len(answers) > 350
    for exchange in answers:
        converted = RESPONSES.convert(PLAIN, STREAM, exchange.response)
        assert seen_stream(converted) == seen_plain(exchange.response), exchange.id
        call = call_of(exchange)
        assert fed([converted], call)[1] == RESPONSES.judge(call, exchange.response), exchange.id


def test_stream_made_of_a_plain_response_and_back_is_the_same_json() -> None:
    for exchange in finished_plain():
        back = RESPONSES.convert(STREAM, PLAIN, RESPONSES.convert(PLAIN, STREAM, exchange.response))
        assert json.loads(back) == json.loads(exchange.response), exchange.id


ITEMS: dict[str, dict[str, Any]] = {
    "text": TEXT | {"content": [
        {"type": "output_text", "text": "one\n\ntwo", "logprobs": [{"token": "one", "logprob": -0.5}],
         "annotations": [{"type": "file_path", "file_id": "f", "index": 0}]},
        {"type": "refusal", "refusal": "no"}, {"type": "x_new", "x": 1},
        {"type": "output_text", "text": "", "annotations": []},
    ]},
    "function": FUNCTION,
    "function without an id": {name: part for name, part in FUNCTION.items() if name != "id"},
    "custom": {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "sql", "input": "select\n1"},
    "reasoning": {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA",
                  "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
                  "content": [{"type": "reasoning_text", "text": "hm"}]},
    "search": {"type": "web_search_call", "id": "ws_1", "status": "completed",
               "action": {"type": "search", "query": "q"}},
    "mcp": {"type": "mcp_call", "id": "mcp_1", "name": "x", "arguments": "{}", "server_label": "s", "output": "o"},
    "approval": {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"},
    "unknown": {"type": "x_new", "id": "x_1", "deep": {"a": [1.0, None]}},
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("pretty", [False, True])
def test_item_of_any_kind_is_the_same_in_a_stream(name: str, pretty: bool) -> None:
    body = json.dumps(response(output=[ITEMS[name]]), indent=2 if pretty else None).encode()
    converted = RESPONSES.convert(PLAIN, STREAM, body)
    assert seen_stream(converted) == seen_plain(body)
    assert fed([converted])[1] == RESPONSES.judge(CALL, body)
    assert json.loads(RESPONSES.convert(STREAM, PLAIN, converted)) == json.loads(body)


@pytest.mark.parametrize("name", ITEMS)
def test_deltas_of_a_made_stream_add_up_to_what_its_items_say(name: str) -> None:
    item = ITEMS[name]
    events = objects(RESPONSES.convert(PLAIN, STREAM, json.dumps(response(output=[item])).encode()))
    assert [data["sequence_number"] for data in events] == list(range(len(events)))
    assert [events[0]["type"], events[1]["type"], events[-1]["type"]] == [
        "response.created", "response.in_progress", "response.completed",
    ]  # fmt: skip
    assert {data["response"]["id"] for data in events if "response" in data} == {"resp_1"}
    assert all(data["item_id"] == item.get("id", "") for data in events if "item_id" in data)
    added = next(data["item"] for data in events if data["type"] == "response.output_item.added")
    done = next(data["item"] for data in events if data["type"] == "response.output_item.done")
    assert done == item
    deltas = "".join(data["delta"] for data in events if data["type"].endswith(".delta"))
    texts = [item.get("arguments") or item.get("input") or ""] if name != "approval" else []
    texts += [
        part.get("text") or part.get("refusal") or "" for key in ("summary", "content") for part in item.get(key, ())
    ]
    assert deltas == "".join(texts)
    assert not deltas or json.dumps(added).count(json.dumps(deltas)[1:-1]) == 0


def test_two_items_of_one_id_are_told_apart_in_a_stream() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    body = json.dumps(response(output=[item, TEXT, item])).encode()
    converted = RESPONSES.convert(PLAIN, STREAM, body)
    assert seen_stream(converted) == seen_plain(body)
    done = [data["item"]["id"] for data in objects(converted) if data["type"] == "response.output_item.done"]
    assert done == ["rs_1", "msg_1", "rs_1_2"]


def test_every_event_of_a_made_stream_is_named_and_on_one_line() -> None:
    body = json.dumps(response(output=list(ITEMS.values())), indent=2).encode()
    for part in sse.events(RESPONSES.convert(PLAIN, STREAM, body)):
        lines = part.decode().split("\n")
        assert [line.partition(": ")[0] for line in lines] == ["event", "data", "", ""]
        assert json.loads(lines[1][6:])["type"] == lines[0][7:]


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_queued_response_makes_a_stream_that_has_no_end_yet(status: str) -> None:
    converted = RESPONSES.convert(PLAIN, STREAM, json.dumps(response(status)).encode())
    assert [data["type"] for data in objects(converted)] == ["response.created", f"response.{status}"]


def test_failed_and_incomplete_responses_end_their_streams_as_such() -> None:
    for status in ("failed", "incomplete"):
        body = json.dumps(response(status, [TEXT])).encode()
        converted = RESPONSES.convert(PLAIN, STREAM, body)
        assert objects(converted)[-1]["type"] == f"response.{status}"
        assert fed([converted])[1] == RESPONSES.judge(CALL, body) != Verdict()


def test_compaction_is_never_made_a_stream() -> None:
    body = b'{"object":"response.compaction","output":[]}'
    assert RESPONSES.convert(PLAIN, STREAM, body) == body


_VALUES = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
_ODD = st.dictionaries(
    st.sampled_from(("type", "id", "content", "summary", "arguments", "status", "text")),
    _VALUES | st.lists(_VALUES, max_size=2) | st.sampled_from(("message", "function_call", "reasoning")),
)


@given(st.lists(st.sampled_from(list(ITEMS.values())) | _ODD, max_size=4))
@examples(200)
def test_output_of_any_kind_survives_the_way_there_and_back(output: list[dict[str, Any]]) -> None:
    body = json.dumps(response(output=output)).encode()
    converted = RESPONSES.convert(PLAIN, STREAM, body)
    assert json.loads(RESPONSES.convert(STREAM, PLAIN, converted)) == json.loads(body)
    assert fed([converted])[1] == RESPONSES.judge(CALL, body)


# --- a real client ----------------------------------------------------------------------------------------------------


def test_real_client_ends_with_equal_objects_of_both_shapes(upstream: Upstream) -> None:
    client = OpenAI(base_url=f"{upstream.url}/v1", api_key="sk-test-1", max_retries=0)
    items = [item for name, item in ITEMS.items() if name != "function without an id"]
    body = json.dumps(response(output=items)).encode()
    made = RESPONSES.convert(PLAIN, STREAM, body)
    upstream.replies(plain(body), stream(made), stream(made))
    whole_one = shown(client.responses.create(model="m", input="x"))
    with client.responses.stream(model="m", input="x") as streaming:
        assert shown(streaming.get_final_response()) == whole_one
    events = list(client.responses.create(model="m", input="x", stream=True))
    assert shown(events[-1].response) == whole_one  # type: ignore[union-attr]


def test_real_client_bears_repeated_progress_and_is_told_of_our_errors(upstream: Upstream) -> None:
    client = OpenAI(base_url=f"{upstream.url}/v1", api_key="sk-test-1", max_retries=0)
    gate = RESPONSES.gate(CALL)
    body = json.dumps(response(output=[TEXT, FUNCTION])).encode()
    events = list(sse.events(RESPONSES.convert(PLAIN, STREAM, body)))
    waited = []
    for part in events:
        waited.append(part)
        gate.feed(part)
        waited += [gate.heartbeat()] * 2
    assert len(waited) == 3 * len(events)
    assert all(waited)
    upstream.replies(stream(*waited), stream(*events[:2], RESPONSES.stream_error(Refused("enough"))))
    with client.responses.stream(model="m", input="x") as streaming:
        assert shown(streaming.get_final_response()) == seen_plain(body)
    with pytest.raises(APIError, match="enough"):
        list(client.responses.create(model="m", input="x", stream=True))
