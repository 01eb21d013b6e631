"""Which Gemini requests are the same question, what of them is volatile, and how paths and errors are spelled."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from agentstate.core import fingerprint, mask
from agentstate.core.model import Call, Shape
from agentstate.dialects import volatile
from agentstate.dialects.gemini import GENERATE, PURE, Gemini, gemini_operation
from agentstate.dialects.gemini_answer import gemini_error
from agentstate.errors import BadRequest, NotFound

GEMINI = Gemini()
PATH = "models/gemini-test:generateContent"
STREAM = "models/gemini-test:streamGenerateContent"
OLD, NEW = "2026-11-30T09:41:05Z", "2027-02-03T22:17:48Z"
BODY: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "What is due in Oslo and in Rome?"}]},
        {"role": "model", "parts": [
            {"text": "Let me see.", "thought": True},
            {"functionCall": {"id": "a", "name": "look", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "b", "name": "look", "args": {"city": "Rome"}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "a", "name": "look", "response": {"result": f"rent, read at {OLD}"}}},
            {"functionResponse": {"id": "b", "name": "look", "response": {"result": "tax"}}},
        ]},
        {"role": "user", "parts": [{"text": "And then?"}]},
    ],
    "systemInstruction": {"parts": [{"text": f"You are terse. It is {OLD}."}]},
    "tools": [
        {"functionDeclarations": [
            {"name": "look", "description": f"Looks at what is due as of {OLD}.",
             "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING", "enum": ["Oslo", "Rome"]}}}},
            {"name": "mail", "description": "Sends mail."},
        ]},
        {"googleSearch": {}},
    ],
    "generationConfig": {"temperature": 0.5, "candidateCount": 2},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "labels": {"team": "one"},
}  # fmt: skip


def encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


def parsed(body: Any, path: str = PATH, query: str = "") -> Call:
    return GEMINI.parse("POST", path, encoded(body), query)


def key(body: Any, path: str = PATH, query: str = "") -> bytes:
    return fingerprint.of(parsed(body, path, query)).key


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    body = copy.deepcopy(BODY)
    change(body)
    return body


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The body with call ids replaced."""
    if isinstance(value, list):
        return [renamed(part, names) for part in value]
    if not isinstance(value, dict):
        return value
    return {k: names.get(part, part) if k == "id" else renamed(part, names) for k, part in value.items()}


# --- the same question ------------------------------------------------------------------------------------------------

SAME: dict[str, Callable[[dict[str, Any]], object]] = {
    "labels": lambda body: body.update(labels={"team": "two"}),
    "no labels": lambda body: body.pop("labels"),
    "the model again": lambda body: body.update(model="models/gemini-test"),
    "null": lambda body: body.update(cachedContent=None),
    "null in a content": lambda body: body["contents"][0].update(extra=None),
    "null in a part": lambda body: body["contents"][0]["parts"][0].update(thought=None),
    "order of functions": lambda body: body["tools"][0]["functionDeclarations"].reverse(),
    "order of tools": lambda body: body["tools"].reverse(),
    "order of parallel results": lambda body: body["contents"][2]["parts"].reverse(),
    "snake case": lambda body: body.update(
        system_instruction=body.pop("systemInstruction"),
        generation_config=body.pop("generationConfig"),
        safety_settings=body.pop("safetySettings"),
    ),
    "order of fields": lambda body: body.update(contents=body.pop("contents")),
}
OTHER: dict[str, Callable[[dict[str, Any]], object]] = {
    "text": lambda body: body["contents"][0]["parts"][0].update(text="else"),
    "role": lambda body: body["contents"][0].update(role="model"),
    "order of contents": lambda body: body["contents"].reverse(),
    "one content less": lambda body: body["contents"].pop(),
    "order of calls": lambda body: body["contents"][1]["parts"].reverse(),
    "a result": lambda body: body["contents"][2]["parts"][0]["functionResponse"].update(response={"result": "x"}),
    "results changed over": lambda body: (
        body["contents"][2]["parts"][0]["functionResponse"].update(id="b"),
        body["contents"][2]["parts"][1]["functionResponse"].update(id="a"),
    ),
    "a signature": lambda body: body["contents"][1]["parts"][1].update(thoughtSignature="b3RoZXI="),
    "arguments": lambda body: body["contents"][1]["parts"][1]["functionCall"].update(args={"city": "Rome"}),
    "system text": lambda body: body["systemInstruction"]["parts"][0].update(text="You are wordy."),
    "no system text": lambda body: body.pop("systemInstruction"),
    "a description": lambda body: body["tools"][0]["functionDeclarations"][1].update(description="Reads mail."),
    "a null in a schema": lambda body: body["tools"][0]["functionDeclarations"][0]["parameters"].update(default=None),
    "one tool less": lambda body: body["tools"].pop(),
    "temperature": lambda body: body["generationConfig"].update(temperature=0.6),
    "cached content": lambda body: body.update(cachedContent="cachedContents/7"),
    "safety": lambda body: body["safetySettings"].clear(),
    "tool config": lambda body: body.update(toolConfig={"functionCallingConfig": {"mode": "ANY"}}),
    "an unknown field": lambda body: body.update(newThing=1),
}


