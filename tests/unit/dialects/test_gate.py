"""What of a streamed answer may be seen before it is committed, and when an answer counts as finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Verdict
from agentstate.dialects import sse
from agentstate.dialects.openai_answer import StreamGate, judge_plain
from tests.support import chat, traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.test_sse import cut

SERVICES = ("openai", "azure", "openrouter", "groq", "mistral", "deepseek", "ollama", "xai", "zai")
# Recorded streams that are no finished answers: a choice without finish reason, or an error event.
UNFINISHED = {"openai-7aed41dc30", "openrouter-bf467b9a03", "groq-8e947bc80e", "groq-9e866a6389"}


def fed(pieces: Iterable[bytes], choices: int = 1) -> tuple[bytes, Verdict, bool]:
    """(bytes that may be seen, verdict, whether the end marker came)."""
    gate = StreamGate(choices)
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


def is_secret(chunk: Any) -> bool:
    """Whether a chunk holds something that must not be seen before the commit."""
    if not isinstance(chunk, dict):
        return True
    choices = [choice for choice in chunk.get("choices") or () if isinstance(choice, dict)]
    deltas = [choice.get("delta") or {} for choice in choices]
    ends = any(choice.get("finish_reason") is not None for choice in choices)
    return ends or bool(chunk.get("error")) or any(d.get("tool_calls") or d.get("function_call") for d in deltas)


def check_free(free: bytes, stream: bytes) -> None:
    """What may be seen is the stream's beginning, and nothing in it is secret."""
    assert stream.startswith(free)
    assert b"[DONE]" not in free.replace(b'"[DONE]"', b"")
    assert not any(is_secret(chunk) for chunk in objects(free))


def recorded_streams() -> list[traffic.Exchange]:
    traffic.require()
    found = [found for service in SERVICES for found in traffic.provider_chat(service)]
    found += traffic.client_chat("run1")
    return [
        exchange
        for trajectory in found
        for exchange in trajectory.exchanges
        if exchange.streamed and exchange.status == 200 and exchange.response.lstrip()[:1] != b"{"
    ]


def choices_asked(exchange: traffic.Exchange) -> int:
    count = json.loads(exchange.request).get("n")
    return count if isinstance(count, int) else 1


# --- recorded streams -------------------------------------------------------------------------------------------------


def test_recorded_streams_are_finished_and_show_no_finish_and_no_call_too_early() -> None:
    wrong = []
    streams = recorded_streams()
    assert len(streams) > 150
    for exchange in streams:
        free, verdict, _ = fed([exchange.response], choices_asked(exchange))
        check_free(free, exchange.response)
        if bool(verdict.fault) != (exchange.id in UNFINISHED):
            wrong.append(f"{exchange.id}: {verdict.fault or 'taken for finished'}")
    assert wrong == []


def test_verdict_on_recorded_streams_names_their_calls_usage_and_model() -> None:
    for exchange in recorded_streams():
        if exchange.id in UNFINISHED:
            continue
        _, verdict, _ = fed([exchange.response], choices_asked(exchange))
        chunks = objects(exchange.response)
        deltas = [choice.get("delta") or {} for chunk in chunks for choice in chunk.get("choices") or ()]
        names = [
            part["function"]["name"]
            for delta in deltas
            for part in delta.get("tool_calls") or ()
            if (part.get("function") or {}).get("name")
        ]
        assert [call.name for call in verdict.calls if call.call_id != "function"] == names, exchange.id
        usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
        assert (json.loads(verdict.usage) if verdict.usage else None) == (usages[-1] if usages else None), exchange.id
        models = [chunk["model"] for chunk in chunks if chunk.get("model")]
        assert verdict.model == (models[-1] if models else ""), exchange.id


@examples(12)
@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=12))
def test_verdict_and_visible_bytes_of_recorded_streams_do_not_depend_on_how_they_are_cut(places: list[int]) -> None:
    for exchange in recorded_streams()[::3]:
        asked = choices_asked(exchange)
        assert fed(cut(exchange.response, places), asked) == fed([exchange.response], asked), exchange.id


# --- every place at which a stream can be cut -------------------------------------------------------------------------

