"""What of a Gemini answer may be seen before it is committed, and when it counts as finished."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Verdict
from agentstate.dialects.gemini_answer import ArrayGate, StreamGate, judge_plain
from agentstate.dialects.gemini_shape import Elements
from tests.unit.core.profile import examples
from tests.unit.dialects.test_sse import cut

USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 0, "totalTokenCount": 3}


def chunk(*parts: Any, finish: Any = None, index: int | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk with one candidate."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if finish is not None:
        candidate["finishReason"] = finish
    if index is not None:
        candidate["index"] = index
    return {"candidates": [candidate], "modelVersion": "gemini-test-1", **fields}


def text(said: str) -> dict[str, Any]:
    return {"text": said}


def call(name: str, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "args": arguments}
    return {"functionCall": found if call_id is None else {"id": call_id, **found}}


def events(chunks: Iterable[Any], end: bytes = b"\r\n\r\n") -> bytes:
    return b"".join(b"data: " + json.dumps(found).encode() + end for found in chunks)


def array(chunks: Sequence[Any], indent: int | None = None) -> bytes:
    return b"[" + b"\n,\r\n".join(json.dumps(found, indent=indent).encode() for found in chunks) + b"\n]\n"


def fed(stream: bytes | Sequence[bytes]) -> tuple[bytes, Verdict, bool]:
    """(bytes that may be seen, verdict, whether the end marker came)."""
    pieces = [stream] if isinstance(stream, bytes) else list(stream)
    gate = ArrayGate() if b"".join(pieces).lstrip()[:1] == b"[" else StreamGate()
    free = b"".join(gate.feed(piece) for piece in pieces)
    return free, gate.finish(), gate.done


TEXT = [chunk(text("Hello ")), chunk(text('you {"}]\\"')), chunk(text(""), finish="STOP", usageMetadata=USAGE)]
CALLS = [chunk(text("Let me see.")), chunk(call("look", city="Oslo"), call("mail", "id-2", to="x")),
         chunk(text("after")), chunk(finish="STOP")]  # fmt: skip
STREAMS: dict[str, bytes] = {
    "text": events(TEXT),
    "text, LF": events(TEXT, b"\n\n"),
    "calls": events(CALLS),
    "one chunk": events([chunk(call("look", city="Oslo"), finish="STOP")]),
    "end marker": events(TEXT) + b"data: [DONE]\r\n\r\n",
    "blank lines": b"\r\n" + b"\r\n".join([events(TEXT[:1]), events(TEXT[1:])]),
    "many lines": b'data: {"candidates":\ndata: [{"finishReason":"STOP"}]}\n\n',
    "no last blank line": events(TEXT).rstrip(),
    "two candidates": events([chunk(text("a"), index=0), chunk(text("b"), index=1), chunk(finish="STOP", index=1),
                              chunk(finish="STOP")]),
    "array, text": array(TEXT),
    "array, calls": array(CALLS),
    "array, indented": array(CALLS, 2),
    "array, one chunk": array([chunk(call("look", city="Oslo"), finish="STOP")]),
    "array, tight": json.dumps(TEXT, separators=(",", ":")).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_whole_stream_is_finished_however_it_is_cut(name: str) -> None:
    stream = STREAMS[name]
    once = fed(stream)
    assert not once[1].fault
    assert stream.startswith(once[0])
    for place in range(len(stream) + 1):
        assert fed([stream[:place], stream[place:]]) == once, place
    assert fed([stream[place : place + 1] for place in range(len(stream))]) == once


@pytest.mark.parametrize("name", STREAMS)
def test_call_the_finish_and_what_follows_are_not_seen_at_any_cut(name: str) -> None:
    stream = STREAMS[name]
    for place in range(len(stream) + 1):
        free, verdict, _ = fed(stream[:place])
        assert not any(word in free for word in (b"functionCall", b"finishReason", b"after", b"DONE")), place
        if not verdict.fault:
            assert b'"finishReason"' in stream[:place], place


def test_text_is_seen_as_it_comes() -> None:
    assert fed(STREAMS["text"])[0] == events(TEXT[:2])
    assert fed(STREAMS["calls"])[0] == events(CALLS[:1])
    assert fed(STREAMS["array, text"])[0] == array(TEXT[:2]).removesuffix(b"\n]\n")
    assert fed(STREAMS["array, calls"])[0] == array(CALLS[:1]).removesuffix(b"\n]\n")


_parts = st.one_of(
    st.builds(text, st.text(max_size=12)),
    st.builds(lambda said: call("look", city=said), st.text(max_size=8)),
    st.just({"executableCode": {"code": "1", "language": "PYTHON"}}),
)
_streams = st.lists(st.lists(_parts, max_size=3), max_size=5)


@examples(120)
@given(_streams, st.sampled_from(["\r\n", "\n", "array", "indented"]), st.lists(st.integers(0, 2**16), max_size=9))
def test_any_stream_is_shown_and_judged_alike_however_it_is_cut(
    said: list[list[dict[str, Any]]], form: str, places: list[int]
) -> None:
    chunks = [*(chunk(*parts) for parts in said), chunk(finish="STOP", usageMetadata=USAGE)]
    if form in ("array", "indented"):
        stream = array(chunks, 1 if form == "indented" else None)
    else:
        stream = events(chunks, form.encode() * 2)
    free, verdict, done = fed(stream)
    assert fed(cut(stream, places)) == (free, verdict, done)
    assert stream.startswith(free) and not verdict.fault
    proposed = [part["functionCall"] for parts in said for part in parts if "functionCall" in part]
    assert [json.loads(found.arguments) for found in verdict.calls] == [found["args"] for found in proposed]
    held = next((at for at, parts in enumerate(said) if any("functionCall" in part for part in parts)), len(said))
    wanted = array(chunks[:held], 1 if form == "indented" else None).removesuffix(b"\n]\n") if held else b""
    assert free == (wanted if "data:" not in stream[:5].decode() else events(chunks[:held], form.encode() * 2))


# --- when it is finished ----------------------------------------------------------------------------------------------


def test_stream_without_a_finish_reason_is_a_fault() -> None:
    for chunks in (TEXT[:2], CALLS[:3], [], [{}], [{"usageMetadata": USAGE}]):
        assert fed(events(chunks) or b"\r\n")[1].fault
        assert fed(array(chunks))[1].fault


@pytest.mark.parametrize("kept", [0, 1])
def test_candidate_without_a_finish_reason_is_a_fault(kept: int) -> None:
    chunks = [chunk(text("a"), index=0), chunk(text("b"), index=1), chunk(finish="STOP", index=kept)]
    assert f"candidate {1 - kept}" in fed(events(chunks))[1].fault


@pytest.mark.parametrize("reason", [None, "", 0, "FINISH_REASON_UNSPECIFIED"])
def test_finish_reason_that_says_nothing_is_none(reason: Any) -> None:
    assert "before candidate 0" in fed(events([chunk(text("a"), finish=reason)]))[1].fault
    assert judge_plain(json.dumps(chunk(text("a"), finish=reason)).encode()).fault


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "A_NEW_ONE", 1, 2])
def test_any_other_finish_reason_finishes(reason: Any) -> None:
    verdict = fed(events([chunk(text("a"), finish=reason)]))[1]
    assert (verdict.fault, verdict.finish, verdict.broken) == ("", (str(reason),), False)
    assert judge_plain(json.dumps(chunk(text("a"), finish=reason)).encode()) == verdict


def test_blocked_prompt_is_a_finished_answer_without_calls_and_is_held() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE, "modelVersion": "gemini-test-1"}
    expected = Verdict("", "gemini-test-1", json.dumps(USAGE), (), ("SAFETY",))
    assert fed(events([blocked]))[:2] == (b"", expected)
    assert fed(array([blocked]))[:2] == (b"", expected)
    assert judge_plain(json.dumps(blocked).encode()) == expected
    unsaid = {"promptFeedback": {"safetyRatings": []}}
    assert judge_plain(json.dumps(unsaid).encode()).fault


def test_array_must_be_closed() -> None:
    stream = array(TEXT)
    assert "array" in fed(stream.rstrip().removesuffix(b"]"))[1].fault
    assert fed(stream)[2] is True
    assert fed(stream[:-3])[2] is False


def test_events_have_no_end_marker_but_that_of_gateways() -> None:
    assert fed(STREAMS["text"])[2] is False
    assert fed(STREAMS["end marker"])[2] is True
    assert fed(b"data: [DONE]\r\n\r\n")[1].fault


# --- faults -----------------------------------------------------------------------------------------------------------

ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_error_in_a_stream_is_a_fault_and_is_not_shown(place: int) -> None:
    chunks = [*TEXT[:place], ERROR, *TEXT[place:]]
    bare = events(TEXT[:place]) + json.dumps(ERROR, indent=2).encode() + b"\n\n" + events(TEXT[place:])
    for stream in (events(chunks), array(chunks), bare):
        if stream.startswith(b"{"):
            continue  # no stream: it is judged as a plain answer
        free, verdict, _ = fed(stream)
        assert "broke off" in verdict.fault and "overloaded" in verdict.fault
        assert b"overloaded" not in free


def test_error_that_ends_a_stream_without_its_framing_is_a_fault() -> None:
    free, verdict, _ = fed(events(TEXT[:2]) + json.dumps(ERROR, indent=2).encode())
    assert "overloaded" in verdict.fault
    assert free == events(TEXT[:2])


@pytest.mark.parametrize("event", [b"data: {\n\n", b"data: <html>\n\n", b"data: [1]\n\n", b"data: 7\n\n",
                                   b"data: \xff\n\n", b"<html>\n\n", b"data: " + b"[" * 60_000 + b"\n\n",
                                   b'data: {"candidates":[{"finishReason":"\\ud800"}]}\n\n'])  # fmt: skip
def test_event_that_is_no_json_object_is_a_fault_and_is_not_shown(event: bytes) -> None:
    free, verdict, _ = fed(events(TEXT[:1]) + event + events(TEXT[1:]))
    assert verdict.fault
    assert free == events(TEXT[:1])


@pytest.mark.parametrize("stream", [b"[]", b"[1]", b"[[]]", b"[null]", b"[{}", b"[{}{}]", b"[,{}]", b"[{},]", b"[{}] x",
                                    b"[{} 7, {}]", b"[{]}", b"[" * 60_000])  # fmt: skip
def test_array_that_is_none_of_objects_is_a_fault(stream: bytes) -> None:
    finished = json.dumps(chunk(finish="STOP")).encode()
    for body in (stream, stream.replace(b"{}", finished)):
        free, verdict, _ = fed(body)
        assert verdict.fault
        assert b"finishReason" not in free


def test_array_whose_elements_are_joined_wrongly_is_a_fault_though_they_are_finished() -> None:
    one = json.dumps(TEXT[2]).encode()
    for body in (b"[" + one + one + b"]", b"[" + one + b";" + one + b"]", b"[" + one + b",]", b"[" + one + b"]]"):
        assert fed(body)[1].fault, body


@pytest.mark.parametrize("body", [b"", b"{", b"<html></html>", b"[]", b"7", b"null", b"\xff", b"{}",
                                  b'{"candidates":[]}', b'{"candidates":[{"content":{}}]}', json.dumps(ERROR).encode(),
                                  b"[" * 60_000])  # fmt: skip
def test_plain_answer_that_is_none_is_a_fault(body: bytes) -> None:
    assert judge_plain(body).fault


def test_html_page_is_named_in_the_fault() -> None:
    assert "HTML" in judge_plain(b"\n<!doctype html>").fault


# --- calls and counts -------------------------------------------------------------------------------------------------


def test_calls_have_their_ids_names_and_the_arguments_as_the_model_wrote_them() -> None:
    body = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"look","args":{"x" : 1.0}}},{"text":"t"},'
    body += b'{"functionCall":{"id":"i","name":"mail"}}]},"finishReason":"STOP"}]}'
    for verdict in (judge_plain(body), fed(b"data: " + body + b"\r\n\r\n")[1], fed(b"[" + body + b"]")[1]):
        found = [(c.choice, c.index, c.call_id, c.name, c.arguments) for c in verdict.calls]
        assert found == [(0, 0, "", "look", '{"x" : 1.0}'), (0, 1, "i", "mail", "")]


def test_calls_of_two_candidates_are_counted_apart() -> None:
    chunks = [chunk(call("b"), index=1, finish="STOP"), chunk(call("a"), call("c"), index=0, finish="STOP")]
    verdict = fed(events(chunks))[1]
    assert [(c.choice, c.index, c.name) for c in verdict.calls] == [(0, 0, "a"), (0, 1, "c"), (1, 0, "b")]
    assert verdict.finish == ("STOP", "STOP")


def test_tools_that_the_provider_runs_are_no_calls_and_are_not_held() -> None:
    parts = [{"executableCode": {"code": "1"}}, {"codeExecutionResult": {"output": "1"}},
             {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH"}}, {"toolResponse": {"id": "t"}}]  # fmt: skip
    free, verdict, _ = fed(events([chunk(*parts), chunk(finish="STOP")]))
    assert verdict.calls == ()
    assert free == events([chunk(*parts)])


def test_last_count_and_last_model_are_told_and_zeros_are_kept() -> None:
    chunks = [chunk(text("a"), usageMetadata={"promptTokenCount": 9}), chunk(text("b"), usageMetadata=None),
              chunk(finish="STOP", usageMetadata=USAGE) | {"modelVersion": "gemini-test-2"},
              {"usageMetadata": USAGE | {"totalTokenCount": 4}}]  # fmt: skip
    verdict = fed(events(chunks))[1]
    assert json.loads(verdict.usage) == USAGE | {"totalTokenCount": 4}
    assert verdict.model == "gemini-test-2"


def pieces(*found: dict[str, Any]) -> list[dict[str, Any]]:
    return [chunk({"functionCall": piece}) for piece in found]


PARTIAL = pieces(
    {"name": "look", "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.city", "stringValue": "New ", "willContinue": True}], "willContinue": True},
    {"partialArgs": [{"jsonPath": "$.city", "stringValue": "Delhi"}, {"jsonPath": "$.days[1].n", "numberValue": 2}],
     "willContinue": True},
    {"partialArgs": [{"jsonPath": "$['now']", "boolValue": True}, {"jsonPath": "$.x", "nullValue": "NULL_VALUE"}]},
    {"name": "mail", "args": {"to": "x"}},
)  # fmt: skip
WHOLE_ARGUMENTS = {"city": "New Delhi", "days": [None, {"n": 2}], "now": True, "x": None}


def test_arguments_that_come_in_pieces_grow_into_one_call() -> None:
    verdict = fed(events([*PARTIAL, chunk(finish="STOP")]))[1]
    assert not verdict.fault
    assert [(c.name, json.loads(c.arguments)) for c in verdict.calls] == [
        ("look", WHOLE_ARGUMENTS), ("mail", {"to": "x"}),
    ]  # fmt: skip


def test_arguments_whose_last_piece_is_missing_are_a_fault_unless_a_limit_cut_them() -> None:
    torn = fed(events([*PARTIAL[:2], chunk(finish="STOP")]))[1]
    assert "'look'" in torn.fault
    for reason in ("MAX_TOKENS", 2):
        verdict = fed(events([*PARTIAL[:2], chunk(finish=reason)]))[1]
        assert (verdict.fault, verdict.broken) == ("", True)
    assert not fed(events([*PARTIAL, chunk(finish="MAX_TOKENS")]))[1].broken


def test_chunk_with_fields_of_unusual_types_is_held_and_judged_by_what_is_usual() -> None:
    odd = {"candidates": [{"index": "x", "finishReason": ["STOP"], "content": {"parts": [7, {"functionCall": 7}]}}],
           "usageMetadata": USAGE, "modelVersion": 7}  # fmt: skip
    free, verdict, _ = fed(events([*TEXT[:1], odd]))
    assert free == events(TEXT[:1])
    assert (verdict.fault, json.loads(verdict.usage), len(verdict.calls)) == ("", USAGE, 1)
    assert "broke off" in fed(events([{**odd, "error": "x"}]))[1].fault


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_heartbeat_of_events_is_a_blank_line_which_changes_nothing() -> None:
    gate = StreamGate()
    beat = gate.heartbeat()
    assert beat == b"\r\n"
    shown = beat + gate.feed(events(TEXT[:1])) + beat + gate.feed(events(TEXT[1:])) + beat
    rest = events(TEXT)[len(fed(events(TEXT))[0]) :]
    assert fed(shown + rest)[1] == fed(events(TEXT))[1]
    assert b"".join(shown.split(b"\r\n")) == b"".join(events(TEXT[:2]).split(b"\r\n"))


def test_heartbeat_of_an_array_is_white_space_once_its_first_element_is_out() -> None:
    stream, gate = array(TEXT), ArrayGate()
    assert gate.heartbeat() == b""
    shown = b""
    for place in range(len(stream)):
        shown += gate.feed(stream[place : place + 1])
        shown += gate.heartbeat()
    rest = stream[len(fed(stream)[0]) :]
    assert shown.count(b"\n") > 50
    assert json.loads(shown + rest) == TEXT


def test_elements_and_the_rest_are_the_bytes_that_were_fed() -> None:
    stream = STREAMS["array, indented"]
    reader = Elements()
    found = [pair for place in range(len(stream)) for pair in reader.feed(stream[place : place + 1])]
    assert stream.startswith(b"".join(piece for piece, _ in found))
    assert [json.loads(element) for _, element in found] == CALLS
    assert (reader.unclosed(), reader.fault, reader.closed) == ("", "", True)


SNAKE = [chunk(text("Let me see.")), chunk({"function_call": {"name": "mail", "id": "id-1", "args": {"to": "x"}}}),
         chunk(text("after")), chunk(finish="STOP", usageMetadata=USAGE)]  # fmt: skip


@pytest.mark.parametrize("stream", [events(SNAKE), array(SNAKE)], ids=["events", "array"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_call_in_snake_case_and_what_follows_it_are_not_seen_before_the_commit(stream: bytes, size: int) -> None:
    free, verdict, _ = fed([stream[at : at + size] for at in range(0, len(stream), size)])
    assert b"Let me see." in free
    assert b"mail" not in free and b"after" not in free
    assert verdict.fault == ""
    assert [(found.name, found.call_id, json.loads(found.arguments)) for found in verdict.calls] == [
        ("mail", "id-1", {"to": "x"})
    ]
    assert (verdict.finish, json.loads(verdict.usage), verdict.model) == (("STOP",), USAGE, "gemini-test-1")


def test_call_in_snake_case_of_a_plain_answer_is_found() -> None:
    part = {"function_call": {"name": "mail", "args": {"to": "x"}}}
    verdict = judge_plain(json.dumps(chunk(text("hi"), part, call("look"), finish="STOP")).encode())
    assert verdict.fault == ""
    assert [found.name for found in verdict.calls] == ["mail", "look"]
