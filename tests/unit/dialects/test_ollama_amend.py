"""An answer of Ollama's chat with calls edited or taken out, and the request that goes on from one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Change, OfferedTool, Shape, ToolCall, ToolResult, Verdict
from tests.unit.core.profile import examples
from tests.unit.dialects.amendments import NEW, SAID, chosen, expected, fates_of, shown
from tests.unit.dialects.test_gemini_traffic import fed, parse
from tests.unit.dialects.test_ollama import (
    CHAT,
    GENERATE,
    LOOK,
    MAIL,
    OLLAMA,
    PLAIN,
    STREAM,
    STREAMS,
    done,
    encoded,
    exchanges,
    line,
    lines,
    parsed,
)

ASKED = parsed(CHAT)


def amended(body: bytes, changes: Sequence[Change], said: str = SAID, shape: Shape = STREAM) -> bytes:
    return OLLAMA.amended(ASKED, shape, body, changes, said)


def verdict_of(body: bytes, shape: Shape = STREAM) -> Verdict:
    return fed(OLLAMA, ASKED, [body])[1] if shape.stream else OLLAMA.judge(ASKED, body)


def plain_of(stream: bytes) -> bytes:
    return OLLAMA.convert(STREAM, PLAIN, stream)


def check(stream: bytes, changes: Sequence[Change], said: str) -> bytes:
    """Everything that holds of an amended stream; the stream."""
    made = amended(stream, changes, said)
    free, before, _ = fed(OLLAMA, ASKED, [stream])
    after = verdict_of(made)
    assert made.startswith(free)
    assert (after.fault, after.usage, after.model) == ("", before.usage, before.model)
    wanted = expected(before.calls, changes)
    assert shown(after.calls) == shown(wanted)
    lost = any(change.arguments is None for change in changes)
    assert after.finish == (("stop",) if lost and not wanted else before.finish)
    new = set(made.split(b"\n")) - set(stream.split(b"\n"))
    assert all(len(found.decode().splitlines()) == 1 for found in new)  # the plainest clients split text, not bytes
    plain = amended(plain_of(stream), changes, said, PLAIN)
    assert json.loads(plain_of(made)) == json.loads(plain)
    assert shown(verdict_of(plain, PLAIN).calls) == shown(wanted)
    if lost:
        assert json.loads(plain)["message"]["content"].endswith(said)
    return made


# --- recorded answers -------------------------------------------------------------------------------------------------


def test_recorded_answers_are_amended_in_both_shapes_and_go_on_with_results() -> None:
    streams = plains = 0
    for exchange in exchanges():
        call = parse(OLLAMA, exchange)
        own = [tool["function"]["name"] for tool in exchange.asked.get("tools") or ()]
        assert [tool.name for tool in OLLAMA.offered(call)] == own, exchange.id
        OLLAMA.results(call)
        if exchange.status != 200:
            continue
        calls = verdict_of(exchange.response, call.shape).calls
        assert OLLAMA.amended(call, call.shape, exchange.response, [], SAID) == exchange.response
        for fates in fates_of(len(calls)) if calls else ():
            for said in (SAID, ""):
                changes = chosen(calls, fates)
                if call.shape.stream:
                    check(exchange.response, changes, said)
                made = amended(exchange.response, changes, said, call.shape)
                assert shown(verdict_of(made, call.shape).calls) == shown(expected(calls, changes)), exchange.id
        streams += bool(calls and call.shape.stream)
        plains += bool(calls and not call.shape.stream)
        if not exchange.path.endswith("chat"):
            continue
        results = [ToolResult(one.call_id, f"result {at}") for at, one in enumerate(calls)]
        again = OLLAMA.parse("POST", call.path, OLLAMA.continued(call, call.shape, exchange.response, results))
        assert OLLAMA.results(again) == tuple(results), exchange.id
        assert again.items[: len(call.items)] == call.items and again.shape == call.shape
    assert streams > 2 and plains > 2


# --- any stream -------------------------------------------------------------------------------------------------------

_LINES = st.one_of(
    st.sampled_from(("", "ok", "\n", "é\u2028")).map(line),
    st.just({**line(), "message": {"role": "assistant", "content": "", "thinking": "hm"}}),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=2),
)


@examples(250)
@given(
    st.lists(_LINES, max_size=6),
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
    st.sampled_from((SAID, "no", "")),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("", "hi")),
)
def test_any_stream_is_amended_so_that_nothing_old_is_left_and_nothing_else_changes(
    found: list[Any], fates: list[int], said: str, crlf: bool, whole: bool, last: str
) -> None:
    said_lines, letters = [], []
    for part in found:
        if isinstance(part, dict):
            said_lines.append(part)
            continue
        calls = []
        for has_id, has_index, is_text in part:
            letter = chr(0x4E00 + len(letters))
            arguments: Any = {"a": letter * 3}
            function = {"name": "f", "arguments": json.dumps(arguments, ensure_ascii=False) if is_text else arguments}
            more = {"index": len(letters)} if has_index else {}
            calls.append({"function": {**more, **function}} | ({"id": f"call-{letter}"} if has_id else {}))
            letters.append(letter)
        said_lines.append(line(calls=calls))
    stream = lines([*said_lines, done(message={"role": "assistant", "content": last})])
    stream = stream if whole else stream.rstrip()
    stream = stream.replace(b"\n", b"\r\n") if crlf else stream
    calls = verdict_of(stream).calls
    changes = chosen(calls, fates)
    made = check(stream, changes, said)
    changed = {change.index for change in changes}
    assert [at for at, letter in enumerate(letters) if letter * 3 in made.decode()] == [
        at for at in range(len(letters)) if at not in changed
    ]
    assert not any(f"call-{letters[change.index]}" in made.decode() for change in changes if change.arguments is None)
    kept = [one for one in stream.split(b"\n") if b"tool_calls" not in one and b'"done": true' not in one]
    assert kept == [one for one in made.split(b"\n") if one in set(kept)]


# --- places and forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMS)
def test_no_change_gives_the_very_bytes(name: str) -> None:
    assert amended(STREAMS[name], [], "") == amended(STREAMS[name], [], SAID) == STREAMS[name]


def test_following_calls_are_numbered_anew_and_edited_arguments_are_spliced_as_they_are_written() -> None:
    calls = [
        {"id": name, "function": {"index": at, "name": name, "arguments": {"n": 1}}} for at, name in enumerate("abc")
    ]
    body = lines([line(calls=calls[:2]), line(calls=calls[2:]), done()])
    made = check(body, [Change(0, 0), Change(0, 2, NEW)], "")
    found = [call for part in map(json.loads, made.splitlines()) for call in part["message"].get("tool_calls", ())]
    assert [(call["id"], call["function"]["index"]) for call in found] == [("b", 0), ("c", 1)]
    assert NEW.replace("\n", " ").replace("\u2028", "\\u2028").encode() in made
    plain = amended(plain_of(body), [Change(0, 2, NEW)], "", PLAIN)
    assert NEW.encode() in plain


def test_arguments_that_a_server_sends_as_text_stay_text() -> None:
    call = {"function": {"name": "look", "arguments": '{"city":"old"}'}}
    made = amended(lines([line(calls=[call]), done()]), [Change(0, 0, NEW)], "")
    assert json.loads(made.splitlines()[0])["message"]["tool_calls"][0]["function"]["arguments"] == NEW


def test_said_is_a_line_of_its_own_before_the_end_or_in_the_one_line_of_a_stream() -> None:
    body = lines([line("Let me see."), line(calls=[LOOK]), line(calls=[MAIL]), done()])
    first, mail, said, end = map(json.loads, check(body, [Change(0, 0)], SAID).splitlines())
    assert (first, mail, end) == (line("Let me see."), line(calls=[MAIL]), done())
    assert said == {**line(f"\n\n{SAID}"), "done": False}
    one = lines([done(message={"role": "assistant", "content": "hi", "tool_calls": [LOOK]}, done_reason="length")])
    (end,) = map(json.loads, check(one, [Change(0, 0)], SAID).splitlines())
    assert (end["message"], end["done_reason"]) == ({"role": "assistant", "content": f"hi\n\n{SAID}"}, "stop")


def test_log_probabilities_of_a_changed_call_go_with_it() -> None:
    tokens = [{"token": text, "logprob": -0.50} for text in ("hi", '{"city"', ': "Oslo"}')]
    body = lines([line("hi") | {"logprobs": tokens[:1]}, line(calls=[LOOK]) | {"logprobs": tokens[1:]}, done()])
    for change in (Change(0, 0), Change(0, 0, NEW)):
        assert b"Oslo" not in check(body, [change], SAID)


def test_line_with_fields_of_unusual_types_is_amended_too() -> None:
    odd = line(calls=[7, {"id": 7, "function": {"name": "look", "arguments": {"old": 1}}}], model=7)
    made = amended(lines([odd, done()]), [Change(0, 1)], SAID)
    assert [call.name for call in verdict_of(made).calls] == [""] and b"old" not in made
    assert verdict_of(amended(lines([odd, done()]), [Change(0, 0), Change(0, 1, NEW)], "")).calls == (
        ToolCall(0, 0, "7", "look", json.dumps(json.loads(NEW), ensure_ascii=False, separators=(",", ":"))),
    )


@pytest.mark.parametrize("changes", [
    [Change(0, 1)], [Change(1, 0)], [Change(0, 0), Change(0, 0)], [Change(0, 0, "[]")], [Change(0, 0, "{")],
])  # fmt: skip
@pytest.mark.parametrize("shape", [PLAIN, STREAM])
def test_change_that_cannot_be_made_is_an_error(changes: list[Change], shape: Shape) -> None:
    body = lines([line(calls=[LOOK]) | {"done": True}])
    with pytest.raises(ValueError, match=r"call|arguments"):
        amended(body, changes, SAID, shape)


# --- tools, results and the request that goes on ----------------------------------------------------------------------


def test_tools_and_results_are_read_as_those_of_chat_and_a_generated_text_has_none() -> None:
    assert OLLAMA.offered(ASKED) == tuple(OfferedTool(name, '{"type": "object"}') for name in ("look", "mail"))
    assert [result.call_id for result in OLLAMA.results(ASKED)] == ["a", "b"]
    generate = parsed({**GENERATE, "tools": CHAT["tools"], "messages": CHAT["messages"]}, "api/generate")
    assert (OLLAMA.offered(generate), OLLAMA.results(generate)) == ((), ())
    with pytest.raises(ValueError, match="is not in the answer"):
        OLLAMA.amended(generate, STREAM, STREAMS["generated"], [Change(0, 0)], SAID)
    with pytest.raises(ValueError, match="messages"):
        OLLAMA.continued(parsed(GENERATE), STREAM, STREAMS["generated"], ())


@pytest.mark.parametrize("shape", [PLAIN, STREAM])
def test_request_goes_on_with_the_message_and_a_result_for_each_call(shape: Shape) -> None:
    thought = {**line(), "message": {"role": "assistant", "content": "", "thinking": "hm"}}
    body = lines([thought, line(calls=[LOOK, LOOK]), line("see", calls=[MAIL]), done()])
    answer = body if shape.stream else plain_of(body)
    results = [ToolResult("m", "sent"), ToolResult("", "rain"), ToolResult("", '{"sun": 1}')]
    made = OLLAMA.continued(ASKED, shape, answer, results)
    again = parsed(json.loads(made))
    assert OLLAMA.results(again) == tuple(results) and again.items[: len(ASKED.items)] == ASKED.items
    place, more = encoded(CHAT).index(b'], "tools"'), len(made) - len(encoded(CHAT))
    assert made[:place] + made[place + more :] == encoded(CHAT)
    said, *given_ = json.loads(made)["messages"][len(CHAT["messages"]) :]
    assert said == json.loads(plain_of(body))["message"]
    assert given_ == [
        {"role": "tool", "tool_name": "mail", "tool_call_id": "m", "content": "sent"},
        {"role": "tool", "tool_name": "look", "content": "rain"},
        {"role": "tool", "tool_name": "look", "content": '{"sun": 1}'},
    ]
    with pytest.raises(ValueError, match="needs one result"):
        OLLAMA.continued(ASKED, shape, answer, results[1:])