CALLS = [chat.tool_call("weather", '{"city":"Oslo"}'), chat.tool_call("mail", '{"to":"x"}', call_id="call_2")]
WHOLE: dict[str, bytes] = {
    "text": b"".join(chat.chunks("hello there you")),
    "calls": b"".join(chat.chunks("", tool_calls=CALLS)),
    "text and a call": b"".join(chat.chunks("let me see", tool_calls=CALLS[:1])),
    "CRLF": b"".join(chat.chunks("hello you")).replace(b"\n", b"\r\n"),
    "comments": b": wait\n\n" + b": keep-alive\n\n".join(chat.chunks("hello you")),
    "usage": b"".join(
        [*chat.chunks("hi", done=False), chat.chunk({}, choices=[], usage={"total_tokens": 3}), chat.DONE]
    ),
    "legacy": b"".join(
        [
            chat.chunk({"function_call": {"name": "look", "arguments": ""}}),
            chat.chunk({"function_call": {"arguments": '{"a":1}'}}),
            chat.chunk({}, finish="function_call"),
            chat.DONE,
        ]
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_stream_is_finished_however_it_is_cut(name: str) -> None:
    stream = WHOLE[name]
    whole = fed([stream])
    assert not whole[1].fault
    check_free(whole[0], stream)
    for place in range(len(stream) + 1):
        assert fed([stream[:place], stream[place:]]) == whole, place
    assert fed(stream[place : place + 1] for place in range(len(stream))) == whole


@pytest.mark.parametrize("name", WHOLE)
def test_stream_that_ends_early_is_a_fault_unless_all_that_matters_was_seen(name: str) -> None:
    stream = WHOLE[name]
    for place in range(len(stream)):
        begun = stream[:place]
        free, verdict, _ = fed([begun])
        check_free(free, begun)
        if not verdict.fault:
            assert _last_finish(begun), f"taken for finished at byte {place}: {begun[-60:]!r}"
            assert verdict.calls == fed([stream])[1].calls


def _last_finish(stream: bytes) -> bool:
    """Whether a finish reason is among the events; the last of them may be torn."""
    found = []
    for event in sse.events(stream):
        data = sse.data_of(event) or b""
        if data.startswith(b"{") and data.endswith(b"}") and data.count(b"{") == data.count(b"}"):
            found += [choice["finish_reason"] for choice in json.loads(data)["choices"]]
    return any(found)


def test_end_marker_alone_proves_nothing() -> None:
    events = chat.chunks("hello there", done=False)
    for stream in (chat.DONE, b"".join(events[:-1]) + chat.DONE, b": x\n\n" + chat.DONE, b"", b"\n\n"):
        assert fed([stream])[1].fault, stream


@pytest.mark.parametrize("kept", [0, 1])
def test_choice_without_a_finish_reason_is_a_fault(kept: int) -> None:
    events = [chat.chunk({"content": "a"}, index=0), chat.chunk({"content": "b"}, index=1),
              chat.chunk({}, index=kept, finish="stop")]  # fmt: skip
    verdict = fed([b"".join(events) + chat.DONE], choices=2)[1]
    assert f"choice {1 - kept}" in verdict.fault


def test_missing_choice_is_a_fault_where_the_stream_has_no_proper_end() -> None:
    one = chat.chunk({"content": "a"}) + chat.chunk({}, finish="stop")
    assert fed([one], choices=2)[1].fault
    # A provider that ignores ``n`` says that it is done.
    assert not fed([one + chat.DONE], choices=2)[1].fault


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [
    b'data: {"error":{"message":"overloaded"}}\n\n',
    b'event: error\ndata: {"error":{"message":"x","status_code":400}}\n\n',
    b'data: {"error":"text"}\n\n',
    b'data: {"id":"1","choices":[],"error":{"code":500}}\n\n',
])  # fmt: skip
@pytest.mark.parametrize("place", [0, 2, 4])
def test_error_event_is_a_fault_and_is_not_shown(event: bytes, place: int) -> None:
    events = chat.chunks("one two three")
    stream = b"".join([*events[:place], event, *events[place:]])
    free, verdict, _ = fed([stream])
    assert "broke off" in verdict.fault
    assert event not in free
    check_free(free, stream)


@pytest.mark.parametrize("event", [b"data: {\n\n", b"data: <html>\n\n", b"data: \xff\n\n", b"data: [1]\n\n",
                                   b"data: 7\n\n", b'data: {"choices": 1e999}\n\n',
                                   b"data: " + b"[" * 60_000 + b"\n\n"])  # fmt: skip
def test_event_that_is_no_json_object_is_a_fault_and_is_not_shown(event: bytes) -> None:
    events = chat.chunks("one two three")
    free, verdict, _ = fed([b"".join([*events[:2], event, *events[2:]])])
    assert verdict.fault
    assert event not in free


def test_null_error_is_none() -> None:
    events = chat.chunks("one", done=False)
    assert not fed([b"".join([*events[:1], chat.chunk({"content": "x"}, error=None), *events[1:]])])[1].fault


ARGUMENTS = ('{"a":', '{"a" 1}', "{'a': 1}", '{"a":1}}', "nope", '{"a":"\n"}')


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_tool_arguments_that_do_not_parse_are_a_fault(arguments: str) -> None:
    call = chat.tool_call("weather", arguments)
    assert "weather" in fed([b"".join(chat.chunks("", tool_calls=[call]))])[1].fault
    assert "weather" in judge_plain(chat.completion(None, tool_calls=[call])).fault


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_tool_arguments_cut_by_a_limit_are_an_answer_that_is_broken(reason: str) -> None:
    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"ci'}}
    stream = chat.chunk({"tool_calls": [begun]}) + chat.chunk({}, finish=reason) + chat.DONE
    verdict = fed([stream])[1]
    assert (verdict.fault, verdict.broken) == ("", True)
    plain = json.loads(chat.completion(None, tool_calls=[chat.tool_call("weather", '{"ci')]))
    plain["choices"][0]["finish_reason"] = reason
    verdict = judge_plain(json.dumps(plain).encode())
    assert (verdict.fault, verdict.broken) == ("", True)


@pytest.mark.parametrize("arguments", ["", "{}", " ", '{"a":1}', "[1]", '"text"'])
def test_tool_arguments_that_parse_or_are_empty_are_fine(arguments: str) -> None:
    call = chat.tool_call("weather", arguments)
    assert fed([b"".join(chat.chunks("", tool_calls=[call]))])[1] == Verdict(
        "", chat.MODEL, "", fed([b"".join(chat.chunks("", tool_calls=[call]))])[1].calls, ("tool_calls",)
    )
    assert not judge_plain(chat.completion(None, tool_calls=[call])).fault


def test_other_choice_that_was_cut_does_not_excuse_arguments_that_do_not_parse() -> None:
    def call(choice: int, arguments: str) -> bytes:
        part = {"index": 0, "id": f"call_{choice}", "function": {"name": "weather", "arguments": arguments}}
        return chat.chunk({"tool_calls": [part]}, index=choice)

    # The first choice was cut by its limit, the second one is just wrong.
    stream = b"".join([call(0, '{"a'), call(1, '{"b'), chat.chunk({}, index=0, finish="length"),
                       chat.chunk({}, index=1, finish="tool_calls"), chat.DONE])  # fmt: skip
    assert fed([stream], choices=2)[1].fault


# --- calls ------------------------------------------------------------------------------------------------------------


def _call_events(parts: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(chat.chunk({"tool_calls": [part]}) for part in parts) + chat.chunk({}, finish="tool_calls")


def test_calls_grow_by_their_index_even_when_interleaved() -> None:
    stream = _call_events([
        {"index": 0, "id": "a", "function": {"name": "one", "arguments": '{"x"'}},
        {"index": 1, "id": "b", "function": {"name": "two", "arguments": '{"y"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "id": None, "function": {"name": None, "arguments": ":2}"}},
    ])  # fmt: skip
    calls = fed([stream])[1].calls
    assert [(c.index, c.call_id, c.name, c.arguments) for c in calls] == [
        (0, "a", "one", '{"x":1}'), (1, "b", "two", '{"y":2}'),
    ]  # fmt: skip


def test_whole_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    stream = _call_events([
        {"id": "a", "function": {"name": "one", "arguments": "{}"}},
        {"id": "b", "function": {"name": "two", "arguments": {"y": 2}}},
    ])  # fmt: skip
    assert [(c.call_id, c.name, c.arguments) for c in fed([stream])[1].calls] == [
        ("a", "one", "{}"), ("b", "two", '{"y":2}'),
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [{"index": None}, {"index": "0"}, {"logprobs": 1, "index": 0.0}])
def test_call_in_a_chunk_with_unusual_types_is_known_and_judged(odd: dict[str, Any]) -> None:
    def stream(arguments: str) -> bytes:
        part = {"index": 0, "id": "a", "function": {"name": "mail", "arguments": arguments}}
        choice = {"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": "tool_calls"} | odd
        return sse.encode(json.dumps({"choices": [choice]}).encode()) + chat.DONE

    free, verdict, _ = fed([stream('{"to":"x"}')])
    assert free == b""
    assert not verdict.fault
    assert [call.name for call in verdict.calls] == ["mail"]
    assert "mail" in fed([stream('{"to":')])[1].fault


def test_byte_order_mark_hides_nothing() -> None:
    stream = b"\xef\xbb\xbf" + _call_events([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}])
    free, verdict, _ = fed([stream])
    assert free == b""
    assert [call.name for call in verdict.calls] == ["x"]


_NAMES = st.sampled_from(("", "hello", "finish_reason", "tool_calls", "[DONE]", "data: x\n\n", "\u2028", "é"))


@given(st.lists(_NAMES, max_size=5), st.booleans(), st.lists(st.integers(0, 2**16), max_size=8), st.booleans())
@examples(200)
def test_text_of_any_kind_streams_until_the_first_secret(
    words: list[str], calls: bool, places: list[int], crlf: bool
) -> None:
    events = [chat.chunk({"content": word}) for word in words]
    end = [chat.chunk({"tool_calls": [{"index": 0, **CALLS[0]}]})] if calls else []
    stream = b"".join([*events, *end, chat.chunk({"content": "late"}), chat.chunk({}, finish="stop"), chat.DONE])
    stream = stream.replace(b"\n", b"\r\n") if crlf else stream
    free, verdict, done = fed(cut(stream, places))
    assert done and not verdict.fault
    shown = [chunk["choices"][0]["delta"]["content"] for chunk in objects(free)]
    assert shown == [*words, *([] if calls else ["late"])]


# --- plain answers ----------------------------------------------------------------------------------------------------


def test_recorded_plain_answers_are_finished() -> None:
    traffic.require()
    found = [found for service in SERVICES for found in traffic.provider_chat(service)] + [*traffic.client_chat("run1")]
    plain = [
        exchange for trajectory in found for exchange in trajectory.exchanges
        if not exchange.streamed and exchange.status == 200
    ]  # fmt: skip
    assert len(plain) > 200
    wrong = {exchange.id: verdict.fault for exchange in plain if (verdict := judge_plain(exchange.response)).fault}
    assert set(wrong) <= UNFINISHED, wrong


NO_ANSWERS = (
    (b"", "not JSON"), (b"{", "not JSON"), (b"\xff", "not JSON"), (b"[" * 60_000, "not JSON"),
    (b"<html>", "HTML"), (b" \n<!DOCTYPE html>", "HTML"), (b"[]", "not a JSON"), (b"null", "not a JSON"),
    (b"{}", "no choices"), (b'{"choices":[]}', "no choices"), (b'{"choices":{}}', "no choices"),
    (b'{"error":{"message":"x"}}', "error"), (b'{"error":"x","choices":[{"finish_reason":"stop"}]}', "error"),
    (b'{"choices":[{"message":{}}]}', "choice 0"), (b'{"choices":[{"finish_reason":null}]}', "choice 0"),
    (b'{"choices":[{"finish_reason":"stop"},{"message":{}}]}', "choice 1"), (b'{"choices":[7]}', "choice 0"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "complaint"), NO_ANSWERS)
def test_what_is_no_finished_answer_is_a_fault(body: bytes, complaint: str) -> None:
    assert complaint in judge_plain(body).fault


def test_every_truncation_of_a_plain_answer_is_a_fault() -> None:
    body = chat.completion(None, tool_calls=CALLS).rstrip()
    assert not judge_plain(body).fault
    assert all(judge_plain(body[:place]).fault for place in range(len(body)))


def test_plain_verdict_names_calls_usage_model_and_reasons() -> None:
    verdict = judge_plain(chat.completion("x", tool_calls=CALLS, choices=2))
    assert [(call.choice, call.index, call.name) for call in verdict.calls] == [
        (0, 0, "weather"), (0, 1, "mail"), (1, 0, "weather"), (1, 1, "mail"),
    ]  # fmt: skip
    assert json.loads(verdict.usage)["total_tokens"] == 12
    assert verdict.model == chat.MODEL
    assert verdict.finish == ("tool_calls", "tool_calls")
