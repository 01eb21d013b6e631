"""A Gemini answer in another shape reads as the same answer; between two streams its chunks keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Shape
from agentstate.dialects.gemini import Gemini
from agentstate.dialects.gemini_answer import ArrayGate, StreamGate, judge_plain
from agentstate.dialects.gemini_shape import grow, merged
from tests.unit.core.profile import examples
from tests.unit.dialects.test_gemini_answer import (
    CALLS,
    PARTIAL,
    STREAMS,
    TEXT,
    USAGE,
    WHOLE_ARGUMENTS,
    array,
    call,
    chunk,
    events,
    text,
)
from tests.unit.dialects.test_gemini_traffic import meant

GEMINI = Gemini()
PLAIN, EVENTS, ARRAY = Shape(), Shape(True), Shape(True, array=True)


def plain(*chunks: Any) -> Any:
    """The stream of these chunks as one object."""
    found = json.loads(GEMINI.convert(EVENTS, PLAIN, events(chunks)))
    assert json.loads(GEMINI.convert(ARRAY, PLAIN, array(chunks))) == found
    return found


def parts(*chunks: Any) -> Any:
    return plain(*chunks)["candidates"][0]["content"]["parts"]


def shape_of(name: str) -> Shape:
    return ARRAY if name.startswith("array") else EVENTS


@pytest.mark.parametrize("name", STREAMS)
def test_same_shape_is_the_very_bytes(name: str) -> None:
    shape = shape_of(name)
    assert GEMINI.convert(shape, shape, STREAMS[name]) == STREAMS[name]
    body = GEMINI.convert(shape, PLAIN, STREAMS[name])
    assert GEMINI.convert(PLAIN, PLAIN, body) == body


@pytest.mark.parametrize("name", STREAMS)
def test_every_shape_is_finished_and_reads_as_the_same_answer(name: str) -> None:
    recorded = shape_of(name)
    whole = GEMINI.convert(recorded, PLAIN, STREAMS[name])
    verdict = judge_plain(whole)
    assert not verdict.fault
    for shape, kind in ((EVENTS, StreamGate), (ARRAY, ArrayGate)):
        for body in (GEMINI.convert(recorded, shape, STREAMS[name]), GEMINI.convert(PLAIN, shape, whole)):
            gate = kind()
            gate.feed(body)
            assert meant(gate.finish()) == meant(verdict)
            assert json.loads(GEMINI.convert(shape, PLAIN, body)) == json.loads(whole)


def test_chunks_keep_their_bytes_between_the_framings() -> None:
    odd = b'{ "candidates" : [{"finishReason":"STOP","x":1.0e3}] , "u":"\\u00e9\xc3\xa9" }'
    assert GEMINI.convert(EVENTS, ARRAY, b"data: " + odd + b"\r\n\r\ndata:" + odd) == b"[" + odd + b",\r\n" + odd + b"]"
    listed = b"[" + odd + b"\n,\r\n" + odd + b"\n]\n"
    assert GEMINI.convert(ARRAY, EVENTS, listed) == 2 * (b"data: " + odd + b"\r\n\r\n")


def test_line_ends_between_tokens_of_a_chunk_do_not_break_its_event() -> None:
    body = GEMINI.convert(ARRAY, EVENTS, array(CALLS, 2))
    assert body.count(b"\r\n\r\n") == len(CALLS) == body.count(b"data: ")
    assert [json.loads(line[6:]) for line in body.split(b"\r\n\r\n") if line] == CALLS


def test_plain_answer_is_a_stream_of_one_chunk() -> None:
    body = json.dumps(chunk(text("line\none"), call("look"), finish="STOP"), indent=1).encode() + b"\n"
    assert json.loads(GEMINI.convert(PLAIN, ARRAY, body)) == [json.loads(body)]
    event = GEMINI.convert(PLAIN, EVENTS, body)
    assert event.startswith(b"data: {") and event.endswith(b"}\r\n\r\n") and event.count(b"\n") == 2
    assert json.loads(event[6:]) == json.loads(body)


def test_blank_events_comments_and_end_markers_are_no_chunks() -> None:
    body = b"\r\n: x\r\n\r\n" + events(TEXT) + b"\r\n\r\ndata: [DONE]\r\n\r\n"
    assert json.loads(GEMINI.convert(EVENTS, ARRAY, body)) == TEXT


# --- how chunks add up ------------------------------------------------------------------------------------------------


def test_texts_that_follow_each_other_are_one_and_thoughts_stay_apart() -> None:
    thought = {"text": "hm", "thought": True}
    found = parts(chunk(thought), chunk(thought, text("a")), chunk(text("b"), text("")), chunk(thought, finish="STOP"))
    assert found == [{"text": "hmhm", "thought": True}, text("ab"), thought]


def test_calls_keep_their_place_among_the_texts() -> None:
    look, mail = call("look", city="Oslo"), call("mail", "id-2")
    found = parts(chunk(text("a"), look), chunk(mail), chunk(text("b")), chunk(text("c"), finish="STOP"))
    assert found == [text("a"), look, mail, text("bc")]


def test_signature_stays_on_its_own_part() -> None:
    signed = {"text": "", "thoughtSignature": "c2ln"}
    assert parts(chunk(text("a")), chunk(signed), chunk(text("b")), chunk(text("c"), finish="STOP")) == [
        text("a"), signed, text("bc"),
    ]  # fmt: skip
    both = {**call("look"), "thoughtSignature": "c2ln"}
    assert parts(chunk(both), chunk(finish="STOP")) == [both]


def test_last_word_counts_for_what_stands_beside_the_parts() -> None:
    whole = plain(
        chunk(text("a"), usageMetadata={"promptTokenCount": 1}, responseId="r", createTime="then"),
        chunk(text("b"), finish="MAX_TOKENS", usageMetadata=USAGE, promptFeedback={"safetyRatings": []}),
        {"usageMetadata": USAGE | {"totalTokenCount": 9}, "modelVersion": "gemini-test-2", "createTime": None},
    )
    assert whole == {
        "candidates": [{"content": {"parts": [text("ab")], "role": "model"}, "finishReason": "MAX_TOKENS"}],
        "modelVersion": "gemini-test-2",
        "usageMetadata": USAGE | {"totalTokenCount": 9},
        "responseId": "r",
        "createTime": "then",
        "promptFeedback": {"safetyRatings": []},
    }


def test_candidates_are_told_apart_and_stand_in_their_order() -> None:
    whole = plain(chunk(text("b"), index=1), chunk(text("a")), chunk(text("B"), index=1, finish="STOP"),
                  chunk(finish="STOP", index=0))  # fmt: skip
    found = whole["candidates"]
    assert [candidate["content"]["parts"] for candidate in found] == [[text("a")], [text("bB")]]
    assert [candidate["index"] for candidate in found] == [0, 1]


def test_log_probabilities_add_up() -> None:
    def logged(token: str, **fields: Any) -> dict[str, Any]:
        found = chunk(text(token), **fields)
        found["candidates"][0]["logprobsResult"] = {"chosenCandidates": [{"token": token}], "logProbabilitySum": 1}
        return found

    whole = plain(logged("a"), logged("b", finish="STOP"))
    assert whole["candidates"][0]["logprobsResult"] == {
        "chosenCandidates": [{"token": "a"}, {"token": "b"}], "logProbabilitySum": 1,
    }  # fmt: skip


def test_blocked_prompt_has_no_candidates_in_any_shape() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE}
    assert plain(blocked) == blocked
    assert plain({**blocked, "candidates": []}) == blocked


def test_arguments_in_pieces_are_whole_in_a_plain_answer() -> None:
    found = parts(*PARTIAL, chunk(finish="STOP"))
    assert [part["functionCall"] for part in found] == [
        {"name": "look", "args": WHOLE_ARGUMENTS}, {"name": "mail", "args": {"to": "x"}},
    ]  # fmt: skip


@pytest.mark.parametrize("piece", [
    {}, {"jsonPath": "$"}, {"jsonPath": "$.a"}, {"jsonPath": 7, "stringValue": "x"},
    {"jsonPath": "$[0]", "stringValue": "x"}, {"jsonPath": "$.a.b", "numberValue": 1},
    {"jsonPath": "$.a[0]", "numberValue": 1}, {"jsonPath": "a", "boolValue": True},
])  # fmt: skip
def test_piece_whose_path_does_not_fit_is_left_out(piece: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"a": "text"}
    grow(arguments, piece)
    assert arguments == {"a": "text"}


@examples(60)
@given(st.lists(st.lists(st.text(max_size=5), max_size=3), min_size=1, max_size=5))
def test_any_text_reads_alike_in_every_shape(said: list[list[str]]) -> None:
    chunks = [chunk(*(text(part) for part in found)) for found in said] + [chunk(finish="STOP")]
    joined = "".join(part for found in said for part in found)
    for recorded, body in ((EVENTS, events(chunks)), (ARRAY, array(chunks))):
        for asked in (EVENTS, ARRAY):
            whole = json.loads(GEMINI.convert(asked, PLAIN, GEMINI.convert(recorded, asked, body)))
            found = whole["candidates"][0]["content"].get("parts", [])
            assert "".join(part["text"] for part in found) == joined
            assert len(found) <= 1


def test_converting_changes_nothing_of_what_was_recorded() -> None:
    chunks = [chunk(text("a")), chunk(text("b"), finish="STOP")]
    before = json.dumps(chunks)
    merged(chunks)
    assert json.dumps(chunks) == before


@pytest.mark.parametrize("odd", [b'"\xff"', b"1e999"])
def test_what_only_a_lenient_parser_reads_is_converted_all_the_same(odd: bytes) -> None:
    body = b'data: {"candidates":[{"finishReason":"STOP"}],"unknown":' + odd + b"}\r\n\r\n"
    gate = StreamGate()
    gate.feed(body)
    assert not gate.finish().fault
    assert not judge_plain(GEMINI.convert(EVENTS, PLAIN, body)).fault