@pytest.mark.parametrize("name", SAME)
def test_what_cannot_change_the_answer_is_the_same_question(name: str) -> None:
    assert key(changed(SAME[name])) == key(BODY)


@pytest.mark.parametrize("name", OTHER)
def test_what_can_change_the_answer_is_another_question(name: str) -> None:
    assert key(changed(OTHER[name])) != key(BODY)


def test_no_two_of_the_other_questions_are_one() -> None:
    keys = {key(changed(change)) for change in OTHER.values()}
    assert len(keys) == len(OTHER)


def test_stream_array_and_plain_answer_are_asked_for_by_one_question() -> None:
    asked = [(PATH, ""), (STREAM, "alt=sse"), (STREAM, ""), (STREAM, "alt=json"), (STREAM, "%24alt=sse&key=sk-test-1")]
    assert len({key(BODY, path, query) for path, query in asked}) == 1
    assert [parsed(BODY, path, query).shape for path, query in asked] == [
        Shape(), Shape(True), Shape(True, array=True), Shape(True, array=True), Shape(True),
    ]  # fmt: skip


def test_query_that_changes_the_answer_counts_and_credentials_do_not() -> None:
    plain = key(BODY)
    assert key(BODY, query="key=sk-test-1&prettyPrint=false&quotaUser=u&$alt=json") == plain
    numbers = key(BODY, query="$alt=json%3Benum-encoding%3Dint")
    assert numbers not in (plain, key(BODY, query="fields=candidates"), key(BODY, query="$alt=json;enum-encoding=x"))
    assert key(BODY, STREAM, "$alt=json%3Benum-encoding%3Dint") == numbers
    assert parsed(BODY, STREAM, "$alt=json%3Benum-encoding%3Dint").shape == Shape(True, array=True)


def test_model_is_part_of_the_question() -> None:
    assert key(BODY, "models/other:generateContent") != key(BODY)
    assert parsed(BODY, "models/other:generateContent").model == "other"


@pytest.mark.parametrize("names", [{"a": "x", "b": "y"}, {"a": "b", "b": "a"}])
def test_call_ids_are_renamed_by_their_order(names: dict[str, str]) -> None:
    assert key(renamed(BODY, names)) == key(BODY)


def test_call_id_that_answers_another_call_is_another_question() -> None:
    body = copy.deepcopy(BODY)
    body["contents"][2]["parts"][1]["functionResponse"]["id"] = "a"
    assert key(body) != key(BODY)


def test_call_ids_that_are_empty_are_none() -> None:
    without = json.loads(json.dumps(BODY).replace('"id": "a", ', "").replace('"id": "b", ', ""))
    assert "id" not in without["contents"][1]["parts"][1]["functionCall"]
    assert key(renamed(BODY, {"a": "", "b": ""})) == key(without)
    assert [item.call_ids for item in parsed(without).items] == [(), (), (), ()]


