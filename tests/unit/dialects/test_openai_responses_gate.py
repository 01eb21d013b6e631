"""What of a streamed response may be seen before it is committed, and when a response counts as finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Call, Verdict
from agentstate.dialects import sse, volatile
from agentstate.dialects.openai_responses import OpenAIResponses
from tests.support import traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.test_sse import cut

RESPONSES = OpenAIResponses()
# Items that the agent is to act on, by hand.
FOR_AGENT = ("function_call", "custom_tool_call", "mcp_approval_request", "local_shell_call", "computer_call",
             "apply_patch_call", "shell_call")  # fmt: skip
ENDS = ("response.completed", "response.incomplete", "response.failed")
# Clients' recordings whose second run asks the same in other words: a clock, a working folder, or ids in what tools
# printed. They are matched by what is masked or by pointer, not by key.
VOLATILE = {"codex", "codex-openai-provider"}


@cache
def recorded() -> tuple[traffic.Exchange, ...]:
    """Every recorded request for a response, or for a compaction, of all providers and clients."""
    return tuple(_recorded())


def _recorded() -> Iterator[traffic.Exchange]:
    for path in sorted((traffic.FOLDER / "providers").glob("*.jsonl")):
        for row in traffic._rows(path):
            asked = row["request"]
            ending = asked["path"].partition("?")[0].rpartition("/")[2]
            if row["api"] == "responses" and asked["method"] == "POST" and ending in ("responses", "compact"):
                yield traffic._of_provider(row)
    for path in sorted((traffic.FOLDER / "clients").glob("*.jsonl")):
        for place, row in enumerate(traffic._rows(path)):
            if row["path"].endswith("/responses") and row["method"] == "POST":
                yield traffic._of_client(f"{path.name.removesuffix('.jsonl')}#{place}", row)


def call_of(exchange: traffic.Exchange) -> Call:
    path = "responses/compact" if exchange.path.endswith("/compact") else "responses"
    return RESPONSES.parse("POST", path, exchange.request)


def recorded_streams() -> list[traffic.Exchange]:
    traffic.require()
    return [exchange for exchange in recorded() if exchange.streamed]


def fed(pieces: Iterable[bytes], call: Call | None = None) -> tuple[bytes, Verdict, bool]:
    """(bytes that may be seen, verdict, whether the end came)."""
    gate = RESPONSES.gate(call or CALL)
    free = b"".join(gate.feed(piece) for piece in pieces)
    return free, gate.finish(), gate.done


def objects(stream: bytes) -> list[Any]:
    """The JSON data of a stream's events, read in the plainest way."""
    found = []
    for event in sse.events(stream):
        data = sse.data_of(event)
        if data is not None and data.strip() != b"[DONE]":
            found.append(json.loads(data))
    return found


def check_free(free: bytes, stream: bytes) -> None:
    """What may be seen is the stream's beginning, and neither an end nor anything of a call is in it."""
    assert stream.startswith(free)
    assert b"data: [DONE]" not in free
    for event in objects(free):
        assert event["type"] not in (*ENDS, "error")
        assert (event.get("item") or {}).get("type") not in FOR_AGENT
        assert not event["type"].startswith(("response.function_call", "response.custom_tool_call"))


# --- recorded traffic -------------------------------------------------------------------------------------------------


def test_recorded_requests_are_their_items_and_what_is_around_them() -> None:
    traffic.require()
    assert len(recorded()) > 650
    concealed = 0
    for exchange in recorded():
        call = call_of(exchange)
        body = json.loads(exchange.request)
        concealed += call.body != exchange.request
        listed = isinstance(body.get("input"), list) and bool(body["input"])
        assert bool(call.before) == listed, exchange.id
        if call.before:
            assert call.before + call.separator.join(i.raw for i in call.items) + call.after == call.body
            assert len(call.items) == len(body["input"])
        assert call.previous == (body.get("previous_response_id") or "")
        assert call.background is (body.get("background") is True)
        volatile.masked(RESPONSES, call, True)
        volatile.pointer(RESPONSES, call)
    assert concealed == 7  # which name a credential, or a header that might be one, of a remote tool


