"""What becomes of a response when calls in it are edited or taken out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from agentstate.core.model import Call, Change, Shape, ToolCall, Verdict
from agentstate.dialects import sse
from tests.support import traffic
from tests.support.upstream import Upstream, plain, stream
from tests.unit.core.profile import examples
from tests.unit.dialects.test_openai_responses_gate import (
    CALL,
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
    response,
    whole,
)
from tests.unit.dialects.test_openai_responses_shape import LEFT_OUT, seen_plain, seen_stream, shown

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
PLAIN, STREAM = Shape(), Shape(True)
SAID = 'A person refused this: \u00e9 \u2028 "no"\n.'
NEW = '{"to": "y", "n": 1.50, "k": "\u00e9"}'
OLD = "old-marker"


def verdict_of(call: Call, shape: Shape, body: bytes) -> Verdict:
    return fed([body], call)[1] if shape.stream else RESPONSES.judge(call, body)


def expected(verdict: Verdict, changes: Sequence[Change]) -> list[tuple[str, str, Any]]:
    """(id, name, arguments) of the calls that are to be left."""
    wanted = {change.index: change.arguments for change in changes}
    return [
        (one.call_id, one.name, _read(wanted.get(one.index, one.arguments)))
        for one in verdict.calls
        if wanted.get(one.index, "") is not None
    ]


def left(verdict: Verdict) -> list[tuple[str, str, Any]]:
    return [(one.call_id, one.name, _read(one.arguments)) for one in verdict.calls]


def _read(text: str | None) -> Any:
    """What arguments say; of a custom tool its input."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return text
    if isinstance(value, dict) and value.keys() == {"input"} and isinstance(value["input"], str):
        return _read(value["input"])
    return value