def test_results_without_ids_belong_to_their_calls_by_their_order() -> None:
    without = json.loads(json.dumps(BODY).replace('"id": "a", ', "").replace('"id": "b", ', ""))
    swapped = copy.deepcopy(without)
    swapped["contents"][2]["parts"].reverse()
    assert key(swapped) != key(without)


def test_results_in_contents_of_their_own_are_ordered_by_their_calls() -> None:
    def body(*order: int) -> dict[str, Any]:
        found = copy.deepcopy(BODY)
        parts = found["contents"][2]["parts"]
        found["contents"][2:3] = [{"role": "user", "parts": [parts[place]]} for place in order]
        return found

    assert key(body(0, 1)) == key(body(1, 0))
    assert [item.answers for item in parsed(body(0, 1)).items] == [None, None, "a", "b", None]


def test_snake_case_calls_and_results_have_ids_and_roles_too() -> None:
    body = json.loads(
        json.dumps(BODY).replace("functionCall", "function_call").replace("functionResponse", "function_response")
    )
    assert [item.call_ids for item in parsed(body).items] == [(), ("a", "b"), ("a", "b"), ()]
    assert [item.role for item in parsed(body).items] == ["user", "model", "tool", "user"]
    assert key(renamed(body, {"a": "x", "b": "y"})) == key(body)


# --- how a request is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_body_is_put_together_byte_for_byte(indent: int | None) -> None:
    body = json.dumps(BODY, indent=indent).encode()
    call = parsed(body)
    assert call.before and call.before + call.separator.join(item.raw for item in call.items) + call.after == body
    assert [json.loads(item.raw) for item in call.items] == BODY["contents"]
    assert [item.role for item in call.items] == ["user", "model", "tool", "user"]
    assert [json.loads(item.raw) for item in call.context] == [BODY["systemInstruction"], BODY["tools"]]
    assert {item.role for item in call.context} == {"system"}
    assert (call.model, call.choices, call.dialect) == ("gemini-test", 2, "gemini")


def test_result_beside_text_is_no_tool_result() -> None:
    body = changed(lambda body: body["contents"][2]["parts"].append({"text": "look"}))
    assert [item.role for item in parsed(body).items] == ["user", "model", "user", "user"]


@pytest.mark.parametrize("contents", [{"parts": [{"text": "hi"}]}, [], "hi", [1], 7])
def test_contents_that_are_no_list_of_contents_still_count(contents: Any) -> None:
    body = {"contents": contents}
    call = parsed(body)
    assert (call.items, call.before, call.body) == ((), b"", encoded(body))
    assert key(body) != key({"contents": "else"}) and key(body) != key({})


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"7", b'"text"', b"null", b'{"a":NaN}', b'{"contents":[}', b"\xff", b"[" * 60_000,
])  # fmt: skip
def test_body_that_no_provider_could_understand_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parsed(body)


@pytest.mark.parametrize("body", [
    b'{"contents":[{"parts":[{"text":"\\ud800"}]}]}',
    b'{"contents":[{"parts":[{"text":"hi"}]}],"x":1e999}',
    b'{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"seed":1e999}}',
])  # fmt: skip
def test_body_that_only_a_lenient_parser_takes_has_the_fingerprint_of_its_bytes(body: bytes) -> None:
    call = parsed(body)
    assert (call.body, call.items, call.model) == (body, (), "gemini-test")
    assert key(body) == key(body, STREAM)
    assert key(body) != key(body + b" ")