def test_recorded_answers_are_finished_where_they_succeeded_and_faults_where_they_did_not() -> None:
    traffic.require()
    wrong = []
    for exchange in recorded():
        call = call_of(exchange)
        verdict = fed([exchange.response], call)[1] if exchange.streamed else RESPONSES.judge(call, exchange.response)
        if bool(verdict.fault) != (exchange.status != 200) or verdict.failed:
            wrong.append(f"{exchange.id}: {verdict.fault or verdict.failed or 'taken for finished'}")
        assert RESPONSES.is_stream(call, exchange.response.lstrip()) == exchange.streamed
    assert wrong == []


def test_recorded_streams_show_no_end_and_no_call_too_early() -> None:
    streams = recorded_streams()
    assert len(streams) > 230
    shown = 0
    for exchange in streams:
        free, _, done = fed([exchange.response], call_of(exchange))
        check_free(free, exchange.response)
        assert done
        shown += any(event["type"] == "response.output_text.delta" for event in objects(free))
    assert shown > 100


def test_verdict_on_recorded_streams_names_their_calls_usage_model_and_id() -> None:
    for exchange in recorded_streams():
        call = call_of(exchange)
        verdict = fed([exchange.response], call)[1]
        events = objects(exchange.response)
        last = next(event for event in events if event["type"] in ENDS)["response"]
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        called = [item for item in items if item["type"] in FOR_AGENT or item.get("execution") == "client"]
        wanted = [(item["call_id"], item.get("name", "tool_search")) for item in called]
        assert [(c.call_id, c.name) for c in verdict.calls] == wanted, exchange.id
        for item, found in zip(called, verdict.calls, strict=True):
            said = item["arguments"]
            assert (found.arguments if isinstance(said, str) else json.loads(found.arguments)) == said
        assert json.loads(verdict.usage) == last["usage"], exchange.id
        assert verdict.model == last["model"]
        kept = json.loads(exchange.request).get("store") is not False and last.get("store") is not False
        assert verdict.answer_id == (last["id"] if kept else "")
        reason = (last.get("incomplete_details") or {}).get("reason")
        assert verdict.finish == (reason or last["status"],)


@examples(15)
@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=12))
def test_verdict_and_visible_bytes_of_recorded_responses_do_not_depend_on_how_they_are_cut(places: list[int]) -> None:
    for exchange in recorded_streams()[::3]:
        call = call_of(exchange)
        assert fed(cut(exchange.response, places), call) == fed([exchange.response], call), exchange.id


def test_clients_that_ran_twice_asked_the_same_questions() -> None:
    traffic.require()
    keys: dict[str, dict[str, list[bytes]]] = {}
    for exchange in recorded():
        name, _, _ = exchange.id.partition("#")
        client, found, run = name.rpartition(".run")
        if found and run in ("1", "2"):
            keys.setdefault(client, {}).setdefault(run, []).append(fingerprint.of(call_of(exchange)).key)
    pairs = {client: runs for client, runs in keys.items() if len(runs) == 2}
    assert len(pairs) > 15
    assert {client for client, runs in pairs.items() if runs["1"] != runs["2"]} <= VOLATILE


# --- every place at which a stream can be cut -------------------------------------------------------------------------

CALL = RESPONSES.parse("POST", "responses", b'{"model":"gpt-5-test","input":"x","stream":true}')
TEXT = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "hello you", "annotations": []}]}  # fmt: skip
FUNCTION = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "mail", "arguments": '{"to":"x"}',
            "status": "completed"}  # fmt: skip
USAGE = {"input_tokens": 3, "output_tokens": 0, "total_tokens": 3}


def event(kind: str, named: bool = True, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}).encode()
    return (b"event: " + kind.encode() + b"\n" if named else b"") + b"data: " + data + b"\n\n"


def response(status: str = "completed", output: Iterable[Any] = (), **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "model": "gpt-5-test", "output": list(output),
            "usage": USAGE if status in ("completed", "incomplete") else None, "error": None} | more  # fmt: skip


def begin(named: bool = True) -> list[bytes]:
    return [event("response.created", named, response=response("in_progress"), sequence_number=0),
            event("response.in_progress", named, response=response("in_progress"), sequence_number=1)]  # fmt: skip


def of_item(item: dict[str, Any], place: int = 0, named: bool = True) -> list[bytes]:
    """The events of an item, the text or the arguments in two pieces."""
    own = {"output_index": place, "item_id": item.get("id")}
    events = [event("response.output_item.added", named, output_index=place, item=item)]
    if item["type"] == "message":
        events += [event("response.output_text.delta", named, **own, delta=part) for part in ("hello", " you")]
    if item["type"] == "function_call":
        events += [event("response.function_call_arguments.delta", named, **own, delta=part) for part in ("{", "}")]
    return [*events, event("response.output_item.done", named, output_index=place, item=item)]


