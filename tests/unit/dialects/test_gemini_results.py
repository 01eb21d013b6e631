"""The tools that a Gemini request offers, the results it carries, and the request that goes on from a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Call, OfferedTool, Shape, ToolResult
from agentstate.dialects.gemini import Gemini
from agentstate.dialects.gemini_results import json_schema
from tests.unit.core.profile import examples
from tests.unit.dialects.test_gemini_amend import EVENTS, PLAIN, SHAPES, verdict_of, with_calls
from tests.unit.dialects.test_gemini_answer import PARTIAL, WHOLE_ARGUMENTS, call, chunk, events, text
from tests.unit.dialects.test_gemini_traffic import generated, parse

GEMINI = Gemini()


def parsed(body: Any, operation: str = "generateContent") -> Call:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return GEMINI.parse("POST", f"models/gemini-test-1:{operation}", raw)


HI = {"role": "user", "parts": [text("hi")]}
CALLED = {"role": "model", "parts": [call("mail", "a")]}


def answer(*results: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"functionResponse": result} for result in results]}


# --- tools ------------------------------------------------------------------------------------------------------------


def test_declared_functions_are_offered_in_order_and_the_providers_own_tools_are_not() -> None:
    body = (b'{"contents":[],"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"mail",'
            b'"parametersJsonSchema": {"type":"object", "x":1.50}},{"name":"now"}]},{"codeExecution":{}},'
            b'{"function_declarations":[{"name":"look","parameters":{"type":"object"}},'
            b'{"name":"odd","parameters_json_schema":{}}]}]}')  # fmt: skip
    expected = (
        OfferedTool("mail", '{"type":"object", "x":1.50}'),
        OfferedTool("now"),
        OfferedTool("look", '{"type":"object"}'),
        OfferedTool("odd", "{}"),
    )
    assert GEMINI.offered(parsed(body)) == expected
    one = b'{"contents":[],"tools":{"functionDeclarations":[{"name":"now"}]}}'
    assert GEMINI.offered(parsed(one)) == (OfferedTool("now"),)
    assert GEMINI.offered(parsed(b'{"contents":[]}')) == ()


def test_schema_of_googles_kind_is_offered_as_json_schema() -> None:
    own = {
        "type": "OBJECT", "required": ["to"], "propertyOrdering": ["to"], "minProperties": "1",
        "properties": {
            "type": {"type": "STRING", "enum": ["A", "B"], "nullable": True},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER", "minimum": 1}, "max_items": "7"},
            "any": {"any_of": [{"type": "NUMBER"}, {"type": "BOOLEAN"}], "nullable": True},
            "nullable": {"type": "TYPE_UNSPECIFIED", "description": "OBJECT"},
        },
    }  # fmt: skip
    expected = {
        "type": "object", "required": ["to"], "propertyOrdering": ["to"], "minProperties": 1,
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["A", "B", None]},
            "list": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 7},
            "any": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
            "nullable": {"description": "OBJECT"},
        },
    }  # fmt: skip
    assert json_schema(own) == expected
    tools = [{"functionDeclarations": [{"name": "mail", "parameters": own}]}]
    [offered] = GEMINI.offered(parsed({"contents": [HI], "tools": tools}))
    assert json.loads(offered.schema) == expected
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(json.loads(offered.schema))
    assert validator.is_valid({"type": None, "list": [1], "to": "x"})
    assert not validator.is_valid({"type": "C", "to": "x"}) and not validator.is_valid({"list": [0], "to": "x"})


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_those_after_the_last_answer() -> None:
    now = answer(
        {"id": "a", "name": "mail", "response": {"result": "rain"}},
        {"name": "mail", "response": {"output": "é"}},
        {"id": "c", "name": "mail", "response": {"error": "no"}},
        {"id": "d", "name": "mail", "response": {"error": {"code": 7}}},
        {"id": "e", "name": "mail", "response": {"output": {"x": 1}}},
        {"id": "f", "name": "mail"},
    )
    now["parts"].append(text("go on"))
    contents = [HI, CALLED, answer({"id": "old", "name": "mail", "response": {}}), CALLED, now]
    expected = (
        ToolResult("a", '{"result": "rain"}'),
        ToolResult("", "é"),
        ToolResult("c", "no", True),
        ToolResult("d", '{"code": 7}', True),
        ToolResult("e", '{"output": {"x": 1}}'),
        ToolResult("f", ""),
    )
    assert GEMINI.results(parsed({"contents": contents})) == expected
    assert GEMINI.results(parsed({"contents": [*contents, {"role": "model", "parts": [text("{")]}]})) == expected
    assert GEMINI.results(parsed({"contents": [*contents, CALLED]})) == GEMINI.results(parsed({"contents": [HI]})) == ()
    odd = {"role": "function", "parts": [{"function_response": {"id": "a", "name": "x", "response": {"output": "y"}}}]}
    assert GEMINI.results(parsed({"contents": [HI, CALLED, odd]})) == (ToolResult("a", "y"),)


def test_results_of_a_body_that_only_a_lenient_parser_takes_are_read() -> None:
    whole = parsed({"contents": [CALLED, answer({"id": "a", "name": "mail", "response": {"output": "\ud800"}})]})
    assert not whole.items
    assert GEMINI.results(whole) == (ToolResult("a", "\ud800"),)


# --- the request that goes on -----------------------------------------------------------------------------------------


def went_on(whole: Any, results: list[ToolResult]) -> tuple[Any, tuple[ToolResult, ...]]:
    """(the two new contents, the results that the new request carries)."""
    body = json.dumps({"contents": [HI]}).encode()
    new = GEMINI.continued(parsed(body), PLAIN, json.dumps(whole).encode(), results)
    return json.loads(new)["contents"][1:], GEMINI.results(parsed(new))


def test_request_that_goes_on_repeats_every_byte_and_adds_answer_and_results() -> None:
    body = (b'{"generationConfig":{"temperature":0.50}, "contents" : [{"role":"user","parts":[{"text":"hi"}]} , '
            b'{"parts":[{"text":"x"}]}],\n"tools":[]}')  # fmt: skip
    thought = {"text": "hm", "thought": True, "thoughtSignature": "c2ln"}
    mail, look = {**call("mail", "a", to="é"), "thoughtSignature": "b3du"}, call("look", "b", n=1)
    told = [ToolResult("b", "refused: no", True), ToolResult("a", '{"x": 1.50}')]
    chunks = [chunk(thought), chunk(text("let me see"), mail), chunk(look), chunk(text(""), finish="STOP")]
    for shape in SHAPES:
        new = GEMINI.continued(parsed(body), shape, GEMINI.convert(EVENTS, shape, events(chunks)), told)
        start = body.index(b"],\n")
        assert new.startswith(body[:start]) and new.endswith(body[start:])
        assert new[start:].startswith(b' , {"') and b'"response":{"x": 1.50}' in new
        said, answered = json.loads(new)["contents"][2:]
        assert said == {"role": "model", "parts": [thought, text("let me see"), mail, look]}
        assert answered == answer(
            {"id": "b", "name": "look", "response": {"error": "refused: no"}},
            {"id": "a", "name": "mail", "response": {"x": 1.5}},
        )
        assert GEMINI.results(parsed(new)) == tuple(told)


def test_calls_without_ids_are_answered_in_their_order() -> None:
    whole = chunk(call("mail"), call("look"), finish="STOP")
    (_, answered), back = went_on(whole, [ToolResult("", "no"), ToolResult("", "neither")])
    assert answered == answer(
        {"name": "mail", "response": {"output": "no"}}, {"name": "look", "response": {"output": "neither"}}
    )
    assert back == (ToolResult("", "no"), ToolResult("", "neither"))


def test_first_candidate_that_calls_goes_on_and_results_of_the_others_are_left_out() -> None:
    whole = chunk(text("a"), finish="STOP")
    whole["candidates"] += [
        {"index": index, "content": {"parts": [call("mail", f"id-{index}")]}, "finishReason": "STOP"}
        for index in (1, 2)
    ]
    (said, answered), back = went_on(whole, [ToolResult("id-2", "x"), ToolResult("id-1", "y")])
    assert said == {"parts": [call("mail", "id-1")], "role": "model"}
    assert answered == answer({"id": "id-1", "name": "mail", "response": {"output": "y"}})
    assert back == (ToolResult("id-1", "y"),)


def test_arguments_that_came_in_pieces_go_back_as_a_whole() -> None:
    body = json.dumps({"contents": [HI]}).encode()
    stream = events([*PARTIAL, chunk(finish="STOP")])
    calls = verdict_of(EVENTS, stream)[1].calls
    new = GEMINI.continued(parsed(body), EVENTS, stream, [ToolResult(one.call_id, "x") for one in calls])
    parts = json.loads(new)["contents"][1]["parts"]
    assert parts[0]["functionCall"] == {"name": "look", "args": WHOLE_ARGUMENTS}


_objects = st.dictionaries(
    st.sampled_from(["error", "output", "result", "é"]), st.sampled_from(["x", 1, None, {"a": 1}])
)


@examples(200)
@given(
    st.one_of(
        st.text(), _objects.map(json.dumps), _objects.map(lambda one: f" {json.dumps(one)}\n"),
        st.sampled_from(["", "[1]", "{", '"x"', "1e999", '{"a":1e999}', '{"output":"x","output":"y"}']),
    ),
    st.booleans(),
)  # fmt: skip
def test_any_result_is_read_as_it_was_written(content: str, failed: bool) -> None:
    (_, answered), back = went_on(chunk(call("mail", "a"), finish="STOP"), [ToolResult("a", content, failed)])
    assert back == (ToolResult("a", content, failed),)
    assert isinstance(answered["parts"][0]["functionResponse"]["response"], dict)


def test_results_that_are_not_those_of_the_answer_are_a_value_error() -> None:
    whole = chunk(call("mail", "a"), call("look"), finish="STOP")
    for wrong in ([], [ToolResult("a", "")], [ToolResult("a", ""), ToolResult("b", "")]):
        with pytest.raises(ValueError, match="one result for each call"):
            went_on(whole, wrong)
    with pytest.raises(ValueError, match="one result for each call"):
        went_on(chunk(text("a"), finish="STOP"), [])


# --- recorded conversations -------------------------------------------------------------------------------------------


def test_recorded_conversations_go_on_from_their_answers() -> None:
    count = 0
    for exchange, shape, body in with_calls():
        question = parse(GEMINI, exchange)
        calls = verdict_of(shape, body)[1].calls
        told = tuple(ToolResult(one.call_id, f"refused {at}", at % 2 == 0) for at, one in enumerate(calls))
        new = GEMINI.continued(question, shape, body, told)
        follow = GEMINI.parse("POST", exchange.path, new, exchange.query)
        assert [item.raw for item in follow.items[:-2]] == [item.raw for item in question.items], exchange.id
        assert (follow.frame, follow.context, follow.shape) == (question.frame, question.context, question.shape)
        assert GEMINI.results(follow) == told, exchange.id
        content = json.loads(GEMINI.convert(shape, PLAIN, body))["candidates"][0]["content"]
        said = json.loads(follow.items[-2].raw)
        assert said["parts"] == [part for part in content["parts"] if part != text("")], exchange.id
        count += 1
    assert count > 300


def test_recorded_requests_carry_results_for_calls_and_offer_functions() -> None:
    given_back = offering = 0
    for exchange in generated():
        question = parse(GEMINI, exchange)
        tools = exchange.asked.get("tools") or []
        own = [
            declared["name"]
            for tool in (tools if isinstance(tools, list) else [tools])
            for name in ("functionDeclarations", "function_declarations")
            for declared in tool.get(name) or ()
        ]
        assert [one.name for one in GEMINI.offered(question)] == own, exchange.id
        assert not any('"OBJECT"' in one.schema for one in GEMINI.offered(question)), exchange.id
        offering += bool(own)
        last = json.dumps(exchange.asked["contents"][-1])
        found = GEMINI.results(question)
        assert len(found) >= last.count('"functionResponse"') + last.count('"function_response"'), exchange.id
        given_back += len(found)
    assert given_back > 80 and offering > 100


def test_shape_that_is_asked_for_stays_that_of_the_question() -> None:
    body = json.dumps({"contents": [HI]}).encode()
    whole = json.dumps(chunk(call("mail", "a"), finish="STOP")).encode()
    for operation, shape in (("generateContent", Shape()), ("streamGenerateContent", Shape(True, array=True))):
        question = parsed(body, operation)
        new = GEMINI.continued(question, PLAIN, whole, [ToolResult("a", "x")])
        assert parsed(new, operation).shape == shape == question.shape