@pytest.mark.parametrize("body", [
    {"contents": [{"parts": 7, "role": 7}, {"parts": [7, None, "x"]}, {"parts": [{"functionCall": 7}]}]},
    {"contents": [{"parts": [{"functionResponse": {"id": 7}}]}], "tools": 7, "systemInstruction": 7},
    {"contents": [{"parts": [{"functionResponse": []}]}], "tools": [7, None], "systemInstruction": "terse"},
    {"contents": [{}], "tools": {"function_declarations": [7]}, "generationConfig": {"candidateCount": "2"}},
    {"contents": [{"parts": {"text": "one part"}}], "generationConfig": 7, "systemInstruction": {"parts": "x"}},
    {"contents": [{"parts": [{"text": 12345678901234567890123}]}], "systemInstruction": [1]},
])  # fmt: skip
def test_fields_of_wrong_types_are_read_as_far_as_they_go(body: Any) -> None:
    call = parsed(body)
    assert call.before + call.separator.join(item.raw for item in call.items) + call.after == encoded(body)
    assert volatile.masked(GEMINI, call, True).literals == ()
    assert volatile.pointer(GEMINI, call) is None


# --- volatile text ----------------------------------------------------------------------------------------------------


def later(body: Any, old: str = OLD, new: str = NEW) -> Any:
    return json.loads(json.dumps(body).replace(old, new))


def matches(one: Any, two: Any, user_text: bool = False) -> bool:
    was, is_ = volatile.masked(GEMINI, parsed(one), user_text), volatile.masked(GEMINI, parsed(two), user_text)
    return was.skeleton == is_.skeleton and mask.renaming(was.literals, is_.literals) is not None


def test_clock_in_system_text_descriptions_and_results_is_masked() -> None:
    assert key(later(BODY)) != key(BODY)
    assert matches(BODY, later(BODY))
    assert volatile.masked(GEMINI, parsed(BODY)).literals == (OLD, OLD, OLD)


@pytest.mark.parametrize("name", OTHER)
def test_masking_hides_no_other_difference(name: str) -> None:
    assert not matches(BODY, changed(OTHER[name]))


def test_user_text_is_masked_only_where_that_is_declared() -> None:
    body = changed(lambda body: body["contents"][0]["parts"][0].update(text=f"It is {OLD}."))
    moved = later(body)
    assert not matches(body, moved)
    assert matches(body, moved, user_text=True)


def test_clock_in_what_the_model_said_or_in_a_schema_is_not_masked() -> None:
    said = changed(lambda body: body["contents"][1]["parts"][0].update(text=f"at {OLD}"))
    assert not matches(said, later(said, f"at {OLD}", f"at {NEW}"), user_text=True)
    parameters = {"type": "OBJECT", "properties": {"day": {"enum": [OLD]}}}
    schema = changed(lambda body: body["tools"][0]["functionDeclarations"][1].update(parameters=parameters))
    assert not matches(schema, later(schema, f'["{OLD}"]', f'["{NEW}"]'))
    assert OLD in volatile.masked(GEMINI, parsed(schema)).plain


def test_clock_in_system_text_that_is_bare_text_is_masked() -> None:
    body = {**BODY, "systemInstruction": f"It is {OLD}."}
    assert matches(body, later(body))
    assert not matches(body, {**later(body), "systemInstruction": f"Now it is {NEW}."})


def test_pointer_leaves_out_the_results_of_calls_that_have_ids() -> None:
    pointed = volatile.pointer(GEMINI, parsed(BODY))
    assert pointed is not None and pointed.ids == ("a", "b")
    assert volatile.pointer(GEMINI, parsed(changed(OTHER["a result"]))) == pointed
    assert volatile.pointer(GEMINI, parsed(changed(OTHER["text"]))) != pointed
    assert volatile.pointer(GEMINI, parsed(renamed(BODY, {"a": "x"}))) != pointed


