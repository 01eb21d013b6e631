"""MCP's messages: which one is a tool call, how it is sent on, and how its outcome is told again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agentstate.core import fingerprint
from agentstate.core.effects import Hints
from agentstate.dialects import mcp
from agentstate.errors import AgentStateError, BadRequest, SessionPaused

JSON: Any = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**40), 2**40) | some.text(max_size=6),
    lambda part: some.lists(part, max_size=3) | some.dictionaries(some.text(max_size=4), part, max_size=3),
    max_leaves=6,
)


def call(ident: Any = 1, name: Any = "charge", **params: Any) -> bytes:
    asked = {"name": name, **params}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": asked}).encode()


def print_of(body: bytes) -> bytes:
    return fingerprint.of(mcp.parse("POST", "mcp/bank", body)).key


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b"\xff\xfe{\x00}\x00",
        b'\xef\xbb\xbf{"method":"tools/list","id":1}',
        b'{"method":"tools/list","method":"tools/call","id":1,"params":{"name":"x"}}',
        b'{"method":"tools/call","id":1,"params":{"name":"x","name":"y"}}',
        b'{"method":"tools/call","id":1,"params":{"name":"x","arguments":{"a":NaN}}}',
        b'{"method":"tools/call","id":1,"params":{"name":"x","arguments":{"a":1e999}}}',
        b'{"method":"tools/call","id":1,"params":{"name":"\\ud800"}}',
        b'{"method":["tools/call"],"id":1}',
        b'[{"method":"tools/call","id":1,"params":{"name":"x"}}]',
        call(ident=None),
        call(ident=True),
        call(ident={"a": 1}),
        call(name=""),
        call(name=3),
        call(arguments=[1]),
        call(arguments="{}"),
        call(_meta=[]),
        b'{"method":"tools/call","id":1}',
        b'{"method":"tools/call","params":{"name":"x"}}',
        b"[" * 100_000,
        b'{"method":"ping","id":1,"Method":"tools/call","params":{"name":"x"}}',
        b'{"id":1,"METHOD":"tools/call","params":{"name":"x"}}',
        b'[{"id":1,"method":"ping","Method":"tools/call","params":{"name":"x"}}]',
        '{"method":"ping","id":1,"param\u017f":{"name":"x"}}'.encode(),
        call(Name="drop_all"),
        call(Arguments={"to": "all"}),
    ],
)
def test_what_could_be_a_call_and_is_not_clearly_one_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        mcp.read(body)


def test_other_messages_are_told_apart_and_passed_on() -> None:
    assert mcp.read(b'{"jsonrpc":"2.0","id":"a","method":"tools/list"}').method == "tools/list"
    assert not mcp.read(b'{"jsonrpc":"2.0","id":3,"result":{}}').is_call
    assert not mcp.read(b'[{"jsonrpc":"2.0","id":3,"method":"ping"}]').is_call
    assert not mcp.read(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}').is_call


def test_a_call_shows_its_name_arguments_and_progress_token() -> None:
    message = mcp.read(call(7, arguments={"a": 1}, _meta={"progressToken": "t"}))
    assert (message.id, message.name, message.arguments, message.token) == (7, "charge", {"a": 1}, "t")
    assert not message.stateless
    assert mcp.read(call(_meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"})).stateless


def test_transport_and_spelling_do_not_change_the_question_and_everything_else_does() -> None:
    same = [
        call(1, arguments={"a": 1, "b": 2}), call("x", arguments={"b": 2, "a": 1}),
        call(arguments={"a": 1, "b": 2}, _meta={"progressToken": 9}), call(arguments={"a": 1, "b": 2}, task=None),
    ]  # fmt: skip
    assert len({print_of(body) for body in same}) == 1
    other = [
        call(arguments={"a": 1}), call(name="fail", arguments={"a": 1, "b": 2}),
        call(arguments={"a": 1, "b": 2}, requestState="s"), call(arguments={"a": 1.0, "b": 2}),
    ]  # fmt: skip
    assert len({print_of(body) for body in [*same, *other]}) == 5
    assert print_of(call()) == print_of(call(arguments={})) == print_of(call(arguments=None))


@given(some.dictionaries(some.text(max_size=4), JSON, max_size=4), some.dictionaries(some.text(max_size=4), JSON))
def test_a_call_is_sent_as_it_came_but_for_its_key(arguments: dict[str, Any], meta: dict[str, Any]) -> None:
    body = call(arguments=arguments, _meta=meta)
    sent = json.loads(mcp.sent(body, "key_1"))
    assert sent["params"].pop("_meta") == meta | {mcp.KEY_META: "key_1"}
    asked = json.loads(body)
    del asked["params"]["_meta"]
    assert sent == asked


def test_arguments_keep_their_spelling_on_the_way_to_the_server() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a": 1.50, "b":1E3}}}'
    assert b'"arguments":{"a": 1.50, "b":1E3}' in mcp.sent(body, "k")


def test_edited_arguments_take_the_place_of_the_proposed_ones() -> None:
    sent = json.loads(mcp.sent(call(arguments={"a": 1}), "k", '{"a": 2}'))
    assert sent["params"]["arguments"] == {"a": 2}


def test_headers_repeat_the_arguments_that_the_schema_names() -> None:
    schema = {
        "properties": {
            "city": {"type": "string", "x-mcp-header": "City"},
            "deep": {"properties": {"flag": {"x-mcp-header": "Flag"}, "other": {"type": "string"}}},
            "gone": {"x-mcp-header": "Gone"},
        }
    }
    arguments = {"city": "Zürich", "deep": {"flag": True, "other": "x"}}
    assert mcp.param_headers(json.dumps(schema), arguments) == [
        ("mcp-param-city", "=?base64?WsO8cmljaA==?="),
        ("mcp-param-flag", "true"),
    ]
    assert mcp.param_headers("", arguments) == []


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"content": [ ]}}', b'{"result":{"content": [ ]}}'),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', b'{"error":{"code":1}}'),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":1}}', b'{"error":{"code":1}}'),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":"1","result":{}}', None),
        (b'{"jsonrpc":"2.0","id":2,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/progress"}', None),
    ],
)
def test_an_answer_is_the_one_to_the_request_and_no_other(answer: bytes, kept: bytes | None) -> None:
    assert mcp.outcome_of(answer, 1) == kept


@pytest.mark.parametrize("answer", [b"<html>", b'{"id":1,"result":7}', b"7"])
def test_what_is_no_message_is_no_answer(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        mcp.outcome_of(answer, 1)


@given(some.integers() | some.text(max_size=5), some.dictionaries(some.text(max_size=4), JSON, max_size=3))
def test_a_kept_outcome_is_told_under_the_id_of_whoever_asks(ident: Any, result: dict[str, Any]) -> None:
    message = mcp.read(call(ident))
    told = json.loads(mcp.response(message, json.dumps({"result": result}).encode()))
    assert told == {"jsonrpc": "2.0", "id": ident, "result": result}


def test_a_result_recorded_with_a_session_names_its_type_for_a_client_without() -> None:
    stateless = mcp.read(call(_meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}))
    kept = b'{"result":{"content":[]}}'
    assert json.loads(mcp.response(stateless, kept))["result"] == {"content": [], "resultType": "complete"}
    assert json.loads(mcp.response(mcp.read(call()), kept))["result"] == {"content": []}


def test_a_refusal_is_a_result_that_a_model_can_read() -> None:
    told = json.loads(mcp.refusal("no"))["result"]
    assert (told["isError"], told["content"]) == (True, [{"type": "text", "text": "no"}])
    assert mcp.failed(mcp.refusal("no"))
    assert mcp.failed(b'{"error":{"code":1}}')
    assert not mcp.failed(b'{"result":{"content":[]}}')


@pytest.mark.parametrize(
    ("value", "output", "structured", "error"),
    [
        ("done", None, None, False),
        ({"a": 1}, None, {"a": 1}, False),
        ("done", {"properties": {"result": {}}}, {"result": "done"}, False),
        ("done", {"properties": {"other": {}}}, None, True),
        (None, {"properties": {"result": {}}}, None, True),
        (None, None, None, False),
    ],
)
def test_what_a_person_says_is_a_result_that_the_client_takes(
    value: Any, output: dict[str, Any] | None, structured: Any, error: bool
) -> None:
    result = json.loads(mcp.of_person("charge", value, output))["result"]
    assert (result.get("structuredContent"), result["isError"]) == (structured, error)
    assert result["content"][0]["text"]


def test_a_whole_result_of_a_person_is_given_as_it_is() -> None:
    whole = {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}
    assert json.loads(mcp.of_person("charge", whole)) == {"result": whole}


def test_errors_of_ours_are_errors_of_the_protocol() -> None:
    told = json.loads(mcp.error(4, SessionPaused("paused")))
    assert (told["id"], told["error"]["code"], told["error"]["data"]["code"]) == (4, -32600, "session_paused")
    assert json.loads(mcp.error(None, AgentStateError("x")))["error"]["code"] == -32603


@pytest.mark.parametrize("streamed", [False, True])
def test_a_list_of_tools_tells_of_hints_and_schemas(streamed: bool) -> None:
    tools = [
        {"name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True, "idempotentHint": "x"}},
        {"name": "b", "outputSchema": {"type": "object"}},
        {"no": "name"},
    ]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}).encode()
    found = list(mcp.offered(b": hi\n\n" + mcp.event(body) if streamed else body, streamed))
    assert [tool.name for tool in found] == ["a", "b"]
    assert found[0].hints == Hints(read_only=True)
    assert (found[0].schema, found[1].output) == ('{"type": "object"}', {"type": "object"})
    assert list(mcp.offered(b"<html>", streamed)) == []
