"""Calls of an Anthropic message that are edited or taken out, and the request that goes on from a refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Call, Change, OfferedTool, Shape, ToolResult, Verdict
from agentstate.dialects import sse
from agentstate.dialects.anthropic_answer import PING
from agentstate.dialects.anthropic_messages import AnthropicMessages
from tests.unit.core.profile import examples
from tests.unit.dialects.test_anthropic_gate import START, STOP, block, call, end, message, text, told
from tests.unit.dialects.test_anthropic_shape import GATEWAYS, Sdk, added_up, without_nulls
from tests.unit.dialects.test_anthropic_traffic import Recorded, asked, objects, recorded

MESSAGES = AnthropicMessages()
PLAIN, STREAM = Shape(), Shape(stream=True)
ASKED = MESSAGES.parse("POST", "messages", b'{"model":"claude-test","max_tokens":9,"messages":[{"role":"user",'
                       b'"content":"hi"}]}')  # fmt: skip
NEW = '{"to": "éve",\n  "n":1.50}'
SAID = 'The call was refused by "ann": no.\nReally.'


def verdict_of(shape: Shape, body: bytes) -> tuple[int, Verdict]:
    """(how many bytes are shown before the commit, the verdict)."""
    if not shape.stream:
        return 0, MESSAGES.judge(ASKED, body)
    gate = MESSAGES.gate(ASKED)
    return len(gate.feed(body)), gate.finish()


def amended(shape: Shape, body: bytes, changes: Sequence[Change], said: str = "") -> bytes:
    return MESSAGES.amended(ASKED, shape, body, changes, said)


def wanted(content: Sequence[Any], changes: Sequence[Change], said: str) -> list[Any]:
    """The content that there should be, worked out on objects."""
    by_place = {change.index: change for change in changes}
    found: list[Any] = []
    told_it = not said
    for place, one in enumerate(content):
        change = by_place.get(place)
        if change is None:
            found.append(one)
        elif change.arguments is not None:
            found.append(one | {"input": json.loads(change.arguments)})
        elif not told_it:
            found.append({"type": "text", "text": said})
            told_it = True
    return found


def checked(shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """An amended answer, of which everything is checked that holds for any."""
    shown, before = verdict_of(shape, body)
    new = amended(shape, body, changes, said)
    assert new[:shown] == body[:shown]
    again, after = verdict_of(shape, new)
    out = {change.index for change in changes if change.arguments is None}
    edits = {change.index: change.arguments for change in changes if change.arguments is not None}
    stays = [one for one in before.calls if one.index not in out]
    assert after.fault == ""
    assert [(one.call_id, one.name, one.arguments) for one in after.calls] == [
        (one.call_id, one.name, edits.get(one.index, one.arguments)) for one in stays
    ]
    reason = "end_turn" if before.finish == ("tool_use",) and not stays else before.finish[0]
    assert (after.finish, after.model, after.usage) == ((reason,), before.model, before.usage)
    assert again >= shown
    plain = json.loads(MESSAGES.convert(shape, PLAIN, body))
    expected = plain | {"content": wanted(plain["content"], changes, said), "stop_reason": reason}
    assert json.loads(MESSAGES.convert(shape, PLAIN, new)) == expected
    assert json.loads(amended(PLAIN, MESSAGES.convert(shape, PLAIN, body), changes, said)) == expected
    return new


def choices_of(verdict: Verdict) -> Iterator[list[Change]]:
    """Every call taken out or edited alone, all together, and every other one."""
    places = [one.index for one in verdict.calls]
    for place in places:
        yield [Change(0, place)]
        yield [Change(0, place, NEW)]
    if len(places) > 1:
        yield [Change(0, place) for place in places]
        yield [Change(0, place, NEW if at % 2 else None) for at, place in enumerate(places)]
        yield [Change(0, place, None if at % 2 else NEW) for at, place in enumerate(places)]


# --- made streams -----------------------------------------------------------------------------------------------------

MARK = "hush-hush"


def marked(place: int) -> str:
    return json.dumps({"to": f"{MARK}-{place}-{MARK}", "n": 1})


def cut_up(written: str, size: int) -> list[str]:
    return [written[at : at + size] for at in range(0, len(written), size)]


def made(kinds: Sequence[str], first: int = 0, size: int = 5, reason: str = "tool_use") -> list[bytes]:
    """The events of a stream with these blocks, whose indices begin at ``first``."""
    found = [told(START), PING]
    for at, kind in enumerate(kinds):
        index = at + first
        if kind == "text":
            found += text(index, "let ", "me see\u2028")
        elif kind == "thinking":
            found += block(index, {"type": "thinking", "thinking": "", "signature": "c2ln"}, ["hm"])
        elif kind == "server":
            found += call(index, '{"q":1}', kind="server_tool_use", name="web_search")
        elif kind == "empty call":
            found += call(index, "", caller={"type": "direct"})
        elif kind == "whole call":
            found += call(index, input=json.loads(marked(at)))
        else:
            found += call(index, "", *cut_up(marked(at), size), unknown={"b": 1, "a": [1.50]})
    return [*found, end(reason), STOP]


_kinds = st.lists(
    st.sampled_from(["text", "thinking", "server", "empty call", "whole call", "call", "call"]), max_size=7
)
_noise = st.sampled_from([b"", b"", PING, b": wait\n\n", b"\n\n", told({"type": "weather", "index": 1})])


@examples(250)
@given(
    kinds=_kinds, first=st.integers(0, 2), size=st.integers(1, 40), style=st.sampled_from(["lf", "crlf", "cr", "bare"]),
    whole=st.booleans(), said=st.sampled_from(["", SAID]), data=st.data(),
)  # fmt: skip
def test_any_change_of_any_stream_goes_on_from_what_was_shown_and_leaves_no_trace(
    kinds: list[str], first: int, size: int, style: str, whole: bool, said: str, data: st.DataObject
) -> None:
    events = made(kinds, first, size)
    noisy = b"".join(found for one in events for found in (one, data.draw(_noise)))
    stream = styled(noisy, style)
    if not whole:
        stream = stream.rstrip()
    _, verdict = verdict_of(STREAM, stream)
    fates = [None, *([fate] for fate in (None, NEW))]
    drawn = [(one.index, data.draw(st.sampled_from(fates))) for one in verdict.calls]
    changes = [Change(0, place, fate[0]) for place, fate in drawn if fate is not None]
    if not changes:
        assert amended(STREAM, stream, [], said) == stream
        return
    new = checked(STREAM, stream, changes, said)
    for change in changes:
        assert f"{MARK}-{change.index}-".encode() not in new
        gone = change.arguments is None
        assert gone == (f'"toolu_{change.index + first}"'.encode() not in new)
    indices = sorted({one["index"] for one in objects(new) if one["type"] == "content_block_start"})
    assert indices == list(range(first, first + len(indices)))
    assert "".join(pieces_left(new)) == "".join(pieces_left(stream)), "what is no event of a block changed"


def styled(stream: bytes, style: str) -> bytes:
    if style == "bare":
        lines = stream.split(b"\n")
        return b"\n".join(line for line in lines if not line.startswith(b"event:"))
    return stream.replace(b"\n", {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}[style])


def pieces_left(stream: bytes) -> list[str]:
    """The events that tell of no content block and of no end, as they are."""
    parser = sse.Parser()
    found = [*parser.feed(stream), parser.rest()]
    return [one.decode() for one in found if b"content_block" not in one and b"message_delta" not in one]


def test_events_that_concern_no_changed_call_are_byte_for_byte_as_they_were() -> None:
    events = made(["text", "call", "server", "call", "text"])
    edited = checked(STREAM, b"".join(events), [Change(0, 1, NEW)], "")
    out = checked(STREAM, b"".join(events), [Change(0, 3)], "")
    kept = [
        one for one in events if b'"toolu_1"' not in one and b'"index": 1,' not in one and b'"index": 1 ' not in one
    ]
    at = 0
    for one in kept:
        at = edited.index(one, at) + len(one)
    before = b"".join(events[: next(at for at, one in enumerate(events) if b'"toolu_3"' in one)])
    assert out.startswith(before)
    assert out[len(before) :] == b"".join(text(3, "let ", "me see\u2028")) + end("tool_use") + STOP


def test_edited_call_has_its_new_arguments_verbatim_in_one_piece_and_keeps_all_else() -> None:
    stream = b"".join(made(["call"]))
    expected = []
    for at, one in enumerate(objects(stream)):
        if one.get("delta", {}).get("type") != "input_json_delta":
            expected.append(one)
        elif at == 3:  # the first
            expected.append(one | {"delta": one["delta"] | {"partial_json": NEW}})
    assert objects(amended(STREAM, stream, [Change(0, 0, NEW)])) == expected
    begun = next(one for one in sse.events(stream) if b"content_block_start" in one)
    assert begun in amended(STREAM, stream, [Change(0, 0, NEW)])


def test_text_in_the_place_of_the_first_call_that_goes_is_a_block_of_its_own() -> None:
    stream = b"".join(made(["text", "call", "call", "text"]))
    new = amended(STREAM, stream, [Change(0, 1), Change(0, 2)], SAID)
    kinds = [(one["type"], one.get("index")) for one in objects(new)][6:]
    lived = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == [
        *((kind, 1) for kind in lived), ("content_block_start", 2), ("content_block_delta", 2),
        ("content_block_delta", 2), ("content_block_stop", 2), ("message_delta", None), ("message_stop", None),
    ]  # fmt: skip
    assert [one["text"] for one in added_up(new)["content"]] == ["let me see\u2028", SAID, "let me see\u2028"]
    assert added_up(new)["stop_reason"] == "end_turn"


def test_text_is_said_only_where_a_call_was_taken_out() -> None:
    for shape, body in ((STREAM, b"".join(made(["call"]))), (PLAIN, json.dumps(message([], "end_turn")).encode())):
        assert amended(shape, body, [], SAID) == body
    assert SAID[:8].encode() not in amended(STREAM, b"".join(made(["call"])), [Change(0, 0, NEW)], SAID)


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "end_turn", "pause_turn", "tool_use"])
def test_only_the_reason_that_tells_of_calls_ends_otherwise_without_them(reason: str) -> None:
    stream = b"".join(made(["text", "call"], reason=reason))
    new = checked(STREAM, stream, [Change(0, 1)], SAID)
    assert verdict_of(STREAM, new)[1].finish == (reason if reason != "tool_use" else "end_turn",)
    left = checked(STREAM, b"".join(made(["call", "call"], reason=reason)), [Change(0, 1)], SAID)
    assert verdict_of(STREAM, left)[1].finish == (reason,)


def test_indices_in_any_order_have_no_gaps_afterwards_and_what_was_shown_keeps_its_own() -> None:
    events = [told(START), *text(3, "a"), *call(2, marked(0)), *call(0, marked(1)), *call(1, marked(2)), *text(4, "b"),
              end("tool_use"), STOP]  # fmt: skip
    stream = b"".join(events)
    for out, left in (([2], [3, 1, 0, 2]), ([0], [3, 1, 0, 2]), ([1, 0], [3, 0, 1]), ([2, 0, 1], [3, 0])):
        places = {2: 1, 0: 2, 1: 3}
        new = amended(STREAM, stream, [Change(0, places[index]) for index in out])
        assert new.startswith(b"".join(events[:4]))
        found = [one["index"] for one in objects(new) if one["type"] == "content_block_start"]
        assert sorted(found) == sorted({3, *range(len(found) - 1)}) and len(found) == len(left)
        assert not verdict_of(STREAM, new)[1].fault


def test_interleaved_blocks_are_told_apart() -> None:
    one, two = call(0, "", *cut_up(marked(0), 9)), call(1, "", *cut_up(marked(1), 9))
    mixed = [found for pair in zip(one, two, strict=True) for found in pair]
    stream = b"".join([told(START), *mixed, end("tool_use"), STOP])
    new = checked(STREAM, stream, [Change(0, 0), Change(0, 1, NEW)], "")
    assert [one["content_block"]["id"] for one in objects(new) if "content_block" in one] == ["toolu_1"]
    assert {one["index"] for one in objects(new) if "index" in one} == {0}


def test_calls_that_the_first_event_holds_already_are_amended_there() -> None:
    one, two = ({"type": "tool_use", "id": f"toolu_{at}", "name": "mail", "input": {"to": MARK}} for at in (0, 1))
    blocks = [{"type": "text", "text": "a"}, one, two]
    spelled = NEW.replace("\n", " ")  # in an event a line end would end the data
    begun = told(START | {"message": START["message"] | {"content": blocks, "stop_reason": "tool_use"}})
    stream = b"".join([begun, *text(3, "b"), end("tool_use"), STOP])
    new = checked(STREAM, stream, [Change(0, 1), Change(0, 2, spelled)], "")
    assert MARK.encode() not in new
    assert [one["index"] for one in objects(new) if "index" in one] == [2, 2, 2]
    checked(STREAM, stream, [Change(0, 1, spelled), Change(0, 2)], SAID)
    gone = checked(STREAM, stream, [Change(0, 1), Change(0, 2)], SAID)
    assert objects(gone)[0]["message"]["stop_reason"] == "end_turn"


def test_old_arguments_in_the_beginning_of_a_block_are_gone_too() -> None:
    stream = b"".join([told(START), *call(0, '{"to":"x"}', input={"to": MARK}), end("tool_use"), STOP])
    assert MARK.encode() not in checked(STREAM, stream, [Change(0, 0, NEW)], "")
    told_again = [one.replace(b'"index": 0', b'"index": 0, "content_block": {"input": {"to": "hush-hush"}}')
                  if b"block_stop" in one else one for one in made(["call"])]  # fmt: skip
    assert MARK.encode() not in checked(STREAM, b"".join(told_again), [Change(0, 0, NEW)], "")


def test_no_change_gives_the_very_bytes() -> None:
    for shape in (PLAIN, STREAM):
        assert amended(shape, b"anything at all", []) == b"anything at all"


@pytest.mark.parametrize("wrong", [Change(0, 0), Change(1, 1), Change(0, 2), Change(0, 9, NEW), Change(0, -1)])
def test_change_of_what_is_no_call_of_the_agents_is_a_value_error(wrong: Change) -> None:
    stream = b"".join(made(["text", "call", "server"]))
    for shape in (STREAM, PLAIN):
        with pytest.raises(ValueError, match="has no call"):
            amended(shape, MESSAGES.convert(STREAM, shape, stream), [wrong])


def test_plain_answer_keeps_every_byte_but_those_of_the_changed_calls() -> None:
    body = (b'{"id":"msg_1", "type":"message","role":"assistant","model":"claude-test","content":[ {"type":"text",'
            b'"text":"\\u00e9"} , {"type":"tool_use","id":"a","name":"mail","input": {"to":"old"},"caller":null},'
            b'\n{"type":"tool_use","id":"b","name":"mail"} ],\n"stop_reason": "tool_use", "usage":{"n":1.50}}\n'
            )  # fmt: skip
    edited = amended(PLAIN, body, [Change(0, 1, NEW), Change(0, 2, "{}")])
    assert edited == body.replace(b'{"to":"old"}', NEW.encode()).replace(b'"mail"} ]', b'"mail","input":{}} ]')
    one = amended(PLAIN, body, [Change(0, 2)])
    assert one == body.replace(b',\n{"type":"tool_use","id":"b","name":"mail"}', b"")
    both = amended(PLAIN, body, [Change(0, 1), Change(0, 2)], "No.")
    start, stop = body.index(b'{"type":"tool_use"'), body.index(b" ],\n")
    assert both == (body[:start] + b'{"type":"text","text":"No."}' + body[stop:]).replace(b"tool_use", b"end_turn")


# --- recorded answers -------------------------------------------------------------------------------------------------


def with_calls() -> list[tuple[Recorded, Shape, bytes]]:
    """Recorded answers that call, in the shape they have and in the other."""
    found = []
    for exchange in recorded():
        shape, other = (STREAM, PLAIN) if exchange.streamed else (PLAIN, STREAM)
        if exchange.status == 200 and verdict_of(shape, exchange.response)[1].calls:
            found.append((exchange, shape, exchange.response))
            found.append((exchange, other, MESSAGES.convert(shape, other, exchange.response)))
    return found


def test_recorded_answers_are_amended_in_every_way_and_shape() -> None:
    found = with_calls()
    assert len(found) > 300
    ways = 0
    for exchange, shape, body in found:
        verdict = verdict_of(shape, body)[1]
        for at, changes in enumerate(choices_of(verdict)):
            ways += 1
            new = checked(shape, body, changes, SAID if at % 3 else "")
            out = [one for one in verdict.calls if Change(0, one.index) in changes]
            assert not any(one.call_id.encode() in new for one in out if one.call_id not in str(exchange.request)), (
                exchange.id
            )
            if shape.stream:
                indices = [one["index"] for one in objects(new) if one["type"] == "content_block_start"]
                assert indices == list(range(len(indices))), exchange.id
    assert ways > 600


def test_recorded_answers_without_calls_and_changes_are_the_very_bytes() -> None:
    for exchange in recorded():
        assert amended(STREAM if exchange.streamed else PLAIN, exchange.response, []) == exchange.response


# --- the official SDK -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sdk() -> Sdk:
    return Sdk()


def test_sdk_adds_an_amended_stream_up_to_what_was_released(sdk: Sdk) -> None:
    for exchange, shape, body in with_calls():
        if not shape.stream or exchange.id in GATEWAYS:
            continue
        before = sdk.stream(body)
        for changes in choices_of(verdict_of(shape, body)[1]):
            after = sdk.stream(amended(shape, body, changes, SAID))
            assert after["content"] == without_nulls(wanted(before["content"], changes, SAID)), exchange.id
            assert after["usage"] == before["usage"]
            assert after == sdk.plain(amended(PLAIN, MESSAGES.convert(shape, PLAIN, body), changes, SAID)), exchange.id


# --- the request ------------------------------------------------------------------------------------------------------


def parsed(body: Any) -> Call:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return MESSAGES.parse("POST", "messages", raw)


def test_tools_that_the_agent_runs_are_offered_in_order_with_their_schemas() -> None:
    body = (b'{"messages":[],"tools":[{"name":"mail","input_schema": {"type":"object", "x":1.50}},'
            b'{"type":"bash_20250124","name":"bash"},{"type":"web_search_20250305","name":"web_search"},'
            b'{"type":"mcp_toolset","mcp_server_name":"s"},{"type":"custom","name":"b","input_schema":{}},'
            b'{"type":"code_execution_20250825","name":"code_execution"},{"type":"new_one","name":"t"}]}')  # fmt: skip
    assert MESSAGES.offered(parsed(body)) == (
        OfferedTool("mail", '{"type":"object", "x":1.50}'),
        OfferedTool("bash"),
        OfferedTool("b", "{}"),
        OfferedTool("t"),
    )
    assert MESSAGES.offered(ASKED) == MESSAGES.offered(parsed(b'{"messages":[],"tools":null}')) == ()


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "mail", "input": {}}]}


def test_results_are_those_after_the_last_answer() -> None:
    pair = [{"type": "text", "text": "x"}, {"type": "image", "source": {}}]
    now = [result("a", "rain"), result("b", [{"type": "text", "text": "é"}], is_error=True), result("c", pair),
           {"type": "tool_result", "tool_use_id": "d"}, {"type": "text", "text": "go on"},
           {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}]  # fmt: skip
    messages = [{"role": "user", "content": "hi"}, CALLED, {"role": "user", "content": [result("old", "x")]}, CALLED,
                {"role": "user", "content": now}, {"role": "system", "content": "so"},
                {"role": "user", "content": [result("e", "")]}]  # fmt: skip
    expected = (
        ToolResult("a", "rain"),
        ToolResult("b", "é", True),
        ToolResult("c", json.dumps(pair)),
        ToolResult("d", ""),
        ToolResult("e", ""),
    )
    assert MESSAGES.results(parsed({"messages": messages})) == expected
    prefilled = [*messages, {"role": "assistant", "content": "{"}]
    assert MESSAGES.results(parsed({"messages": prefilled})) == expected
    assert MESSAGES.results(parsed({"messages": [*messages, CALLED]})) == ()
    assert MESSAGES.results(ASKED) == ()


def test_results_of_a_body_that_only_a_lenient_parser_takes_are_read() -> None:
    lenient = json.dumps({"messages": [CALLED, {"role": "user", "content": [result("a", "\ud800")]}]}).encode()
    call = parsed(lenient)
    assert not call.items
    assert MESSAGES.results(call) == (ToolResult("a", "\ud800"),)


def test_request_that_goes_on_repeats_every_byte_and_adds_answer_and_results() -> None:
    body = (b'{"model":"claude-test", "messages" : [{"role":"user","content":"hi"} , {"role":"user","content":"x"}],'
            b'\n"max_tokens":9,"stream":true}')  # fmt: skip
    thinking = {"type": "thinking", "thinking": "hm \u2028", "signature": "c2ln+/="}
    calls = [{"type": "tool_use", "id": call_id, "name": "mail", "input": {"n": 1}} for call_id in "ab"]
    whole = message([thinking, {"type": "text", "text": ""}, {"type": "text", "text": "é", "citations": None}, *calls],
                    "tool_use", container=None)  # fmt: skip
    told_back = (ToolResult("b", "refused: no", True), ToolResult("a", '{"x": "\u00e9"}'))
    plain = json.dumps(whole).encode()
    for shape in (PLAIN, STREAM):
        new = MESSAGES.continued(parsed(body), shape, MESSAGES.convert(PLAIN, shape, plain), told_back)
        start, stop = body.index(b"]"), len(body) - body.index(b"]")
        assert new.startswith(body[:start]) and new.endswith(body[-stop:])
        assert new[start:].startswith(b' , {"role":"assistant"')
        said, answered = json.loads(new)["messages"][2:]
        assert without_nulls(said) == {
            "role": "assistant", "content": [thinking, {"type": "text", "text": "é"}, *calls],
        }  # fmt: skip
        assert answered == {"role": "user", "content": [
            result("b", "refused: no", is_error=True), result("a", '{"x": "\u00e9"}'),
        ]}  # fmt: skip
        assert MESSAGES.results(parsed(new)) == told_back


def test_results_that_are_not_those_of_the_answer_are_a_value_error() -> None:
    plain = json.dumps(message([dict(CALLED["content"][0])], "tool_use")).encode()  # type: ignore[call-overload]
    for wrong in ([], [ToolResult("b", "")], [ToolResult("a", ""), ToolResult("a", "")]):
        with pytest.raises(ValueError, match="one result for each call"):
            MESSAGES.continued(ASKED, PLAIN, plain, wrong)
    with pytest.raises(ValueError, match="one result for each call"):
        MESSAGES.continued(ASKED, PLAIN, json.dumps(message([])).encode(), [])


def test_recorded_conversations_go_on_from_their_answers() -> None:
    went_on = 0
    for exchange, shape, body in with_calls():
        question = asked(exchange)
        calls = verdict_of(shape, body)[1].calls
        told_back = tuple(ToolResult(one.call_id, f"refused {at}", at % 2 == 0) for at, one in enumerate(calls))
        new = MESSAGES.continued(question, shape, body, told_back)
        follow = MESSAGES.parse("POST", "messages", new, "beta=true")
        assert [item.raw for item in follow.items[:-2]] == [item.raw for item in question.items], exchange.id
        assert follow.body == new and follow.shape == question.shape
        assert MESSAGES.results(follow) == told_back, exchange.id
        content = json.loads(MESSAGES.convert(shape, PLAIN, body))["content"]
        assert json.loads(follow.items[-2].raw)["content"] == [one for one in content if one.get("text") != ""]
        assert follow.frame == question.frame and follow.context == question.context
        went_on += 1
    assert went_on > 300


def test_recorded_requests_carry_results_for_calls_and_offer_tools() -> None:
    given_back = offering = 0
    for exchange in recorded():
        question = asked(exchange)
        tools = json.loads(exchange.request).get("tools") or []
        own = [one["name"] for one in tools if one.get("type", "custom") == "custom"]
        assert [one.name for one in MESSAGES.offered(question) if one.schema] == own, exchange.id
        offering += bool(own)
        for one in MESSAGES.results(question):
            assert one.call_id in {found for item in question.items for found in item.call_ids}, exchange.id
            given_back += 1
    assert given_back > 100 and offering > 200