def test_spoken_is_what_was_said_less_ids_and_signatures() -> None:
    part = {"functionCall": {"id": "a", "name": "look", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"}
    body = {"candidates": [{"content": {"parts": [{"text": "hi"}, part]}}], "responseId": "r"}
    said = [{"parts": [{"text": "hi"}, {"functionCall": {"name": "look", "args": {"city": "Oslo"}}}]}]
    assert GEMINI.spoken(encoded(body)) == said
    assert GEMINI.spoken(b"{}") == []


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "model", "normal"), [
    ("models/m-1:generateContent", "m-1", PATH.replace("gemini-test", "m-1")),
    ("models/m-1%3AgenerateContent", "m-1", "models/m-1:generateContent"),
    ("models%2Fm-1%3AgenerateContent", "m-1", "models/m-1:generateContent"),
    ("v1beta/models/m-1:generateContent", "m-1", "models/m-1:generateContent"),
    ("v1alpha/models/m-1:streamGenerateContent", "m-1", "models/m-1:generateContent"),
    ("v1beta/tunedModels/t-1:generateContent", "tunedModels/t-1", "tunedModels/t-1:generateContent"),
    ("v1beta1/projects/p/locations/l/publishers/google/models/m-1:generateContent", "m-1",
     "models/m-1:generateContent"),
    (
        "projects/p/locations/l/endpoints/7:streamGenerateContent",
        "endpoints/7",
        "projects/p/locations/l/endpoints/7:generateContent",
    ),
    ("publishers/google/models/m-1:generateContent", "m-1", "models/m-1:generateContent"),
    ("v1beta/models/google/m-1:generateContent", "google/m-1", "models/google/m-1:generateContent"),
])  # fmt: skip
def test_path_names_the_model_and_is_the_same_under_every_version(path: str, model: str, normal: str) -> None:
    found = gemini_operation(path)
    assert found is not None and found[0] == model and found[1] in GENERATE
    call = parsed(BODY, path)
    assert (call.path, call.model) == (normal, model)
    assert GEMINI.parse("POST", call.path, call.body).path == normal


@pytest.mark.parametrize("operation", sorted(PURE))
def test_pure_operations_are_known_and_are_not_generation(operation: str) -> None:
    assert gemini_operation(f"v1beta/models/m:{operation}") == ("m", operation)
    with pytest.raises(BadRequest, match="generateContent"):
        parsed(BODY, f"models/m:{operation}")


@pytest.mark.parametrize("path", [
    "models", "models/m", "v1beta/models/m", "chat/completions", "models/ft:gpt-test:acme::id", "", "models/:x",
    "models/m:predict", "cachedContents/c:generateContent", "x/models/m:generateContent", "models/m:generateContent/x",
])  # fmt: skip
def test_other_paths_are_no_operation(path: str) -> None:
    assert gemini_operation(path) is None


# --- errors -----------------------------------------------------------------------------------------------------------


def test_error_has_a_number_a_message_and_a_status_name() -> None:
    body = json.loads(gemini_error(NotFound("no such session", detail={"step": 3})))
    error = body["error"]
    assert (error["code"], error["message"], error["status"]) == (404, "no such session", "NOT_FOUND")
    assert error["details"][0]["reason"] == "not_found"
    assert error["agentstate"] == {"step": 3}
    assert GEMINI.error(NotFound("x")) == gemini_error(NotFound("x"))


def test_error_in_a_stream_is_an_event_with_the_same_body() -> None:
    event = GEMINI.stream_error(BadRequest("no"))
    assert event == b"data: " + gemini_error(BadRequest("no")) + b"\r\n\r\n"
    assert json.loads(event[6:])["error"]["status"] == "INVALID_ARGUMENT"


def test_content_types_are_those_of_the_api() -> None:
    assert GEMINI.content_type(Shape(True)).startswith("text/event-stream")
    assert {GEMINI.content_type(shape).partition(";")[0] for shape in (Shape(), Shape(True, array=True))} == {
        "application/json"
    }


def test_stream_is_told_by_its_first_byte() -> None:
    events, array = parsed(BODY, STREAM, "alt=sse"), parsed(BODY, STREAM)
    assert GEMINI.is_stream(events, b"data: {") and GEMINI.is_stream(events, b": x")
    assert not any(GEMINI.is_stream(events, start) for start in (b"{", b"[", b"<html"))
    assert GEMINI.is_stream(array, b"[")
    assert not any(GEMINI.is_stream(array, start) for start in (b"{", b"<html", b"data: {"))