def check(call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """The amended answer, after everything that holds of every one."""
    before = verdict_of(call, shape, body)
    found = RESPONSES.amended(call, shape, body, changes, said)
    after = verdict_of(call, shape, found)
    assert left(after) == expected(before, changes)
    assert (after.fault, after.broken) == ("", False)
    assert after._replace(calls=(), broken=False) == before._replace(calls=(), broken=False)
    gone = [one for one in before.calls if Change(0, one.index) in changes]
    for one in gone:
        others = [other for other in before.calls if other not in gone and one.call_id in other.call_id]
        assert others or not one.call_id or one.call_id.encode() not in found
    assert not said or bool(gone) == (json.dumps(said).encode() in found or _quoted(said) in found)
    if shape.stream:
        assert found.startswith(fed([body], call)[0])
        _check_numbers(body, found)
        converted = RESPONSES.convert(STREAM, PLAIN, found)
        if [one.index for one in verdict_of(call, PLAIN, RESPONSES.convert(STREAM, PLAIN, body)).calls] == [
            one.index for one in before.calls
        ]:
            again = RESPONSES.amended(call, PLAIN, RESPONSES.convert(STREAM, PLAIN, body), changes, said)
            assert json.loads(converted) == json.loads(again)
    return found


def _quoted(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _check_numbers(body: bytes, found: bytes) -> None:
    """Numbers of events still rise where they did; places of items have no more gaps than they had."""
    before, after = ([one.get("sequence_number") for one in objects(one)] for one in (body, found))
    if None not in before and before == sorted(set(before)):
        assert after == sorted(set(after))
    for kind in ("response.output_item.added", "response.output_item.done"):
        old, new = (
            [one.get("output_index") for one in objects(one_body) if one["type"] == kind and one.get("item")]
            for one_body in (body, found)
        )
        if old == list(range(len(old))) and len(new) <= len(old):
            assert new == list(range(len(new)))


# --- recorded traffic -------------------------------------------------------------------------------------------------


def finished() -> list[tuple[str, Call, Shape, bytes, Verdict]]:
    traffic.require()
    found = []
    for exchange in recorded():
        shape, call = Shape(exchange.streamed), call_of(exchange)
        verdict = verdict_of(call, shape, exchange.response) if exchange.status == 200 else Verdict("refused")
        if not verdict.fault and verdict.finish != ("queued",):
            found.append((exchange.id, call, shape, exchange.response, verdict))
    return found


def changes_of(calls: Sequence[ToolCall]) -> list[list[Change]]:
    """Sets of changes worth trying on these calls."""
    places = [one.index for one in calls]
    sets = [[Change(0, place) for place in places], [Change(0, place, NEW) for place in places]]
    if len(places) > 1:
        sets += [[Change(0, places[0])], [Change(0, places[-1])], [Change(0, places[0]), Change(0, places[1], NEW)]]
    return sets


def test_recorded_responses_are_finished_answers_with_the_expected_calls_however_they_are_amended() -> None:
    tried = 0
    for name, call, shape, body, verdict in finished():
        assert RESPONSES.amended(call, shape, body, [], "") == body
        with pytest.raises(ValueError, match="no call of the answer"):
            RESPONSES.amended(call, shape, body, [Change(0, 99)], "")
        for changes in changes_of(verdict.calls) if verdict.calls else ():
            for said in ("", SAID):
                tried += 1
                try:
                    check(call, shape, body, changes, said)
                except (AssertionError, ValueError) as error:
                    raise AssertionError(f"{name}: {changes} {said!r}") from error
    assert tried > 800


def test_official_sdk_adds_amended_recorded_streams_up_to_the_amended_responses() -> None:
    compared = 0
    for name, call, shape, body, verdict in finished():
        if not shape.stream or not verdict.calls:
            continue
        try:
            seen_stream(body)
        except (IndexError, AttributeError, AssertionError, RuntimeError):
            continue  # the SDK itself cannot add these up
        for changes in changes_of(verdict.calls):
            found = RESPONSES.amended(call, shape, body, changes, SAID)
            wanted, got = seen_plain(RESPONSES.convert(STREAM, PLAIN, found)), seen_stream(found)
            if name.startswith(LEFT_OUT):
                wanted["output"] = got["output"] = []
            assert got == wanted, name
            compared += 1
    assert compared > 100


# --- made ones --------------------------------------------------------------------------------------------------------

CUSTOM = {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "sql", "input": f"select {OLD}",
          "status": "completed"}  # fmt: skip
SHELL = {"type": "local_shell_call", "id": "ls_1", "call_id": "call_3", "status": "completed",
         "action": {"type": "exec", "command": ["echo", OLD], "env": {}}}  # fmt: skip
PATCH = {"type": "apply_patch_call", "id": "ap_1", "call_id": "call_4", "status": "completed",
         "operation": {"type": "update_file", "path": "x", "diff": f"+{OLD}"}}  # fmt: skip
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "call_5", "status": "completed",
            "pending_safety_checks": [], "action": {"type": "type", "text": OLD},
            "actions": [{"type": "type", "text": OLD}]}  # fmt: skip
COMMANDS = {"type": "shell_call", "id": "sh_1", "call_id": "call_6", "status": "completed",
            "action": {"commands": [f"echo {OLD}"], "timeout_ms": None}}  # fmt: skip
SEARCH = {"type": "tool_search_call", "id": "ts_1", "call_id": "call_7", "status": "completed",
          "execution": "client", "arguments": {"queries": [OLD]}}  # fmt: skip
MAIL = FUNCTION | {"arguments": json.dumps({"to": OLD})}
AGENTS = (MAIL, CUSTOM, SHELL, PATCH, COMPUTER, COMMANDS, SEARCH)
OWN = ({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
       {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}, TEXT,
       {"type": "mcp_call", "id": "mcp_1", "name": "x", "arguments": "{}", "server_label": "s", "output": "o"},
       {"type": "shell_call", "id": "sh_9", "call_id": "call_9", "status": "completed", "action": {"commands": ["ls"]},
        "environment": {"type": "container_reference"}})  # fmt: skip
PIECES = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}


def events_of(item: dict[str, Any], place: int, named: bool = True, grows: bool = True) -> list[bytes]:
    """The events of an item as a provider sends them, unknown fields and padding among them."""
    own = {"output_index": place, "item_id": item.get("id"), "x_vendor": 1.50}
    field, kind = PIECES.get(item["type"], ("", ""))
    begun = {**item, "status": "in_progress"} | ({field: ""} if field and grows else {})
    begun |= {"content": []} if item["type"] == "message" else {}
    out = [event("response.output_item.added", named, output_index=place, item=begun)]
    if field and grows:
        text = item[field]
        out += [
            event(f"response.{kind}.delta", named, **own, delta=piece, obfuscation="xY")
            for piece in (text[:3], text[3:7], text[7:])
        ]
        out.append(event(f"response.{kind}.done", named, **own, **{field: text}, name=item.get("name")))
    if item["type"] == "message":
        part = item["content"][0]
        at = {**own, "content_index": 0}
        out.append(event("response.content_part.added", named, **at, part={**part, "text": ""}))
        deltas = ("hello", " you")
        out += [event("response.output_text.delta", named, **at, delta=piece, logprobs=[]) for piece in deltas]
        out.append(event("response.content_part.done", named, **at, part=part))
    if item["type"] == "apply_patch_call":
        out.append(event("response.apply_patch_call_operation_diff.delta", named, **own, delta=OLD))
    if item["type"] == "shell_call" and "environment" not in item:
        out.append(event("response.shell_call_command.added", named, **own, command_index=0, command=""))
        out.append(event("response.shell_call_command.delta", named, **own, command_index=0, delta=f"echo {OLD}"))
    return [*out, event("response.output_item.done", named, output_index=place, item=item)]


def numbered(events: Sequence[bytes], start: int = 0) -> list[bytes]:
    return [
        part.replace(b'data: {"type"', b'data: {"sequence_number": %d, "type"' % (start + place), 1)
        for place, part in enumerate(events)
    ]


def unlike(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items, each with ids of its own."""
    names = ("id", "call_id")
    return [
        {key: f"{part}{place}z" if key in names and part else part for key, part in item.items()}
        for place, item in enumerate(items)
    ]


def made(items: Sequence[dict[str, Any]], start: int = 0, named: bool = True, final: bool = True, **more: Any) -> bytes:
    parts = [part for place, item in enumerate(items, start) for part in events_of(item, place, named)]
    end = event("response.completed", named, response=response(output=items if final else [], **more))
    return b"".join(numbered([*begin(named), *parts, end]))


@pytest.mark.parametrize("item", AGENTS, ids=lambda item: item["type"])
@pytest.mark.parametrize("grows", [True, False])
def test_edited_call_has_its_id_and_name_and_the_new_arguments_and_nothing_of_the_old(
    item: dict[str, Any], grows: bool
) -> None:
    items = [TEXT, item, MAIL | {"id": "fc_9", "call_id": "call_99", "arguments": "{}"}]
    parts = [part for place, one in enumerate(items) for part in events_of(one, place, True, grows)]
    end = event("response.completed", response=response(output=items))
    body = b"".join(numbered([*begin(), *parts, end]))
    found = check(CALL, STREAM, body, [Change(0, 1, NEW)], "")
    assert OLD.encode() in body
    assert OLD.encode() not in found
    assert seen_stream(found) == seen_plain(RESPONSES.convert(STREAM, PLAIN, found))
    old, new = list(sse.events(body)), list(sse.events(found))
    untouched = len(begin()) + len(events_of(TEXT, 0, True, grows))
    assert new[:untouched] == old[:untouched]
    assert (
        new[-len(events_of(items[2], 2, True, grows)) - 1 : -1]
        == old[-len(events_of(items[2], 2, True, grows)) - 1 : -1]
    )
    plain_one = check(CALL, PLAIN, json.dumps(response(output=items), indent=1).encode(), [Change(0, 1, NEW)], "")
    assert OLD.encode() not in plain_one
    edited = json.loads(plain_one)["output"][1]
    assert edited.keys() == item.keys()
    for key in ("type", "id", "call_id", "name", "status"):
        assert edited.get(key) == item.get(key)


def test_new_arguments_of_a_function_are_one_piece_with_its_neighbours_fields_and_the_very_text() -> None:
    found = RESPONSES.amended(CALL, STREAM, made([MAIL]), [Change(0, 0, NEW)], "")
    deltas = [one for one in objects(found) if one["type"].endswith(".delta")]
    assert [(one["delta"], one["obfuscation"], one["x_vendor"]) for one in deltas] == [(NEW, "xY", 1.5)]
    assert b'"x_vendor": 1.5' in found
    done = next(one for one in objects(found) if one["type"].endswith("arguments.done"))
    assert (done["arguments"], done["name"]) == (NEW, "mail")
    assert objects(found)[-1]["response"]["output"][0]["arguments"] == NEW


def test_new_arguments_that_are_an_object_stand_as_they_are_spelled() -> None:
    new = '{"type":"exec","command":["x"],"env":{},"timeout_ms":1.50}'
    for shape, body in ((PLAIN, json.dumps(response(output=[SHELL])).encode()), (STREAM, made([SHELL]))):
        assert new.encode() in RESPONSES.amended(CALL, shape, body, [Change(0, 0, new)], "")
    laid_out = json.dumps(json.loads(new), indent=2).replace("\n", "\r\n")
    body = made([SHELL]).replace(b"\n", b"\r\n")
    assert left(fed([check(CALL, STREAM, body, [Change(0, 0, laid_out)], "")])[1]) == [
        ("call_3", "local_shell", json.loads(new))
    ]


@pytest.mark.parametrize("item", AGENTS, ids=lambda item: item["type"])
def test_call_without_arguments_gets_the_new_ones_where_its_kind_has_them(item: dict[str, Any]) -> None:
    names = [name for name in ("arguments", "input", "action", "operation") if name in item]
    bare = {key: part for key, part in item.items() if key not in (*names, "actions")}
    if item is SEARCH:
        bare["arguments"] = {}
    for without in (bare, bare | dict.fromkeys(names) if item is not SEARCH else bare):
        events = [event(f"response.output_item.{kind}", output_index=0, item=without) for kind in ("added", "done")]
        body = b"".join([*begin(), *events, event("response.completed", response=response(output=[without]))])
        found = check(CALL, STREAM, body, [Change(0, 0, NEW)], "")
        assert list(sse.events(found))[2] == events[0]
        last = objects(found)[-1]["response"]["output"][0]
        assert {**without, names[0]: last[names[0]]} == last
        assert type(last[names[0]]) is type(item[names[0]])


def test_both_spellings_of_a_computers_actions_are_replaced() -> None:
    action = {"type": "wait"}
    found = RESPONSES.amended(CALL, STREAM, made([COMPUTER]), [Change(0, 0, json.dumps(action))], "")
    item = objects(found)[-1]["response"]["output"][0]
    assert (item["action"], item["actions"]) == (action, [action])


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("start", [0, 1])
def test_call_taken_out_leaves_no_trace_and_those_after_it_close_up(final: bool, start: int) -> None:
    items = unlike([TEXT, MAIL, CUSTOM, OWN[0], SHELL])
    body = made(items, start, final=final)
    calls = fed([body])[1].calls
    found = check(CALL, STREAM, body, [Change(0, calls[0].index), Change(0, calls[1].index)], "")
    assert b"call_1" not in found
    assert b"mail" not in found
    assert b"select" not in found
    places = {one["item"]["type"]: one["output_index"] for one in objects(found) if "item" in one}
    assert places == {"message": start, "web_search_call": start + 1, "local_shell_call": start + 2}
    kinds = [item["type"] for item in json.loads(RESPONSES.convert(STREAM, PLAIN, found))["output"]]
    assert kinds == ["message", "web_search_call", "local_shell_call"]


def test_what_is_said_is_a_message_with_all_its_events_in_the_place_of_the_call() -> None:
    body = made([TEXT, MAIL, CUSTOM])
    found = check(CALL, STREAM, body, [Change(0, 1), Change(0, 2)], SAID)
    shown_first = fed([body])[0]
    told = objects(found[len(shown_first) :])
    assert [one["type"] for one in told] == [
        "response.output_item.added", "response.content_part.added", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
    ]  # fmt: skip
    assert {one["output_index"] for one in told[:-1]} == {1}
    message = told[-2]["item"]
    assert (message["role"], message["status"], message["content"][0]["text"]) == ("assistant", "completed", SAID)
    assert told[-1]["response"]["output"] == [TEXT, message]
    assert told[-1]["response"]["status"] == "completed"
    assert {one.get("item_id", message["id"]) for one in told[:-1]} == {message["id"]}
    assert message["id"].startswith("msg_")
    assert len(message["id"]) <= 64


def test_events_after_what_is_said_are_numbered_on_only_where_numbers_would_meet() -> None:
    end = event("response.completed", response=response(output=[SHELL, FUNCTION]))
    few = [*begin(), *of_item(SHELL, 0), *of_item(FUNCTION, 1), end]
    bodies = [
        b"".join(
            part.replace(b'data: {"type"', b'data: {"sequence_number": %d, "type"' % (place * step), 1)
            for place, part in enumerate(few)
        ).replace(b', "sequence_number": 0}', b"}").replace(b', "sequence_number": 1}', b"}")
        for step in (1, 10)
    ]  # fmt: skip
    close, wide = (check(CALL, STREAM, body, [Change(0, 0)], SAID) for body in bodies)
    assert [one["sequence_number"] for one in objects(close)] == [*range(len(objects(close)))]
    assert [one["sequence_number"] for one in objects(wide)][-5:] == [40, 50, 60, 70, 80]
    assert list(sse.events(wide))[-5:-1] == list(sse.events(bodies[1]))[-5:-1]


def test_places_that_were_shown_stay_and_nothing_takes_them() -> None:
    late = unlike([MAIL, TEXT, CUSTOM])
    events = [*begin(), *events_of(late[1], 1), *events_of(late[0], 0), *events_of(late[2], 2)]
    body = b"".join(numbered([*events, event("response.completed", response=response(output=late))]))
    found = check(CALL, STREAM, body, [Change(0, 0)], "")
    assert [one["output_index"] for one in objects(found) if one["type"].endswith("item.done")] == [1, 2]
    found = check(CALL, STREAM, body, [Change(0, 0)], SAID)
    assert sorted(one["output_index"] for one in objects(found) if one["type"].endswith("item.done")) == [0, 1, 2]


def test_pieces_of_calls_that_grow_side_by_side_go_to_their_own() -> None:
    items = unlike([MAIL, MAIL | {"name": "other"}])
    first, second = (events_of(item, place) for place, item in enumerate(items))
    mixed = [part for pair in zip(first, second, strict=True) for part in pair]
    body = b"".join(numbered([*begin(), *mixed, event("response.completed", response=response(output=items))]))
    found = check(CALL, STREAM, body, [Change(0, 0, NEW)], "")
    assert [one["delta"] for one in objects(found) if one["type"].endswith(".delta") and one["output_index"] == 0] == [
        NEW
    ]
    assert seen_stream(found) == seen_plain(RESPONSES.convert(STREAM, PLAIN, found))
    found = check(CALL, STREAM, body, [Change(0, 0)], SAID)
    assert seen_stream(found) == seen_plain(RESPONSES.convert(STREAM, PLAIN, found))


def test_events_that_name_their_call_by_id_only_or_not_at_all_go_with_it() -> None:
    bare = [
        event("response.output_item.added", item={**MAIL, "arguments": ""}),
        event("response.function_call_arguments.delta", delta=OLD),
        event("response.function_call_arguments.delta", item_id="fc_1", delta=OLD),
        event("response.output_item.done", item=MAIL),
    ]
    kept = event("keepalive")
    body = b"".join(
        [*begin(), *bare[:2], kept, *bare[2:], event("response.completed", response=response(output=[MAIL]))]
    )
    found = check(CALL, STREAM, body, [Change(0, 0)], "")
    assert OLD.encode() not in found
    assert kept in found
    found = check(CALL, STREAM, body, [Change(0, 0, NEW)], "")
    assert OLD.encode() not in found
    assert [one["delta"] for one in objects(found) if "delta" in one] == [NEW]


def test_calls_without_ids_are_told_apart_by_their_order() -> None:
    nameless = {key: part for key, part in MAIL.items() if key not in ("id", "call_id")}
    items = [nameless | {"arguments": json.dumps({"n": n})} for n in range(3)]
    for final in (True, False):
        found = check(CALL, STREAM, made(items, final=final), [Change(0, 1), Change(0, 2, NEW)], "")
        assert [one.arguments for one in fed([found])[1].calls] == ['{"n": 0}', NEW]


def test_call_that_only_an_event_told_of_is_amended_as_well() -> None:
    other = MAIL | {"id": "fc_2", "call_id": "call_22"}
    body = b"".join([*begin(), *events_of(FUNCTION, 0), *events_of(other, 1),
                     event("response.completed", response=response(output=[FUNCTION]))])  # fmt: skip
    assert [one.index for one in fed([body])[1].calls] == [0, 1]
    found = RESPONSES.amended(CALL, STREAM, body, [Change(0, 1)], SAID)
    assert OLD.encode() not in found
    assert [one.call_id for one in fed([found])[1].calls] == ["call_1"]
    said = json.loads(RESPONSES.convert(STREAM, PLAIN, found))["output"][1]
    assert said["content"][0]["text"] == SAID


def test_call_that_only_the_last_event_told_of_is_amended_as_well() -> None:
    body = b"".join(
        [*begin(), *events_of(TEXT, 0), event("response.completed", response=response(output=[TEXT, MAIL]))]
    )
    found = check(CALL, STREAM, body, [Change(0, 1)], SAID)
    assert seen_stream(found) == seen_plain(RESPONSES.convert(STREAM, PLAIN, found))
    assert [one["output_index"] for one in objects(found) if one["type"].endswith("item.done")] == [0, 1]


def test_two_calls_of_one_event_without_ids_in_the_last_event_are_both_calls() -> None:
    nameless = {key: part for key, part in FUNCTION.items() if key not in ("id", "call_id")}
    body = b"".join([*begin(), *of_item(nameless, 0), *of_item(nameless, 1),
                     event("response.completed", response=response(output=[nameless]))])  # fmt: skip
    assert [one.index for one in fed([body])[1].calls] == [0, 1]


def test_text_that_the_response_repeats_as_a_whole_tells_what_is_said() -> None:
    body = json.dumps(response(output=[TEXT, MAIL, TEXT], output_text="hello youhello you")).encode()
    found = json.loads(RESPONSES.amended(CALL, PLAIN, body, [Change(0, 1)], " no "))
    assert found["output_text"] == "hello you no hello you"
    kept = json.loads(RESPONSES.amended(CALL, PLAIN, body, [Change(0, 1, NEW)], " no "))
    assert kept["output_text"] == "hello youhello you"


@pytest.mark.parametrize("indent", [None, 1])
def test_plain_answer_keeps_every_byte_around_the_call(indent: int | None) -> None:
    body = (
        b"\n \n"
        + json.dumps(response(output=[TEXT, MAIL, FUNCTION | {"call_id": "c2"}], x=1.5), indent=indent).encode()
        + b"\n"
    )
    found = check(CALL, PLAIN, body, [Change(0, 1, NEW)], "")
    start = body.index(json.dumps(MAIL["arguments"]).encode())
    assert found[:start] == body[:start]
    assert found[start:].startswith(_quoted(NEW))
    assert body.endswith(found[start + len(_quoted(NEW)) :])
    gone = check(CALL, PLAIN, body, [Change(0, 1)], "")
    assert json.loads(gone) == json.loads(body) | {"output": [TEXT, FUNCTION | {"call_id": "c2"}]}
    assert check(CALL, PLAIN, body, [Change(0, 1), Change(0, 2)], "").count(b"\n") <= body.count(b"\n")


def test_end_of_a_background_job_is_amended_like_any_response() -> None:
    job = RESPONSES.parse("POST", "responses", b'{"model":"m","input":"x","background":true,"stream":true}')
    body = json.dumps(response(output=[MAIL], background=True)).encode()
    found = json.loads(check(job, PLAIN, body, [Change(0, 0)], SAID))
    assert [item["type"] for item in found["output"]] == ["message"]
    queued = json.dumps(response("queued")).encode()
    assert RESPONSES.amended(job, PLAIN, queued, [], SAID) == queued
    with pytest.raises(ValueError, match="no call"):
        RESPONSES.amended(job, PLAIN, queued, [Change(0, 0)], "")


APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"}


@pytest.mark.parametrize(("changes", "complaint"), [
    ([Change(0, 0)], "no call of the answer"), ([Change(1, 1)], "no call of the answer"),
    ([Change(0, 1), Change(0, 1)], "two changes"), ([Change(0, 1, "{")], "not JSON"), ([Change(0, 2, "{")], "not JSON"),
    ([Change(0, 3, "{}")], "its provider makes"),
])  # fmt: skip
def test_change_that_cannot_be_is_refused(changes: list[Change], complaint: str) -> None:
    items = [OWN[0], MAIL, SHELL, APPROVAL]
    for shape, body in ((STREAM, made(items)), (PLAIN, json.dumps(response(output=items)).encode())):
        with pytest.raises(ValueError, match=complaint):
            RESPONSES.amended(CALL, shape, body, changes, "")
        assert b"mcpr_1" not in check(CALL, shape, body, [Change(0, 3)], SAID)


def test_events_are_written_as_the_provider_writes_its_own() -> None:
    body = made([TEXT, MAIL], named=False) + b"data: [DONE]\n\n"
    found = check(CALL, STREAM, body, [Change(0, 1)], SAID)
    assert b"event:" not in found
    assert found.endswith(b"data: [DONE]\n\n")
    found = check(CALL, STREAM, made([TEXT, MAIL]).replace(b"\n", b"\r\n"), [Change(0, 1)], SAID)
    assert found.count(b"\n") == found.count(b"\r\n")
    assert found.count(b"event: ") == found.count(b"data: ")


def test_data_of_an_event_on_several_lines_is_written_so_that_it_is_read() -> None:
    parts = [b": {\n" + part.replace(b', "item"', b',\ndata: "item"') for part in events_of(MAIL, 0)]
    body = b"".join([*begin(), *parts, event("response.completed", response=response(output=[MAIL]))])
    found = check(CALL, STREAM, body, [Change(0, 0, NEW)], "")
    assert OLD.encode() not in found
    assert found.count(b": {\n") == body.count(b": {\n") - 2


# --- any stream -------------------------------------------------------------------------------------------------------

_ITEMS = st.lists(st.sampled_from([*AGENTS, *AGENTS, *OWN, APPROVAL]), min_size=1, max_size=6)
_SAID = st.sampled_from(["", SAID])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]], bool]:
    """(a stream, its items, whether the official SDK can add it up)."""
    items = unlike(draw(_ITEMS))
    start, named, final = draw(st.sampled_from([0, 0, 1, 4])), draw(st.booleans()), draw(st.booleans())
    queues = [events_of(item, place, named, draw(st.booleans())) for place, item in enumerate(items, start)]
    parts: list[bytes] = []
    side_by_side = draw(st.booleans())
    while any(queues):
        alive = [queue for queue in queues if queue]
        queue = alive[draw(st.integers(0, len(alive) - 1)) if side_by_side else 0]
        parts.append(queue.pop(0))
    end = event("response.completed", named, response=response(output=items if final else []))
    parts = [*begin(named), *parts, end]
    if draw(st.booleans()):
        parts = numbered(parts)
    noise = draw(
        st.lists(st.tuples(st.integers(2, len(parts) - 1), st.sampled_from([b": wait\n\n", b"\n\n"])), max_size=3)
    )
    for place, part in noise:
        parts.insert(place, part)
    body = b"".join(parts) + draw(st.sampled_from([b"", b"data: [DONE]\n\n", b"\n\n"]))
    if draw(st.booleans()):
        body = body.rstrip(b"\n") if draw(st.booleans()) else body.replace(b"\n", b"\r\n")
    return body, items, final and not start


@given(streams(), st.lists(st.sampled_from(["keep", "edit", "drop"]), min_size=6, max_size=6), _SAID)
@examples(400)
def test_any_stream_is_amended_to_a_finished_answer_that_goes_on_from_what_was_shown(
    drawn: tuple[bytes, list[dict[str, Any]], bool], fates: list[str], said: str
) -> None:
    body, items, _ = drawn
    verdict = fed([body])[1]
    fate = dict(zip((one.index for one in verdict.calls), fates, strict=False))
    edits = {one.index for one in verdict.calls if one.name != "x"}
    changes = [
        Change(0, place, NEW if what == "edit" else None)
        for place, what in fate.items()
        if what == "drop" or (what == "edit" and place in edits)
    ]
    found = check(CALL, STREAM, body, changes, said) if changes else body
    left_as_they_were = [one for one in verdict.calls if not any(change.index == one.index for change in changes)]
    if not any(OLD in one.arguments for one in left_as_they_were):
        shown_first = fed([body])[0]
        assert OLD.encode() not in found[len(shown_first) :]
    for item in items:
        if item in unlike(OWN) or item["type"] in ("web_search_call", "mcp_call"):
            assert json.dumps(item).encode() in found


@given(streams(), _SAID)
@examples(150)
def test_events_that_concern_no_changed_call_keep_their_bytes_where_a_call_is_edited(
    drawn: tuple[bytes, list[dict[str, Any]], bool], said: str
) -> None:
    body, _, _ = drawn
    calls = [one for one in fed([body])[1].calls if one.name != "x"]
    if not calls:
        return
    found = RESPONSES.amended(CALL, STREAM, body, [Change(0, calls[0].index, NEW)], said)
    old, new = list(sse.events(body)), list(sse.events(found))
    mine = calls[0].call_id.removeprefix("call_").encode()
    others = [part for part in old if mine[-2:] not in part and b"response.completed" not in part]
    kept = [part for part in new if part in others]
    assert kept == [part for part in others if part in kept]
    assert len(kept) == len(others)
    if not old[-1].endswith(b"\n\n"):
        assert not new[-1].endswith(b"\n\n")


# --- a real client ----------------------------------------------------------------------------------------------------


def test_real_client_ends_with_the_amended_response_of_either_shape(upstream: Upstream) -> None:
    client = OpenAI(base_url=f"{upstream.url}/v1", api_key="sk-test-1", max_retries=0)
    items = unlike([OWN[1], TEXT, MAIL, CUSTOM, MAIL])
    changes = [Change(0, 2), Change(0, 3, "select 1"), Change(0, 4, NEW)]
    body = RESPONSES.amended(CALL, PLAIN, json.dumps(response(output=items)).encode(), changes, SAID)
    streamed = RESPONSES.amended(CALL, STREAM, made(items), changes, SAID)
    upstream.replies(plain(body), stream(streamed), stream(streamed))
    whole_one = client.responses.create(model="m", input="x")
    assert whole_one.output_text == "hello you" + SAID
    with client.responses.stream(model="m", input="x") as streaming:
        assert shown(streaming.get_final_response()) == shown(whole_one)
    events = list(client.responses.create(model="m", input="x", stream=True))
    assert shown(events[-1].response) == shown(whole_one)  # type: ignore[union-attr]
    assert whole(TEXT)
