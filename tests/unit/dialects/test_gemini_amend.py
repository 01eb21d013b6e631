"""Function calls of a Gemini answer that are edited or taken out, in each framing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Call, Change, Shape, Verdict
from agentstate.dialects.gemini import Gemini
from agentstate.dialects.gemini_shape import merged
from tests.unit.core.profile import examples
from tests.unit.dialects.test_gemini_answer import PARTIAL, USAGE, array, chunk, events, text
from tests.unit.dialects.test_gemini_answer import call as called
from tests.unit.dialects.test_gemini_traffic import Recorded, chunks_of, generated, meant, parse

GEMINI = Gemini()
PLAIN, EVENTS, ARRAY = Shape(), Shape(True), Shape(True, array=True)
SHAPES = (PLAIN, EVENTS, ARRAY)
NEW = '{"to": "éve",  "n":1.50}'
SAID = 'The call was refused by "ann": no.\nReally.'
MARK = "hush-hush"


def asked(shape: Shape) -> Call:
    return Call("gemini", "POST", "", b"", b"", shape=shape)


def verdict_of(shape: Shape, body: bytes) -> tuple[int, Verdict]:
    """(how many bytes are shown before the commit, the verdict)."""
    if not shape.stream:
        return 0, GEMINI.judge(asked(shape), body)
    gate = GEMINI.gate(asked(shape))
    return len(gate.feed(body)), gate.finish()


def amended(shape: Shape, body: bytes, changes: Sequence[Change], said: str = "") -> bytes:
    return GEMINI.amended(asked(shape), shape, body, changes, said)


def plain_of(shape: Shape, body: bytes) -> Any:
    """An answer as one object, its texts added up, whatever its shape."""
    return merged([json.loads(GEMINI.convert(shape, PLAIN, body))])


def signature_of(part: Any) -> Any:
    return part.get("thoughtSignature") if isinstance(part, dict) else None


def wanted(whole: Any, changes: Sequence[Change], said: str) -> Any:
    """The answer that there should be, worked out on objects."""
    fates = {(change.choice, change.index): change.arguments for change in changes}
    whole = json.loads(json.dumps(whole))
    for candidate in whole["candidates"]:
        index, at, left = candidate.get("index") or 0, 0, 0
        parts: list[Any] = []
        lost, told, touched = None, not said, False
        for part in candidate.get("content", {}).get("parts", []):
            if "functionCall" not in part:
                parts.append(part)
                continue
            key, at = (index, at), at + 1
            touched = touched or key in fates
            if key in fates and fates[key] is None:
                lost = lost or signature_of(part)
                parts += [] if told else [text(said)]
                told = True
                continue
            left += 1
            if lost and not signature_of(part):
                part["thoughtSignature"] = lost
            lost = None
            if key in fates:
                part["functionCall"]["args"] = json.loads(fates[key] or "")
            parts.append(part)
        if touched:
            candidate["content"]["parts"] = parts
            candidate.pop("logprobsResult", None)
            unusual = any(word in str(candidate.get("finishReason")) for word in ("TOOL_CALL", "FUNCTION_CALL"))
            if not left or unusual:
                candidate.pop("finishMessage", None)
            if not left and unusual:
                candidate["finishReason"] = "STOP"
    return merged([whole])


def checked(shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """An amended answer, of which everything is checked that holds for any."""
    shown, before = verdict_of(shape, body)
    new = amended(shape, body, changes, said)
    assert new[:shown] == body[:shown]
    after = verdict_of(shape, new)[1]
    assert after.fault == ""
    fates = {(change.choice, change.index): change.arguments for change in changes}
    stays = [one for one in before.calls if fates.get((one.choice, one.index), "") is not None]
    assert [(one.choice, one.call_id, one.name, one.arguments) for one in after.calls] == [
        (one.choice, one.call_id, one.name, fates.get((one.choice, one.index)) or one.arguments) for one in stays
    ]
    assert (after.model, after.usage) == (before.model, before.usage)
    expected = wanted(plain_of(shape, body), changes, said)
    assert plain_of(shape, new) == expected
    assert plain_of(PLAIN, amended(PLAIN, GEMINI.convert(shape, PLAIN, body), changes, said)) == expected
    return new


def choices_of(verdict: Verdict) -> Iterator[list[Change]]:
    """Every call taken out or edited alone, all together, and every other one."""
    places = [(one.choice, one.index) for one in verdict.calls]
    for place in places:
        yield [Change(*place)]
        yield [Change(*place, NEW)]
    if len(places) > 1:
        yield [Change(*place) for place in places]
        yield [Change(*place, NEW if at % 2 else None) for at, place in enumerate(places)]
        yield [Change(*place, None if at % 2 else NEW) for at, place in enumerate(places)]


# --- made answers -----------------------------------------------------------------------------------------------------


def marked(place: int, call_id: str | None = None, **more: Any) -> dict[str, Any]:
    return {**called("mail", call_id, to=f"{MARK}-{place}-{MARK}"), **more}


_parts = st.lists(
    st.sampled_from(["text", "thought", "call", "call", "call with id", "signed call", "code"]), max_size=4
)


def spelled(kind: str, place: int) -> dict[str, Any]:
    if kind == "text":
        return text("a\u2028 ")
    if kind == "thought":
        return {"text": "hm", "thought": True}
    if kind == "code":
        return {"executableCode": {"code": "1", "language": "PYTHON"}}
    if kind == "call with id":
        return marked(place, f"id-{place}-id")
    return marked(place, thoughtSignature="c2ln") if kind == "signed call" else marked(place)


@examples(250)
@given(
    said=st.lists(st.tuples(_parts, st.integers(0, 1)), max_size=5),
    form=st.sampled_from(["crlf", "lf", "blank lines", "no last line", "array", "indented", "plain"]),
    reason=st.sampled_from(["STOP", "MAX_TOKENS", "UNEXPECTED_TOOL_CALL"]),
    words=st.sampled_from(["", SAID]), data=st.data(),
)  # fmt: skip
def test_any_change_of_any_answer_goes_on_from_what_was_shown_and_leaves_no_trace(
    said: list[tuple[list[str], int]], form: str, reason: str, words: str, data: st.DataObject
) -> None:
    place = iter(range(100))
    numbers: dict[int, list[int]] = {0: [], 1: []}
    chunks = []
    for kinds, index in said:
        parts = []
        for kind in kinds:
            at = next(place)
            parts.append(spelled(kind, at))
            if "call" in kind:
                numbers[index].append(at)
        chunks.append(chunk(*parts, index=index, unknown={"b": 1.50}))
    told = {"finishMessage": "Model generated function call(s)."}
    last = [chunk(finish=reason, index=index, usageMetadata=USAGE) for index in (0, 1)]
    for one in last:
        one["candidates"][0] |= told
    shape, body = framed([*chunks, *last], form)
    verdict = verdict_of(shape, body)[1]
    fates = [None, *([fate] for fate in (None, NEW))]
    drawn = [(one, data.draw(st.sampled_from(fates))) for one in verdict.calls]
    changes = [Change(one.choice, one.index, fate[0]) for one, fate in drawn if fate is not None]
    if not changes:
        assert amended(shape, body, [], words) == body
        return
    new = checked(shape, body, changes, words)
    for change in changes:
        at = numbers[change.choice][change.index]
        assert f"{MARK}-{at}-".encode() not in new
        if change.arguments is None:
            assert f"id-{at}-id".encode() not in new


def framed(chunks: list[Any], form: str) -> tuple[Shape, bytes]:
    if form in ("array", "indented"):
        return ARRAY, array(chunks, 1 if form == "indented" else None)
    if form == "plain":
        return PLAIN, GEMINI.convert(EVENTS, PLAIN, events(chunks))
    body = events(chunks, b"\n\n" if form == "lf" else b"\r\n\r\n")
    if form == "blank lines":
        body = b"\r\n" + body.replace(b"\r\n\r\n", b"\r\n\r\n\r\n\r\n")
    return EVENTS, body.rstrip() if form == "no last line" else body


@pytest.mark.parametrize("form", ["crlf", "array", "indented"])
def test_chunks_that_concern_no_changed_call_are_byte_for_byte_as_they_were(form: str) -> None:
    chunks = [chunk(text("a")), chunk(marked(0)), chunk(text("b")), chunk(marked(1)), chunk(finish="STOP")]
    shape, body = framed(chunks, form)
    new = amended(shape, body, [Change(0, 1, NEW)])
    old = json.dumps(marked(1)["functionCall"]["args"], indent=1 if form == "indented" else None)
    if form != "indented":
        assert new == body.replace(old.encode(), NEW.encode())
    one = [found for found in chunks_raw(shape, new) if found not in chunks_raw(shape, body)]
    assert len(one) == 1 and NEW.encode() in one[0]
    gone = chunks_raw(shape, amended(shape, body, [Change(0, 0)]))
    assert [found in chunks_raw(shape, body) for found in gone] == [True, False, True, True, True]


def chunks_raw(shape: Shape, body: bytes) -> list[bytes]:
    if not shape.array:
        return [found for found in body.split(b"\r\n\r\n") if found]
    return body.strip()[1:-1].strip().split(b"\n,\r\n")


def test_text_stands_in_the_place_of_the_first_call_of_each_candidate_that_lost_one() -> None:
    chunks = [chunk(text("a"), marked(0), marked(1), text("b"), index=0), chunk(marked(2), index=1),
              chunk(marked(3), index=2), *(chunk(finish="STOP", index=index) for index in (0, 1, 2))]  # fmt: skip
    for form in ("crlf", "array", "plain"):
        shape, body = framed(chunks, form)
        new = checked(shape, body, [Change(0, 0), Change(0, 1), Change(1, 0), Change(2, 0, NEW)], SAID)
        found = [one["content"].get("parts") for one in plain_of(shape, new)["candidates"]]
        assert found[:2] == [[text(f"a{SAID}b")], [text(SAID)]]
        assert [list(part) for part in found[2]] == [["functionCall"]]


def test_text_is_said_only_where_a_call_was_taken_out() -> None:
    _, body = framed([chunk(marked(0), finish="STOP")], "crlf")
    assert amended(EVENTS, body, [], SAID) == body
    assert SAID[:8].encode() not in amended(EVENTS, body, [Change(0, 0, NEW)], SAID)


def test_signature_of_a_call_that_goes_is_borne_by_the_next_that_has_none() -> None:
    first = marked(0, thoughtSignature="c2ln")
    for form in ("crlf", "array", "plain"):
        shape, body = framed([chunk(first, marked(1)), chunk(marked(2)), chunk(finish="STOP")], form)
        one = plain_of(shape, checked(shape, body, [Change(0, 0)], ""))["candidates"][0]["content"]["parts"]
        assert [signature_of(part) for part in one] == ["c2ln", None]
        two = plain_of(shape, checked(shape, body, [Change(0, 0), Change(0, 1)], SAID))
        assert [signature_of(part) for part in two["candidates"][0]["content"]["parts"]] == [None, "c2ln"]
        assert b"c2ln" not in checked(shape, body, [Change(0, 0), Change(0, 1), Change(0, 2)], SAID)
        assert b"c2ln" in checked(shape, body, [Change(0, 0, NEW)], "")
    own = marked(1, thoughtSignature="b3du")
    shape, body = framed([chunk(first, own, finish="STOP")], "crlf")
    assert b"c2ln" not in checked(shape, body, [Change(0, 0)], "")


def test_words_and_reason_that_tell_of_calls_go_with_the_last_of_them() -> None:
    ending = chunk(marked(0), marked(1), finish="UNEXPECTED_TOOL_CALL")
    ending["candidates"][0]["finishMessage"] = f"Model tried to call mail({MARK}-0-{MARK})"
    _, body = framed([ending], "crlf")
    both = checked(EVENTS, body, [Change(0, 0), Change(0, 1)], SAID)
    assert verdict_of(EVENTS, both)[1].finish == ("STOP",) and b"finishMessage" not in both
    one = checked(EVENTS, body, [Change(0, 0)], SAID)
    assert verdict_of(EVENTS, one)[1].finish == ("UNEXPECTED_TOOL_CALL",) and b"finishMessage" not in one
    cut = chunk(marked(0), finish="MAX_TOKENS")
    assert verdict_of(EVENTS, checked(EVENTS, events([cut]), [Change(0, 0)], SAID))[1].finish == ("MAX_TOKENS",)


def test_probabilities_of_the_tokens_of_a_changed_call_go_too() -> None:
    ending = chunk(marked(0), finish="STOP")
    ending["candidates"][0]["logprobsResult"] = {"chosenCandidates": [{"token": f"{MARK}-0-{MARK}"}]}
    for form in ("crlf", "plain"):
        shape, body = framed([ending], form)
        assert MARK.encode() not in checked(shape, body, [Change(0, 0, NEW)], "")
        assert MARK.encode() not in checked(shape, body, [Change(0, 0)], "")


def test_arguments_that_come_in_pieces_are_replaced_as_a_whole() -> None:
    chunks = [*PARTIAL, chunk(finish="STOP")]
    for form in ("crlf", "array"):
        shape, body = framed(chunks, form)
        assert len(verdict_of(shape, body)[1].calls) == 2
        for changes in choices_of(verdict_of(shape, body)[1]):
            new = checked(shape, body, changes, SAID)
            if Change(0, 0, NEW) in changes:
                read = [json.loads(found)["candidates"][0]["content"]["parts"] for found in chunks_of(shape, new)]
                calls = [part["functionCall"] for parts in read for part in parts if "functionCall" in part]
                assert json.loads(NEW) == calls[0]["args"]
                assert "partialArgs" not in calls[0] and "willContinue" not in calls[0]


def test_signature_beside_a_later_piece_of_an_edited_call_stays_with_the_call() -> None:
    later = {"functionCall": {"partialArgs": [{"jsonPath": "$.to", "stringValue": MARK}]}, "thoughtSignature": "c2ln"}
    pieces = [chunk({"functionCall": {"name": "mail", "willContinue": True}}), chunk(later), chunk(finish="STOP")]
    new = amended(EVENTS, events(pieces), [Change(0, 0, NEW)])
    found = plain_of(EVENTS, new)["candidates"][0]["content"]["parts"]
    assert found == [{"functionCall": {"name": "mail", "args": json.loads(NEW)}, "thoughtSignature": "c2ln"}]
    assert MARK.encode() not in new


def test_calls_in_the_spelling_of_requests_are_amended_too() -> None:
    odd = chunk(*({"function_call": marked(at)["functionCall"]} for at in (0, 1)), finish="STOP")
    new = amended(EVENTS, events([odd]), [Change(0, 0), Change(0, 1, NEW)], SAID)
    assert f"{MARK}-".encode() not in new
    assert [json.loads(one.arguments) for one in verdict_of(EVENTS, new)[1].calls] == [json.loads(NEW)]
    assert json.loads(new[6:])["candidates"][0]["content"]["parts"][0] == text(SAID)


def test_call_that_is_no_object_can_be_taken_out() -> None:
    odd = {"candidates": [{"content": {"parts": [{"functionCall": "mail"}, text("b")]}, "finishReason": "STOP"}]}
    new = amended(EVENTS, events([odd]), [Change(0, 0)], SAID)
    assert plain_of(EVENTS, new)["candidates"][0]["content"]["parts"] == [text(f"{SAID}b")]
    edited = amended(EVENTS, events([odd]), [Change(0, 0, NEW)])
    assert json.loads(verdict_of(EVENTS, edited)[1].calls[0].arguments) == json.loads(NEW)


def test_line_ends_in_new_arguments_do_not_end_an_event() -> None:
    pretty = json.dumps({"to": "x", "n": [1, 2]}, indent=2)
    for form in ("crlf", "array", "plain"):
        shape, body = framed([chunk(marked(0), finish="STOP")], form)
        new = amended(shape, body, [Change(0, 0, pretty)])
        found = verdict_of(shape, new)[1]
        assert not found.fault and json.loads(found.calls[0].arguments) == json.loads(pretty)
        assert (found.calls[0].arguments == pretty) == (form != "crlf")


@pytest.mark.parametrize("wrong", [Change(0, 1), Change(1, 0), Change(0, -1), Change(2, 0, NEW)])
def test_change_of_a_call_that_is_not_there_is_a_value_error(wrong: Change) -> None:
    for form in ("crlf", "array", "plain"):
        shape, body = framed([chunk(marked(0)), chunk(text("a"), index=1, finish="STOP"), chunk(finish="STOP")], form)
        with pytest.raises(ValueError, match="has no call"):
            amended(shape, body, [wrong])


def test_no_change_gives_the_very_bytes() -> None:
    for shape in SHAPES:
        assert amended(shape, b"anything at all", [], SAID) == b"anything at all"


def test_plain_answer_keeps_every_byte_but_those_of_the_changed_calls() -> None:
    body = (b' {"candidates" : [{"content": {"parts":[ {"text":"\\u00e9"} ,\n{"functionCall": {"name":"mail", "args": '
            b'{"to":"old"}, "id":"a" }}, {"functionCall":{"name":"now"}} ], "role":"model"},"finishReason":"STOP"}],'
            b'"n":1.50}\n')  # fmt: skip
    edited = amended(PLAIN, body, [Change(0, 0, NEW), Change(0, 1, "{}")])
    assert edited == body.replace(b'{"to":"old"}', NEW.encode()).replace(b'"now"}', b'"now","args":{}}')
    assert amended(PLAIN, body, [Change(0, 1)]) == body.replace(b', {"functionCall":{"name":"now"}}', b"")


# --- recorded answers -------------------------------------------------------------------------------------------------


def with_calls() -> list[tuple[Recorded, Shape, bytes]]:
    """Recorded answers that call, in every shape."""
    found = []
    for exchange in generated():
        if exchange.status != 200:
            continue
        recorded = parse(GEMINI, exchange).shape
        for shape in SHAPES:
            body = GEMINI.convert(recorded, shape, exchange.response)
            if verdict_of(shape, body)[1].calls:
                found.append((exchange, shape, body))
    return found


def test_recorded_answers_are_amended_in_every_way_and_shape() -> None:
    found = with_calls()
    assert len(found) > 300
    ways = 0
    for exchange, shape, body in found:
        verdict = verdict_of(shape, body)[1]
        for at, changes in enumerate(choices_of(verdict)):
            new = checked(shape, body, changes, SAID if at % 3 else "")
            gone = [one.call_id for one in verdict.calls if Change(one.choice, one.index) in changes and one.call_id]
            assert not any(call_id.encode() in new for call_id in gone), exchange.id
            ways += 1
    assert ways > 600


def test_recorded_answers_without_changes_are_the_very_bytes() -> None:
    for exchange in generated():
        assert amended(parse(GEMINI, exchange).shape, exchange.response, []) == exchange.response


def test_google_sdk_reads_an_amended_answer_as_what_was_released() -> None:
    genai = pytest.importorskip("google.genai", reason="Google's SDK is not installed")
    httpx = pytest.importorskip("httpx", reason="an SDK of this generation is not installed")
    bodies: list[bytes] = []
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=bodies[-1]))
    options = genai.types.HttpOptions(base_url="http://127.0.0.1:9", client_args={"transport": transport})
    client = genai.Client(api_key="sk-test-gemini", http_options=options)
    for exchange, shape, body in with_calls():
        whole = plain_of(shape, body)
        if shape.array or isinstance(whole["candidates"][0]["finishReason"], int):
            continue  # neither of which that SDK ever asks for
        for changes in choices_of(verdict_of(shape, body)[1]):
            bodies.append(amended(shape, body, changes, SAID))
            asked_so = {"model": "gemini-test-1", "contents": "hi"}
            if shape.stream:
                answers = list(client.models.generate_content_stream(**asked_so))
            else:
                answers = [client.models.generate_content(**asked_so)]
            first = [candidate for one in answers for candidate in (one.candidates or [])[:1] if candidate.content]
            parts = [part for candidate in first for part in candidate.content.parts or ()]
            expected = wanted(whole, changes, SAID)["candidates"][0]["content"]["parts"]
            assert [(one.function_call.name, one.function_call.args) for one in parts if one.function_call] == [
                (one["functionCall"]["name"], one["functionCall"].get("args"))
                for one in expected
                if "functionCall" in one
            ], exchange.id
            assert "".join(one.text for one in parts if one.text) == "".join(one.get("text", "") for one in expected)


def test_verdicts_of_amended_answers_agree_in_all_shapes() -> None:
    for exchange in generated():
        recorded = parse(GEMINI, exchange).shape
        if exchange.status != 200 or not verdict_of(recorded, exchange.response)[1].calls:
            continue
        for changes in choices_of(verdict_of(recorded, exchange.response)[1]):
            new = amended(recorded, exchange.response, changes, SAID)
            expected = meant(verdict_of(recorded, new)[1])
            for shape in SHAPES:
                found = amended(shape, GEMINI.convert(recorded, shape, exchange.response), changes, SAID)
                assert meant(verdict_of(shape, found)[1]) == expected, exchange.id
