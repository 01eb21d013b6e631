"""OpenAI's legacy completions: which requests are one question, when an answer is finished, how its shapes add up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.completion import Completion
from openai.types.completion_choice import CompletionChoice

from agentstate.core import fingerprint
from agentstate.core.model import Call, Shape, Verdict
from agentstate.dialects import sse, volatile
from agentstate.dialects.openai_completions import OpenAICompletions
from agentstate.errors import BadRequest, NotFound
from tests.unit.core.profile import examples
from tests.unit.dialects.test_gemini_traffic import Recorded, fed, judged, meant, parse, recorded
from tests.unit.dialects.test_sse import cut

TEXT = OpenAICompletions()
PLAIN, STREAM, COUNTED = Shape(), Shape(True), Shape(True, True)
OLD, NEW = "2026-11-30T09:41:05Z", "2027-02-03T22:17:48Z"
BODY: dict[str, Any] = {"model": "text-test", "prompt": f"It is {OLD}. Say", "max_tokens": 9, "n": 2, "best_of": 3}


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


def parsed(body: Any) -> Call:
    return TEXT.parse("POST", "completions", encoded(body))


def key(body: Any) -> bytes:
    return fingerprint.of(parsed(body)).key


# --- the request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [
    {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, {"user": "u"},
    {"metadata": {"a": "b"}},
    {"echo": None}, {"suffix": None, "stop": None}, {"safety_identifier": "s"},
])  # fmt: skip
def test_what_cannot_change_the_answer_is_the_same_question(fields: dict[str, Any]) -> None:
    assert key({**BODY, **fields}) == key({**fields, **dict(reversed(BODY.items()))}) == key(BODY)


def test_what_can_change_the_answer_is_another_question() -> None:
    others: list[dict[str, Any]] = [
        {"prompt": "else"}, {"prompt": [BODY["prompt"]]}, {"prompt": None}, {"prompt": [1, 2]}, {"model": "other"},
        {"n": 1}, {"best_of": 4}, {"echo": True}, {"echo": False}, {"logprobs": 3}, {"suffix": "x"}, {"stop": ["x"]},
        {"logit_bias": {"50256": -100}}, {"temperature": 0}, {"seed": 7}, {"max_tokens": 10}, {"new_thing": 1},
    ]  # fmt: skip
    assert len({key({**BODY, **fields}) for fields in others} | {key(BODY)}) == len(others) + 1


@pytest.mark.parametrize(("prompt", "n", "choices"), [
    ("one", None, 1), ("one", 3, 3), (["one", "two"], None, 2), (["one", "two"], 2, 4), ([1, 2, 3], 2, 2),
    ([[1, 2], [3]], 1, 2), ([], None, 1), (None, None, 1),
])  # fmt: skip
def test_choices_are_those_of_all_prompts(prompt: Any, n: int | None, choices: int) -> None:
    call = parsed({"model": "m", "prompt": prompt, "n": n})
    assert call.choices == choices
    assert [json.loads(item.raw) for item in call.items] == ([] if prompt is None else [prompt])
    assert (call.before, {item.role for item in call.items}) == (b"", set() if prompt is None else {"user"})


def test_shape_is_what_the_body_asks_for() -> None:
    assert parsed(BODY).shape == PLAIN
    assert parsed({**BODY, "stream": True}).shape == STREAM
    assert parsed({**BODY, "stream": True, "stream_options": {"include_usage": True}}).shape == COUNTED
    assert parsed({**BODY, "stream": True, "stream_options": 7}).shape == STREAM
    assert (parsed(BODY).model, parsed(BODY).dialect) == ("text-test", "openai_completions")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"null", b'{"a":NaN}', b"\xff", b"[" * 60_000])
def test_body_that_no_provider_could_understand_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parsed(body)


@pytest.mark.parametrize(
    "rest", ['"prompt":"\\ud800"', '"seed":1e999', '"stream_options":{"include_usage":true},"p":1e999']
)
def test_body_that_only_a_lenient_parser_takes_has_the_fingerprint_of_its_bytes(rest: str) -> None:
    body = b'{"model":"m","stream":true,' + rest.encode() + b"}"
    call = parsed(body)
    assert (call.items, call.model, call.shape) == ((), "m", COUNTED if "usage" in rest else STREAM)
    assert key(body) != key(body + b" ")


@pytest.mark.parametrize(
    "body", [{"prompt": 7}, {"prompt": {"a": 1}}, {"n": "x", "model": 7}, {}, {"prompt": [7, "x"]}]
)
def test_fields_of_wrong_types_are_read_as_far_as_they_go(body: Any) -> None:
    call = parsed(body)
    assert call.body == encoded(body) and call.model == ""
    assert volatile.masked(TEXT, call, True).literals == ()
    assert volatile.pointer(TEXT, call) is None


def test_clock_in_a_prompt_is_masked_only_where_that_is_declared() -> None:
    for prompt in (BODY["prompt"], [BODY["prompt"], "other"]):
        body = {**BODY, "prompt": prompt}
        moved = json.loads(json.dumps(body).replace(OLD, NEW))
        for user_text in (False, True):
            was, is_ = (volatile.masked(TEXT, parsed(found), user_text) for found in (body, moved))
            assert (was.skeleton == is_.skeleton) == user_text
            assert was.literals == ((OLD,) if user_text else ())


# --- the answer -------------------------------------------------------------------------------------------------------


def chunk(said: str = "", finish: str | None = None, index: int = 0, **fields: Any) -> bytes:
    choice = {"text": said, "index": index, "logprobs": None, "finish_reason": finish}
    common = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "text-test-1"}
    return sse.encode(encoded({**common, "choices": [choice], **fields}))


DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
ONE = chunk("a") + chunk("b") + chunk(finish="stop")
WHOLE = {
    "one": ONE + DONE,
    "counted": ONE + chunk(choices=[], usage=USAGE) + DONE,
    "no end marker": ONE,
    "comments": b": x\n\n" + ONE + DONE,
    "finish with text": chunk("a", "length") + DONE,
}


def gated(pieces: list[bytes], choices: int = 1) -> tuple[bytes, Verdict, bool]:
    return fed(TEXT, parsed({"model": "m", "prompt": "x", "n": choices, "stream": True}), pieces)


@pytest.mark.parametrize("name", WHOLE)
def test_stream_is_shown_and_judged_alike_at_every_cut_and_its_finish_is_held(name: str) -> None:
    stream = WHOLE[name]
    once = gated([stream])
    assert once[1].fault == "" and stream.startswith(once[0])
    assert once[0] == b"".join(
        event for event in sse.events(stream) if b'"finish_reason": null' in event or event[:1] == b":"
    )
    for place in range(len(stream) + 1):
        assert gated([stream[:place], stream[place:]]) == once
        free, verdict, _ = gated([stream[:place]])
        assert once[0].startswith(free)
        if not verdict.fault:
            assert b'"finish_reason": "' in stream[:place]


def test_verdict_tells_usage_model_and_reasons() -> None:
    verdict = gated([WHOLE["counted"]])[1]
    assert (json.loads(verdict.usage), verdict.model, verdict.finish, verdict.calls) == (
        USAGE,
        "text-test-1",
        ("stop",),
        (),
    )
    two = chunk("b", index=1) + chunk("a") + chunk(finish="length") + chunk(finish="stop", index=1) + DONE
    assert gated([two], 2)[1].finish == ("length", "stop")


@pytest.mark.parametrize("stream", [
    b"", DONE, chunk("a") + DONE, chunk("a") + chunk("b", index=1) + chunk(finish="stop") + DONE,
    chunk("a") + sse.encode(b'{"error":{"message":"overloaded"}}'), chunk("a") + sse.encode(b"<html>"),
])  # fmt: skip
def test_stream_that_is_not_finished_is_a_fault(stream: bytes) -> None:
    free, verdict, _ = gated([stream])
    assert verdict.fault
    assert b"error" not in free and b"<html>" not in free


def test_plain_answer_is_finished_only_with_a_reason_for_each_choice() -> None:
    whole = {"choices": [{"text": "a", "finish_reason": "stop"}, {"text": "b", "finish_reason": None}], "usage": USAGE}
    assert "choice 1" in TEXT.judge(parsed(BODY), encoded(whole)).fault
    whole["choices"][1]["finish_reason"] = "length"  # type: ignore[index]
    verdict = TEXT.judge(parsed(BODY), encoded(whole))
    assert (verdict.fault, verdict.finish, json.loads(verdict.usage)) == ("", ("stop", "length"), USAGE)
    for body in (b"<html>", b"[]", b"{}", b'{"error":{"message":"x"}}', b'{"choices":[]}'):
        assert TEXT.judge(parsed(BODY), body).fault


def test_stream_is_told_by_its_first_byte() -> None:
    call = parsed({**BODY, "stream": True})
    assert TEXT.is_stream(call, b"data: {")
    assert not any(TEXT.is_stream(call, start) for start in (b"{", b"<html", b"["))


def test_errors_and_heartbeats_are_those_of_openai() -> None:
    body = json.loads(TEXT.error(NotFound("no such session")))
    assert body["error"]["code"] == "not_found"
    assert TEXT.stream_error(NotFound("x")) == sse.encode(TEXT.error(NotFound("x")))
    assert TEXT.gate(parsed(BODY)).heartbeat() == b": keep-alive\n\n"
    assert TEXT.content_type(STREAM).startswith("text/event-stream")
    assert TEXT.content_type(PLAIN) == "application/json"


# --- shapes -----------------------------------------------------------------------------------------------------------


def logged(*tokens: str) -> dict[str, Any]:
    return {"tokens": list(tokens), "token_logprobs": [-1.0] * len(tokens), "top_logprobs": None, "text_offset": [0]}


FULL: dict[str, Any] = {
    "id": "cmpl-1", "object": "text_completion", "created": 7, "model": "text-test-1", "system_fingerprint": "fp",
    "choices": [
        {"text": "ab", "index": 0, "logprobs": logged("a", "b"), "finish_reason": "stop"},
        {"text": "", "index": 1, "logprobs": None, "finish_reason": "length"},
    ],
    "usage": USAGE,
}  # fmt: skip


def seen(body: bytes) -> Any:
    """A completion, or a chunk of one, as the SDK shows it."""
    # As the SDK does it: without validation, which a finish reason of null would not pass.
    shown = Completion.construct(**json.loads(body))
    assert all(isinstance(choice, CompletionChoice) for choice in shown.choices)
    return shown.to_dict(exclude_none=True, warnings=False)


@pytest.mark.parametrize("shape", [STREAM, COUNTED])
def test_object_becomes_chunks_that_the_sdk_reads_and_that_add_up_to_it(shape: Shape) -> None:
    stream = TEXT.convert(PLAIN, shape, encoded(FULL))
    assert stream.endswith(DONE)
    data = [sse.data_of(event) or b"" for event in sse.events(stream)][:-1]
    chunks = [seen(found) for found in data]
    for choice in FULL["choices"]:
        parts = [part for found in chunks for part in found["choices"] if part["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert [part["finish_reason"] for part in parts if "finish_reason" in part] == [choice["finish_reason"]]
    assert [found["usage"] for found in chunks if "usage" in found] == ([USAGE] if shape.usage else [])
    expected = FULL if shape.usage else {name: value for name, value in FULL.items() if name != "usage"}
    assert json.loads(TEXT.convert(shape, PLAIN, stream)) == expected
    assert not judged(TEXT, parsed({**BODY, "stream": True}), stream).fault


def test_chunks_add_up_to_the_object_of_a_plain_answer() -> None:
    def part(token: str, finish: str | None = None) -> bytes:
        choice = {"text": token, "index": 0, "logprobs": logged(token), "finish_reason": finish}
        return chunk(choices=[choice], obfuscation="x")

    stream = chunk("z", "stop", 1) + part("a") + part("b", "length") + chunk(choices=[], usage=USAGE) + DONE
    found = json.loads(TEXT.convert(COUNTED, PLAIN, stream))
    assert found["choices"] == [
        {"text": "ab", "index": 0, "finish_reason": "length", "logprobs": {
            "tokens": ["a", "b"], "token_logprobs": [-1.0, -1.0], "top_logprobs": None, "text_offset": [0, 0]}},
        {"text": "z", "index": 1, "logprobs": None, "finish_reason": "stop"},
    ]  # fmt: skip
    assert (found["usage"], found["object"], "obfuscation" in found) == (USAGE, "text_completion", False)
    assert seen(encoded(found))["choices"][0]["text"] == "ab"


def test_usage_chunk_comes_and_goes_as_asked_and_all_else_keeps_its_bytes() -> None:
    counted = WHOLE["counted"]
    assert TEXT.convert(COUNTED, STREAM, counted) == WHOLE["one"]
    assert TEXT.convert(STREAM, COUNTED, WHOLE["one"]) == WHOLE["one"]
    for shape, body in ((STREAM, WHOLE["one"]), (COUNTED, counted), (PLAIN, encoded(FULL))):
        assert TEXT.convert(shape, shape, body) == body
    assert TEXT.convert(PLAIN, Shape(False, True), encoded(FULL)) == encoded(FULL)
    assert TEXT.spoken(encoded(FULL)) == FULL["choices"]


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.text(max_size=6)), max_size=8), st.lists(st.integers(0, 2**16), max_size=6)
)
def test_any_stream_adds_up_and_is_judged_alike_however_it_is_cut(
    said: list[tuple[int, str]], places: list[int]
) -> None:
    events = [chunk(token, index=index) for index, token in said]
    stream = b"".join([*events, chunk(finish="stop"), chunk(finish="stop", index=1), DONE])
    assert gated(cut(stream, places), 2) == gated([stream], 2)
    assert gated([stream], 2)[0] == b"".join(events)
    choices = json.loads(TEXT.convert(STREAM, PLAIN, stream))["choices"]
    assert [choice["text"] for choice in choices] == ["".join(t for i, t in said if i == index) for index in (0, 1)]


# --- recorded traffic -------------------------------------------------------------------------------------------------


def exchanges() -> list[Recorded]:
    # Not those of a gateway's stored prompts, which are chat under another path.
    found = recorded(r"(featherless-ai/v1/)?completions", ("openai", "vllm", "together", "huggingface"))
    assert len(found) > 15
    return found


def test_each_recorded_exchange_is_read_judged_and_converted_as_what_it_is() -> None:
    streams = 0
    for exchange in exchanges():
        call = parse(TEXT, exchange)
        assert call.body == exchange.request and len(call.items) == 1, exchange.id
        assert json.loads(call.items[0].raw) == exchange.asked["prompt"], exchange.id
        verdict = judged(TEXT, call, exchange.response)
        assert bool(verdict.fault) == (exchange.status != 200), (exchange.id, verdict.fault)
        if exchange.status != 200:
            continue
        assert verdict.model and len(verdict.finish) == call.choices, exchange.id
        other = PLAIN if call.shape.stream else COUNTED
        converted = TEXT.convert(call.shape, other, exchange.response)
        again = Call("openai_completions", "POST", call.path, b"", b"", shape=other, choices=call.choices)
        assert meant(judged(TEXT, again, converted)) == meant(verdict), exchange.id
        if call.shape.stream:
            streams += 1
            once = fed(TEXT, call, [exchange.response])
            for size in (1, 7, 64):
                pieces = [exchange.response[at : at + size] for at in range(0, len(exchange.response), size)]
                assert fed(TEXT, call, pieces) == once, exchange.id
            assert once[0], exchange.id
    assert streams > 0
