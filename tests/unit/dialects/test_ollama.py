"""Ollama's native API: which requests are one question, what of an answer may be seen, how its shapes add up."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint, mask
from agentstate.core.model import Call, Shape, Verdict
from agentstate.dialects import volatile
from agentstate.dialects.ollama import OllamaChat, ollama_error
from agentstate.errors import BadRequest, NotFound
from tests.unit.core.profile import examples
from tests.unit.dialects.test_gemini_traffic import Recorded, fed, judged, meant, parse, recorded, whole
from tests.unit.dialects.test_sse import cut

OLLAMA = OllamaChat()
PLAIN, STREAM = Shape(), Shape(True)
OLD, NEW = "2026-11-30T09:41:05Z", "2027-02-03T22:17:48Z"


def _tool(name: str, description: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": {"type": "object"}},
    }


CHAT: dict[str, Any] = {
    "model": "qwen-test",
    "messages": [
        {"role": "system", "content": f"It is {OLD}."},
        {"role": "user", "content": "What is due?"},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
            {"id": "a", "function": {"index": 0, "name": "look", "arguments": {"city": "Oslo"}}},
            {"id": "b", "function": {"index": 1, "name": "look", "arguments": {"city": "Rome"}}},
        ]},
        {"role": "tool", "tool_name": "look", "tool_call_id": "a", "content": "rent"},
        {"role": "tool", "tool_name": "look", "tool_call_id": "b", "content": f"tax, read at {OLD}"},
    ],
    "tools": [_tool("look", f"Looks as of {OLD}."), _tool("mail", "Sends mail.")],
    "options": {"temperature": 0.5, "seed": 7},
    "think": True,
    "keep_alive": "5m",
}  # fmt: skip
GENERATE: dict[str, Any] = {
    "model": "qwen-test",
    "prompt": f"What is due on {OLD}?",
    "suffix": "end",
    "system": f"It is {OLD}.",
    "options": {"num_predict": 9},
    "keep_alive": "5m",
}


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


def parsed(body: Any, path: str = "") -> Call:
    if not path:
        path = "api/chat" if isinstance(body, dict) and "messages" in body else "api/generate"
    return OLLAMA.parse("POST", path, encoded(body))


def key(body: Any, path: str = "") -> bytes:
    return fingerprint.of(parsed(body, path)).key


def changed(body: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    body = copy.deepcopy(body)
    change(body)
    return body


# --- the same question ------------------------------------------------------------------------------------------------

SAME: dict[str, Callable[[dict[str, Any]], object]] = {
    "no stream": lambda body: body.update(stream=False),
    "a stream": lambda body: body.update(stream=True),
    "keep_alive": lambda body: body.update(keep_alive=0),
    "no keep_alive": lambda body: body.pop("keep_alive"),
    "null": lambda body: body.update(format=None),
    "order of fields": lambda body: body.update(model=body.pop("model")),
}
SAME_CHAT: dict[str, Callable[[dict[str, Any]], object]] = {
    **SAME,
    "order of tools": lambda body: body["tools"].reverse(),
    "order of parallel results": lambda body: body["messages"].append(body["messages"].pop(3)),
    "ids": lambda body: body.update(
        messages=json.loads(json.dumps(body["messages"]).replace('"a"', '"b2"').replace('"b"', '"a"'))
    ),
    "null in a message": lambda body: body["messages"][1].update(images=None),
}
OTHER: dict[str, Callable[[dict[str, Any]], object]] = {
    "model": lambda body: body.update(model="other"),
    "options": lambda body: body["options"].update(temperature=0.6),
    "format": lambda body: body.update(format="json"),
    "think": lambda body: body.update(think=False),
    "unknown": lambda body: body.update(new_thing=1),
}
OTHER_CHAT: dict[str, Callable[[dict[str, Any]], object]] = {
    **OTHER,
    "text": lambda body: body["messages"][1].update(content="else"),
    "order": lambda body: body["messages"].reverse(),
    "arguments": lambda body: body["messages"][2]["tool_calls"][0]["function"].update(arguments={"city": "Rome"}),
    "results changed over": lambda body: (
        body["messages"][3].update(tool_call_id="b"), body["messages"][4].update(tool_call_id="a"),
    ),
    "a description": lambda body: body["tools"][1]["function"].update(description="Reads mail."),
    "no tools": lambda body: body.pop("tools"),
}  # fmt: skip
OTHER_GENERATE: dict[str, Callable[[dict[str, Any]], object]] = {
    **OTHER,
    "prompt": lambda body: body.update(prompt="else"),
    "suffix": lambda body: body.update(suffix="else"),
    "no system": lambda body: body.pop("system"),
    "context": lambda body: body.update(context=[1, 2]),
    "images": lambda body: body.update(images=["aGk="]),
    "raw": lambda body: body.update(raw=True),
}


@pytest.mark.parametrize("name", SAME_CHAT)
def test_what_cannot_change_a_chat_answer_is_the_same_question(name: str) -> None:
    assert key(changed(CHAT, SAME_CHAT[name])) == key(CHAT)


@pytest.mark.parametrize("name", SAME)
def test_what_cannot_change_a_generated_text_is_the_same_question(name: str) -> None:
    assert key(changed(GENERATE, SAME[name])) == key(GENERATE)


def test_what_can_change_the_answer_is_another_question() -> None:
    chats = [key(changed(CHAT, change)) for change in OTHER_CHAT.values()]
    texts = [key(changed(GENERATE, change)) for change in OTHER_GENERATE.values()]
    assert len({*chats, *texts, key(CHAT), key(GENERATE)}) == len(chats) + len(texts) + 2


def test_keep_alive_counts_where_nothing_is_asked() -> None:
    for empty in ({"model": "m"}, {"model": "m", "prompt": ""}):
        assert key({**empty, "keep_alive": 0}) != key({**empty, "keep_alive": -1})
    assert key({"model": "m", "messages": [], "keep_alive": 0}) != key({"model": "m", "messages": []})


@pytest.mark.parametrize(("stream", "asked"), [(None, True), (True, True), (False, False)])
def test_stream_is_asked_for_unless_it_is_refused(stream: bool | None, asked: bool) -> None:
    for body in (CHAT, GENERATE):
        assert parsed({**body, "stream": stream}).shape == Shape(asked)
    assert parsed(CHAT).shape == STREAM


# --- how a request is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_chat_body_is_put_together_byte_for_byte(indent: int | None) -> None:
    body = json.dumps(CHAT, indent=indent).encode()
    call = parsed(body, "api/chat")
    assert call.before and whole(call) == call.body == body
    assert [item.role for item in call.items] == ["system", "user", "assistant", "tool", "tool"]
    assert [item.answers for item in call.items] == [None, None, None, "a", "b"]
    assert [json.loads(item.raw) for item in call.context] == [CHAT["tools"]]
    assert (call.model, call.choices) == ("qwen-test", 1)


def test_prompt_is_one_item_and_its_system_text_stands_beside_it() -> None:
    call = parsed(GENERATE)
    assert [(item.role, json.loads(item.raw)) for item in call.items] == [("user", GENERATE["prompt"])]
    assert [(item.role, json.loads(item.raw)) for item in call.context] == [("system", GENERATE["system"])]
    assert (call.before, call.body) == (b"", encoded(GENERATE))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"null", b'{"a":NaN}', b"\xff", b"[" * 60_000])
def test_body_that_no_provider_could_understand_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parsed(body, "api/chat")


@pytest.mark.parametrize("body", [b'{"model":"m","prompt":"\\ud800"}', b'{"model":"m","options":{"seed":1e999}}'])
def test_body_that_only_a_lenient_parser_takes_has_the_fingerprint_of_its_bytes(body: bytes) -> None:
    call = parsed(body, "api/generate")
    assert (call.items, call.model, call.shape) == ((), "m", STREAM)
    assert key(body, "api/generate") != key(body + b" ", "api/generate")


@pytest.mark.parametrize("body", [
    {"messages": 7}, {"messages": [7]}, {"messages": "hi", "tools": 7}, {"messages": [{}], "tools": [7, None]},
    {"messages": [{"role": 7, "content": 7, "tool_calls": 7}], "tools": {}}, {"messages": []},
    {"model": 7, "messages": {}},
    {"prompt": 7}, {"prompt": ["a"], "system": ["b"]}, {"prompt": "a", "system": {"c": 1}}, {},
])  # fmt: skip
def test_fields_of_wrong_types_are_read_as_far_as_they_go(body: Any) -> None:
    call = parsed(body)
    assert call.body == encoded(body)
    assert not call.before or whole(call) == call.body
    assert volatile.masked(OLLAMA, call, True).literals == ()
    assert volatile.pointer(OLLAMA, call) is None
    assert key(body) != key({**body, "more": 1})


# --- volatile text ----------------------------------------------------------------------------------------------------


def matches(one: Any, two: Any, user_text: bool = False) -> bool:
    was, is_ = volatile.masked(OLLAMA, parsed(one), user_text), volatile.masked(OLLAMA, parsed(two), user_text)
    return was.skeleton == is_.skeleton and mask.renaming(was.literals, is_.literals) is not None


def later(body: Any) -> Any:
    return json.loads(json.dumps(body).replace(OLD, NEW))


def test_clock_in_system_text_descriptions_and_results_is_masked() -> None:
    assert key(later(CHAT)) != key(CHAT)
    assert matches(CHAT, later(CHAT))
    assert volatile.masked(OLLAMA, parsed(CHAT)).literals == (OLD, OLD, OLD)


def test_clock_in_a_prompt_is_masked_only_where_that_is_declared() -> None:
    assert not matches(GENERATE, later(GENERATE))
    assert matches(GENERATE, later(GENERATE), user_text=True)
    assert matches({**GENERATE, "prompt": "x"}, {**later(GENERATE), "prompt": "x"})


def test_masking_hides_no_other_difference() -> None:
    for body, changes in ((CHAT, OTHER_CHAT), (GENERATE, OTHER_GENERATE)):
        for name, change in changes.items():
            assert not matches(body, changed(body, change), user_text=True), name


def test_pointer_leaves_out_the_results_of_calls_that_have_ids() -> None:
    pointed = volatile.pointer(OLLAMA, parsed(CHAT))
    assert pointed is not None and pointed.ids == ("a", "b")
    other = changed(CHAT, lambda body: body["messages"][3].update(content="else"))
    assert volatile.pointer(OLLAMA, parsed(other)) == pointed
    assert volatile.pointer(OLLAMA, parsed(changed(CHAT, OTHER_CHAT["text"]))) != pointed
    assert volatile.pointer(OLLAMA, parsed(GENERATE)) is None


# --- the gate ---------------------------------------------------------------------------------------------------------


def line(content: str = "", calls: Any = None, **fields: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls is not None:
        message["tool_calls"] = calls
    return {"model": "qwen-test", "created_at": "2026-11-30T09:41:05Z", "message": message, "done": False, **fields}


def done(**fields: Any) -> dict[str, Any]:
    return line(done=True, done_reason="stop", prompt_eval_count=3, eval_count=0, eval_duration=5) | fields


def lines(found: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in found)


LOOK = {"function": {"name": "look", "arguments": {"city": "Oslo"}}}
MAIL = {"id": "m", "function": {"index": 1, "name": "mail", "arguments": {}}}
TEXT = [line("Hello "), line("you \u2028 \u0085{}"), done()]
CALLS = [line("Let me see."), line(calls=[LOOK]), line("after"), line(calls=[MAIL]), done()]
STREAMS = {
    "text": lines(TEXT),
    "calls": lines(CALLS),
    "CRLF": lines(TEXT).replace(b"\n", b"\r\n"),
    "blank lines": b"\n" + lines(TEXT[:1]) + b" \n\n" + lines(TEXT[1:]),
    "no last line end": lines(CALLS).rstrip(),
    "one line": lines([line("hi", calls=[LOOK]) | {"done": True, "done_reason": "stop"}]),
    "generated": lines([{"response": "a", "done": False}, {"response": "", "done": True, "context": [1]}]),
}


def gated(stream: bytes | Sequence[bytes]) -> tuple[bytes, Verdict, bool]:
    return fed(OLLAMA, parsed(CHAT), [stream] if isinstance(stream, bytes) else stream)


@pytest.mark.parametrize("name", STREAMS)
def test_stream_is_shown_and_judged_alike_at_every_cut_and_is_a_fault_where_it_ends_early(name: str) -> None:
    stream = STREAMS[name]
    once = gated(stream)
    assert once[1].fault == "" and once[2] is True and stream.startswith(once[0])
    for place in range(len(stream) + 1):
        assert gated([stream[:place], stream[place:]]) == once, place
        free, verdict, _ = gated(stream[:place])
        assert not any(word in free for word in (b"tool_calls", b'"done": true', b"after")), place
        if not verdict.fault:
            assert b'"done": true' in stream[:place]
    assert gated([stream[place : place + 1] for place in range(len(stream))]) == once


@examples(100)
@given(
    st.lists(st.one_of(st.text(max_size=9).map(line), st.just(line(calls=[LOOK]))), max_size=6),
    st.lists(st.integers(0, 2**16), max_size=8),
)
def test_any_stream_is_shown_up_to_its_first_call_however_it_is_cut(said: list[Any], places: list[int]) -> None:
    stream = lines([*said, done()])
    free, verdict, ended = gated(cut(stream, places))
    assert (free, verdict, ended) == gated(stream)
    held = next((at for at, found in enumerate(said) if "tool_calls" in found["message"]), len(said))
    assert free == lines(said[:held])
    assert len(verdict.calls) == sum("tool_calls" in found["message"] for found in said)


def test_verdict_tells_calls_counts_model_and_reason() -> None:
    verdict = gated(lines(CALLS))[1]
    found = [(c.choice, c.index, c.call_id, c.name, c.arguments) for c in verdict.calls]
    assert found == [(0, 0, "", "look", '{"city":"Oslo"}'), (0, 1, "m", "mail", "{}")]
    assert json.loads(verdict.usage) == {"prompt_eval_count": 3, "eval_count": 0}
    assert (verdict.model, verdict.finish, verdict.broken) == ("qwen-test", ("stop",), False)
    assert gated(lines([done(prompt_eval_count=None, eval_count=None)]))[1].usage == ""


def test_arguments_as_text_must_parse_unless_a_limit_cut_them() -> None:
    torn = line(calls=[{"function": {"name": "look", "arguments": '{"ci'}}])
    assert "'look'" in gated(lines([torn, done()]))[1].fault
    verdict = gated(lines([torn, done(done_reason="length")]))[1]
    assert (verdict.fault, verdict.broken) == ("", True)


@pytest.mark.parametrize("event", [b'{"error":"out of memory"}\n', b"{\n", b"<html>\n", b"[1]\n", b"7\n", b"\xff\n",
                                   b"[" * 60_000 + b"\n", b'{"done":true,"model":"\\ud800"}\n'])  # fmt: skip
def test_line_that_is_an_error_or_no_object_is_a_fault_and_is_not_shown(event: bytes) -> None:
    free, verdict, _ = gated(lines(TEXT[:1]) + event + lines(TEXT[1:]))
    assert verdict.fault
    assert free == lines(TEXT[:1])
    if b"error" in event:
        assert "out of memory" in verdict.fault


def test_line_with_fields_of_unusual_types_is_held_and_judged_by_what_is_usual() -> None:
    odd = line(calls=[7, {"id": 7, "function": {"name": "look"}}], model=7)
    free, verdict, _ = gated(lines([*TEXT[:1], odd, done()]))
    assert (free, verdict.fault) == (lines(TEXT[:1]), "")
    assert [(c.call_id, c.name) for c in verdict.calls] == [("", ""), ("7", "look")]
    assert "broke off" in gated(lines([{**odd, "error": "x"}]))[1].fault
    assert gated(lines([line(done="true", model=7)]))[1].fault


@pytest.mark.parametrize(
    "body", [b"", b"{", b"<html>", b"[]", b"7", b"{}", b'{"error":"x"}', b'{"done":false}', b"\xff"]
)
def test_plain_answer_that_is_none_is_a_fault(body: bytes) -> None:
    assert OLLAMA.judge(parsed(CHAT), body).fault


def test_stream_is_told_by_its_first_byte_and_a_page_is_none() -> None:
    call = parsed(CHAT)
    assert OLLAMA.is_stream(call, b"{")
    assert not any(OLLAMA.is_stream(call, start) for start in (b"<html>", b"[", b"data: {"))
    assert "HTML" in OLLAMA.judge(call, b"\n<html>").fault


def test_heartbeat_is_part_of_the_next_line_so_that_each_line_stays_json() -> None:
    gate, stream = OLLAMA.gate(parsed(CHAT)), lines(CALLS)
    shown = gate.heartbeat()
    given_ = b""
    for place in range(0, len(stream), 7):
        free = gate.feed(stream[place : place + 7])
        given_ += free
        shown += free + gate.heartbeat()
    body = shown + stream[len(given_) :]
    assert [json.loads(found) for found in body.removesuffix(b"\n").split(b"\n")] == CALLS
    assert body != stream


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_lines_add_up_to_the_object_of_a_plain_answer() -> None:
    said = [
        line("a") | {"logprobs": [1]},
        line("b") | {"logprobs": [2]},
        line(calls=[LOOK]),
        line(calls=[MAIL]),
        done(),
    ]
    for found, thinking in zip(said, ("x", "y"), strict=False):
        found["message"]["thinking"] = thinking
    found = json.loads(OLLAMA.convert(STREAM, PLAIN, lines(said)))
    message = {"role": "assistant", "content": "ab", "thinking": "xy", "tool_calls": [LOOK, MAIL]}
    assert found == {**done(), "message": message, "logprobs": [1, 2]}
    texts = [{"model": "m", "response": "a", "done": False}, {"response": "b", "done": True, "context": [1, 2]}]
    assert json.loads(OLLAMA.convert(STREAM, PLAIN, lines(texts))) == {
        "model": "m", "response": "ab", "done": True, "context": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize("body", [
    done() | {"message": {"role": "assistant", "content": "ab", "thinking": "x", "tool_calls": [LOOK, MAIL]}},
    done() | {"message": {"role": "assistant", "content": ""}, "logprobs": [1]},
    {"model": "m", "response": "a\u2028\u0085b", "thinking": "x", "done": True, "done_reason": "length", "context": [1],
     "eval_count": 2},
])  # fmt: skip
def test_object_becomes_lines_that_add_up_to_it(body: dict[str, Any]) -> None:
    stream = OLLAMA.convert(PLAIN, STREAM, json.dumps(body, indent=1).encode())
    # The plainest clients split text, not bytes.
    found = [json.loads(part) for part in stream.decode().splitlines()]
    assert [part["done"] for part in found] == [False, True]
    assert not found[1].get("message", {}).get("content") and not found[1].get("response")
    assert json.loads(OLLAMA.convert(STREAM, PLAIN, stream)) == body
    assert meant(gated(stream)[1]) == meant(OLLAMA.judge(parsed(CHAT), encoded(body)))


@pytest.mark.parametrize("name", STREAMS)
def test_same_shape_is_the_very_bytes(name: str) -> None:
    for shape in (PLAIN, STREAM):
        assert OLLAMA.convert(shape, shape, STREAMS[name]) == STREAMS[name]
    spoken = OLLAMA.spoken(OLLAMA.convert(STREAM, PLAIN, STREAMS[name]))
    assert spoken and spoken.keys() <= {"message", "response", "thinking"}


def test_errors_are_texts_as_a_body_and_as_a_line() -> None:
    error = NotFound("no such session", detail={"step": 3})
    assert json.loads(ollama_error(error)) == {
        "error": "no such session", "code": "not_found", "agentstate": {"step": 3},
    }  # fmt: skip
    assert OLLAMA.error(error) == ollama_error(error)
    assert OLLAMA.stream_error(error) == ollama_error(error) + b"\n"
    assert "no such session" in gated(lines(TEXT[:1]) + OLLAMA.stream_error(error))[1].fault


def test_content_types_are_those_of_ollama() -> None:
    assert OLLAMA.content_type(STREAM) == "application/x-ndjson"
    assert OLLAMA.content_type(PLAIN).startswith("application/json")


# --- recorded traffic -------------------------------------------------------------------------------------------------


def exchanges() -> list[Recorded]:
    found = recorded("api/(chat|generate)", ("ollama",))
    assert len(found) > 40
    return found


def test_each_recorded_exchange_is_read_judged_and_converted_as_what_it_is() -> None:
    for exchange in exchanges():
        call = parse(OLLAMA, exchange)
        assert call.body == exchange.request and call.items, exchange.id
        assert not call.before or whole(call) == exchange.request, exchange.id
        assert bool(call.before) == exchange.path.endswith("chat"), exchange.id
        verdict = judged(OLLAMA, call, exchange.response)
        assert bool(verdict.fault) == (exchange.status != 200), (exchange.id, verdict.fault)
        if exchange.status != 200:
            continue
        other = PLAIN if call.shape.stream else STREAM
        converted = OLLAMA.convert(call.shape, other, exchange.response)
        again = Call("ollama_chat", "POST", call.path, b"", b"", shape=other)
        assert meant(judged(OLLAMA, again, converted)) == meant(verdict), exchange.id
        assert verdict.usage and verdict.model, exchange.id


@examples(8)
@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=12))
def test_recorded_streams_are_judged_and_shown_alike_however_they_are_cut(places: list[int]) -> None:
    streams = [(exchange, parse(OLLAMA, exchange)) for exchange in exchanges() if exchange.status == 200]
    streams = [(exchange, call) for exchange, call in streams if call.shape.stream]
    assert len(streams) > 15
    for exchange, call in streams:
        once = fed(OLLAMA, call, [exchange.response])
        assert exchange.response.startswith(once[0]) and b'"tool_calls"' not in once[0], exchange.id
        assert b'"done":true' not in once[0], exchange.id
        assert fed(OLLAMA, call, cut(exchange.response, places)) == once, exchange.id
