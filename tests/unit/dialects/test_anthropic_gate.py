"""What of a streamed Anthropic message may be seen before it is committed, and when one counts as finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Verdict
from agentstate.dialects import sse
from agentstate.dialects.anthropic_answer import PING, StreamGate, event, is_agents, judge_plain
from agentstate.dialects.anthropic_messages import AnthropicMessages
from tests.unit.core.profile import examples
from tests.unit.dialects.test_sse import cut

MODEL = "claude-test"
DELTAS = {"text": "text_delta", "thinking": "thinking_delta"}
START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
    },
}  # fmt: skip


def told(value: dict[str, Any]) -> bytes:
    """An event as Anthropic writes it, with blanks before its last brace."""
    return event(value["type"].encode(), json.dumps(value, ensure_ascii=False)[:-1].encode() + b"   }")


def block(index: int, start: dict[str, Any], pieces: Iterable[str] = ()) -> list[bytes]:
    """The events of a content block; pieces are of its text, or of its input."""
    kind = start.get("type", "")
    delta, name = (DELTAS[kind], kind) if kind in DELTAS else ("input_json_delta", "partial_json")
    grown = [{"type": "content_block_delta", "index": index, "delta": {"type": delta, name: piece}} for piece in pieces]
    begin = {"type": "content_block_start", "index": index, "content_block": start}
    return [told(found) for found in (begin, *grown, {"type": "content_block_stop", "index": index})]


def text(index: int, *words: str) -> list[bytes]:
    return block(index, {"type": "text", "text": ""}, words)


def call(index: int, *pieces: str, kind: str = "tool_use", name: str = "mail", **more: Any) -> list[bytes]:
    return block(index, {"type": kind, "id": f"toolu_{index}", "name": name, "input": {}} | more, pieces)


def end(reason: str | None, output: int = 9) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return told({"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}})


STOP = told({"type": "message_stop"})


def stream_of(start: dict[str, Any], pieces: Sequence[str], reason: str) -> bytes:
    """A whole stream of one content block."""
    return b"".join([told(START), *block(0, start, pieces), end(reason), STOP])


def message(content: list[Any], reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    """A whole message object."""
    usage = {"input_tokens": 5, "output_tokens": 9}
    return START["message"] | {"content": content, "stop_reason": reason, "usage": usage} | more


def judged(whole: Any) -> Verdict:
    return judge_plain(whole if isinstance(whole, bytes) else json.dumps(whole).encode())


def fed(pieces: Iterable[bytes]) -> tuple[bytes, Verdict, bool]:
    """(bytes that may be seen, verdict, whether the end marker came)."""
    gate = StreamGate()
    free = b"".join(gate.feed(piece) for piece in pieces)
    return free, gate.finish(), gate.done


# Each with how many of its events may be seen before the commit.
WHOLE: dict[str, tuple[list[bytes], int]] = {
    "text": ([told(START), PING, *text(0, "hello ", "you"), end("end_turn"), STOP], 6),
    "a call": ([told(START), *text(0, "let me see"), *call(1, '{"to":', '"x"}'), end("tool_use"), STOP], 4),
    "calls": ([told(START), *call(0, "{}"), *call(1, ""), end("tool_use"), STOP], 1),
    "text after a call": ([told(START), *call(0, "{}"), *text(1, "late"), end("tool_use"), STOP], 1),
    "thinking": ([told(START), *block(0, {"type": "thinking", "thinking": ""}, ["hm"]), end("end_turn"), STOP], 4),
    "server call": ([told(START), *call(0, '{"q":1}', kind="server_tool_use"),
                     *block(1, {"type": "web_search_tool_result", "tool_use_id": "toolu_0", "content": []}),
                     *call(2, "{}", kind="mcp_tool_use"), *text(3, "so"), end("end_turn"), STOP], 12),
    "unknown event": ([told(START), told({"type": "weather", "index": "x"}), b": wait\n\n", *text(0, "a"),
                       end("end_turn"), STOP], 6),
    "end marker": ([told(START), *text(0, "a"), end("end_turn"), STOP, event(b"data", b"[DONE]")], 4),
    "usage before the end": ([told(START), *text(0, "a"), end(None), end("end_turn"), STOP], 5),
    "nothing said": ([told(START), end("end_turn"), STOP], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_stream_is_finished_and_shows_the_same_however_it_is_cut(name: str) -> None:
    events, visible = WHOLE[name]
    stream = b"".join(events)
    whole = fed([stream])
    assert whole[0] == b"".join(events[:visible])
    assert (whole[1].fault, whole[2]) == ("", True)
    for place in range(len(stream) + 1):
        assert fed([stream[:place], stream[place:]]) == whole, place


@pytest.mark.parametrize("name", WHOLE)
def test_crlf_and_missing_event_lines_change_nothing_of_the_verdict(name: str) -> None:
    events, _ = WHOLE[name]
    stream = b"".join(events)
    bare = b"".join(found[found.index(b"data:") :] if b"data:" in found else found for found in events)
    assert fed([stream.replace(b"\n", b"\r\n")])[1] == fed([stream])[1]
    assert fed([bare])[1] == fed([stream])[1]
    assert fed([stream[:-2]])[1] == fed([stream])[1]


@pytest.mark.parametrize("name", WHOLE)
def test_stream_that_ends_before_message_stop_is_a_fault(name: str) -> None:
    events, _ = WHOLE[name]
    for count in range(events.index(STOP)):
        free, verdict, done = fed(events[:count])
        assert verdict.fault and not done
        assert b"".join(events).startswith(free)


def test_message_stop_without_a_stop_reason_and_end_without_beginning_are_faults() -> None:
    assert "stop reason" in fed([told(START), *text(0, "a"), STOP])[1].fault
    assert "without a message" in fed([end("end_turn"), STOP])[1].fault
    assert "without a message" in fed([event(b"data", b"[DONE]")])[1].fault
    assert "without a message" in fed([])[1].fault


REASONS = ("end_turn", "max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded",
           "compaction", "a reason of tomorrow")  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_any_stop_reason_finishes_a_message(reason: str) -> None:
    assert fed([told(START), *text(0, "a"), end(reason), STOP])[1] == Verdict(
        "", MODEL, '{"input_tokens":5,"output_tokens":9}', (), (reason,)
    )
    assert judged(message([{"type": "text", "text": "a"}], reason)).finish == (reason,)


@pytest.mark.parametrize("kind", ["tool_use", "computer_use", "bash_tool_use"])
def test_call_that_the_agent_is_to_run_is_held_even_if_its_kind_is_new(kind: str) -> None:
    assert is_agents(kind)
    events = [told(START), *call(0, "{}", kind=kind), end("tool_use"), STOP]
    free, verdict, _ = fed(events)
    assert free == events[0]
    assert [(found.call_id, found.name) for found in verdict.calls] == [("toolu_0", "mail")]


# --- calls ------------------------------------------------------------------------------------------------------------


def test_calls_carry_the_input_as_the_model_wrote_it() -> None:
    pieces = call(1, '{"n": 1.', '50,"a":"é"}')
    stream = b"".join([told(START), *text(0, "so"), *pieces, *call(2, ""), *call(3), end("tool_use"), STOP])
    calls = fed([stream])[1].calls
    assert [(found.choice, found.index, found.call_id, found.arguments) for found in calls] == [
        (0, 1, "toolu_1", '{"n": 1.50,"a":"é"}'), (0, 2, "toolu_2", "{}"), (0, 3, "toolu_3", "{}"),
    ]  # fmt: skip
    plain = b'{"content":[{"type":"tool_use","id":"a","name":"b","input":{"n": 1.50 }}],"stop_reason":"tool_use"}'
    assert judged(plain).calls[0].arguments == '{"n": 1.50 }'


def test_input_that_comes_whole_with_the_beginning_of_a_call_counts() -> None:
    assert fed([told(START), *call(0, input={"to": "x"}), end("tool_use"), STOP])[1].calls[0].arguments == '{"to": "x"}'


def test_calls_in_the_first_event_are_held_and_known() -> None:
    begun = message([{"type": "tool_use", "id": "a", "name": "mail", "input": {"to": 1}}], None)
    free, verdict, _ = fed([told({"type": "message_start", "message": begun}), end("tool_use"), STOP])
    assert (free, verdict.fault) == (b"", "")
    assert [found.arguments for found in verdict.calls] == ['{"to": 1}']


@pytest.mark.parametrize("written", ['{"a":', '{"a" 1}', "{'a': 1}", '{"a":1}}', "nope", '{"a":"\n"}'])
def test_input_that_does_not_parse_is_a_fault(written: str) -> None:
    assert "mail" in fed([told(START), *call(0, written), end("tool_use"), STOP])[1].fault
    assert not fed([told(START), *call(0, written, kind="server_tool_use"), end("end_turn"), STOP])[1].fault


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
@pytest.mark.parametrize("written", ["", '{"a":', '{"a":1}'])
def test_call_that_a_limit_cut_is_an_answer_that_is_broken(reason: str, written: str) -> None:
    verdict = fed([told(START), *text(0, "so"), *call(1, written), end(reason), STOP])[1]
    assert (verdict.fault, verdict.broken) == ("", True)
    verdict = judged(message([{"type": "tool_use", "id": "a", "name": "mail", "input": {}}], reason))
    assert (verdict.fault, verdict.broken) == ("", True)


def test_text_that_a_limit_cut_is_not_broken() -> None:
    assert not fed([told(START), *call(0, "{}"), *text(1, "so"), end("max_tokens"), STOP])[1].broken
    assert not fed([told(START), *text(0, "so"), end("max_tokens"), STOP])[1].broken


# --- errors -----------------------------------------------------------------------------------------------------------

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
BAD_EVENTS = (
    told(OVERLOADED), event(b"error", b'{"message":"x"}'), event(b"error", b"{}"),
    b'data: {"error":{"message":"x"}}\n\n',
    b"data: {\n\n", b"data: <html>\n\n", b"data: \xff\n\n", b"data: [1]\n\n", b"data: 7\n\n",
    b'data: {"type":"ping","x":"\xff"}\n\n', b'data: {"type":"content_block_start","content_block":7}\n\n',
    b'data: {"type":"message_delta","delta":{"stop_reason":[]}}\n\n', b"data: " + b"[" * 60_000 + b"\n\n",
    b'data: {"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"{}"}}\n\n',
    b'data: {"type":"message_start","message":{"content":{"type":"tool_use"}}}\n\n',
    b'data: {"type":"message_delta","delta":{},"usage":7}\n\n',
    b'data: {"type":"content_block_start","content_block":{"type":"fallback","to":7}}\n\n',
)  # fmt: skip


@pytest.mark.parametrize("bad", BAD_EVENTS)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_event_that_is_an_error_or_cannot_be_read_is_a_fault_and_is_not_shown(bad: bytes, place: int) -> None:
    events, _ = WHOLE["text"]
    free, verdict, _ = fed([*events[:place], bad, *events[place:]])
    assert verdict.fault
    assert free == b"".join(events[:place])


def test_fault_says_what_the_provider_said() -> None:
    assert "Overloaded" in fed([told(START), told(OVERLOADED)])[1].fault


@pytest.mark.parametrize("index", ['"0"', "0.0", "null"])
def test_call_in_an_event_with_unusual_types_is_held_and_known(index: str) -> None:
    odd = (
        f'{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"a","name":"mail"}}}}'
    )
    free, verdict, _ = fed([told(START), event(b"content_block_start", odd.encode()), end("tool_use"), STOP])
    assert free == told(START)
    assert (verdict.fault, [found.name for found in verdict.calls]) == ("", ["mail"])


def test_byte_order_mark_hides_nothing() -> None:
    begun = message([{"type": "tool_use", "id": "a", "name": "mail", "input": {}}], None)
    free, verdict, _ = fed([b"\xef\xbb\xbf" + told({"type": "message_start", "message": begun}), end("tool_use"), STOP])
    assert free == b""
    assert [found.name for found in verdict.calls] == ["mail"]


@examples(300)
@given(
    st.lists(
        st.sampled_from((b"event: x", b"data: {", b"data: ", b"{}", b"}", b"\n", b"\r\n", b"\r", b"data:{}", b": c"))
    )
)
def test_event_in_the_usual_form_is_read_as_any_other(parts: list[bytes]) -> None:
    for event_ in sse.events(b"event: x\ndata: {}" + b"".join(parts) + b"}\n\n"):
        assert sse.data_of(event_) == sse.data_of(event_)


def test_event_whose_name_hides_a_call_is_held() -> None:
    hidden = call(0, "{}")[0].replace(b"event: content_block_start", b"event: ping")
    assert fed([told(START), hidden, end("tool_use"), STOP])[0] == told(START)


_WORDS = st.sampled_from(
    ("", "hello", "stop_reason", "tool_use", "[DONE]", "data: x\n\n", "\u2028", "é", "message_stop")
)


@examples(200)
@given(st.lists(_WORDS, max_size=5), st.booleans(), st.lists(st.integers(0, 2**16), max_size=8), st.booleans())
def test_text_of_any_kind_streams_until_the_first_call(
    words: list[str], calls: bool, places: list[int], crlf: bool
) -> None:
    shown = [told(START), *text(0, *words)]
    rest = [*(call(1, "{}") if calls else []), *text(2, "late"), end("end_turn"), STOP]
    if not calls:
        shown, rest = shown + rest[:3], rest[3:]
    ends = b"\r\n" if crlf else b"\n"
    stream, seen = (b"".join(part).replace(b"\n", ends) for part in (shown + rest, shown))
    free, verdict, done = fed(cut(stream, places))
    assert (free, verdict.fault, done) == (seen, "", True)


def test_heartbeat_is_a_ping_between_any_two_events() -> None:
    events, _ = WHOLE["text"]
    gate = StreamGate()
    for place, found in enumerate(events):
        gate.feed(found[:-1])
        assert gate.heartbeat() == b'event: ping\ndata: {"type": "ping"}\n\n'
        gate.feed(found[-1:])
        pinged = fed([*events[:place], gate.heartbeat(), *events[place:]])
        assert pinged[1] == fed(events)[1]


# --- plain answers ----------------------------------------------------------------------------------------------------

NO_ANSWERS = (
    (b"", "not JSON"), (b"{", "not JSON"), (b"\xff", "not JSON"), (b'{"x":' + b"[" * 60_000, "not JSON"),
    (b'{"content":[],"stop_reason":"end_turn","x":"\xff"}', "not JSON"), (b"<html>", "HTML"),
    (b" \n<!DOCTYPE html>", "HTML"), (b"[]", "not a JSON"), (b"null", "not a JSON"), (b"[" * 60_000, "not a JSON"),
    (b"{}", "no list of content"), (b'{"content":{}}', "no list of content"),
    (b'{"content":[7],"stop_reason":"end_turn"}', "no list of content"), (b'{"content":[]}', "no stop reason"),
    (b'{"content":[],"stop_reason":null}', "no stop reason"), (b'{"content":[],"stop_reason":7}', "no stop reason"),
    (b'{"type":"error","error":{"message":"x"}}', "error"),
    (b'{"error":"x","content":[],"stop_reason":"end_turn"}', "error"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "complaint"), NO_ANSWERS)
def test_what_is_no_finished_message_is_a_fault(body: bytes, complaint: str) -> None:
    assert complaint in judge_plain(body).fault


def test_every_truncation_of_a_plain_message_is_a_fault() -> None:
    body = json.dumps(
        message([{"type": "tool_use", "id": "a", "name": "mail", "input": {"to": "x"}}], "tool_use")
    ).encode()
    assert not judge_plain(body).fault
    assert all(judge_plain(body[:place]).fault for place in range(len(body)))


def test_plain_verdict_names_calls_usage_and_model() -> None:
    content = [
        {"type": "text", "text": "so"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "a", "name": "mail", "input": {}},
    ]
    verdict = judged(message(content, "tool_use", usage={"input_tokens": 0, "cost": 1.5}))
    assert [(found.index, found.call_id) for found in verdict.calls] == [(2, "a")]
    assert (verdict.usage, verdict.model) == ('{"input_tokens": 0, "cost": 1.5}', MODEL)
    assert judged(message([], usage=None)).usage == ""


def test_answer_that_the_provider_keeps_has_its_id() -> None:
    dialect = AnthropicMessages()
    body = b'{"model":"m","messages":[{"role":"user","content":"a"}],"thread":%b}'
    events, _ = WHOLE["text"]
    for thread, kept in ((b'{"type":"create"}', "msg_1"), (b"null", "")):
        asked = dialect.parse("POST", "messages", body % thread)
        gate = dialect.gate(asked)
        gate.feed(b"".join(events))
        assert gate.finish().answer_id == kept
        assert dialect.judge(asked, json.dumps(message([])).encode()).answer_id == kept
    gone_on = body % b'{"type":"continue","previous_message_id":"msg_1"}'
    assert dialect.parse("POST", "messages", gone_on).previous == "msg_1"