def whole(*items: dict[str, Any], status: str = "completed", named: bool = True, **more: Any) -> bytes:
    said = [part for place, item in enumerate(items) for part in of_item(item, place, named)]
    end = event(f"response.{status}", named, response=response(status, items, **more))
    return b"".join([*begin(named), *said, end])


WHOLE: dict[str, bytes] = {
    "text": whole(TEXT),
    "a call": whole(FUNCTION),
    "text, a call and more text": whole(TEXT, FUNCTION, TEXT),
    "without names": whole(TEXT, FUNCTION, named=False) + b"data: [DONE]\n\n",
    "comments": b": wait\n\n" + whole(TEXT).replace(b"event: ", b": x\n\nevent: "),
    "CRLF": whole(TEXT, FUNCTION).replace(b"\n", b"\r\n"),
    "keepalive": begin()[0] + event("keepalive", sequence_number=1) + whole(TEXT)[len(begin()[0]) :],
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_response_is_finished_however_it_is_cut(name: str) -> None:
    stream = WHOLE[name]
    once = fed([stream])
    assert (once[1].fault, once[1].failed, once[1].answer_id, once[2]) == ("", "", "resp_1", True)
    check_free(once[0], stream)
    for place in range(0, len(stream) + 1, 3):
        assert fed([stream[:place], stream[place:]]) == once, place
    assert fed(stream[place : place + 1] for place in range(len(stream))) == once


@pytest.mark.parametrize("name", WHOLE)
def test_response_that_ends_early_is_a_fault_unless_all_that_matters_was_seen(name: str) -> None:
    stream = WHOLE[name]
    end = stream.rindex(b'"response.completed"')
    for place in range(0, len(stream), 2):
        free, verdict, _ = fed([stream[:place]])
        check_free(free, stream[:place])
        if not verdict.fault:
            assert place > end
            assert verdict.calls == fed([stream])[1].calls


def test_text_flows_until_the_first_call_and_nothing_after_it_does() -> None:
    stream = whole(TEXT, FUNCTION, TEXT)
    free = fed([stream])[0]
    assert free == b"".join(begin() + of_item(TEXT))


@pytest.mark.parametrize("kind", FOR_AGENT)
def test_every_kind_of_call_for_the_agent_is_held_and_named(kind: str) -> None:
    item = {"type": kind, "id": "it_1", "call_id": "call_9", "action": {"type": "exec"}}
    free, verdict, _ = fed([whole(TEXT, item)])
    assert free == b"".join(begin() + of_item(TEXT))
    found = [(call.index, call.call_id, call.name, call.arguments) for call in verdict.calls]
    call_id = "it_1" if kind == "mcp_approval_request" else "call_9"
    arguments = '{"type":"exec"}'
    if kind == "custom_tool_call":
        arguments = json.dumps({"input": arguments}, separators=(",", ":"))
    assert found == [(1, call_id, kind.removesuffix("_call"), arguments)]
    assert RESPONSES.judge(CALL, json.dumps(response(output=[TEXT, item])).encode()).calls == verdict.calls


PROVIDERS_OWN = ({"type": "web_search_call"}, {"type": "mcp_call", "arguments": "{", "name": "x"},
                 {"type": "code_interpreter_call"}, {"type": "file_search_call"}, {"type": "image_generation_call"},
                 {"type": "mcp_list_tools"}, {"type": "reasoning"}, {"type": "tool_search_call", "execution": "server"},
                 {"type": "shell_call", "call_id": "c", "environment": {"type": "container_reference"}},
                 {"type": "x_new"})  # fmt: skip


@pytest.mark.parametrize("item", PROVIDERS_OWN, ids=lambda item: item["type"])
def test_what_the_provider_runs_itself_is_shown_and_is_no_call(item: dict[str, Any]) -> None:
    events = [*of_item(item), event(f"response.{item['type']}.completed")]
    shown = events if item["type"] not in ("shell_call", "tool_search_call") else events[:2]
    free, verdict, _ = fed([b"".join([*begin(), *events, event("response.completed", response=response())])])
    assert free == b"".join(begin() + shown)
    assert (verdict.fault, verdict.calls) == ("", ())


@pytest.mark.parametrize(
    ("more", "name"), [({}, ""), ({"name": ["mail"]}, ""), ({"name": "mail"}, "mail"), ({"call_id": "c"}, "x_new")]
)
def test_call_of_an_unknown_kind_is_held_and_has_no_name_where_nothing_tells_it(
    more: dict[str, Any], name: str
) -> None:
    item = {"type": "x_new_call", "id": "x_1", "function": {"name": "mail"}, **more}
    free, verdict, _ = fed([whole(TEXT, item)])
    assert free == b"".join(begin() + of_item(TEXT))
    assert [(call.index, call.name) for call in verdict.calls] == [(1, name)]
    assert RESPONSES.judge(CALL, json.dumps(response(output=[TEXT, item])).encode()).calls == verdict.calls


HELD = (
    event("response.output_item.added", output_index=0, item={"type": "tool_search_call", "execution": "client"}),
    event("response.output_item.added", output_index=0, item={"type": "x_new_call", "call_id": "c"}),
    event("response.output_item.done", output_index=0, item=FUNCTION),
    event("response.function_call_arguments.delta", delta="{"),
    event("response.custom_tool_call_input.delta", delta="x"),
    event("response.shell_call_command.delta", delta="rm"),
    event("response.apply_patch_call_operation_diff.delta", delta="x"),
    event("response.in_progress", response=response("in_progress", [FUNCTION])),
    event("response.output_item.added", output_index="0", item=FUNCTION),
    b'event: response.output_item.added\ndata: {"item":' + json.dumps(FUNCTION).encode() + b"}\n\n",
    b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("held", HELD)
def test_event_that_tells_of_a_call_or_an_end_is_held_with_all_that_follows(held: bytes) -> None:
    late = event("response.output_text.delta", delta="late")
    gate = RESPONSES.gate(CALL)
    assert gate.feed(b"".join([*begin(), held, late])) == b"".join(begin())


def test_byte_order_mark_hides_nothing_in_a_response() -> None:
    free, verdict, _ = fed([b"\xef\xbb\xbf" + b"".join(of_item(FUNCTION)) + whole(FUNCTION)])
    assert free == b""
    assert [call.name for call in verdict.calls] == ["mail"]


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_response_that_failed_is_no_fault_and_no_answer(status: str) -> None:
    error = {"code": "server_error", "message": "we are sorry"}
    body = response(status, [TEXT], error=error if status == "failed" else None)
    why = "server_error: we are sorry" if status == "failed" else "the response was cancelled"
    streamed = fed([b"".join([*begin(), event(f"response.{status}", response=body)])])
    plain = RESPONSES.judge(CALL, json.dumps(body).encode())
    assert streamed[0] == b"".join(begin())
    for verdict in (streamed[1], plain):
        assert (verdict.fault, verdict.failed, verdict.finish, verdict.answer_id) == ("", why, (status,), "")


def test_call_in_a_response_that_failed_is_still_named() -> None:
    events = [*begin(), *of_item(FUNCTION), event("response.failed", response=response("failed"))]
    verdict = fed([b"".join(events)])[1]
    assert verdict.failed
    assert [call.call_id for call in verdict.calls] == ["call_1"]


@pytest.mark.parametrize("status", ["in_progress", "queued", "", None, 7, "new"])
def test_last_event_whose_status_says_otherwise_is_a_fault(status: Any) -> None:
    body = response("completed", [TEXT]) | {"status": status}
    verdict = fed([b"".join([*begin(), event("response.completed", response=body)])])[1]
    assert bool(verdict.fault) == (status in ("in_progress", "queued", "new"))
    assert "not finished" in RESPONSES.judge(CALL, json.dumps(body).encode()).fault


def test_incomplete_response_is_finished_and_says_why() -> None:
    stream = whole(TEXT, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    verdict = fed([stream])[1]
    assert (verdict.fault, verdict.failed, verdict.finish, verdict.broken) == ("", "", ("max_output_tokens",), False)


def test_arguments_cut_by_a_limit_are_an_answer_that_is_broken_and_others_a_fault() -> None:
    bad = FUNCTION | {"arguments": '{"to":'}
    for status in ("completed", "incomplete"):
        plain = RESPONSES.judge(CALL, json.dumps(response(status, [bad])).encode())
        for verdict in (fed([whole(bad, status=status)])[1], plain):
            assert verdict.broken is (status == "incomplete")
            assert ("'mail' are not JSON" in verdict.fault) is (status == "completed")


@pytest.mark.parametrize("arguments", ["", "{}", " ", '{"a":1}', "[1]"])
def test_arguments_that_parse_or_are_empty_are_fine_in_a_response(arguments: str) -> None:
    assert not fed([whole(FUNCTION | {"arguments": arguments})])[1].fault


def test_free_text_of_a_custom_tool_need_not_be_json() -> None:
    item = {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sql", "input": "select {"}
    verdict = fed([whole(item)])[1]
    assert [(call.name, call.arguments) for call in verdict.calls] == [("sql", '{"input":"select {"}')]
    assert not verdict.fault


def test_output_that_the_last_event_leaves_out_is_known_from_the_events_before() -> None:
    other = FUNCTION | {"call_id": "call_2", "id": "fc_2"}
    said = [*begin(), *of_item(TEXT), *of_item(FUNCTION, 1), *of_item(other, 2)]
    for end in ([], [TEXT, FUNCTION]):
        verdict = fed([b"".join([*said, event("response.completed", response=response(output=end))])])[1]
        assert [(call.index, call.call_id) for call in verdict.calls] == [(1, "call_1"), (2, "call_2")]
    cut_short = [*begin(), *of_item(FUNCTION)[:-1], event("response.completed", response=response())]
    assert "output item 0" in fed([b"".join(cut_short)])[1].fault


@pytest.mark.parametrize("odd", [
    event("error", code="server_error", message="overloaded", param=None),
    b'data: {"error":{"code":502,"message":"overloaded"}}\n\n',
    b'event: error\ndata: {"code":"x","message":"overloaded"}\n\n',
])  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 3])
def test_error_event_in_a_response_is_a_fault_and_is_not_shown(odd: bytes, place: int) -> None:
    events = [*begin(), *of_item(TEXT), event("response.completed", response=response(output=[TEXT]))]
    free, verdict, _ = fed([b"".join([*events[:place], odd, *events[place:]])])
    assert "overloaded" in verdict.fault
    assert free == b"".join(events[:place])


@pytest.mark.parametrize("odd", [b"data: {\n\n", b"data: <html>\n\n", b"data: \xff\n\n", b"data: [1]\n\n",
                                 b"data: 7\n\n", b"data: " + b"[" * 60_000 + b"\n\n",
                                 b'data: {"type":"response.completed","response":7}\n\n'])  # fmt: skip
def test_event_of_a_response_that_is_no_json_object_is_a_fault_and_is_not_shown(odd: bytes) -> None:
    free, verdict, _ = fed([b"".join([*begin(), odd, *of_item(TEXT)])])
    assert verdict.fault
    assert free == b"".join(begin())


def test_empty_streams_and_end_markers_alone_prove_nothing() -> None:
    for stream in (b"", b"\n\n", b": x\n\n", b"data: [DONE]\n\n", b"".join(begin()) + b"data: [DONE]\n\n"):
        assert "before the response was finished" in fed([stream])[1].fault


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_heartbeat_is_nothing_before_a_response_was_begun_and_then_its_last_progress() -> None:
    gate = RESPONSES.gate(CALL)
    created, progress = begin()
    assert gate.heartbeat() == b""
    gate.feed(created[:-1])
    assert gate.heartbeat() == b""
    gate.feed(created[-1:])
    beat = objects(gate.heartbeat())
    assert beat == [{"type": "response.in_progress", "sequence_number": 0, "response": response("in_progress")}]
    gate.feed(progress)
    assert gate.heartbeat() == progress
    gate.feed(b"".join(of_item(TEXT)) + b": x\n\n" + b"".join(of_item(FUNCTION)))
    assert gate.heartbeat() == progress


def test_event_that_names_no_response_is_shown_and_is_never_a_heartbeat() -> None:
    gate = RESPONSES.gate(CALL)
    for empty in (
        event("response.created"),
        event("response.queued", response=None),
        event("response.queued", response=7),
    ):
        assert gate.feed(empty) == empty
        assert gate.heartbeat() == b""


def test_heartbeat_never_tells_what_is_held() -> None:
    gate = RESPONSES.gate(CALL)
    later = event("response.in_progress", response=response("in_progress", note="later"), sequence_number=9)
    gate.feed(b"".join(begin()) + of_item(FUNCTION)[0] + later)
    assert gate.heartbeat() == begin()[1]


def test_heartbeat_made_of_the_first_event_has_no_number_where_that_has_none() -> None:
    gate = RESPONSES.gate(CALL)
    gate.feed(b'data: {"type":"response.created",\ndata:  "response":{"id":\ndata: "resp_1"}}\n\n')
    assert gate.heartbeat() == (
        b'event: response.in_progress\ndata: {"type":"response.in_progress","response":{"id":"resp_1"}}\n\n'
    )


# --- plain ------------------------------------------------------------------------------------------------------------

NO_ANSWERS = (
    (b"", "not JSON"), (b"<html>", "HTML"), (b"  <html>", "HTML"), (b"[]", "not a JSON object"), (b"{", "not JSON"),
    (b"{}", "not a response"), (b'{"error":{"code":"x"}}', "error"), (b'{"object":"response"}', "no output"),
    (b'{"object":"chat.completion","choices":[]}', "not a response"), (b'{"object":"response","output":[]}', "missing"),
    (b'{"object":"response","output":[],"status":"queued"}', "not finished"), (b'{"a":1e999}', "not JSON"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "complaint"), NO_ANSWERS)
def test_what_is_no_finished_response_is_a_fault(body: bytes, complaint: str) -> None:
    assert complaint in RESPONSES.judge(CALL, body).fault


def test_every_truncation_of_a_plain_response_is_a_fault() -> None:
    body = json.dumps(response(output=[TEXT, FUNCTION])).encode()
    assert RESPONSES.judge(CALL, body) == fed([whole(TEXT, FUNCTION)])[1]
    assert all(RESPONSES.judge(CALL, body[:place]).fault for place in range(len(body)))


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_queued_response_is_an_answer_only_where_the_request_asked_for_a_job(status: str) -> None:
    body = json.dumps(response(status)).encode()
    job = RESPONSES.parse("POST", "responses", b'{"model":"m","input":"x","background":true}')
    verdict = RESPONSES.judge(job, body)
    assert (verdict.fault, verdict.finish, verdict.answer_id) == ("", ("queued",), "resp_1")
    assert "not finished" in RESPONSES.judge(CALL, body).fault


@pytest.mark.parametrize(("request_", "said", "kept"), [
    (b'{"input":"x"}', None, True), (b'{"input":"x","store":true}', None, True), (b'{"store":null}', None, True),
    (b'{"input":"x","store":false}', None, False), (b'{"input":"x"}', False, False), (b'{"store":7}', None, False),
    (b'{"input":"say \\"store\\""}', True, True),
])  # fmt: skip
def test_answer_has_a_name_for_later_requests_only_where_the_provider_keeps_it(
    request_: bytes, said: bool | None, kept: bool
) -> None:
    call = RESPONSES.parse("POST", "responses", request_)
    body = response(output=[TEXT]) | ({} if said is None else {"store": said})
    stream = b"".join([*begin(), event("response.completed", response=body)])
    for verdict in (RESPONSES.judge(call, json.dumps(body).encode()), fed([stream], call)[1]):
        assert verdict.answer_id == ("resp_1" if kept else "")


def test_compaction_is_an_answer_that_no_later_request_names() -> None:
    call = RESPONSES.parse("POST", "responses/compact", b'{"model":"m","input":[]}')
    body = {"id": "resp_1", "object": "response.compaction", "output": [TEXT], "usage": USAGE}
    verdict = RESPONSES.judge(call, json.dumps(body).encode())
    assert (verdict.fault, verdict.finish, verdict.answer_id) == ("", ("completed",), "")
    assert json.loads(verdict.usage) == USAGE


_KINDS = st.sampled_from([TEXT, FUNCTION, {"type": "reasoning", "id": "rs"}, {"type": "web_search_call", "id": "ws"}])


@given(st.lists(_KINDS, max_size=4), st.lists(st.integers(0, 2**16), max_size=8), st.booleans(), st.booleans())
@examples(150)
def test_shown_bytes_of_any_response_are_its_beginning_up_to_the_first_call(
    items: list[dict[str, Any]], places: list[int], crlf: bool, named: bool
) -> None:
    stream = whole(*items, named=named)
    stream = stream.replace(b"\n", b"\r\n") if crlf else stream
    once = fed([stream])
    assert fed(cut(stream, places)) == once
    check_free(once[0], stream)
    assert not once[1].fault
    until = next((place for place, item in enumerate(items) if item is FUNCTION), len(items))
    shown = b"".join(
        [*begin(named), *(part for at, item in enumerate(items[:until]) for part in of_item(item, at, named))]
    )
    assert once[0] == (shown.replace(b"\n", b"\r\n") if crlf else shown)
